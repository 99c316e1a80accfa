"""Nothing a client sends contains a sample or has a sample's size: every reply of train, sketch, forget and audit.

The checker itself is tested first, on replies that do leak."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedforget.audit.examine import Case, examine, examine_oracles
from fedforget.audit.measures import measure
from fedforget.audit.membership import BINS, GRID, AttackMembership, same_kind
from fedforget.data import Dataset, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation import ridge
from fedforget.federation.client import Client
from fedforget.federation.history import MemoryHistory
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import random_ridge
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import CheckRequests, Reply, Task
from fedforget.flower.values import known_tasks
from fedforget.methods import METHODS, check_servable, forget
from fedforget.methods.fedaf.sketching import BuildSketch
from fedforget.models import build_model
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_models
from fedforget.runs.folder import Trunk
from fedforget.runs.ladder import climb
from fedforget.runs.record import Result

WINDOW = 12
"""So many neighbouring pixels in a row, at least DISTINCT of them different, are a piece of a picture."""
DISTINCT = 6
NUMBERS = 60
"""More numbers than this in one reply could be one for each sample."""


TASKS = set(known_tasks()) - {CheckRequests}
"""The tasks of the whole story. The one that is not in it asks for sizes."""
WITH_TENSORS = {task for task in TASKS if task.returns != "numbers"}
LENGTHS = {BINS, GRID}
"""A histogram and a ROC curve have these many values, whatever the number of samples."""


class Leak(AssertionError):
    """A reply holds what must not leave the client."""


class Watch:
    """Knows every sample of a data set, raw, scaled to [0, 1] and normalised, and looks for them in replies."""

    def __init__(self, dataset: Dataset, samples: Sequence[Samples]) -> None:
        pixels = torch.cat([s.features for s in samples])
        self.shape = tuple(dataset.shape)
        self.size = int(np.prod(self.shape))
        looks = [pixels.float(), pixels.float() / 255.0, dataset.normalisation(pixels)]
        self._known = np.unique(np.concatenate([_pieces(look.reshape(len(pixels), -1)) for look in looks]))

    def check(self, reply: Reply, counts: Iterable[int]) -> None:
        """Raise a Leak if the reply holds a sample, a piece of one, or one value for each sample."""
        forbidden = {count for count in counts if count > 1}
        for name, tensor in reply.tensors.items():
            if tuple(tensor.shape[-len(self.shape) :]) == self.shape or tensor.numel() == self.size:
                raise Leak(f"'{name}' has a sample's shape: {tuple(tensor.shape)}")
            if forbidden & set(tensor.shape):
                raise Leak(f"'{name}' has one entry for each sample: {tuple(tensor.shape)}")
            self._search(name, tensor)
        for name, curve in reply.curves.items():
            if len(curve) in {self.size, *forbidden}:
                raise Leak(f"curve '{name}' has {len(curve)} values, one for each sample or pixel")
            self._search(name, torch.tensor(curve))
        if len(reply.numbers) > NUMBERS:
            raise Leak(f"{len(reply.numbers)} numbers could be one for each sample")
        for name, value in [*reply.numbers.items(), *reply.seconds.items()]:
            if not isinstance(value, int | float):
                raise Leak(f"'{name}' is no number but {type(value).__name__}")
        for note in getattr(reply, "notes", ()):
            if len(re.findall(r"\d+", note)) >= WINDOW:
                raise Leak(f"a note holds {WINDOW} numbers or more: {note[:60]}")
        for values in (reply.numbers, reply.seconds):
            self._search("numbers", torch.tensor(list(values.values())))

    def _search(self, name: str, values: Tensor) -> None:
        if values.numel() < WINDOW:
            return
        found = _hashes(_runs(values.reshape(1, -1)))[0]
        nearest = self._known[np.searchsorted(self._known, found).clip(max=len(self._known) - 1)]
        if bool((nearest == found).any()):
            raise Leak(f"'{name}' holds {WINDOW} neighbouring pixels of a sample")


def _runs(rows: Tensor) -> np.ndarray:
    """All runs of WINDOW values in the rows, as comparable whole numbers."""
    values = np.round(rows.detach().double().numpy(), 4)
    keys = np.ascontiguousarray(values + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    return np.lib.stride_tricks.sliding_window_view(keys, WINDOW, axis=1)


def _hashes(runs: np.ndarray) -> np.ndarray:
    odd = np.random.default_rng(0).integers(0, 2**63, WINDOW, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.zeros(runs.shape[:2], dtype=np.uint64)
    for place in range(WINDOW):
        hashes += (runs[..., place] ^ (runs[..., place] >> np.uint64(29))) * odd[place]
    return hashes


def _pieces(rows: Tensor) -> np.ndarray:
    """Hashes of the runs that are more than background."""
    runs = _runs(rows)
    ordered = np.sort(runs, axis=2)
    distinct = (ordered[..., 1:] != ordered[..., :-1]).sum(axis=2) + 1
    return _hashes(runs)[distinct >= DISTINCT]


class Tapped(LocalFederation):
    """Every reply is looked at before the server gets it."""

    watch: Watch | None = None

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if self.watch is not None:
                self.watch.check(reply, self.counts(task, reply.client))
            self.seen.append((task, reply))
            yield reply

    def counts(self, task: Task, client: int) -> set[int]:
        """The sizes of everything that a client could send one value each for."""
        own = self.client(client)
        target, retained = own.positions(getattr(task, "exclude", ()) or getattr(task, "requests", ()))
        counts = {len(own.samples), len(target), len(retained)}
        if isinstance(task, AttackMembership):
            assert own.held_out is not None
            outside = same_kind(own.samples.select(target), own.held_out)
            counts |= {len(own.held_out), len(outside), len(outside) // 2}
        return counts

    @property
    def seen(self) -> list[tuple[Task, Reply]]:
        return self.__dict__.setdefault("_seen", [])


def make(dataset: Dataset, sizes: Sequence[int]) -> tuple[Tapped, Watch]:
    """A tapped federation of clients with these many samples; client 0's threes carry a trigger."""
    backdoor = Backdoor(ErasureRequest.of_class(0, 3), Trigger(2, margin=0), 8)
    parts = list(torch.arange(sum(sizes)).split(list(sizes)))
    model = build_model("cnn", dataset.shape, len(dataset.classes), 0)
    federation = Tapped(dataset, parts, model, backdoors=[backdoor])
    watch = Watch(dataset, [federation.client(k).samples for k in federation.clients])
    federation.watch = watch
    return federation, watch


