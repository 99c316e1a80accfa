"""FedAF seen from the server: aggregation, recovery, whose sketch, what is asked of whom, settings and presets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedforget.data import Dataset
from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.methods import METHODS, Forgetting, forget, method_settings
from fedforget.methods.fedaf import forgetting, sketching
from fedforget.methods.fedaf import settings as settings_module
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.methods.fedaf.settings import (
    BY_SIZE,
    CONVENTIONAL,
    CONVENTIONAL_REPLACING,
    LARGE_NETWORK,
    LITERAL,
    OVERWRITE,
    PAPER,
    FullSettings,
    OverwriteSettings,
)
from fedforget.methods.fedaf.sketching import SKETCH_KEY, BuildSketch
from fedforget.models import xavier_initialise
from fedforget.params import State, copy_state, digest, state_of
from fedforget.requests import ErasureRequest

FEATURES, CLASSES = 6, 3
SIZES = (40, 50, 30)
SCHEDULE = Schedule(rounds=3, lr=0.1, batch_size=8, threads=1)
CLASS = ErasureRequest.of_class(0, 1)
DIRECT: dict[str, Any] = {"memory": "uniform", "recovery_rounds": 0, "stop_below": None}
"""FedAF without a teacher and without recovery: the client's model as it is."""


class Asked(LocalFederation):
    """Writes down every (task, names that travelled along, reply)."""

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            self.__dict__.setdefault("log", []).append((task, frozenset(state), reply))
            yield reply

    def replies(self, kind: type[Task], **want: Any) -> list[Reply]:
        log = self.__dict__.get("log", [])
        return [r for t, _, r in log if isinstance(t, kind) and all(getattr(t, k) == v for k, v in want.items())]

    def names(self, kind: type[Task], **want: Any) -> list[frozenset[str]]:
        log = self.__dict__.get("log", [])
        return [n for t, n, _ in log if isinstance(t, kind) and all(getattr(t, k) == v for k, v in want.items())]


def network(kind: str = "mlp") -> nn.Module:
    norm = nn.BatchNorm1d(12) if kind == "batchnorm" else nn.Identity()
    return xavier_initialise(nn.Sequential(nn.Linear(FEATURES, 12), norm, nn.ReLU(), nn.Linear(12, CLASSES)), 0)


def blobs() -> Dataset:
    """120 samples around three centres."""
    generator = torch.Generator().manual_seed(3)
    n = sum(SIZES)
    labels = torch.arange(n) % CLASSES
    centres = 2.0 * torch.randn(CLASSES, FEATURES, generator=generator)
    features = centres[labels] + torch.randn(n, FEATURES, generator=generator)
    return Dataset("blobs", Samples.of(features, labels), Samples.of(features[:9], labels[:9], n), ("a", "b", "c"))


def parts() -> list[Tensor]:
    order = torch.randperm(sum(SIZES), generator=torch.Generator().manual_seed(4))
    return [part.sort().values for part in order.split(SIZES)]


def make(kind: str = "mlp") -> tuple[Asked, State]:
    """A federation and its trained model."""
    model = network(kind)
    federation = Asked(blobs(), parts(), model)
    before = train(LocalFederation(blobs(), parts(), network(kind)), state_of(model), SCHEDULE)
    return federation, before


def serve(federation: LocalFederation, before: State, request: ErasureRequest = CLASS, **overrides: Any) -> Forgetting:
    return forget(federation, before, request, SCHEDULE, "overwrite", **overrides)


def close(a: State, b: Mapping[str, Tensor], tolerance: float = 1e-6) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], atol=tolerance, rtol=0) for n in a)


# Aggregation: what the client sends becomes the global model in four ways.


def test_replace_takes_the_clients_model():
    federation, before = make()
    result = serve(federation, before, aggregation="replace", **DIRECT)
    (reply,) = federation.replies(Forget)
    assert digest(result.state) == digest(reply.tensors)
    assert digest(result.state) != digest(before)


def test_scaled_is_replace_to_float_precision():
    federation, before = make()
    replaced = serve(federation, before, aggregation="replace", **DIRECT).state
    scaled = serve(federation, before, aggregation="scaled", **DIRECT).state
    assert close(scaled, replaced)
    moved = max(float((replaced[n] - before[n]).abs().max()) for n in before)
    assert moved > 1e-3, "or closeness would show nothing"


