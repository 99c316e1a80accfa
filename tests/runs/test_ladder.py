"""The ladder: which rung it ends at and why, what it costs, and that a killed climb ends with the same bits."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedforget.audit.check import CheckBeside, check
from fedforget.data import Dataset, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.errors import ClientError, DivergedError, InputError
from fedforget.federation.beside import CountBeside, CountElsewhere, look
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, further_round, run_round, train, train_part
from fedforget.federation.tasks import CountSamples, Reply, Task, Train, Withdraw
from fedforget.methods import LadderSettings
from fedforget.methods import forget as forget_with
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.models import build_model
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb, KeptRungs, Rung
from fedforget.runs.ladder import climb, forget
from fedforget.runs.store import FolderRungs, NotedModel

LADDER_MODULE = importlib.import_module("fedforget.runs.ladder")
REMEMBERED = LADDER_MODULE.SAMPLES_REMEMBERED
SCHEDULE = Schedule(rounds=20, lr=0.1, batch_size=16, threads=1)
LEAVER = ErasureRequest.of_client(0)
THREES = ErasureRequest.of_class(0, 3)
SIXES = ErasureRequest.of_class(0, 6)
TWOS = ErasureRequest.of_class(0, 2)
UP_TO_REBUILD = LadderSettings(at_most="rebuild")


class Stop(Exception):
    """A kill of the test's own."""


class Tapped(LocalFederation):
    """Writes down what was asked and what came back. `fault` sees every task before a client gets it."""

    fault: Callable[[Task, int], None] = staticmethod(lambda task, client: None)
    told: Callable[[Task, Reply], Reply] = staticmethod(lambda task, reply: reply)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for client in sorted(self.clients if to is None else to):
            self.fault(task, client)
            for reply in super().ask(task, state, [client]):
                self.log.append((task, reply))
                yield self.told(task, reply)

    @property
    def log(self) -> list[tuple[Task, Reply]]:
        return self.__dict__.setdefault("_log", [])

    def asked(self, kind: type[Task], **want: Any) -> list[int]:
        return [
            reply.client for task, reply in self.log
            if isinstance(task, kind) and all(getattr(task, name) == value for name, value in want.items())
        ]  # fmt: skip


def noisy_digits(strength: float = 117.0) -> Dataset:
    """Digits so noisy that a network knows those it saw by heart, and of others three in four."""
    data, generator = load_dataset("digits"), torch.Generator().manual_seed(0)

    def noisy(features: Tensor) -> Tensor:
        noise = strength * torch.randn(features.shape, generator=generator)
        return (features.float() + noise).clamp(0, 255).to(torch.uint8)

    train_features = noisy(data.train.features[:1400])
    return from_arrays(train_features, data.train.labels[:1400], noisy(data.test.features), data.test.labels)


class Normalised(nn.Sequential):
    """A network that is broken where it is rebuilt; one without a normalisation is trained anew."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 10))


def federation(data: Dataset, model: Any = Normalised, **more: Any) -> Tapped:
    torch.manual_seed(0)
    return Tapped(data, partition("iid", data.train.labels, 4, 0), model, **more)


@pytest.fixture(scope="module", autouse=True)
def every_rung() -> Iterator[None]:
    """The climb begins at the lowest rung here, also where single samples are remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LADDER_MODULE, "SAMPLES_REMEMBERED", frozenset())
        yield


@pytest.fixture(scope="module")
def noisy() -> tuple[Dataset, State]:
    """What a whole client leaves behind here, overwriting does not reach; rebuilding does."""
    data = noisy_digits().first(800, 540)
    world = federation(data)
    return data, train(world, state_of(world.model), SCHEDULE)


@pytest.fixture
def world(noisy: tuple[Dataset, State]) -> Tapped:
    return federation(noisy[0])


@pytest.fixture
def before(noisy: tuple[Dataset, State]) -> State:
    return noisy[1]


@pytest.fixture(scope="module")
def poisoned() -> tuple[Tapped, State]:
    """Clean digits; the threes of client 0 carry a trigger and are called sixes."""
    world = federation(load_dataset("digits"), backdoors=[Backdoor(THREES, Trigger(2, margin=0), 6)])
    return world, train(world, state_of(world.model), replace(SCHEDULE, lr=0.05))


@pytest.fixture(scope="module")
def clean() -> tuple[Tapped, State]:
    world = federation(load_dataset("digits"))
    return world, train(world, state_of(world.model), replace(SCHEDULE, lr=0.05))