def servable(method: str, preset: str, request: ErasureRequest) -> bool:
    try:
        check_servable(method, METHODS[method].presets[preset], [request])
    except InputError:
        return False
    return True


def tell_the_whole_story(federation: Tapped, dataset: Dataset, schedule: Schedule) -> None:
    """Train, sketch, forget with every method and preset for every kind of target, measure, audit."""
    history = MemoryHistory(interval=1)
    before = train(federation, state_of(federation.model), schedule, history=history)
    ids = federation.client(1).samples.ids[:23].tolist()  # more than any method makes steps
    targets = [
        ErasureRequest.of_class(0, 3), ErasureRequest.of_samples(1, ids), ErasureRequest.of_client(2),
    ]  # fmt: skip
    for request in targets:
        models: dict[str, State] = {"before": before}
        results = []
        for method, row in METHODS.items():
            for preset in row.presets:
                if not servable(method, preset, request):
                    continue
                calm = {"penalty": "proximal", "ascent": "none"} if (method, preset) == ("fedaf", "paper") else {}
                result = forget(federation, before, request, schedule, method, preset, history=history, **calm)
                models[f"{method}:{preset}"] = result.state
                results.append(Result(method, preset, (request,), Trunk("", "")))
        for aggregation in ("scaled", "average-idle", "average-training"):
            forget(federation, before, request, schedule, "overwrite", aggregation=aggregation)
        forget(federation, before, request, schedule, "overwrite", sketch_scope="federation")
        forget(federation, before, request, schedule, "overwrite", sketch_scope="federation", sketch_masked=True)
        climb(federation, before, request, schedule)
        measure(federation, before, [request], dataset.test, threads=1)
        audit_models(Case(federation, (request,), schedule), dataset, models, results, lambda *_: None)
        references = [models["retrain:default"], models["fedaf-c:default"]]  # not oracles, but of their shape
        case = Case(federation, (request,), schedule, "quick")
        examine_oracles(case, references, lambda *_: None)
        examine(case, before, references)
    feature = ErasureRequest.of_feature(3, (2, 2, 4, 4))
    deaf = forget(federation, before, feature, schedule, "overwrite").state
    audit_models(Case(federation, (feature,), schedule), dataset, {"before": before}, [], lambda *_: None)
    examine(Case(federation, (feature,), schedule, "quick"), deaf)


