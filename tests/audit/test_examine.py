"""Every measure of a level is taken or missing with a reason; what is missing is never passed; and, on digits, models
of which the truth is known get the verdict they deserve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import small_worlds
import torch

from fedforget.audit import examine as examining
from fedforget.audit.durability import durability
from fedforget.audit.examine import (
    BEYOND,
    LATER,
    ORACLES,
    REST,
    Case,
    Examination,
    Level,
    check_level,
    examine,
    examine_oracles,
    judge,
)
from fedforget.audit.label_loss import label_loss_gap
from fedforget.audit.measures import measure, measure_clients
from fedforget.audit.membership import AttackMembership, attack_membership
from fedforget.audit.oracles import oracle_models
from fedforget.audit.verdict import Reading
from fedforget.data import load_dataset
from fedforget.data.backdoor import Backdoor
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Measure, Train
from fedforget.methods import forget
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.models import build_model
from fedforget.params import State, copy_state, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig, default_trigger

CLASS = ErasureRequest.of_class(0, 1)
SCHEDULE = replace(small_worlds.SCHEDULE, rounds=4)
POISONED_LABEL = 2
ATTACKS = {
    "loss below clean unseen data", "membership by loss", "membership by entropy", "membership by rmia",
    "membership by calibrated margin", "unseen data of the same classes", "loss spared, beside unseen data",
}  # fmt: skip
"""What one attack on the model tells, but for REST, which needs no target."""
BESIDE = {"loss below clean unseen data": "loss below unseen data"}
"""What is read of an honest target in place of what is read of a backdoor."""
MEASURES = {"accuracy on the target", "comes back", REST} | ATTACKS
WITH_REFERENCES = {"membership by rmia", "membership by calibrated margin", "loss spared, beside unseen data"}
"""What is missing where no oracle was trained."""


def quiet(what: str, done: int, total: int) -> None:
    pass


def stamped(samples: Samples) -> Samples:
    """Class 1 carries a mark in its last feature, and the label POISONED_LABEL."""
    mask = samples.true_labels == 1
    features, labels = samples.features.clone(), samples.labels.clone()
    features[mask, 5], labels[mask] = 3.0, POISONED_LABEL
    return replace(samples, features=features, labels=labels)


def make_world(poisoned: bool) -> small_worlds.Tapped:
    """Four clients with points of three classes; class 1 of client 0, and what it holds out of that class, may be
    poisoned."""
    sizes, outside = (150, 90, 90, 90), 270
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(sum(sizes) + outside) % 3
    features = torch.randn(len(labels), 6, generator=generator) + 4 * torch.nn.functional.one_hot(labels, 6)
    cut = sum(sizes)
    data = from_arrays(features[:cut], labels[:cut], features[cut:], labels[cut:])
    world = small_worlds.Tapped(data, list(torch.arange(cut).split(list(sizes))), small_worlds.network())
    own = world.client(0)
    if poisoned:
        assert own.held_out is not None
        own.samples, own.held_out = stamped(own.samples), stamped(own.held_out)
    return world


@dataclass
class Known:
    """A world with the model before, three oracles, and a further one that is none of them."""

    world: small_worlds.Tapped
    before: State
    oracles: list[State]
    fresh: State

    def case(self, level: Level = "quick", served: tuple[ErasureRequest, ...] = ()) -> Case:
        return Case(self.world, (CLASS,), SCHEDULE, level, served)


def known(poisoned: bool) -> Known:
    world = make_world(poisoned)
    before = train(world, state_of(world.model), SCHEDULE)
    *oracles, fresh = oracle_models(world, [CLASS], SCHEDULE, 4, data="points")
    return Known(world, before, oracles, fresh)


@pytest.fixture(scope="module")
def poisoned() -> Known:
    return known(poisoned=True)


@pytest.fixture(scope="module")
def clean() -> Known:
    return known(poisoned=False)


@dataclass
class Examined:
    """The same, examined."""

    before: Examination
    oracles: list[Examination]
    fresh: Examination


@pytest.fixture(scope="module")
def examined(poisoned: Known) -> Examined:
    case = poisoned.case()
    oracles = examine_oracles(case, poisoned.oracles, quiet)
    before, fresh = (examine(case, state, poisoned.oracles) for state in (poisoned.before, poisoned.fresh))
    return Examined(before, oracles, fresh)


# Levels


def test_a_level_that_is_unknown_is_refused():
    assert [check_level(name) for name in ("alone", "quick", "full")] == list(ORACLES) == list(LATER)
    for name in ("deep", "", "Quick"):
        with pytest.raises(InputError) as refusal:
            check_level(name)
        assert str(refusal.value) == f"Level '{name}' is unknown; choose one of alone, quick, full."


@pytest.mark.real
@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("kind", ["clean", "poisoned"])
def test_every_measure_of_the_level_is_taken(level: Level, kind: str, request: pytest.FixtureRequest):
    there: Known = request.getfixturevalue(kind)
    case = there.case(level)
    oracles = examine_oracles(case, there.oracles, quiet)
    for found in (*oracles, examine(case, there.before, there.oracles)):
        expected = MEASURES | {"true class of the target"}
        if kind == "clean":
            expected = {BESIDE.get(name, name) for name in MEASURES} | {BEYOND}
            known, rest = found.readings["accuracy on the target"], found.readings[REST]
            assert found.readings[BEYOND].value == known.value - rest.value, (
                "who is better at everything is just better"
            )
            assert found.readings[BEYOND].error == pytest.approx((known.error**2 + rest.error**2) ** 0.5)
        assert found.readings.keys() == expected
        assert all(reading.error > 0 for reading in found.readings.values())
        assert found.notes == ()
        assert found.poisoned == (kind == "poisoned")
        assert found.samples == 50
        evidence, verdict = judge(found, found, oracles)
        assert {item.name for item in evidence} == expected - ({"accuracy on the target"} if kind == "clean" else set())
        assert all(finding.says != "missing" for finding in verdict.findings)
        assert verdict.oracles == 3


def test_without_an_oracle_there_are_figures_and_no_verdict_but_exact(poisoned: Known):
    found, quick = (examine(poisoned.case(level), poisoned.before) for level in ("alone", "quick"))
    assert found == quick
    assert found.readings.keys() >= MEASURES - WITH_REFERENCES
    _, verdict = judge(found, found, ())
    assert (verdict.word, verdict.oracles) == ("not enough evidence", 0)
    assert verdict.reasons[0].startswith("No oracle was trained, so nobody knows ")
    assert judge(found, found, (), exact=True)[1].word == "exact"


def test_the_readings_are_those_of_the_measures(poisoned: Known):
    world, state, case = poisoned.world, poisoned.before, poisoned.case("full")
    examine_oracles(case, poisoned.oracles, quiet)
    found = examine(case, state, poisoned.oracles)
    attacked = attack_membership(Case(world, (CLASS,), SCHEDULE), state, references=poisoned.oracles)
    figures = measure(world, state, [CLASS], world.client(1).samples)
    later = durability(Case(world, (CLASS,), SCHEDULE), state, (1, 3, 5))
    gap = label_loss_gap(Case(world, (CLASS,), SCHEDULE), state)
    values = {name: reading.value for name, reading in found.readings.items()}
    assert values == {
        "accuracy on the target": figures.bd_acc,
        "true class of the target": figures.true_acc,
        "loss below clean unseen data": gap and gap.value,
        "membership by loss": attacked.areas["loss"].value,
        "membership by entropy": attacked.areas["entropy"].value,
        "membership by rmia": attacked.areas["rmia"].value,
        "membership by calibrated margin": attacked.areas["calibrated"].value,
        "loss spared, beside unseen data": attacked.calibrated_gap and attacked.calibrated_gap.value,
        "comes back": later.known[-1].bd_acc,
        "unseen data of the same classes": attacked.same_classes and attacked.same_classes.value,
        REST: attacked.all_classes and attacked.all_classes.value,
    }
    assert found.pictures.keys() == attacked.curves.keys() | {"comes back"}
    assert found.pictures["comes back"] == later.to_json()
    assert found.fingerprint == attacked.fingerprint
    quick = examine(poisoned.case("quick"), state, poisoned.oracles)
    assert quick.pictures["comes back"]["rounds"] == [0, 1]
    assert quick.readings["comes back"].value == later.known[1].bd_acc


@pytest.mark.real
def test_the_same_bits_again_and_the_model_stays(poisoned: Known):
    case, before = poisoned.case(), digest(poisoned.before)
    examine_oracles(case, poisoned.oracles, quiet)
    first = examine(case, poisoned.before, poisoned.oracles)
    with torch.no_grad():
        for tensor in poisoned.world.model.state_dict().values():
            tensor.fill_(7)
    assert examine(case, poisoned.before, poisoned.oracles) == first
    assert digest(poisoned.before) == before


def test_every_oracle_has_the_others_as_its_references(poisoned: Known):
    steps: list[tuple[str, int, int]] = []
    world = poisoned.world
    world.log.clear()
    found = examine_oracles(poisoned.case(), poisoned.oracles, lambda *step: steps.append(step))
    assert steps == [("examining oracles", done, 3) for done in range(4)]
    attacks = [task for task, *_ in world.log if isinstance(task, AttackMembership) and task.model]
    names = [digest(state)[:16] for state in poisoned.oracles]
    assert [(task.model, task.references) for task in attacks[:3]] == [(name, ()) for name in names]
    assert [(task.model, set(task.references)) for task in attacks[3:]] == [
        (name, set(names) - {name}) for name in names
    ]  # fmt: skip
    again = examine(poisoned.case(), poisoned.oracles[1], [poisoned.oracles[0], poisoned.oracles[2]])
    assert again == found[1]


def test_what_was_served_before_is_told_to_every_measure(poisoned: Known):
    gone = ErasureRequest.of_samples(0, range(0, 30))
    world = poisoned.world
    world.log.clear()
    found = examine(poisoned.case(served=(gone,)), poisoned.before)
    tasks = [task for task, *_ in world.log]
    assert {task.served for task in tasks if isinstance(task, AttackMembership | Measure)} == {(gone,)}
    assert {task.exclude for task in tasks if isinstance(task, Train)} == {(gone, CLASS)}
    assert found.samples == 50 - 10


# What is missing


FAILING: dict[str, set[str]] = {
    "durability": {"comes back"},
    "attack_membership": ATTACKS | {REST},
}


@pytest.mark.parametrize("function", FAILING)
def test_a_measure_that_fails_is_missing_and_says_why(
    poisoned: Known, examined: Examined, function: str, monkeypatch: pytest.MonkeyPatch
):
    assert judge(examined.fresh, examined.before, examined.oracles)[1].word == "forgotten"

    def fail(*_: Any, **__: Any) -> None:
        raise FedForgetError("The client has gone fishing.")

    monkeypatch.setattr(examining, function, fail)
    found = examine(poisoned.case(), poisoned.fresh, poisoned.oracles)
    assert found.readings.keys() == examined.fresh.readings.keys() - FAILING[function]
    assert {name: found.readings[name] for name in found.readings} == {
        name: examined.fresh.readings[name] for name in found.readings
    }
    (note,) = found.notes
    assert note.endswith(" could not be taken: The client has gone fishing.")
    _, verdict = judge(found, examined.before, examined.oracles)
    assert verdict.word == "not enough evidence"
    assert {finding.name for finding in verdict.findings if finding.says == "missing"} == FAILING[function]
    assert all(name in verdict.reasons[0] for name in FAILING[function])


def test_a_target_of_one_sample_accuses_nobody_and_acquits_nobody(poisoned: Known):
    """One sample was right or wrong, and nobody knows how that scatters: no share of it is read, and there is no
    p-value. The model before still gives it the poisoned label, which no oracle does."""
    own = poisoned.world.client(0).samples
    request = ErasureRequest.of_samples(0, own.ids[own.true_labels == 1][:1].tolist())
    case = replace(poisoned.case(), requests=(request,))
    oracles = [examine(case, state) for state in poisoned.oracles]
    before = examine(case, poisoned.before)
    assert before.samples == 1
    assert before.readings.keys() <= {REST, "unseen data of the same classes"}
    assert "Only 1 of the target can be judged, and no share of fewer than 5 is read." in before.notes
    _, verdict = judge(before, before, oracles)
    assert verdict.word == "not enough evidence"
    assert all(f.p_remembers is None for f in verdict.findings)
    assert "accuracy on the target" in verdict.reasons[0]


def test_a_mistake_of_ours_is_not_taken_for_a_missing_measure(poisoned: Known, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(examining, "durability", fail)
    with pytest.raises(ZeroDivisionError):
        examine(poisoned.case(), poisoned.fresh, poisoned.oracles)


def test_a_model_that_left_the_finite_numbers_is_examined_all_the_same(poisoned: Known):
    """Its weights are finite, what it says is not: no figure, and no end of the audit for the others."""
    broken = {name: tensor.sign() * 3e38 for name, tensor in poisoned.before.items()}
    found = examine(poisoned.case(), broken)
    assert not found.readings.keys() & (ATTACKS | {REST})
    assert any("not a finite number" in note for note in found.notes)


def test_without_the_clients_held_out_data_there_is_not_enough_evidence(poisoned: Known):
    """The issue's own example: one measure's input is removed."""
    own = poisoned.world.client(0)
    kept = own.held_out
    case = poisoned.case()
    try:
        own.held_out = None
        oracles = examine_oracles(case, poisoned.oracles, quiet)
        before, fresh = (examine(case, state, poisoned.oracles) for state in (poisoned.before, poisoned.fresh))
    finally:
        own.held_out = kept
    _, verdict = judge(fresh, before, oracles)
    assert verdict.word == "not enough evidence"
    assert {f.name for f in verdict.findings if f.says == "missing"} == ATTACKS | {REST}
    assert fresh.notes[0].startswith("Client 0 has 50 target samples and 0 held-out ones of the same kind;")
    assert fresh.samples == 50
    assert judge(before, before, oracles)[1].word == "not forgotten", "what is there may still accuse"


def test_a_target_that_is_gone_altogether_leaves_nothing_to_measure(poisoned: Known):
    found = examine(replace(poisoned.case(), requests=(ErasureRequest.of_samples(0, [10**6]),)), poisoned.before)
    assert (found.samples, found.poisoned) == (0, False)
    assert not found.readings.keys() & {"accuracy on the target", *BESIDE.values(), "comes back"}
    assert judge(found, found, ())[1].word == "not enough evidence"


def test_a_measure_that_one_oracle_lacks_is_missing(examined: Examined):
    readings = {name: r for name, r in examined.oracles[1].readings.items() if name != "comes back"}
    oracles = [examined.oracles[0], replace(examined.oracles[1], readings=readings), examined.oracles[2]]
    evidence, verdict = judge(examined.fresh, examined.before, oracles)
    assert next(item.oracles for item in evidence if item.name == "comes back") == ()
    assert (verdict.word, verdict.reasons) == ("not enough evidence", ("Missing: comes back.",))


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_oracles_are_not_enough(examined: Examined, count: int):
    assert judge(examined.fresh, examined.before, examined.oracles[:count])[1].word == "not enough evidence"


def test_nobody_knows_whether_a_test_would_notice_anything_without_the_model_before(examined: Examined):
    assert judge(examined.fresh, None, examined.oracles)[1].word == "not enough evidence"


# Directions


CLEAN = {
    BEYOND: ("high", True, True),
    "loss below unseen data": ("high", True, True),
    "membership by loss": ("high", True, True),
    "membership by entropy": ("high", False, True),
    "membership by rmia": ("high", True, True),
    "membership by calibrated margin": ("high", True, True),
    "loss spared, beside unseen data": ("high", True, True),
    "comes back": ("high", True, True),
    "unseen data of the same classes": ("high", True, False),
    REST: ("high", True, False),
}
"""(which end remembers, whether the other is over-forgetting, whether the first means anything)."""
POISONED = {
    name: (end, over and name in ("unseen data of the same classes", REST), memory)
    for name, (end, over, memory) in CLEAN.items()
    if name not in (*BESIDE.values(), BEYOND)
} | {
    "accuracy on the target": ("high", False, True),
    "true class of the target": ("high", True, False), "loss below clean unseen data": ("high", False, True),
}  # fmt: skip


@pytest.mark.parametrize("level", ["quick", "full"])
def test_which_end_of_a_measure_means_what(examined: Examined, level: Level):
    for is_poisoned, expected in ((False, CLEAN), (True, POISONED)):
        beyond = {} if is_poisoned else {BEYOND: Reading(0.0, 1.0)}
        subject = replace(examined.fresh, poisoned=is_poisoned, readings=examined.fresh.readings | beyond)
        evidence, _ = judge(subject, examined.before, examined.oracles)
        assert {item.name: (item.remembers, item.over, item.memory) for item in evidence} == expected
        assert [item.name for item in evidence if item.rest] == [REST]


def moved(examination: Examination, **values: float) -> Examination:
    """The same, but for some values."""
    readings = {n: replace(r, value=values.get(n.replace(" ", "_"), r.value)) for n, r in examination.readings.items()}
    return replace(examination, readings=readings)


def test_less_of_the_poisoned_label_than_an_oracle_gives_is_not_over_forgotten(examined: Examined):
    """But on a clean target it is; and where the true class is lost, it is on a poisoned one too."""
    oracles = [moved(oracle, accuracy_on_the_target=40.0 + k) for k, oracle in enumerate(examined.oracles)]
    subject = moved(examined.fresh, accuracy_on_the_target=0.0)
    assert judge(subject, examined.before, oracles)[1].word == "forgotten"
    assert judge(replace(subject, poisoned=False), examined.before, oracles)[1].word == "over-forgotten"
    lost = moved(examined.fresh, true_class_of_the_target=0.0)
    assert judge(lost, examined.before, examined.oracles)[1].word == "over-forgotten"
    found = moved(examined.fresh, true_class_of_the_target=300.0)
    assert judge(found, examined.before, examined.oracles)[1].word == "forgotten", "knowing more is no memory"


# The rest of the model


def broken_elsewhere(state: State) -> State:
    """Never gives class 0, which the target is not of and was not given."""
    broken = copy_state(state)
    broken[list(broken)[-1]][0] -= 1e3
    return broken


def test_a_model_whose_rest_was_damaged_is_over_forgotten_and_the_reason_says_so(poisoned: Known):
    """Nothing on the target or its classes would tell."""
    case = poisoned.case()
    oracles = examine_oracles(case, poisoned.oracles, quiet)
    before, broken, fresh = (
        examine(case, state, poisoned.oracles)
        for state in (poisoned.before, broken_elsewhere(poisoned.fresh), poisoned.fresh)
    )
    whole, verdict = (judge(model, before, oracles)[1] for model in (fresh, broken))
    assert (whole.word, verdict.word) == ("forgotten", "over-forgotten")
    assert [f.name for f in verdict.findings if f.says == "over-forgotten"] == [REST]
    assert verdict.reasons[0].startswith(f"The rest of the model was damaged: {REST} is ")
    assert "an oracle's is above" in verdict.reasons[0]
    assert verdict.would_change == "a model that does as well elsewhere as one that never saw the target"


def test_being_better_elsewhere_than_an_oracle_is_no_fault(examined: Examined):
    better = moved(examined.fresh, **{REST.replace(" ", "_"): 300.0})
    assert judge(better, examined.before, examined.oracles)[1].word == "forgotten"


def test_the_rest_is_judged_though_the_target_is_too_small_to_attack(poisoned: Known):
    few = replace(poisoned.case(), requests=(ErasureRequest.of_samples(0, range(1, 31, 3)),))
    found = examine(few, poisoned.before)
    assert found.readings[REST] == examine(poisoned.case(), poisoned.before).readings[REST]
    assert not found.readings.keys() & ATTACKS


@pytest.fixture(scope="module")
def memorised() -> tuple[Case, list[State], State, State]:
    """Noisy digits of which a network knows what it saw by heart: the case, oracles, the model that saw all, and one
    that was trained without R for a quarter of the time."""
    data, generator = load_dataset("digits").first(600), torch.Generator().manual_seed(0)
    noisy = data.train.features.float() + 150 * torch.randn(data.train.features.shape, generator=generator)
    own = from_arrays(noisy.clamp(0, 255).to(torch.uint8), data.train.labels, data.test.features, data.test.labels)
    held_out = load_dataset("digits").train.select(torch.arange(600, 1400))
    unseen = held_out.features.float() + 150 * torch.randn(held_out.features.shape, generator=generator)
    held_out = replace(held_out, features=unseen.clamp(0, 255).to(torch.uint8))
    world = LocalFederation(own, partition("iid", own.train.labels, 3, 0), build_model("mlp", own.shape, 10, 0),
                            held_out=held_out)  # fmt: skip
    asked, schedule = (ErasureRequest.of_client(0),), Schedule(rounds=20, lr=0.1, batch_size=16, threads=1)
    before = train(world, state_of(world.model), schedule)
    oracles = oracle_models(world, asked, schedule, 3, data="noisy digits")
    fresh = fresh_start(world.model, schedule, RetrainSettings(50))
    short = train(world, fresh, replace(schedule, rounds=5), exclude=asked)
    return Case(world, asked, schedule, "quick"), oracles, before, short


@pytest.mark.real
def test_a_model_that_never_saw_honest_data_is_not_accused_for_being_trained_less(
    memorised: tuple[Case, list[State], State, State],
):
    """It is less sure of everything, and so of R; beside unseen data it is as all oracles are."""
    case, models, state, shorter = memorised
    oracles = examine_oracles(case, models, quiet)
    before, short = (examine(case, weights, models) for weights in (state, shorter))
    losses = [measure_clients(case.federation, weights, case.schedule.about(Measure, case.requests))[0].mean_loss
              for weights in (*models, shorter)]  # fmt: skip
    assert losses[-1] < 0.8 * min(losses[:-1]), "or the loss alone would not have accused it"
    assert judge(short, before, oracles)[1].word == "forgotten"
    untouched = judge(before, before, oracles)[1]
    told = {finding.name for finding in untouched.findings if finding.says == "remembers"}
    assert told >= set(BESIDE.values())


# On the demo's federation


@dataclass
class Demo:
    """The demo's world (`fedforget.runs.demo`): digits, 4 clients; client 0's threes are poisoned."""

    case: Case
    before: State
    fresh: State
    oracles: list[State]
    flipped: int
    examined_before: Examination
    examined_oracles: list[Examination]

    def verdict(self, state: State) -> str:
        found = examine(self.case, state, self.oracles)
        return judge(found, self.examined_before, self.examined_oracles)[1].word


def demo_federation(schedule: Schedule) -> tuple[LocalFederation, Backdoor]:
    dataset = RunConfig().load_dataset()
    request = ErasureRequest.of_class(0, 3)
    backdoor = Backdoor.draw(request, default_trigger(dataset), len(dataset.classes), schedule.seed)
    return RunConfig(schedule=schedule, backdoor=backdoor).build_federation(dataset), backdoor


@pytest.fixture(scope="module")
def demo() -> Demo:
    schedule = Schedule(rounds=20, lr=0.05, batch_size=16, threads=1)
    federation, backdoor = demo_federation(schedule)
    before = train(federation, state_of(federation.model), schedule)
    *oracles, fresh = oracle_models(federation, [backdoor.request], schedule, 4, data="digits")
    case = Case(federation, (backdoor.request,), schedule, "quick")
    examined_oracles = examine_oracles(case, oracles, quiet)
    examined_before = examine(case, before, oracles)
    return Demo(case, before, fresh, oracles, backdoor.flipped_label, examined_before, examined_oracles)


@pytest.mark.real
def test_the_untouched_model_has_not_forgotten(demo: Demo):
    assert demo.verdict(demo.before) == "not forgotten"


@pytest.mark.real
def test_a_model_that_never_saw_the_target_has_forgotten(demo: Demo):
    assert digest(demo.fresh) not in {digest(oracle) for oracle in demo.oracles}
    assert demo.verdict(demo.fresh) == "forgotten"


@pytest.mark.real
def test_a_destroyed_model_is_not_called_forgotten(demo: Demo):
    """SGA leaves 83 % on test data, where Retrain has 97 %; it no longer knows the target, which alone would pass."""
    case = demo.case
    state = forget(case.federation, demo.before, case.requests[0], case.schedule, "sga", "ewc").state
    found = examine(case, state, demo.oracles)
    verdict = judge(found, demo.examined_before, demo.examined_oracles)[1]
    assert verdict.word == "over-forgotten"
    assert any(reason.startswith("The rest of the model was damaged: ") for reason in verdict.reasons)


@pytest.mark.real
@pytest.mark.parametrize("by", [5.0, 20.0, 1000.0])
def test_a_model_whose_output_is_masked_has_not_forgotten(demo: Demo, by: float):
    """Nothing is forgotten: the last bias of the label that the target was given is lowered."""
    masked = copy_state(demo.before)
    bias = masked[list(masked)[-1]]
    assert bias.shape == (10,)
    bias[demo.flipped] -= by
    assert demo.verdict(masked) in ("not forgotten", "over-forgotten")


@pytest.mark.real
def test_the_demos_verdicts_without_one_measures_input(demo: Demo, monkeypatch: pytest.MonkeyPatch):
    federation = demo.case.federation
    assert isinstance(federation, LocalFederation)
    monkeypatch.setattr(federation.client(0), "held_out", None)
    assert demo.verdict(demo.fresh) == "not enough evidence"
    assert demo.verdict(demo.before) == "not forgotten"