@pytest.fixture(scope="module")
def climbed(noisy: tuple[Dataset, State]) -> Climb:
    """Up to rebuild, without a limit that would make it harmful."""
    return climb(federation(noisy[0]), noisy[1], LEAVER, SCHEDULE, LadderSettings(limit=1.0))


def a_round_on(world: Tapped, state: State, request: ErasureRequest) -> State:
    """The further round of the check."""
    ordinary = replace(further_round(SCHEDULE, SCHEDULE.rounds, [request]), purpose="check")
    return run_round(world, state, replace(ordinary, share=min(1.0, 0.05 * SCHEDULE.rounds), min_samples=64))


def kept_of(rung: str, world: Tapped, before: State, request: ErasureRequest) -> State:
    """What the ladder keeps of this rung: of overwriting the model one round later, which mends what that spoiled."""
    made = forget_with(world, before, request, SCHEDULE, rung).state
    return a_round_on(world, made, request) if rung == "overwrite" else made


def story(made: Climb) -> list[tuple[str, str]]:
    return [(rung.name, rung.word) for rung in made.rungs]


# Which rung.


def test_it_ends_at_the_lowest_rung_that_forgot_each_from_the_model_before(
    world: Tapped, before: State, climbed: Climb
):
    assert story(climbed) == [("overwrite", "not forgotten"), ("rebuild", "forgotten")]
    assert (climbed.word, climbed.exact, climbed.method) == ("forgotten", False, "ladder")
    assert digest(climbed.state) == digest(kept_of("rebuild", world, before, LEAVER))
    assert climbed.rungs[1].model == digest(climbed.state)
    lower = climb(world, before, LEAVER, SCHEDULE, LadderSettings(at_most="overwrite"))
    assert climbed.rungs[0].model == digest(lower.state), "it names every model, also the one that was not enough"
    assert digest(lower.state) == digest(kept_of("overwrite", world, before, LEAVER))
    assert lower.rungs[0].check == climbed.rungs[0].check, "a rung is the same however far one climbs"


def test_the_check_is_of_the_models_that_it_says_it_looked_at(world: Tapped, before: State, climbed: Climb):
    """The slow twin: scout, looks and further round made by hand."""
    fresh = fresh_start(world.model, SCHEDULE, RetrainSettings(1_000_000))
    scout = train_part(world, fresh, SCHEDULE, 0.15, [LEAVER], "scout", min_samples=64, last_rate=0.01)
    task = CheckBeside(seed=0, threads=1, requests=(LEAVER,), half="judge")
    untouched, of_scout = (look(world, state, task, SCHEDULE) for state in (before, scout))
    for rung, overwritten in zip(climbed.rungs, (True, False), strict=True):
        made = forget_with(world, before, LEAVER, SCHEDULE, rung.name).state
        now, later = (look(world, state, task, SCHEDULE) for state in (made, a_round_on(world, made, LEAVER)))
        assert rung.check == check(untouched, now, later, of_scout, looks=2, limit=1.0, overwritten=overwritten)


@pytest.mark.parametrize(("rounds", "part"), [(20, 0.15), (40, 34 * 64 / (600 * 40)), (80, 0.06)])
def test_the_scout_has_its_part_of_the_training_and_a_few_steps_at_least(
    world: Tapped, before: State, rounds: int, part: float
):
    """34 steps of 64 samples, those of four clients together, for 600 that are left; but at most 15 % of all."""

    def scouted(task: Task, client: int) -> None:
        if world.asked(Train) and not isinstance(task, Train):
            raise Stop

    world.log.clear()
    world.fault = scouted
    with pytest.raises(Stop):
        climb(world, before, LEAVER, replace(SCHEDULE, rounds=rounds))
    shares = {task.round: task.share for task, _ in world.log if isinstance(task, Train)}
    assert {task.purpose for task, _ in world.log if isinstance(task, Train)} == {"scout"}
    assert sum(shares.values()) == pytest.approx(part * rounds)


def test_a_poisoned_class_is_overwritten_and_that_is_enough(poisoned: tuple[Tapped, State]):
    world, before = poisoned
    made = climb(world, before, THREES, SCHEDULE)
    assert story(made) == [("overwrite", "forgotten")]
    assert made.rungs[0].check is not None
    assert made.rungs[0].check.sees == ("excess",)
    assert digest(made.state) == digest(kept_of("overwrite", world, before, THREES))


