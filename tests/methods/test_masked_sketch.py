"""The federation's sketch under masks: what it is, what the server sees, and what happens when somebody drops out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from small_worlds import SCHEDULE, Tapped, federation
from torch import Tensor

from fedforget.errors import FedForgetError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.masking import fraction_bits
from fedforget.federation.rounds import train
from fedforget.federation.tasks import Reply, Task
from fedforget.methods import Forgetting, forget
from fedforget.methods.fedaf.extensions.masked_sketch import (
    PUBLIC_KEY,
    SECRET_KEY,
    BuildMaskedSketch,
    OfferKey,
    masked_sketch_seed,
)
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.settings import FullSettings
from fedforget.methods.fedaf.sketch import Jacobian, build_sketch, hash_buckets, hash_signs
from fedforget.methods.fedaf.sketching import SKETCH_KEY, BuildSketch
from fedforget.params import State, digest, state_bytes, state_of, weight_count
from fedforget.requests import ErasureRequest

CLASSES, SIZES = 3, (90, 110, 70, 80)
CLASS = ErasureRequest.of_class(0, 1)
ROWS = 12
MASKED: dict[str, Any] = {
    "sketch_scope": "federation", "sketch_masked": True, "sketch_rows": ROWS, "sketch_samples": None,
    "memory": "uniform", "recovery_rounds": 0, "stop_below": None,
}  # fmt: skip


class Asked(Tapped):
    """Writes down what went out and came back; replies of `lost` to a masked sketch never come."""

    lost: frozenset[int] = frozenset()

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if not (isinstance(task, BuildMaskedSketch) and reply.client in self.lost):
                yield reply

    def replies(self, kind: type[Task]) -> list[Reply]:
        return [reply for task, _, reply in self.log if isinstance(task, kind)]


def make(sizes: tuple[int, ...] = SIZES, kind: type[Asked] = Asked) -> tuple[Asked, State]:
    world = federation(sizes, kind=kind)
    before = train(world, state_of(world.model), SCHEDULE)
    world.log.clear()
    return world, before


def serve(world: LocalFederation, before: State, request: ErasureRequest = CLASS, **more: Any) -> Forgetting:
    return forget(world, before, request, SCHEDULE, "overwrite", **{**MASKED, **more})


def seed_of(client: int, *requests: ErasureRequest, seed: int = SCHEDULE.seed) -> int:
    task = BuildMaskedSketch(seed=seed, threads=1, requests=requests, settings=FullSettings())
    return masked_sketch_seed(task, client)


def plain_sketches(world: Asked, before: State, request: ErasureRequest = CLASS) -> dict[int, Tensor]:
    """J^_k of every client that has something left, in the open."""
    world.model.load_state_dict(before)
    made = {}
    for k in world.clients:
        client = world.client(k)
        samples = client.retained([request])
        if len(samples):
            j = Jacobian(world.model, samples, client.inputs, seed=seed_of(k, request))
            made[k] = build_sketch(j, rows=ROWS).rows
    return made


def merged(world: Asked) -> Tensor:
    """What the target client got."""
    return next(state[SKETCH_KEY] for task, state, _ in world.log if isinstance(task, Forget))


def test_the_merged_sketch_is_the_sum_of_everybodys():
    world, before = make()
    serve(world, before)
    sketches = plain_sketches(world, before)
    exact = sum(rows.double() for rows in sketches.values())
    got = merged(world)
    assert (got.dtype, tuple(got.shape)) == (torch.float32, (ROWS, weight_count(world.model)))
    assert float(exact.abs().max()) > 0.1
    assert float((got.double() - exact).abs().max()) <= 4 * 2.0 ** -(fraction_bits(4) + 1) + 2**-24 * float(
        exact.abs().max()
    )
    (counted,) = {int(state[f"{SKETCH_KEY}.count"]) for task, state, _ in world.log if isinstance(task, Forget)}
    assert counted == world.check([CLASS])[0].retained + sum(SIZES[1:])


def test_the_same_bits_whatever_the_keys_are():
    results = []
    keys = set()
    for _ in range(2):
        world, before = make()
        results.append(serve(world, before))
        keys |= {bytes(reply.tensors[PUBLIC_KEY].tolist()) for reply in world.replies(OfferKey)}
    assert len(keys) == 8, "no key was used twice"
    assert digest(results[0].state) == digest(results[1].state)


def test_it_is_a_sketch_of_the_union_even_where_clients_number_their_samples_alike():
    """E ||J^ theta||^2 = ||J theta||^2 over the seeds. With one seed for all, the rows of one id would be added up
    before they are squared."""
    rows = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)) + 0.5
    ids, theta = torch.arange(20), torch.tensor([1.0, 2.0, -0.5])
    exact = 3 * float((rows @ theta).square().sum())

    def estimate(seeds: list[int]) -> float:
        sketch = torch.zeros(5, 3)
        for seed in seeds:
            sketch.index_add_(0, hash_buckets(ids, 5, seed), hash_signs(ids, seed)[:, None] * rows)
        return float((sketch @ theta).square().sum())

    ours = [estimate([seed_of(k, CLASS, seed=seed) for k in (0, 1, 2)]) for seed in range(600)]
    shared = [estimate([seed] * 3) for seed in range(600)]
    assert abs(np.mean(ours) - exact) < 4 * np.std(ours) / 600**0.5
    assert np.mean(shared) == pytest.approx(3 * exact, rel=0.1)


# What the server sees.


def test_the_server_sees_keys_counts_and_noise():
    world, before = make()
    serve(world, before)
    kinds = [type(task) for task, _, _ in world.log]
    assert kinds == [*[OfferKey] * 4, *[BuildMaskedSketch] * 4, Forget]
    for reply in world.replies(OfferKey):
        assert reply.numbers.keys() == {"count"}
        assert reply.tensors.keys() == {PUBLIC_KEY}
        assert (reply.tensors[PUBLIC_KEY].dtype, len(reply.tensors[PUBLIC_KEY])) == (torch.uint8, 32)
    sketches = plain_sketches(world, before)
    for reply in world.replies(BuildMaskedSketch):
        assert reply.numbers == {"count": float(len(world.client(reply.client).retained([CLASS])))}
        (seen,) = reply.tensors.values()
        n = seen.numel()
        counts = np.bincount(seen.numpy().view(np.uint8).reshape(n, 8).ravel(), minlength=256)
        assert ((counts - 8 * n / 256) ** 2 / (8 * n / 256)).sum() < 400
        own = sketches[reply.client].flatten()
        assert abs(np.corrcoef(seen.double().flatten().numpy(), own.numpy())[0, 1]) < 6 / n**0.5
        silent = (own == 0).numpy()
        assert silent.any(), "a dead unit's gradients are zeros"
        assert len(seen.flatten()[silent].unique()) == silent.sum(), "which are not to be seen"


def test_two_sums_at_one_model_do_not_differ_by_what_was_withdrawn_between_them():
    """Same model, same seed, all samples: with the same hashes the difference would be the second target's sketch."""
    world, before = make()
    sums = []
    for served in ((), (CLASS,)):
        world.log.clear()
        request = ErasureRequest.of_class(1, 2) if served else CLASS
        forget(world, before, request, SCHEDULE, "overwrite", served=served, **MASKED)
        sums.append(merged(world))
    client = world.client(1)
    world.model.load_state_dict(before)
    for requests in ((CLASS,), (CLASS, ErasureRequest.of_class(1, 2))):
        withdrawn = client.target([ErasureRequest.of_class(1, 2)])
        j = Jacobian(world.model, withdrawn, client.inputs, seed=seed_of(1, *requests))
        target = build_sketch(j, rows=ROWS).rows
        left = (sums[0] - sums[1] - target).norm() / (sums[0] - sums[1]).norm()
        assert float(left) > 0.5


