"""FedAvg's server step against number-by-number arithmetic; counters, refusals, and memory that does not grow."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.errors import DivergedError, FedForgetError
from fedforget.federation.aggregation import WeightedMean, average, scaled_towards, without_return
from fedforget.federation.tasks import Reply
from fedforget.params import State


def random_state(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 2, generator=generator),
        "running_var": torch.rand(4, generator=generator),
        "half": torch.randn(2, generator=generator).to(torch.bfloat16),
        "num_batches_tracked": torch.tensor(10 * seed + 3),
    }


def reply(client: int, state: State, samples: float) -> Reply:
    return Reply(client, tensors=state, numbers={"samples": samples})


@settings(max_examples=40, deadline=None)
@given(samples=st.lists(st.integers(1, 60_000), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_average_equals_number_by_number_arithmetic(samples, seed):
    states = [random_state(seed + k) for k in range(len(samples))]
    got = average(reply(k, s, float(n)) for k, (s, n) in enumerate(zip(states, samples, strict=True)))
    expected = slow_twins.federated_average(states, samples)
    assert list(got) == list(states[0])
    for name, numbers in expected.items():
        assert got[name].dtype == states[0][name].dtype
        assert got[name].shape == states[0][name].shape
        rounding = 2**-8 if name == "half" else 1e-6
        assert got[name].flatten().tolist() == pytest.approx(numbers, rel=rounding, abs=rounding)


def test_order_of_the_clients_does_not_matter():
    replies = [reply(k, random_state(k), float(n)) for k, n in enumerate([5, 1000, 33, 7])]
    forwards, backwards = average(replies), average(reversed(replies))
    for name in forwards:
        assert torch.allclose(forwards[name].double(), backwards[name].double(), rtol=1e-6)


def test_counters_take_the_largest_and_stay_integers():
    states = [{"n": torch.tensor([3, 9]), "w": torch.ones(1)}, {"n": torch.tensor([8, 2]), "w": torch.ones(1)}]
    got = average(reply(k, s, 5.0) for k, s in enumerate(states))
    assert got["n"].dtype == torch.int64
    assert got["n"].tolist() == [8, 9]
    assert states[0]["n"].tolist() == [3, 9], "the clients' own are not touched"


def test_equal_clients_give_the_same_model():
    state = random_state(1)
    got = average(reply(k, state, n) for k, n in enumerate([1.0, 3.0, 7.0]))
    assert all(torch.equal(got[name], state[name]) for name in state)


def test_the_weights_sum_to_the_samples_seen():
    mean = WeightedMean()
    for n in (4.0, 6.0):
        mean.add(random_state(0), n)
    assert mean.weight == 10.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_is_named_by_client_and_tensor(bad):
    broken = random_state(2)
    broken["running_var"][1] = bad
    with pytest.raises(DivergedError, match=r"client 7 sent a 'running_var' that is not finite\.$"):
        average([reply(3, random_state(1), 5.0), reply(7, broken, 5.0)])


def test_replies_without_samples_are_skipped():
    """A client that had nothing to train on sends no tensors, or anything at all."""
    state = random_state(1)
    nothing, nonsense = reply(0, {}, 0.0), reply(2, {"weight": torch.full((3, 2), float("nan"))}, 0.0)
    got = average([nothing, reply(1, state, 4.0), nonsense])
    assert all(torch.equal(got[name], state[name]) for name in state)


@pytest.mark.parametrize("replies", [[], [reply(0, {}, 0.0), reply(1, {}, 0.0)]])
def test_nothing_to_average_is_an_error(replies):
    with pytest.raises(FedForgetError, match="nothing to average"):
        average(replies)


@pytest.mark.parametrize(
    "other", [{"a": torch.ones(3)}, {"a": torch.ones(3), "b": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(3)}]
)
def test_models_of_different_shape_are_not_averaged(other):
    """A missing tensor would count as zero, and a small one would be stretched, without a word."""
    with pytest.raises(FedForgetError, match="do not have the same tensors"):
        average([reply(0, {"a": torch.ones(3), "b": torch.ones(3)}, 1.0), reply(1, other, 1.0)])


def test_memory_does_not_grow_with_the_clients():
    """Replies are taken one at a time: when client k answers, the answers before k - 1 are gone."""
    alive: list[weakref.ref[Reply]] = []
    most = 0

    def replies() -> Iterator[Reply]:
        nonlocal most
        for k in range(20):
            most = max(most, sum(ref() is not None for ref in alive))
            answer = reply(k, random_state(k), 1.0)
            alive.append(weakref.ref(answer))
            yield answer
            del answer

    average(replies())
    assert most <= 1
    assert len(alive) == 20


def test_a_scaled_model_averaged_with_idle_peers_is_the_model_itself():
    anchor, moved = random_state(1), random_state(5)
    own, others = 300.0, 1700.0
    sent = scaled_towards(anchor, moved, (own + others) / own)
    got = average([reply(0, sent, own), reply(1, anchor, 1000.0), reply(2, anchor, 700.0)])
    for name in ("weight", "running_var"):
        assert torch.allclose(got[name], moved[name], atol=1e-5)
    assert sent["num_batches_tracked"] == moved["num_batches_tracked"]
    unscaled = average([reply(0, moved, own), reply(1, anchor, others)])
    share = (unscaled["weight"] - anchor["weight"]) / (moved["weight"] - anchor["weight"])
    assert torch.allclose(share, torch.full_like(share, 0.15), atol=1e-4), "unscaled it moves w_k of the way"


def test_scaling_leaves_its_arguments_alone():
    anchor, moved = random_state(1), random_state(5)
    before = {name: t.clone() for name, t in moved.items()}
    same = scaled_towards(anchor, moved, 1.0)
    same["num_batches_tracked"] += 1
    assert all(torch.equal(moved[name], before[name]) for name in moved)
    assert torch.allclose(same["weight"], moved["weight"])


# The guard of a recovery round.


def test_a_step_loses_exactly_its_way_back():
    original = {"a": torch.tensor([0.0, 0.0]), "b": torch.tensor([[0.0]]), "count": torch.tensor(1)}
    forgotten = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]]), "count": torch.tensor(2)}
    # u = (-1, 7 | -2) has <u, d> = -11 over <d, d> = 25: it loses -11/25 of d = (3, 0 | 4).
    updated = {"a": torch.tensor([2.0, 7.0]), "b": torch.tensor([[2.0]]), "count": torch.tensor(9)}
    guarded = without_return(original, forgotten, updated, ["a", "b"])
    torch.testing.assert_close(guarded["a"], torch.tensor([2.0 + 33 / 25, 7.0]))
    torch.testing.assert_close(guarded["b"], torch.tensor([[2.0 + 44 / 25]]))
    assert guarded["count"] == 9, "only the named parameters are touched"
    left = sum(float(((guarded[n] - forgotten[n]) * (forgotten[n] - original[n])).sum()) for n in ("a", "b"))
    assert abs(left) < 1e-5


def test_a_step_onwards_or_across_is_left_alone():
    original, forgotten = {"a": torch.tensor([0.0, 0.0])}, {"a": torch.tensor([1.0, 0.0])}
    for step in ([2.0, 5.0], [0.0, -3.0]):
        updated = {"a": forgotten["a"] + torch.tensor(step)}
        assert torch.equal(without_return(original, forgotten, updated, ["a"])["a"], updated["a"])
    assert torch.equal(without_return(original, original, forgotten, ["a"])["a"], forgotten["a"])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_is_left_of_a_step_is_the_nearest_that_does_not_lead_back(seed: int):
    """The guard is the projection onto the half space <u, d> >= 0: no random point of it is nearer to the step."""
    generator = torch.Generator().manual_seed(seed)
    original, forgotten, updated = ({"a": torch.randn(5, generator=generator, dtype=torch.float64)} for _ in range(3))
    guarded = without_return(original, forgotten, updated, ["a"])["a"]
    drift = forgotten["a"] - original["a"]
    assert float((guarded - forgotten["a"]) @ drift) > -1e-9
    others = forgotten["a"] + torch.randn(200, 5, generator=generator, dtype=torch.float64)
    allowed = others[(others - forgotten["a"]) @ drift >= 0]
    assert bool(((allowed - updated["a"]).norm(dim=1) >= (guarded - updated["a"]).norm() - 1e-9).all())