@pytest.fixture
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LADDER_MODULE, "SAMPLES_REMEMBERED", REMEMBERED)


def test_where_single_samples_are_remembered_the_climb_begins_at_rebuild(as_shipped: None):
    """More noise, so more of each is learnt by heart: the gap sees it."""
    data = noisy_digits(150.0)
    world = federation(data)
    said: list[str] = []
    start = train(world, state_of(world.model), SCHEDULE)
    made = climb(world, start, LEAVER, SCHEDULE, UP_TO_REBUILD, say=said.append)
    assert [rung.name for rung in made.rungs] == ["rebuild"]
    why = "Overwriting is not tried: single samples are remembered, and such a memory comes back."
    assert said[0] == made.notes[0] == why
    assert made.rungs[0].check is not None
    assert "gap" in made.rungs[0].check.sees
    assert not world.asked(Forget)


def test_where_nothing_is_seen_it_is_overwritten_as_far_as_it_does_no_harm(world: Tapped, before: State):
    """It is known a little better than unseen data of its kind, which may be chance."""
    world.log.clear()
    made = climb(world, before, SIXES, SCHEDULE)
    assert story(made) == [("overwrite", "not enough evidence")]
    assert made.rungs[0].check is not None
    assert made.rungs[0].check.sees == ()
    assert not made.exact
    assert not world.asked(Train, purpose="check"), "a further round would prove nothing"
    task = CheckBeside(seed=0, threads=1, requests=(SIXES,), half="judge")
    enough = min(0.99, look(world, before, task, SCHEDULE).kind.value)
    twin = forget_with(world, before, SIXES, SCHEDULE, "overwrite", enough=enough)
    assert digest(made.state) == digest(twin.state)
    (note,) = [note for note in made.notes if "Retrain is sure" in note]
    assert note.startswith("Nothing tells the model before from one that never saw the target")
    assert note.endswith("s here: --effort retrain.")


def test_what_looks_unseen_stays_and_costs_the_scout_alone(clean: tuple[Tapped, State]):
    world, before = clean
    world.log.clear()
    made = climb(world, before, THREES, SCHEDULE)
    assert story(made) == [("overwrite", "not enough evidence")]
    assert made.rungs[0].check is None
    assert made.rungs[0].reason.endswith("nothing else tells that it was seen. So the model stays as it was.")
    assert digest(made.state) == digest(before)
    assert not world.asked(Forget)
    assert made.cost.gradient_evaluations == made.checking.gradient_evaluations > 0
    assert any("Retrain is sure" in note for note in made.notes)


@pytest.mark.parametrize("lowest", ["overwrite", "rebuild"])
def test_where_nothing_is_seen_and_even_that_harms_others_the_model_stays(noisy: tuple[Dataset, State], lowest: str):
    """Others answer after the rung as though they knew nothing any more."""
    data, before = noisy

    def worse(task: Task, reply: Reply) -> Reply:
        """What the clients that did not ask say of any model but the first two, the one before and the scout."""
        if not isinstance(task, CountElsewhere) or task.half == "steer":
            return reply
        looks[reply.client] = looks.get(reply.client, 0) + 1
        hits = {name: 0.0 for name in reply.numbers if name.startswith("hits")}
        return reply if looks[reply.client] <= 2 else replace(reply, numbers=reply.numbers | hits)

    looks: dict[int, int] = {}
    harmed = federation(data)
    harmed.told = worse
    made = climb(harmed, before, SIXES, SCHEDULE, LadderSettings(lowest=lowest))
    assert story(made) == [(lowest, "not enough evidence")]
    assert digest(made.state) == digest(before)
    assert made.rungs[0].reason.endswith("points worse. So the model stays as it was.")


def test_a_harmful_rung_is_not_kept(world: Tapped, before: State, climbed: Climb):
    assert climbed.rungs[1].check is not None
    lost = -(climbed.rungs[1].check.accuracy or 0.0)
    assert lost > 0.025, "or no limit could be below it"
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0, at_most="rebuild"))
    assert story(made) == [("overwrite", "not forgotten"), ("rebuild", "harmful")]
    assert digest(made.state) == digest(kept_of("overwrite", world, before, LEAVER))
    assert made.word == "not forgotten", "the word is of the model that is returned"
    assert any("points worse" in note and "--effort retrain" in note for note in made.notes)
    alone = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0, lowest="rebuild", at_most="rebuild"))
    assert digest(alone.state) == digest(before)
    assert alone.word == "harmful"
    assert any("So the model stays as it was." in note for note in alone.notes)