def test_average_with_idle_peers_moves_the_clients_share_of_the_way():
    federation, before = make()
    replaced = serve(federation, before, aggregation="replace", **DIRECT).state
    averaged = serve(federation, before, aggregation="average-idle", **DIRECT).state
    share = SIZES[0] / sum(SIZES)
    by_hand = {n: before[n] + share * (replaced[n] - before[n]) for n in before}
    assert close(averaged, by_hand)
    assert not close(averaged, replaced)


def test_average_with_training_peers_by_hand():
    federation, before = make()
    result = serve(federation, before, aggregation="average-training", **DIRECT)
    (own,) = federation.replies(Forget)
    task = SCHEDULE.train_task(SCHEDULE.rounds, [CLASS])
    sums = {n: SIZES[0] * own.tensors[n].double() for n in before}
    for peer in LocalFederation(blobs(), parts(), network()).ask(task, before, [1, 2]):
        assert peer.numbers["samples"] == SIZES[peer.client]
        sums = {n: sums[n] + SIZES[peer.client] * peer.tensors[n].double() for n in before}
    by_hand = {n: (total / sum(SIZES)).float() for n, total in sums.items()}
    assert close(result.state, by_hand)
    assert [r.client for r in federation.replies(Train)] == [1, 2], "the target client does not train"


def test_peers_that_withdrew_have_no_weight():
    """Client 2 went before: average-idle is over clients 0 and 1 alone."""
    federation, before = make()
    gone = [ErasureRequest.of_client(2)]
    replaced = serve(federation, before, aggregation="replace", served=gone, **DIRECT).state
    averaged = serve(federation, before, aggregation="average-idle", served=gone, **DIRECT).state
    share = SIZES[0] / (SIZES[0] + SIZES[1])
    assert close(averaged, {n: before[n] + share * (replaced[n] - before[n]) for n in before})


def test_requests_of_two_clients_are_served_one_after_the_other():
    """The second starts from what the first left."""
    federation, before = make()
    second = ErasureRequest.of_class(2, 0)
    both = forget(federation, before, [second, CLASS], SCHEDULE, "overwrite", **DIRECT)
    assert [r.client for r in federation.replies(Forget)] == [0, 2]
    steps = [len(r.curves["samples"]) for r in federation.replies(Forget)]
    assert len(both.curves["samples"]) == sum(steps)
    first = serve(make()[0], before, **DIRECT).state
    then = forget(make()[0], first, second, SCHEDULE, "overwrite", served=[CLASS], **DIRECT).state
    assert digest(both.state) == digest(then)


# Recovery.


def test_recovery_trains_everybody_on_a_share_of_what_is_retained():
    federation, before = make()
    plain = serve(federation, before, **DIRECT)
    result = serve(
        federation, before, **DIRECT | {"recovery_rounds": 2, "recovery_share": 0.25, "recovery_min_samples": 0}
    )
    replies = federation.replies(Train, purpose="recovery")
    assert [r.client for r in replies] == [0, 1, 2, 0, 1, 2]
    retained = federation.check([CLASS])[0].retained
    assert [r.numbers["samples"] for r in replies[:3]] == [math.ceil(0.25 * n) for n in (retained, SIZES[1], SIZES[2])]
    assert {t.round for t, _, _ in federation.__dict__["log"] if isinstance(t, Train)} == {0, 1}
    assert result.cost.gradient_evaluations == plain.cost.gradient_evaluations + sum(
        r.gradient_evaluations for r in replies
    )
    assert result.cost.seconds["recovery"] > plain.cost.seconds["recovery"]
    assert digest(result.state) != digest(plain.state)


def test_recovery_uses_its_own_learning_rate_and_all_data_when_asked():
    federation, before = make()
    serve(federation, before, **DIRECT | {
        "recovery_rounds": 1, "recovery_share": 1.0, "recovery_lr": 0.3, "recovery_momentum": 0.5,
    })  # fmt: skip
    (task,) = {t for t, _, _ in federation.__dict__["log"] if isinstance(t, Train)}
    assert (task.lr, task.momentum, task.share, task.epochs, task.exclude) == (0.3, 0.5, 1.0, 1, (CLASS,))
    assert [r.numbers["samples"] for r in federation.replies(Train)][1:] == [SIZES[1], SIZES[2]]


# The sketch: whose data it is of, and how often it is made.