def test_no_row_has_fewer_samples_than_rows_that_leave_a_client_must():
    world, before = make()
    serve(world, before, sketch_rows=75)
    total = world.check([CLASS])[0].retained + sum(SIZES[1:])
    assert len(merged(world)) == total // 8 < 75


def test_the_bill_has_both_messages():
    world, before = make()
    bill = serve(world, before).cost.bytes
    m = weight_count(world.model)
    model = state_bytes(before)
    keys = 4 * (32 + 8)
    masks = 4 * (model + 4 * 32 + ROWS * m * 8 + 8)
    (reply,) = world.replies(Forget)
    curves = sum(len(curve) for curve in reply.curves.values())
    forgetting = 2 * model + ROWS * m * 4 + 8 + 8 * (len(reply.numbers) + curves)
    assert bill == keys + masks + forgetting


def test_by_default_nothing_is_masked():
    assert not FullSettings().sketch_masked
    world, before = make()
    serve(world, before, sketch_masked=False)
    assert len(world.replies(BuildSketch)) == 4
    assert not world.replies(OfferKey)


def test_the_clients_own_sketch_needs_no_mask():
    """`auto`: the client keeps something, so its own sketch is enough, and stays there."""
    world, before = make()
    serve(world, before, sketch_scope="auto")
    assert not world.replies(OfferKey)


# Keys serve once.


def test_a_key_is_used_up_and_a_second_question_is_refused():
    world, before = make()
    serve(world, before)
    assert all(SECRET_KEY not in world.client(k).kept for k in world.clients)
    task, state = next((task, state) for task, state, _ in world.log if isinstance(task, BuildMaskedSketch))
    with pytest.raises(InputError, match="Client 0 does not have the secret key of this masked sum"):
        list(world.ask(task, state))


def test_a_key_that_is_not_its_own_is_used_up_too():
    world, before = make()
    serve(world, before)
    task, state = next((task, state) for task, state, _ in world.log if isinstance(task, BuildMaskedSketch))
    offer = next(task for task, _, _ in world.log if isinstance(task, OfferKey))
    list(world.ask(offer, {}, [2]))
    with pytest.raises(InputError, match="Client 2 does not have the secret key"):
        list(world.ask(task, state, [2]))
    assert SECRET_KEY not in world.client(2).kept