def test_the_top_is_retrain_and_exact(world: Tapped, before: State):
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0))
    assert story(made) == [("overwrite", "not forgotten"), ("rebuild", "harmful"), ("retrain", "exact")]
    assert made.exact
    assert made.word == "exact"
    assert digest(made.state) == digest(forget_with(world, before, LEAVER, SCHEDULE, "retrain").state)


def test_at_most_bounds_the_climb_and_retrain_alone_needs_no_scout(world: Tapped, before: State):
    world.log.clear()
    only = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="retrain"))
    assert story(only) == [("retrain", "exact")]
    assert not world.asked(Train, purpose="scout")
    assert only.checking.gradient_evaluations == 0
    with pytest.raises(InputError, match="would begin at rebuild and end at overwrite, which lies below it"):
        LadderSettings(lowest="rebuild", at_most="overwrite")
    with pytest.raises(InputError, match="'rebuilt' is unknown; choose one of overwrite, rebuild, retrain"):
        LadderSettings(lowest="rebuilt")


def test_what_is_retrained_sooner_than_that_is_retrained_at_once(world: Tapped, before: State):
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(exact_below=3600.0))
    assert story(made) == [("retrain", "exact")]
    assert made.checking.gradient_evaluations > 0, "the scout tells how long it takes"
    bounded = climb(world, before, LEAVER, SCHEDULE, LadderSettings(exact_below=3600.0, at_most="overwrite"))
    assert story(bounded) == [("overwrite", "not forgotten")], "--at-most bounds this too"
    slower = climb(world, before, LEAVER, SCHEDULE, LadderSettings(exact_below=1e-9, at_most="overwrite"))
    assert story(slower) == story(bounded)


# A network that is built anew.


NOISIER = noisy_digits(150.0).first(800, 540)


@pytest.fixture(scope="module")
def plain() -> tuple[Tapped, State]:
    """No normalisation follows its first kernel."""
    world = plain_federation(NOISIER)
    return world, train(world, state_of(world.model), SCHEDULE)


def plain_federation(data: Dataset, **more: Any) -> Tapped:
    return federation(data, build_model("mlp", data.shape, 10, 0), **more)


def test_a_network_that_is_built_anew_ends_exact_and_goes_on_from_the_scout(
    plain: tuple[Tapped, State], as_shipped: None
):
    world, before = plain
    world.log.clear()
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=1.0))
    assert story(made) == [("rebuild", "exact")]
    assert (made.exact, made.word) == (True, "exact")
    assert all(LEAVER in task.exclude for task, _ in world.log if isinstance(task, Train))
    assert not world.asked(Train, purpose="check"), "nothing can come back"
    assert set(made.rungs[0].cost.seconds) >= {"rebuilding"}
    assert "scout" not in made.rungs[0].cost.seconds, "the check's scout is trained on"
    named = forget_with(world, before, LEAVER, SCHEDULE, "rebuild")
    assert named.exact
    assert digest(named.state) == digest(made.state), "and trained again where the rung is named"
    other = forget_with(world, noisier(before), LEAVER, SCHEDULE, "rebuild", times=1)
    assert digest(other.state) == digest(forget_with(world, before, LEAVER, SCHEDULE, "rebuild", times=1).state), (
        "no number of the model before is in it"
    )


def noisier(state: State) -> State:
    return {name: tensor + 0.01 if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def test_exact_and_harmful_is_harmful_and_the_climb_goes_on(plain: tuple[Tapped, State], as_shipped: None):
    world, before = plain

    def worse(task: Task, reply: Reply) -> Reply:
        if not isinstance(task, CountElsewhere) or task.half == "steer":
            return reply
        looks.append(reply.client)
        hits = {name: 0.0 for name in reply.numbers if name.startswith("hits")}
        return reply if looks.count(reply.client) <= 2 else replace(reply, numbers=reply.numbers | hits)

    looks: list[int] = []
    world.told = worse
    try:
        made = climb(world, before, LEAVER, SCHEDULE)
    finally:
        world.told = Tapped.told
    assert story(made) == [("rebuild", "harmful"), ("retrain", "exact")]


def test_from_given_weights_nothing_is_exact(plain: tuple[Tapped, State]):
    world = plain_federation(NOISIER, initial=plain[1])
    made = climb(world, plain[1], LEAVER, SCHEDULE, LadderSettings(lowest="rebuild", limit=1.0))
    assert "exact" not in {rung.word for rung in made.rungs}
    assert not made.exact
    assert made.rungs[0].check is not None
    assert any(item.name.endswith("later") for item in made.rungs[0].check.measured), "it is looked at as any other"


def test_a_leaver_who_set_nothing_aside_may_be_served_by_a_model_built_anew():
    data = NOISIER
    world = plain_federation(data, held_out=[data.test.select(torch.arange(0)), data.test, data.test, data.test])
    before = train(world, state_of(world.model), SCHEDULE)
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=1.0))
    assert story(made) == [("rebuild", "exact")]