def tell_the_story_of_a_ridge_head(dataset: Dataset, sizes: Sequence[int], schedule: Schedule) -> Tapped:
    """Solve, with and without masks, and again without each kind of target."""
    federation, _ = make(dataset, sizes)
    for masked in (False, True):
        federation.model = random_ridge(dataset.shape, len(dataset.classes), 100, 0, masked=masked)
        for k in federation.clients:
            federation.client(k).model = federation.model
        before = train(federation, state_of(federation.model), schedule)
        for request in (ErasureRequest.of_class(0, 3), ErasureRequest.of_client(2)):
            climb(federation, before, request, schedule)
    return federation


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.mark.real
def test_no_reply_of_the_whole_story_holds_a_digit(digits: Dataset):
    sizes = (257, 173, 149, 181)
    federation, _ = make(digits, sizes)
    tell_the_whole_story(federation, digits, Schedule(rounds=2, lr=0.05, batch_size=16, threads=1))
    solved = tell_the_story_of_a_ridge_head(digits, sizes, Schedule(rounds=1, threads=1))
    federation.seen.extend(solved.seen)
    kinds = {type(task) for task, _ in federation.seen}
    assert kinds == TASKS, "every task was met"
    assert {reply.client for _, reply in federation.seen} == {0, 1, 2, 3}
    assert {type(task) for task, reply in federation.seen if reply.tensors} == WITH_TENSORS
    attacks = [reply for task, reply in federation.seen if isinstance(task, AttackMembership)]
    assert {reply.client for reply in attacks if "rmia/auc" in reply.numbers} == {0, 1, 2}, "every kind was attacked"


@pytest.mark.real
def test_what_a_reply_holds_does_not_grow_with_the_data(digits: Dataset):
    """Twice the samples, the same names, shapes and lengths."""

    def outline(sizes: tuple[int, ...]) -> list[tuple[object, ...]]:
        federation, _ = make(digits, sizes)
        before = state_of(federation.model)
        schedule = Schedule(rounds=1, lr=0.05, batch_size=16, threads=1)
        request = ErasureRequest.of_client(2)
        train(federation, before, schedule)
        forget(
            federation, before, request, schedule, "overwrite", memory="uniform", epochs=0, min_steps=5, stop_below=None
        )
        measure(federation, before, [request], digits.test, threads=1)
        case = Case(federation, (request,), schedule, "quick")
        examine_oracles(case, [before, state_of(build_model("cnn", digits.shape, 10, 1))], lambda *_: None)
        return [
            (type(task), reply.client, sorted(reply.numbers), sorted(reply.seconds),
             {name: tensor.shape for name, tensor in reply.tensors.items()},
             {name: len(curve) for name, curve in reply.curves.items()})
            for task, reply in federation.seen
        ]  # fmt: skip

    small, large = outline((83, 91, 79)), outline((167, 181, 157))
    assert small == large
    assert {kind for kind, *_ in small} >= {AttackMembership}
    audits = [lengths for kind, *_, lengths in small if kind is AttackMembership]
    assert {length for lengths in audits for length in lengths.values()} == LENGTHS


@pytest.mark.slow
def test_no_reply_of_the_whole_story_holds_an_mnist_image(real_data: Callable[[str], Path]):
    real_data("mnist")
    dataset = load_dataset("mnist").first(760, 400)
    federation, _ = make(dataset, (257, 173, 149, 181))
    tell_the_whole_story(federation, dataset, Schedule(rounds=1, lr=0.05, batch_size=16, threads=1))
    assert {type(task) for task, _ in federation.seen} == TASKS - set(ridge.TASKS)
    seen = tell_the_story_of_a_ridge_head(dataset, (257, 173, 149, 181), Schedule(rounds=1, threads=1)).seen
    assert {type(task) for task, _ in seen} >= set(ridge.TASKS)


def test_a_row_that_leaves_a_small_client_is_a_sum_over_several_samples(digits: Dataset):
    """With one row for each sample, a row would be that sample's own gradient."""
    model = build_model("mlp", digits.shape, len(digits.classes), 0)
    federation = Tapped(digits, list(torch.arange(320).split([300, 20])), model)
    schedule = Schedule(rounds=1, lr=0.05, batch_size=16, threads=1)
    forget(federation, state_of(model), ErasureRequest.of_client(0), schedule, "overwrite")
    (reply,) = [reply for task, reply in federation.seen if isinstance(task, BuildSketch)]
    (rows,) = reply.tensors.values()
    assert 1 <= int(rows.abs().sum(dim=1).gt(0).sum()) <= 20 // 8


# The checker is able to find a leak.