def test_a_class_request_is_sketched_at_the_client():
    federation, before = make()
    serve(federation, before, **DIRECT)
    assert federation.replies(BuildSketch) == []
    (reply,) = federation.replies(Forget)
    assert reply.stored_bytes == 75 * sum(p.numel() for p in network().parameters()) * 4
    assert reply.seconds.keys() == {"memory", "sketch", "forgetting"}


def test_a_whole_client_takes_everybody_elses_sketch():
    federation, before = make()
    result = serve(federation, before, ErasureRequest.of_client(0), **DIRECT)
    assert [r.client for r in federation.replies(BuildSketch)] == [1, 2]
    assert [r.numbers["count"] for r in federation.replies(BuildSketch)] == [SIZES[1], SIZES[2]]
    (along,) = federation.names(Forget)
    assert {SKETCH_KEY, f"{SKETCH_KEY}.count"} <= along
    (reply,) = federation.replies(Forget)
    assert reply.gradient_evaluations == sum(reply.curves["samples"]), "no sketch is made at the client itself"
    assert result.state.keys() == before.keys(), "the sketch does not stay in the model"


def test_classes_that_are_all_a_client_has_are_as_a_whole_client():
    federation, before = make()
    requests = [ErasureRequest.of_class(0, label) for label in range(CLASSES)]
    forget(federation, before, requests, SCHEDULE, "overwrite", **DIRECT)
    assert {r.client: r.numbers["count"] for r in federation.replies(BuildSketch)} == {0: 0, 1: SIZES[1], 2: SIZES[2]}


def test_the_federations_sketch_may_be_asked_for():
    federation, before = make()
    serve(federation, before, sketch_scope="federation", **DIRECT)
    retained = federation.check([CLASS])[0].retained
    assert [r.numbers["count"] for r in federation.replies(BuildSketch)] == [retained, SIZES[1], SIZES[2]]


def test_a_whole_client_cannot_be_sketched_at_the_client_alone():
    federation, before = make()
    with pytest.raises(InputError) as refusal:
        serve(federation, before, ErasureRequest.of_client(0), sketch_scope="client", **DIRECT)
    assert str(refusal.value) == (
        "Client 0 keeps no data that the preserver could look at; set sketch_scope to federation."
    )


def test_amnesia_and_forgetting_share_one_sketch(monkeypatch: pytest.MonkeyPatch):
    federation, before = make()
    built = []
    build = sketching.build_sketch
    monkeypatch.setattr(sketching, "build_sketch", lambda *a, **k: built.append(1) or build(*a, **k))
    shared = serve(federation, before, recovery_rounds=0)
    assert len(built) == 1
    size = federation.check([CLASS])[0]
    (amnesia,), (forgot,) = federation.replies(Forget, amnesia=True), federation.replies(Forget, amnesia=False)
    forward = 0.4 * size.target
    assert amnesia.gradient_evaluations == pytest.approx(forward + size.retained + sum(amnesia.curves["samples"]))
    assert forgot.gradient_evaluations == pytest.approx(forward + sum(forgot.curves["samples"]))
    assert federation.client(0).kept == {}, "nothing is kept once it is used"

    class Forgetful(Asked):
        def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
            for client in self._clients:
                client.kept.clear()
            yield from super().ask(task, state, to)

    apart = serve(Forgetful(blobs(), parts(), network()), before, recovery_rounds=0)
    assert len(built) == 3
    assert digest(apart.state) == digest(shared.state), "sharing saves work and changes nothing"
    assert apart.cost.gradient_evaluations == shared.cost.gradient_evaluations + size.retained


def test_no_gradient_moves_the_weights_further_than_ten_step_lengths(monkeypatch: pytest.MonkeyPatch):
    """Where tr F comes out small, the learning rate is high; a learning rate that somebody names has no limit."""
    seen: list[tuple[float, float]] = []

    class Watched(forgetting.SGD):
        def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, longest: float) -> None:
            seen.append((lr, longest))
            super().__init__(parameters, lr, momentum, longest)

    monkeypatch.setattr(forgetting, "SGD", Watched)
    result = serve(*make())
    length = float(result.settings.for_network(1).step_length)
    (amnesia, amnesia_longest), (lr, longest) = seen
    assert lr * longest == pytest.approx(10 * length)
    assert amnesia * amnesia_longest == pytest.approx(10 * length / 2)
    seen.clear()
    serve(*make(), lr=0.01)
    assert {longest for _, longest in seen} == {math.inf}