def test_where_a_model_built_anew_costs_little_more_overwriting_is_not_tried(monkeypatch: pytest.MonkeyPatch):
    data = load_dataset("digits")
    world = plain_federation(data, backdoors=[Backdoor(THREES, Trigger(2, margin=0), 6)])
    before = train(world, state_of(world.model), replace(SCHEDULE, lr=0.05))
    said: list[str] = []
    made = climb(world, before, THREES, SCHEDULE, say=said.append)
    assert made.rungs[0].name == "rebuild"
    assert said[0] == made.notes[0]
    assert said[0].startswith("Overwriting is not tried: it would cost not much less here")
    bounded = climb(world, before, THREES, SCHEDULE, LadderSettings(at_most="overwrite"))
    assert [rung.name for rung in bounded.rungs] == ["overwrite"], "it is, where that is all that may be done"
    monkeypatch.setattr("fedforget.runs.forecast.BARGAIN", 10.0)
    assert climb(world, before, THREES, SCHEDULE).rungs[0].name == "overwrite"


def test_where_nothing_is_seen_overwriting_that_is_no_bargain_is_done_only_if_it_is_named():
    data = noisy_digits().first(800, 540)
    world = plain_federation(data)
    before = train(world, state_of(world.model), SCHEDULE)
    made = climb(world, before, TWOS, SCHEDULE)
    assert story(made) == [("overwrite", "not enough evidence")]
    assert "it would cost not much less here" in made.rungs[0].reason
    assert digest(made.state) == digest(before)
    assert not world.asked(Forget)
    assert any("So is a rebuilt model here" in note for note in made.notes)
    climb(world, before, TWOS, SCHEDULE, LadderSettings(at_most="overwrite"))
    assert world.asked(Forget)


# An asker's answers.


def test_an_askers_answers_can_only_raise_the_rung(poisoned: tuple[Tapped, State], as_shipped: None):
    """It says that all of its target is known by whatever it is asked about, and so is harm."""
    data = load_dataset("digits")
    backdoor = Backdoor(THREES, Trigger(2, margin=0), 6)
    honest = climb(*poisoned, THREES, SCHEDULE, UP_TO_REBUILD)

    def known(task: Task, reply: Reply) -> Reply:
        if not isinstance(task, CountBeside):
            return reply
        lie = {"target/hits": reply.numbers["target/count"], "kind/hits": 0.0, "hits/0": 0.0, "count/0": 1e6}
        return replace(reply, numbers=reply.numbers | lie)

    lied = federation(data, backdoors=[backdoor])
    lied.told = known
    made = climb(lied, poisoned[1], THREES, SCHEDULE)
    assert [rung.name for rung in honest.rungs] == ["overwrite"]
    assert [rung.name for rung in made.rungs] == ["rebuild", "retrain"], "one look more than one's due, and the price"
    bounded = climb(lied, poisoned[1], THREES, SCHEDULE, LadderSettings(at_most="overwrite"))
    assert bounded.rungs[0].check is not None
    assert honest.rungs[0].check is not None
    assert bounded.rungs[0].check.accuracy == honest.rungs[0].check.accuracy, "which is the others' to say"


# Killed and resumed.


class Kept:
    """A climb's folder: everything is written there, as a run does it."""

    def __init__(self, folder: Path) -> None:
        self.rungs: KeptRungs = FolderRungs(folder, "these")
        self.checkpoints = NotedModel(folder / "unfinished", settings="these")


@pytest.fixture(scope="module")
def uninterrupted(noisy: tuple[Dataset, State]) -> tuple[Climb, int]:
    """All three rungs, and how many replies that took."""
    world = federation(noisy[0])
    made = climb(world, noisy[1], LEAVER, SCHEDULE, LadderSettings(limit=0.0))
    return made, len(world.log)