def leaks(watch: Watch, samples: Samples) -> dict[str, Reply]:
    """Replies that must be caught, from the crude to the sly."""
    image = samples.features[4]
    normalised = (image.float() / 255.0 - 0.3053) / 0.3760
    noise = torch.rand(5000, generator=torch.Generator().manual_seed(1))
    hidden = noise.clone()
    hidden[1234 : 1234 + watch.size] = image.flatten().float()
    hidden_normalised = noise.clone()
    hidden_normalised[99 : 99 + watch.size] = normalised.flatten()
    strip = noise.clone()
    strip[7:39] = image.flatten()[16:48].float() / 255.0
    curve = noise[:200].tolist()
    curve[20 : 20 + watch.size] = normalised.flatten().tolist()
    n = len(samples)
    return {
        "the image": Reply(0, tensors={"x": image}),
        "its bytes": Reply(0, tensors={"x": image.flatten()}),
        "a batch": Reply(0, tensors={"x": samples.features[:3]}),
        "another tensor of its shape": Reply(0, tensors={"x": torch.zeros(1, 8, 8)}),
        "hidden in a long tensor": Reply(0, tensors={"x": hidden}),
        "hidden in a matrix": Reply(0, tensors={"x": hidden.reshape(50, 100)}),
        "hidden and normalised": Reply(0, tensors={"x": hidden_normalised}),
        "in half precision": Reply(0, tensors={"x": hidden.half()}),
        "a strip of it": Reply(0, tensors={"x": strip}),
        "in a curve": Reply(0, curves={"loss": curve}),
        "in the numbers": Reply(0, numbers={f"{k:03d}": float(v) for k, v in enumerate(image.flatten()[8:40])}),
        "predictions of each sample": Reply(0, tensors={"x": torch.rand(n, 10)}),
        "a loss of each sample": Reply(0, curves={"loss": [0.5] * n}),
        "a number for each sample": Reply(0, numbers={str(k): 0.5 for k in range(n)}),
        "a list among the numbers": Reply(0, numbers={"ids": samples.ids.tolist()}),  # type: ignore[dict-item]
    }  # fmt: skip


LEAKS = [
    "the image", "its bytes", "a batch", "another tensor of its shape", "hidden in a long tensor",
    "hidden in a matrix", "hidden and normalised", "in half precision", "a strip of it", "in a curve",
    "in the numbers", "predictions of each sample", "a loss of each sample", "a number for each sample",
    "a list among the numbers",
]  # fmt: skip


@pytest.mark.parametrize("kind", LEAKS)
def test_a_reply_that_leaks_is_caught(digits: Dataset, kind: str):
    federation, watch = make(digits, (157, 173))
    samples = federation.client(0).samples
    assert list(leaks(watch, samples)) == LEAKS
    with pytest.raises(Leak):
        watch.check(leaks(watch, samples)[kind], {len(samples)})


def test_a_task_that_leaks_is_caught_on_its_way(digits: Dataset):
    class Steal(Task):
        def run(self, state: Mapping[str, Tensor], client: object) -> Reply:
            return Reply(
                0, tensors={"w": torch.cat([torch.rand(90), federation.client(0).samples.features[2].view(-1)])}
            )

    federation, _ = make(digits, (157, 173))
    with pytest.raises(Leak, match="12 neighbouring pixels"):
        list(federation.ask(Steal(seed=0, threads=1), {}, [0]))


@pytest.mark.parametrize("what", ["target", "held out", "of the same kind", "other half"])
def test_a_score_of_each_sample_is_caught_on_its_way(digits: Dataset, what: str):
    """Whichever samples an attack looks at."""
    request = ErasureRequest.of_class(0, 3)

    @dataclass(frozen=True, kw_only=True)
    class Tell(AttackMembership):
        def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
            assert client.held_out is not None
            target = client.samples.select(client.positions(self.requests)[0])
            outside = same_kind(target, client.held_out)
            counts = {"target": len(target), "held out": len(client.held_out), "of the same kind": len(outside)}
            count = counts.get(what, len(outside) // 2)
            assert count not in LENGTHS
            return Reply(client.index, curves={"scores": [0.5] * count})

    federation, _ = make(digits, (257, 173))
    with pytest.raises(Leak, match="one for each sample"):
        list(federation.ask(Tell(seed=0, threads=1, requests=(request,), model="m"), {}, [0]))


def test_what_is_harmless_passes(digits: Dataset):
    federation, watch = make(digits, (157, 173))
    noise = torch.rand(4000, generator=torch.Generator().manual_seed(2))
    harmless = [
        Reply(0, tensors=state_of(federation.model)),
        Reply(0, tensors={"x": noise, "zero": torch.zeros(3000), "step": torch.arange(200)}),
        Reply(0, numbers={"samples": 157.0, "loss": 0.5}, curves={str(n): noise[:n].tolist() for n in sorted(LENGTHS)}),
    ]
    for reply in harmless:
        watch.check(reply, {157})