def test_a_client_does_not_mask_for_fewer_than_three_keys():
    world, before = make()
    serve(world, before)
    task = next(task for task, _, _ in world.log if isinstance(task, BuildMaskedSketch))
    offer = next(task for task, _, _ in world.log if isinstance(task, OfferKey))
    keys = {f"{PUBLIC_KEY}{r.client}": r.tensors[PUBLIC_KEY] for r in world.ask(offer, {}, [0, 1])}
    with pytest.raises(InputError, match="at least 3 clients"):
        list(world.ask(task, {**before, **keys, f"{PUBLIC_KEY}2": keys[f"{PUBLIC_KEY}1"]}, [0]))


# Who drops out, and who is too few.


def test_a_client_that_drops_out_between_the_two_messages():
    world, before = make()
    untouched = digest(before)
    world.lost = frozenset({2})
    with pytest.raises(FedForgetError) as told:
        serve(world, before)
    assert str(told.value) == (
        "Client 2 did not send its masked sketch, so the others' masks do not cancel; nothing has changed, "
        "try the request again."
    )
    assert digest(before) == untouched
    world.lost = frozenset()
    again = serve(world, before)
    undisturbed, _ = make()
    assert digest(again.state) == digest(serve(undisturbed, before).state)


def test_a_federation_of_two_is_refused_before_anything_is_asked():
    world, before = make(SIZES[:2])
    with pytest.raises(InputError, match="at least 3 clients that have something to add, but there are 2"):
        serve(world, before)
    assert world.log == []


def test_a_client_that_leaves_three_takes_its_masks_from_too_few():
    world, before = make(SIZES[:3])
    with pytest.raises(InputError, match="there are 2"):
        serve(world, before, ErasureRequest.of_client(0), sketch_scope="auto")
    assert world.log == []


def test_a_whole_client_of_four_gets_the_sum_of_the_others():
    world, before = make()
    serve(world, before, ErasureRequest.of_client(0), sketch_scope="auto")
    assert [reply.client for reply in world.replies(BuildMaskedSketch)] == [1, 2, 3]
    exact = sum(rows.double() for rows in plain_sketches(world, before, ErasureRequest.of_client(0)).values())
    assert float((merged(world).double() - exact).abs().max()) <= 3 * 2.0 ** -(fraction_bits(3) + 1) + 2**-24 * float(
        exact.abs().max()
    )


def test_a_client_with_nothing_left_is_passed_over():
    world, before = make()
    requests = [ErasureRequest.of_class(0, label) for label in range(CLASSES)]
    forget(world, before, requests, SCHEDULE, "overwrite", **MASKED)
    assert [reply.numbers["count"] for reply in world.replies(OfferKey)] == [0, *SIZES[1:]]
    assert [reply.client for reply in world.replies(BuildMaskedSketch)] == [1, 2, 3]


def test_too_few_that_have_anything_left():
    world, before = make(SIZES[:3])
    requests = [ErasureRequest.of_class(0, label) for label in range(CLASSES)]
    with pytest.raises(InputError, match="there are 2"):
        forget(world, before, requests, SCHEDULE, "overwrite", **MASKED)
    assert world.log == [], "before anything is asked, so that nothing is withdrawn either"


def test_an_old_key_goes_with_the_next_offer():
    world, before = make(SIZES[:3])
    client = world.client(0)
    client.kept[SECRET_KEY] = "of a request that failed"
    everything = tuple(ErasureRequest.of_class(0, label) for label in range(CLASSES))
    settings = FullSettings(**MASKED).for_network(10)
    OfferKey(seed=0, threads=1, requests=everything, settings=settings).run(before, client)
    assert SECRET_KEY not in client.kept


def test_a_reply_of_another_shape_is_named():
    class Bent(Asked):
        def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
            for reply in super().ask(task, state, to):
                if isinstance(task, BuildMaskedSketch) and reply.client == 1:
                    reply.tensors[SKETCH_KEY] = reply.tensors[SKETCH_KEY][:-1]
                if isinstance(task, OfferKey) and reply.client == 1 and self.keyless:
                    reply.tensors.clear()
                yield reply

        keyless = False

    bent, before = make(kind=Bent)
    with pytest.raises(FedForgetError, match=r"Client 1 sent a masked sketch that is not int64\[12, "):
        serve(bent, before)
    Bent.keyless = True
    with pytest.raises(FedForgetError, match="Client 1 sent no public key"):
        serve(bent, before)


@pytest.mark.parametrize("setting", [{"sketch_scope": "client"}, {"preserver": "diagonal"}, {"preserver": "pca"}])
def test_masks_without_a_sketch_of_everybodys(setting: dict[str, Any]):
    with pytest.raises(InputError, match="'sketch_masked' is about everybody's sketch"):
        FullSettings(**{"sketch_masked": True, **setting})


def test_a_sketch_in_bfloat16():
    world, before = make()
    serve(world, before, sketch_dtype="bfloat16")
    assert merged(world).dtype == torch.bfloat16