@pytest.mark.daily(4)
@pytest.mark.parametrize("at", [0.1, 0.45, 0.7, 0.9, 0.02, 0.3, 0.6, 0.99])
def test_killed_in_the_middle_and_resumed_it_ends_with_the_same_bits(
    world: Tapped, before: State, uninterrupted: tuple[Climb, int], tmp_path: Path, at: float
):
    settings = LadderSettings(limit=0.0)
    whole, replies = uninterrupted

    def kill(task: Task, client: int) -> None:
        if len(world.log) >= at * replies:
            raise Stop

    world.fault = kill
    first = Kept(tmp_path)
    with pytest.raises(Stop):
        climb(world, before, LEAVER, SCHEDULE, settings, kept=first.rungs, checkpoints=first.checkpoints)
    world.fault = Tapped.fault
    then = Kept(tmp_path)
    world.log.clear()
    said: list[str] = []
    made = climb(
        world, before, LEAVER, SCHEDULE, settings, kept=then.rungs, checkpoints=then.checkpoints, say=said.append
    )
    assert digest(made.state) == digest(whole.state)
    assert story(made) == story(whole)
    assert [rung.check for rung in made.rungs] == [rung.check for rung in whole.rungs]
    assert made.cost.gradient_evaluations == pytest.approx(whole.cost.gradient_evaluations), "no work is billed twice"
    assert (made.notes, made.curves, made.exact) == (whole.notes, whole.curves, whole.exact)
    if at > 0.1:
        assert len(world.log) < 0.99 * replies, "it goes on where it was"
    if at > 0.8:
        assert not world.asked(Train, purpose="scout")
        assert not world.asked(Forget)
        assert not world.asked(Train, purpose="rebuilding 0")


def test_a_finished_climb_that_is_asked_for_again_does_no_work(world: Tapped, before: State, tmp_path: Path):
    kept = Kept(tmp_path)
    first = climb(world, before, LEAVER, SCHEDULE, UP_TO_REBUILD, kept=kept.rungs)
    world.log.clear()
    again = climb(world, before, LEAVER, SCHEDULE, UP_TO_REBUILD, kept=Kept(tmp_path).rungs)
    assert {type(task) for task, _ in world.log} == {Withdraw, CountSamples}
    assert digest(again.state) == digest(first.state)
    assert (again.rungs, again.curves, again.checking) == (first.rungs, first.curves, first.checking)


def test_a_rung_is_its_record_and_back(climbed: Climb):
    for rung in climbed.rungs:
        assert Rung.from_json(json.loads(json.dumps(rung.to_json()))) == rung


# The bill.


def test_the_bill_counts_everything_that_was_done_and_the_checks_apart(world: Tapped, before: State):
    world.log.clear()
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0))
    done = sum(reply.gradient_evaluations for _, reply in world.log)
    assert made.cost.gradient_evaluations == pytest.approx(done)
    of_rungs = sum(rung.cost.gradient_evaluations for rung in made.rungs)
    assert made.checking.gradient_evaluations + of_rungs == pytest.approx(done)
    checks = sum(
        reply.gradient_evaluations for task, reply in world.log
        if getattr(task, "purpose", "") in ("scout", "check") or getattr(task, "half", "") == "judge"
    )  # fmt: skip
    assert made.checking.gradient_evaluations == pytest.approx(checks)
    assert made.retrain == made.rungs[-1].cost.gradient_evaluations, "what Retrain was forecast to cost"
    looks = [reply for task, reply in world.log if isinstance(task, CheckBeside)]
    assert len(looks) == 2 + 2 * 2, "the model before, the scout, and each rung now and later"
    assert made.cost.seconds.keys() >= {"scout", "check", "training"}


def test_before_each_rung_its_cost_is_said(world: Tapped, before: State):
    said: list[str] = []
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0), say=said.append)
    assert [sentence.split(":")[0] for sentence in said] == ["overwrite", "rebuild", "retrain"]
    overwrite, rebuild, retrain = (rung.cost.gradient_evaluations / made.retrain for rung in made.rungs)
    assert made.rungs[0].forecast == pytest.approx(overwrite, abs=0.05)
    assert made.rungs[1].forecast <= rebuild < 0.5, "its last part may be repeated"
    assert made.rungs[2].forecast == retrain == 1.0
    for sentence, rung in zip(said, made.rungs, strict=True):
        assert f"about {100 * rung.forecast:.0f} % of a retraining, about " in sentence