def test_a_kept_sketch_of_another_model_is_not_used(monkeypatch: pytest.MonkeyPatch):
    federation, before = make()
    built = []
    build = sketching.build_sketch
    monkeypatch.setattr(sketching, "build_sketch", lambda *a, **k: built.append(1) or build(*a, **k))
    task = Forget(
        seed=0, threads=1, requests=(CLASS,), settings=OVERWRITE.for_network(1).opened().amnesia, amnesia=True
    )
    list(federation.ask(task, before, [0]))
    other = {name: tensor + 0.01 for name, tensor in before.items()}
    list(federation.ask(task, other, [0]))
    assert len(built) == 2


# The local steps.


@pytest.mark.parametrize("memory", ["uniform", "debiased", "suppressed", "reminded"])
def test_frozen_statistics_stay_through_forgetting(memory: str):
    federation, before = make("batchnorm")
    settings = DIRECT | {"memory": memory, "lr": 0.1}
    frozen = serve(federation, before, **settings).state
    free = serve(federation, before, **settings | {"freeze_normalisation": False}).state
    buffers = {name for name, _ in federation.model.named_buffers()}
    assert buffers == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(torch.equal(frozen[name], before[name]) for name in buffers)
    assert not torch.equal(free["1.running_mean"], before["1.running_mean"])
    assert not torch.equal(frozen["1.weight"], before["1.weight"]), "its parameters do learn"


def test_it_stops_once_the_memories_are_learnt():
    federation, before = make()
    settings = DIRECT | {"epochs": 0, "min_steps": 40, "preserver": "none", "lr": 0.2}
    steps = {
        limit: len(serve(federation, before, **settings | {"stop_below": limit}).curves["samples"])
        for limit in (None, 1e9, 0.05)
    }
    assert steps[None] == 40
    assert steps[1e9] == 4, "the mean over four batches is needed at least"
    assert 4 < steps[0.05] < 40
    curves = serve(federation, before, **settings | {"stop_below": 0.05}).curves
    gaps = [loss - math.log(CLASSES) for loss in curves["memory_loss"]]  # KL(uniform || model)
    assert sum(gaps[-4:]) / 4 <= 0.05
    assert all(sum(gaps[i : i + 4]) / 4 > 0.05 for i in range(len(gaps) - 4))


@pytest.mark.parametrize(("epochs", "min_steps", "steps"), [(1, 16, 16), (1, 0, 1), (3, 0, 3), (0, 5, 5), (20, 16, 20)])
def test_a_small_target_is_passed_over_until_the_steps_are_made(epochs: int, min_steps: int, steps: int):
    federation, before = make()
    few = ErasureRequest.of_samples(0, federation.client(0).samples.ids[:5].tolist())
    curves = serve(federation, before, few, **DIRECT | {"epochs": epochs, "min_steps": min_steps}).curves
    assert curves["samples"] == [5.0] * steps


def test_a_large_target_is_cut_into_batches():
    federation, before = make()
    target = federation.check([CLASS])[0].target
    curves = serve(federation, before, **DIRECT | {"epochs": 2, "min_steps": 0, "batch_size": 4}).curves
    assert sum(curves["samples"]) == 2 * target
    assert max(curves["samples"]) <= 5