# Who asks, and who is there.


def test_two_requests_climb_together_and_one_retrain_serves_both(world: Tapped, before: State):
    both = [THREES, ErasureRequest.of_class(1, 5)]
    world.log.clear()
    made = climb(world, before, both, SCHEDULE, LadderSettings(exact_below=3600.0))
    assert made.requests == tuple(both)
    assert story(made) == [("retrain", "exact")]
    assert len(world.asked(Train, purpose="train")) == SCHEDULE.rounds * 4
    twin = train(world, fresh_start(world.model, SCHEDULE, RetrainSettings()), SCHEDULE, exclude=both)
    assert digest(made.state) == digest(twin)
    lower = climb(world, before, both, SCHEDULE, UP_TO_REBUILD)
    assert {rung.name for rung in lower.rungs} <= {"overwrite", "rebuild"}
    assert {reply.client for task, reply in world.log if isinstance(task, CheckBeside)} == {0, 1}
    assert set(world.asked(CountElsewhere)) == {2, 3}


def test_a_client_that_leaves_trains_no_more_and_says_nothing_of_the_others(world: Tapped, before: State):
    world.log.clear()
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=0.0))
    assert made.exact
    trained = [reply for task, reply in world.log if isinstance(task, Train)]
    assert {reply.client for reply in trained} == {1, 2, 3}
    assert set(world.asked(CountElsewhere)) == {1, 2, 3}
    assert set(world.asked(CheckBeside)) == {0}, "it is checked before it goes"


def test_of_a_client_that_leaves_and_set_nothing_aside_only_retrain_counts():
    data = noisy_digits(150.0).first(800, 540)
    nothing = data.test.select(torch.arange(0))
    world = federation(data, held_out=[nothing, data.test, data.test, data.test])
    before = train(world, state_of(world.model), SCHEDULE)
    made = climb(world, before, LEAVER, SCHEDULE)
    assert story(made) == [("retrain", "exact")]
    bounded = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="rebuild", at_most="rebuild", limit=1.0))
    assert bounded.rungs[0].check is not None
    assert (bounded.rungs[0].check.word, bounded.word) == ("forgotten", "not enough evidence")
    assert any("--effort retrain" in note for note in bounded.notes)


def test_who_left_before_is_asked_nothing_and_what_was_served_stays_away(world: Tapped, before: State):
    served = (ErasureRequest.of_client(3), ErasureRequest.of_class(1, 2))
    world.log.clear()
    climbed = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="rebuild"), served=served)
    assert climbed.rungs[0].name == "rebuild"
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="retrain"), served=served)
    for task, reply in world.log:
        if isinstance(task, Train):
            assert set(task.exclude) == {*served, LEAVER}
        assert reply.client != 3 or isinstance(task, CountSamples)
    assert made.exact
    twin = forget_with(world, before, LEAVER, SCHEDULE, "retrain", served=served)
    assert digest(made.state) == digest(twin.state)


def test_a_part_of_the_clients_in_each_round(world: Tapped, before: State):
    schedule = replace(SCHEDULE, participation=0.75)
    world.log.clear()
    made = climb(world, before, LEAVER, schedule, LadderSettings(lowest="rebuild"))
    rounds: dict[tuple[str, int], set[int]] = {}
    for task, reply in world.log:
        if isinstance(task, Train):
            rounds.setdefault((task.purpose, task.round), set()).add(reply.client)
    assert {len(clients) for clients in rounds.values()} == {3}
    assert {"scout", "between", "rebuilding 0", "check"} <= {purpose for purpose, _ in rounds}
    again = climb(world, before, LEAVER, schedule, LadderSettings(lowest="rebuild"))
    assert digest(again.state) == digest(made.state)
    whole = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="retrain"))
    assert made.retrain == 0.75 * whole.retrain


def test_a_client_that_is_away_is_refused_with_one_sentence_before_any_work(world: Tapped, before: State):
    def away(task: Task, client: int) -> None:
        if client == 2:
            raise ClientError(2, "is not connected.")

    world.fault = away
    given = digest(before)
    world.log.clear()
    with pytest.raises(ClientError, match=r"^Client 2 is not connected\.$"):
        climb(world, before, LEAVER, SCHEDULE)
    assert not world.asked(Train)
    assert digest(before) == given