def test_a_part_of_a_pass_asks_the_teacher_for_no_more_than_it_meets():
    federation, before = make()
    batches = -(-federation.check([CLASS])[0].target // 4)
    changes: dict[str, Any] = {"recovery_rounds": 0, "stop_below": None, "min_steps": 0, "batch_size": 4}
    whole = serve(federation, before, **changes).curves
    half = serve(federation, before, **changes, epochs=0.5).curves
    assert len(half["samples"]) == math.ceil(batches / 2) < batches
    assert half["memory_loss"] == pytest.approx(whole["memory_loss"][: len(half["samples"])]), "the labels are the same"
    met = sum(half["samples"])
    assert federation.replies(Forget, amnesia=False)[-1].gradient_evaluations == pytest.approx(met + 0.4 * met)


def test_the_step_length_is_a_learning_rate_in_the_sketchs_measure(monkeypatch: pytest.MonkeyPatch):
    """lr = step_length / sqrt(tr F): naming the number it comes to gives the same bits."""
    federation, before = make()
    sketches = []
    build = sketching.build_sketch
    monkeypatch.setattr(sketching, "build_sketch", lambda *a, **k: sketches.append(build(*a, **k)) or sketches[-1])
    derived = serve(federation, before, **DIRECT | {"lr": None, "step_length": 0.2})
    (sketch,) = sketches
    mean_square = float(sketch.rows.double().square().sum()) / sketch.count
    named = serve(federation, before, **DIRECT | {"lr": 0.2 / mean_square**0.5})
    assert close(derived.state, named.state)
    assert not close(derived.state, serve(federation, before, **DIRECT | {"lr": None, "step_length": 0.1}).state)


def test_reminded_memories_come_from_a_teacher_that_travels():
    federation, before = make()
    result = serve(federation, before)
    assert [r.client for r in federation.replies(Train, purpose="reminder")] == [0, 1, 2]
    (along,) = federation.names(Forget, amnesia=False)
    assert {f"{TEACHER_KEY}{name}" for name in before} <= along
    (first,) = federation.names(Forget, amnesia=True)
    assert not any(name.startswith(TEACHER_KEY) for name in first)
    assert result.state.keys() == before.keys()
    assert set(result.cost.seconds) == {"server", "memory", "sketch", "forgetting", "aggregation", "recovery"}


def test_served_data_is_in_no_sketch():
    federation, before = make()
    earlier = ErasureRequest.of_class(0, 2)
    forget(federation, before, CLASS, SCHEDULE, "overwrite", served=[earlier], **DIRECT)
    (reply,) = federation.replies(Forget)
    left = federation.check([CLASS, earlier])[0].retained
    assert reply.gradient_evaluations == left + sum(reply.curves["samples"])


@pytest.mark.parametrize("memory", ["reminded", "uniform"])
def test_a_setting_called_idle_changes_no_bit(memory: str):
    federation, before = make()
    for lr, idle in ((0.01, {"step_length"}), (None, set())):
        settings = {"memory": memory, "lr": lr}
        assert replace(OVERWRITE.opened(), **settings).idle == idle
        one, other = (serve(federation, before, **settings, step_length=length).state for length in (0.02, 0.3))
        assert (digest(one) == digest(other)) == (idle == {"step_length"})


# Settings that leave the finite numbers by arithmetic, whatever the data.


def test_a_penalty_step_beyond_its_bound_keeps_the_old_model_and_says_why():
    """Each plain gradient step of so strong a penalty multiplies what it shall shrink by more than 1e6."""
    federation, before = make()
    given = copy_state(before)
    beyond = DIRECT | {"lr": 0.001, "strength": 1e12, "min_steps": 30}
    with pytest.raises(DivergedError) as error:
        serve(federation, given, **beyond, penalty="gradient")
    sentence = str(error.value)
    assert error.value.stage == "The forgetting step"
    assert sentence.startswith("The forgetting step diverged: ")
    assert "\n" not in sentence
    assert "is stable only below a learning rate of " in sentence
    assert sentence.endswith(", and it is 0.001; use the proximal step).")
    bound = float(sentence.split("learning rate of ")[1].split(",")[0])
    assert 0 < bound < 1e-9
    assert digest(given) == digest(before), "the old model is still in place"
    calmer = serve(federation, given, **beyond, penalty="proximal")
    assert all(bool(torch.isfinite(t).all()) for t in calmer.state.values()), "the remedy it names works"


def test_a_step_that_is_too_long_keeps_the_old_model_and_names_the_remedy():
    federation, before = make()
    given = copy_state(before)
    with pytest.raises(DivergedError, match=r"^The forgetting step diverged: .*set a smaller step_length\)\.$"):
        serve(federation, given, **DIRECT | {"step_length": 1e30, "min_steps": 30, "ascent": "plain"})
    assert digest(given) == digest(before)


# Settings.


def test_the_presets_are_what_is_documented():
    assert METHODS["overwrite"].presets == {"default": OVERWRITE}
    assert METHODS["fedaf"].presets == {"paper": PAPER, "literal": LITERAL}
    assert METHODS["fedaf-c"].presets == {"default": CONVENTIONAL, "replace": CONVENTIONAL_REPLACING}
    assert replace(CONVENTIONAL, aggregation="replace") == CONVENTIONAL_REPLACING
    assert OverwriteSettings() == OVERWRITE
    paper = {
        "memory": "debiased", "teachers": 10, "sigma": "auto", "penalty": "gradient", "strength": 10.0,
        "normalise": True, "sketch_rows": 50, "sketch_labels": "data", "sketch_data": "all",
        "sketch_scope": "client", "sketch_samples": None, "ascent": "plain", "epochs": 1, "min_steps": 0,
        "lr": 0.001, "momentum": 0.9, "stop_below": None, "aggregation": "average-training", "recovery_rounds": 0,
    }  # fmt: skip
    assert {name: getattr(PAPER, name) for name in paper} == paper
    assert replace(PAPER, normalise=False, momentum=0.0, batch_size=64) == LITERAL
    assert replace(LITERAL, preserver="none", ascent="none") == CONVENTIONAL
    ours = {
        "penalty": "proximal", "normalise": True, "sketch_labels": "sampled", "sketch_data": "retained",
        "freeze_normalisation": True, "recovery_rounds": 1,
    }  # fmt: skip
    opened = OVERWRITE.opened()
    assert {name: getattr(opened, name) for name in ours} == ours
    assert opened.aggregation in ("replace", "scaled")
    assert all(share <= 0.1 for share in BY_SIZE["recovery_share", "auto"])


def test_our_own_way_has_21_settings_at_most_and_the_papers_readings_are_apart():
    own, opened = ({item.name for item in fields(cls)} for cls in (OverwriteSettings, FullSettings))
    assert len(own) <= 21
    assert own < opened
    kinds = {
        method: {type(preset) for preset in METHODS[method].presets.values()}
        for method in ("overwrite", "fedaf", "fedaf-c")
    }
    assert kinds == {"overwrite": {OverwriteSettings}, "fedaf": {FullSettings}, "fedaf-c": {FullSettings}}


def test_a_preset_of_ours_is_opened_only_where_something_is_named_that_it_settles():
    assert type(method_settings("overwrite", strength=2.0)[1]) is OverwriteSettings
    _, taken_apart = method_settings("overwrite", memory="random")
    assert taken_apart == replace(OVERWRITE.opened(), memory="random")
    with pytest.raises(
        InputError, match=r"^Method 'overwrite' has no setting 'speed'; it has amnesia_steps, [^;]*, enough\.$"
    ):
        method_settings("overwrite", speed=3)


def test_auto_becomes_a_number_by_the_size_of_the_network():
    small, large = OVERWRITE.for_network(LARGE_NETWORK - 1), OVERWRITE.for_network(LARGE_NETWORK)
    for (name, word), expected in BY_SIZE.items():
        assert (getattr(OVERWRITE, name), getattr(small, name), getattr(large, name)) == (word, *expected)
    named = replace(OVERWRITE, sketch_rows=3, recovery_share=0.5).for_network(LARGE_NETWORK)
    assert (named.sketch_rows, named.recovery_share, named.recovery_lr) == (3, 0.5, large.recovery_lr)
    assert PAPER.for_network(10**9).sketch_rows == 50


def test_a_kept_sketch_is_not_used_where_other_data_was_served_since():
    """It was made with these samples, which nothing may look at any more."""
    federation, before = make()
    settings = replace(OVERWRITE.opened(), memory="uniform").for_network(1)
    kept, fresh = federation.client(0), make()[0].client(0)
    gone = (ErasureRequest.of_samples(0, [int(i) for i in kept.retained([CLASS]).ids[:9]]),)
    task = Forget(seed=0, threads=1, requests=(CLASS,), settings=settings)
    replace(task, settings=settings.amnesia, amnesia=True).run(before, kept)
    again, anew = (replace(task, served=gone).run(before, client) for client in (kept, fresh))
    assert digest(again.tensors) == digest(anew.tensors)
    assert again.gradient_evaluations == anew.gradient_evaluations


def test_a_large_network_is_served_as_a_large_one(monkeypatch: pytest.MonkeyPatch):
    federation, before = make()
    monkeypatch.setattr(settings_module, "LARGE_NETWORK", 100)
    serve(federation, before, **DIRECT)
    (reply,) = federation.replies(Forget)
    assert reply.stored_bytes == BY_SIZE["sketch_rows", "auto"][1] * sum(p.numel() for p in network().parameters()) * 4


def test_recovery_never_leads_back_to_the_model_before():
    federation, before = make()
    changes: dict[str, Any] = DIRECT | {"lr": 0.05, "recovery_rounds": 2, "recovery_share": 1.0, "recovery_lr": 0.1}
    forgotten = serve(federation, before, **DIRECT | {"lr": 0.05}).state
    free, guarded = (serve(federation, before, **changes, recovery_guard=guard).state for guard in (False, True))
    drift = {name: forgotten[name] - before[name] for name in before}

    def along(state: State) -> float:
        return sum(float(((state[name] - forgotten[name]) * drift[name]).sum()) for name in drift)

    assert along(free) < -0.01, "or the guard would have nothing to do here"
    assert along(guarded) > -1e-4


def test_the_amnesia_is_a_variant_of_the_settings():
    settings = replace(OVERWRITE, amnesia_steps=7).for_network(1).opened()
    amnesia = settings.amnesia
    assert (amnesia.memory, amnesia.ascent, amnesia.epochs, amnesia.min_steps) == ("suppressed", "capped", 0, 7)
    assert float(amnesia.step_length) < float(settings.step_length), "it goes in shorter steps"
    assert amnesia.sketch == settings.sketch, "or the two could not share one"


NUMBERS = [item.name for item in fields(FullSettings) if str(item.type).startswith(("int", "float"))]
WORDS = [item.name for item in fields(FullSettings) if str(item.type).startswith("Literal")]
POSITIVE = [
    "teachers", "sketch_rows", "batch_size", "lr", "step_length", "sketch_samples", "ascent_cap", "amnesia_steps",
    "recovery_lr", "recovery_batch_size", "recovery_share",
]  # fmt: skip


def refused(**values: Any) -> str:
    with pytest.raises(InputError) as refusal:
        FullSettings(**values)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf])