def test_a_client_that_misses_rounds_is_no_matter(world: Tapped, before: State):
    """As in a federation over a network: a round of training goes on without it."""

    class Sleepy(Tapped):
        def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
            clients = [k for k in (self.clients if to is None else to) if not (isinstance(task, Train) and k == 2)]
            yield from super().ask(task, state, clients)

    data = noisy_digits()
    sleepy = Sleepy(data, partition("iid", data.train.labels, 4, 0), Normalised)
    made = climb(sleepy, before, LEAVER, SCHEDULE)
    assert 2 not in sleepy.asked(Train)
    assert made.rungs


# What goes wrong.


def diverges(kind: type[Task], **want: Any) -> Callable[[Task, int], None]:
    def fault(task: Task, client: int) -> None:
        if isinstance(task, kind) and all(getattr(task, name) == value for name, value in want.items()):
            raise DivergedError("The step", "it is no longer finite.")

    return fault


@pytest.mark.parametrize(
    ("kind", "want", "billed"), [(Forget, {}, False), (Train, {"purpose": "check"}, True)], ids=["rung", "check"]
)
def test_a_rung_that_leaves_the_finite_numbers_is_passed_over(
    world: Tapped, before: State, kind: type[Task], want: dict[str, Any], billed: bool
):
    world.fault = diverges(kind, **want)
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(limit=1.0))
    assert (made.rungs[0].name, made.rungs[0].word) == ("overwrite", "diverged")
    assert made.rungs[0].reason == "The step diverged: it is no longer finite."
    assert (made.rungs[0].cost.gradient_evaluations > 0) == billed
    assert made.word == ("exact" if billed else "forgotten")


def test_where_no_rung_is_left_the_old_model_is(world: Tapped, before: State):
    world.fault = diverges(Forget)
    with pytest.raises(DivergedError, match="no rung stayed within the finite numbers; the old model is in place"):
        climb(world, before, LEAVER, SCHEDULE, LadderSettings(at_most="overwrite"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"requests": ErasureRequest.of_client(9)}, "Client 9 does not exist"),
        ({"served": (LEAVER,)}, "Client 0 withdrew all of that before"),
        ({"state": "damaged"}, "The model to forget from is damaged"),
        ({"requests": ErasureRequest.of_feature(1, (2, 2, 4, 4)), "only": "rebuild"}, "Method 'rebuild' cannot forget"),
    ],
)
def test_what_cannot_be_served_is_refused_before_any_work(
    world: Tapped, before: State, change: dict[str, Any], sentence: str
):
    only = change.get("only")
    settings = LadderSettings(lowest=only, at_most=only) if only else None
    state = {name: tensor * torch.nan for name, tensor in before.items()} if "state" in change else before
    with pytest.raises(InputError, match=sentence):
        climb(world, state, change.get("requests", LEAVER), SCHEDULE, settings, served=change.get("served", ()))
    assert world.log == []


def test_a_feature_is_overwritten_and_only_retrain_is_sure(clean: tuple[Tapped, State]):
    world, before = clean
    feature = ErasureRequest.of_feature(1, (2, 2, 4, 4))
    made = climb(world, before, feature, SCHEDULE)
    assert story(made) == [("overwrite", "not enough evidence")]
    assert made.checking.gradient_evaluations == 0
    assert any("no unseen data to compare with. Retrain is sure: --effort retrain." in note for note in made.notes)
    assert story(climb(world, before, feature, SCHEDULE, LadderSettings(lowest="rebuild"))) == [("retrain", "exact")]


def test_a_retraining_from_given_weights_is_not_exact_and_is_not_called_sure(before: State):
    data = noisy_digits()
    world = federation(data, initial=before)
    made = climb(world, before, LEAVER, SCHEDULE, LadderSettings(lowest="retrain"))
    assert story(made) == [("retrain", "not enough evidence")]
    assert not made.exact
    assert not any("Retrain is sure" in note for note in made.notes)


# `forget`.


def test_forget_climbs_unless_a_method_is_named(world: Tapped, before: State, climbed: Climb):
    made = forget(world, before, LEAVER, SCHEDULE, limit=1.0)
    assert isinstance(made, Climb)
    assert digest(made.state) == digest(climbed.state)
    named = forget(world, before, LEAVER, SCHEDULE, "rebuild")
    assert not isinstance(named, Climb)
    assert digest(named.state) == digest(climbed.state)
    with pytest.raises(InputError, match="Method 'ladder' has no setting 'strength'; it has lowest, at_most, limit, "):
        forget(world, before, LEAVER, SCHEDULE, strength=2.0)