def test_negative_and_non_finite_numbers_are_refused(name: str, value: float):
    assert f"'{name}' is {value}, but it must be " in refused(**{name: value})


@pytest.mark.parametrize("name", POSITIVE)
def test_zero_is_refused_where_nothing_would_happen(name: str):
    sentence = refused(**{name: 0})
    assert f"'{name}' is 0, but it must be " in sentence
    assert "above 0" in sentence


@pytest.mark.parametrize("name", [*WORDS, "sigma"])
def test_unknown_words_are_refused_with_the_known_ones(name: str):
    sentence = refused(**{name: "nonsense"})
    assert f"'{name}' is 'nonsense', but it must be one of " in sentence
    known = getattr(OVERWRITE.opened(), name)
    assert known in sentence


def test_settings_that_would_do_nothing_or_too_much_are_refused():
    assert "nothing would be forgotten" in refused(epochs=0, min_steps=0)
    assert "at most 1" in refused(recovery_share=1.5)
    assert "no preserver to derive it from" in refused(lr=None, preserver="none")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_size", 1.5, "a whole number, 0 or larger"),
        ("teachers", "ten", "a whole number, 0 or larger"),
        ("momentum", "fast", "a finite number, 0 or larger"),
        ("momentum", None, "a finite number, 0 or larger"),
        ("momentum", [1], "a finite number, 0 or larger"),
        ("momentum", True, "a finite number, 0 or larger"),
        ("momentum", math.nan, "a finite number, 0 or larger"),
        ("lr", -1, "a finite number, 0 or larger or none"),
        ("min_steps", -1, "a whole number, 0 or larger"),
        ("sketch_samples", "all", "a whole number, 0 or larger or auto or none"),
        ("freeze_normalisation", 1, "true or false"),
        ("memory", 3, "uniform or random or teacher or debiased or suppressed or reminded"),
        ("sigma", "big", "a finite number, 0 or larger or auto or literal"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_by_name(name: str, value: object, expected: str):
    with pytest.raises(InputError) as refusal:
        method_settings("overwrite", None, **{name: value})
    sentence = str(refusal.value)
    assert sentence.startswith(f"Setting '{name}' of 'overwrite' is ")
    assert sentence.endswith(f", but it must be {expected}.")


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 1), ("sigma", 0.5), ("sigma", "auto"), ("sketch_samples", None), ("normalise", False)]
)
def test_a_setting_of_the_right_type_is_taken(name: str, value: object):
    assert getattr(method_settings("overwrite", None, **{name: value})[1], name) == value


def test_retrain_has_one_setting():
    assert method_settings("retrain", None, oracle=2)[1].oracle == 2
    for value in (-1, 1.5, "two", math.nan):
        with pytest.raises(InputError, match=r"^Setting 'oracle' of 'retrain' is .*, but it must be a whole number"):
            method_settings("retrain", None, oracle=value)
