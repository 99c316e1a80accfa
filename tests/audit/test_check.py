"""The check between two rungs: each measure against a slow twin, bound and margins in closed form, its four words."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import asdict, replace
from statistics import NormalDist
from typing import Any

import pytest
import torch

from fedforget.audit.check import BASE, Check, CheckBeside, check, judged, loss_of_accuracy, memory, seen_in
from fedforget.audit.verdict import Reading
from fedforget.data import load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.federation.beside import Share, Sight, half_of, look
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 3)
SCHEDULE = Schedule(rounds=10, lr=0.05, batch_size=16, threads=1)
TASK = CheckBeside(seed=0, threads=1, requests=(CLASS,), half="judge")


@pytest.fixture(scope="module")
def world() -> LocalFederation:
    """Digits at three clients; the threes of client 0 carry a trigger and are called eights."""
    data = load_dataset("digits")
    backdoor = Backdoor(CLASS, Trigger(2, margin=0), 8)
    unseen = data.train.select(torch.arange(900, len(data.train)))
    data = data.first(900)
    parts = partition("iid", data.train.labels, 3, 0)
    model = build_model("mlp", data.shape, 10, 0)
    return LocalFederation(data, parts, model, backdoors=[backdoor], held_out=unseen)


@pytest.fixture(scope="module")
def before(world: LocalFederation) -> State:
    return train(world, state_of(world.model), SCHEDULE)


@pytest.fixture(scope="module")
def short(world: LocalFederation) -> State:
    """A model that never saw the target and was trained for a moment, as the scout is."""
    return train(world, state_of(build_model("mlp", (1, 8, 8), 10, 7)), replace(SCHEDULE, rounds=1), exclude=[CLASS])


@pytest.fixture(scope="module")
def retrained(world: LocalFederation, before: State) -> State:
    return forget(world, before, CLASS, SCHEDULE, "retrain").state


# The slow twins: sample by sample, from the predictions.


class Slow:
    """Everything the check looks at, one sample after another."""

    def __init__(self, world: LocalFederation, state: State) -> None:
        self.network = build_model("mlp", (1, 8, 8), 10, 0)
        self.network.load_state_dict(state)
        self.network.eval()
        self.client = world.client(0)
        own, self.held_out = self.client.samples, half_of(self.client, "judge", 0)
        self.target = [(own, k) for k in range(len(own)) if int(own.true_labels[k]) == 3]
        assert self.client.held_out is not None
        wanted = Counter(self.pair(*one) for one in self.target)
        assert len(wanted) == 1, "one pair of true class and label, so that all of its held-out samples are of the kind"
        self.kind = [
            (self.held_out, k) for k in range(len(self.held_out)) if self.pair(self.held_out, k) in wanted
        ]  # fmt: skip
        self.others = [
            (half, k) for index in (1, 2) for half in [half_of(world.client(index), "judge", 0)]
            for k in range(len(half))
        ]  # fmt: skip

    @staticmethod
    def pair(samples: Samples, k: int) -> tuple[int, int]:
        return int(samples.true_labels[k]), int(samples.labels[k])

    def logits(self, samples: Samples, k: int) -> list[float]:
        with torch.no_grad():
            return self.network(self.client.inputs(samples.features[k : k + 1]))[0].tolist()

    def share(self, samples: list[tuple[Samples, int]]) -> float:
        right = 0
        for one, k in samples:
            said = self.logits(one, k)
            right += said.index(max(said)) == int(one.labels[k])
        return right / len(samples)

    def loss(self, samples: Samples, k: int) -> float:
        said = self.logits(samples, k)
        return math.log(sum(math.exp(x) for x in said)) - said[int(samples.labels[k])]

    @property
    def gap(self) -> float:
        return self.share(self.target) - self.share(self.kind)

    @property
    def membership(self) -> float:
        inside, outside = ([self.loss(*one) for one in samples] for samples in (self.target, self.kind))
        below = sum((a < b) + (a == b) / 2 for a in inside for b in outside)
        return below / (len(inside) * len(outside)) - 0.5

    @property
    def known(self) -> float:
        """The others' unseen data, each label as often as the target has it."""
        by_label = {int(one.labels[k]) for one, k in self.target}
        total = 0.0
        for label in by_label:
            there = [(one, k) for one, k in self.others if int(one.labels[k]) == label]
            total += self.share(there) * sum(int(one.labels[k]) == label for one, k in self.target)
        return total / len(self.target)


def test_every_measure_is_what_its_equation_says(world: LocalFederation, before: State, short: State, retrained: State):
    slow_scout, seen_scout = Slow(world, short), look(world, short, TASK, SCHEDULE)
    slow_now, seen_now = Slow(world, retrained), look(world, retrained, TASK, SCHEDULE)
    for state in (before, retrained):
        slow = Slow(world, state)
        found = memory(look(world, state, TASK, SCHEDULE), seen_scout, seen_now)
        assert found["gap"].value == pytest.approx(slow.gap)
        assert found["membership"].value == pytest.approx(slow.membership, abs=1e-6)
        expected = min(1.0, slow_scout.share(slow_scout.target) * slow.known / slow_scout.known)
        assert found["excess"].value == pytest.approx(slow.share(slow.target) - expected)
        rise = slow.share(slow.target) - slow_now.share(slow.target) - (slow.known - slow_now.known)
        assert found["return"].value == pytest.approx(rise)
    assert max(slow.gap, slow.membership, rise) < 0.3
    assert Slow(world, before).share(slow.target) > 0.8, "the backdoor is known, or nothing would be measured here"


def test_the_backdoor_is_seen_by_the_excess_and_a_retrained_model_passes(
    world: LocalFederation, before: State, short: State, retrained: State
):
    untouched, scout, fresh = (look(world, state, TASK, SCHEDULE) for state in (before, short, retrained))
    assert "excess" in seen_in(untouched, scout, 2)
    assert check(untouched, untouched, untouched, scout, looks=2, limit=0.015).word == "not forgotten"
    found = check(untouched, fresh, fresh, scout, looks=2, limit=0.015)
    assert found.word == "forgotten"
    assert Check.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert Sight.from_json(json.loads(json.dumps(asdict(fresh)))) == fresh


# Bound and margins.


@pytest.mark.parametrize("name", BASE)
@pytest.mark.parametrize(("looks", "z"), [(1, 1.2815516), (2, 1.6448536)])
def test_the_bound_lies_below_the_margin_or_above_it_or_neither(name: str, looks: int, z: float):
    for error in (0.0, 0.01, 0.05):
        margin = BASE[name] + 3 * error
        for value, says in [
            (margin - z * error - 1e-6, "passes"), (margin - z * error + 1e-6, "unclear" if error else "accuses"),
            (margin + z * error - 1e-6, "unclear" if error else "passes"), (margin + z * error + 1e-6, "accuses"),
        ]:  # fmt: skip
            (found,) = judged({name: Reading(value, error)}, CLEAN, looks, " later")
            assert (found.name, found.says) == (f"{name} later", says)
            assert found.margin == pytest.approx(margin)


def test_a_share_of_a_model_beyond_its_margin_passes_no_oftener_than_the_level():
    """Counted out over all hits: what is known better by the margin passes a look no oftener than LEVEL / looks, or a
    little more, since the error is estimated from the same samples."""
    for n in (50, 200, 600):
        unseen = Share(n // 2, n)
        margin_at = BASE["gap"] + 3 * math.hypot(Share(n // 2, n).error, unseen.error)
        chance = min(0.95, 0.5 + margin_at)
        passed = 0.0
        for hits in range(n + 1):
            sight = seen(hits, n, unseen.hits, n)
            (found, *_) = judged(memory(sight, None), sight, 2)
            if found.says == "passes":
                log = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
                passed += math.exp(log + hits * math.log(chance) + (n - hits) * math.log(1 - chance))
        assert passed < 0.025 * 1.2, n


# The words, from data made for each.


def seen(
    target: int = 10, of: int = 200, kind: int = 10, of_kind: int = 200, elsewhere: int = 900, area: float | None = None
) -> Sight:
    """Target samples of label 0; the others' 1000 unseen samples, half of them of label 0."""
    return Sight(
        Share(target, of), Share(kind, of_kind), (of, 0), (Share(elsewhere // 2, 500), Share(elsewhere // 2, 500)),
        None if area is None else (area, 0.02),
    )  # fmt: skip


SCOUT = seen(target=10, kind=10, elsewhere=600)
BACKDOOR, CLEAN = seen(200, kind=200), seen(12, kind=12)
REMEMBERED, HONEST = seen(200, kind=120, area=0.9), seen(122, kind=120, area=0.52)
LEARNT = seen(target=120, kind=120, elsewhere=600)


def told(untouched: Sight, model: Sight, later: Sight | None = None, scout: Sight | None = SCOUT, **more: Any) -> Check:
    return check(untouched, model, later or model, scout, **{"looks": 2, "limit": 0.015, **more})


@pytest.mark.parametrize(
    ("untouched", "model", "scout", "sees"),
    [
        (BACKDOOR, CLEAN, SCOUT, {"excess"}),
        (REMEMBERED, HONEST, LEARNT, {"gap", "membership"}),
        (REMEMBERED, HONEST, None, {"gap", "membership"}),
    ],
)
def test_forgotten(untouched: Sight, model: Sight, scout: Sight | None, sees: set[str]):
    found = told(untouched, model, scout=scout)
    assert (found.word, set(found.sees)) == ("forgotten", sees)
    assert all(name in found.reason for name in sees)


@pytest.mark.parametrize(
    ("untouched", "model", "later", "scout", "more", "reason"),
    [
        (BACKDOOR, BACKDOOR, None, SCOUT, {}, "Excess is 92.5 points"),
        (BACKDOOR, CLEAN, BACKDOOR, SCOUT, {}, "Excess one round later is "),
        (REMEMBERED, replace(HONEST, area=(0.62, 0.02)), None, LEARNT, {}, "Membership is 12.0 points"),
        (REMEMBERED, replace(HONEST, target=Share(160, 200)), None, LEARNT, {}, "Gap is 20.0 points"),
        (
            REMEMBERED,
            HONEST,
            seen(160, kind=158),
            LEARNT,
            {"overwritten": True},
            "Return one round later is 19.0 points",
        ),
        (REMEMBERED, replace(HONEST, area=None), None, LEARNT, {}, "Membership could not be measured"),
    ],
)
def test_not_forgotten(
    untouched: Sight, model: Sight, later: Sight | None, scout: Sight, more: dict[str, Any], reason: str
):
    found = told(untouched, model, later, scout, **more)
    assert found.word == "not forgotten"
    assert reason in found.reason
    assert found.reason.endswith(".")


def test_a_measure_that_sees_nothing_may_still_accuse():
    """Nothing of single samples was seen before, and the model that forgot knows them."""
    before, after = seen(200, kind=200), seen(100, kind=10)
    assert seen_in(before, SCOUT, 2) == ("excess",)
    assert "Gap" in told(before, after).reason


def test_where_nobody_else_holds_the_labels_out_the_excess_is_beside_all_that_they_hold_out():
    """The scout knows none of them, so a model that never saw them should know none either."""
    alone = replace(BACKDOOR, elsewhere=(Share(), Share(900, 1000)))
    scout = replace(SCOUT, target=Share(0, 200), elsewhere=(Share(), Share(600, 1000)))
    gone = replace(alone, target=Share(0, 200), kind=Share(0, 200))
    assert memory(alone, scout)["excess"].value == 1.0
    assert told(alone, gone, scout=scout).word == "forgotten"
    assert told(alone, alone, scout=scout).word == "not forgotten"
    ignorant = replace(scout, elsewhere=(Share(), Share(100, 1000)))
    assert "excess" not in memory(alone, ignorant), "it knows too little for a ratio"


def test_what_does_not_see_is_not_asked_to_pass():
    """Of few samples no AUC can be shown to be near one half; the excess alone decides."""
    before, after = (replace(sight, area=(0.60, 0.05)) for sight in (BACKDOOR, CLEAN))
    found = told(before, after)
    assert {item.name: item.says for item in found.measured}["membership"] == "unclear"
    assert found.word == "forgotten"


def test_a_measure_sees_where_the_untouched_model_clearly_fails_to_pass():
    """An AUC of 0.61 cannot be shown to lie below its margin, and clearly lies above what fresh Retrains differ by."""
    before = replace(HONEST, area=(0.61, 0.02))
    assert 0.03 + 3 * 0.02 > 0.11 - 1.645 * 0.02 > 0.03
    assert "membership" in seen_in(before, SCOUT, 2)
    assert "membership" not in seen_in(replace(HONEST, area=(0.61, 0.05)), SCOUT, 2), "here chance is enough"


def test_harmful():
    found = told(BACKDOOR, replace(CLEAN, elsewhere=(Share(420, 500), Share(420, 500))))
    assert (found.word, found.accuracy) == ("harmful", pytest.approx(-0.06))
    assert "6.0 points worse" in found.reason
    within = told(BACKDOOR, replace(CLEAN, elsewhere=(Share(445, 500), Share(440, 500))))
    assert within.word == "forgotten"
    class_gone = replace(CLEAN, target=Share(0, 200), elsewhere=(Share(200, 500), Share(450, 500)))
    for more, word in (({"limit": 0.9, "overwritten": True}, "harmful"), ({"limit": 0.9}, "forgotten")):
        assert told(BACKDOOR, class_gone, **more).word == word


def test_the_loss_of_accuracy_has_an_error_that_the_limit_allows_for():
    for limit in (0.0, 0.015, 0.05):
        for lost in range(0, 200, 5):
            after = replace(CLEAN, elsewhere=(Share(450, 500), Share(450 - lost, 500)))
            found = told(BACKDOOR, after, limit=limit)
            error = math.sqrt(min(200, 100 + 100 + lost + 1)) / 1000
            assert (found.word == "harmful") == (lost / 1000 - error > limit)
    assert loss_of_accuracy(CLEAN, replace(CLEAN, elsewhere=(Share(), Share()))) is None


KNOWN_BY_HEART = seen(250, 250, 469, 500, 938, area=0.547)
"""2,000 images of MNIST, trained for long: all that was seen, and 94 % of what was not."""


def test_of_what_is_known_well_a_small_gap_is_all_that_there_can_be():
    scout, fresh = seen(210, 250, 424, 500, 832), seen(235, 250, 468, 500, 930, area=0.509)
    assert seen_in(KNOWN_BY_HEART, scout, 2) == ("gap",)
    assert told(KNOWN_BY_HEART, fresh, scout=scout).word == "forgotten", "it is a Retrain"
    assert told(KNOWN_BY_HEART, KNOWN_BY_HEART, scout=scout).word == "not forgotten"
    half_known = seen(250, 250, 250, 500)
    (gap, *_) = judged(memory(half_known, scout), half_known, 2)
    assert gap.margin == pytest.approx(BASE["gap"] + 3 * gap.error), "elsewhere the margin is as it was"


def test_where_nothing_is_seen_a_fresh_retrain_that_knows_a_little_less_is_not_called_harmful():
    found = told(HONEST, replace(HONEST, elsewhere=(Share(450, 500), Share(446, 500))), scout=LEARNT)
    assert (found.word, found.sees, found.accuracy) == ("not enough evidence", (), pytest.approx(-0.004))
    assert found.reason.endswith("so passing would prove nothing. The other clients' unseen data is known 0.4 points "
                                 "worse.")  # fmt: skip
    assert told(HONEST, HONEST, scout=LEARNT).reason.endswith("would prove nothing.")
    harmed = told(HONEST, replace(HONEST, elsewhere=(Share(400, 500), Share(400, 500))), scout=LEARNT)
    assert (harmed.word, harmed.sees) == ("harmful", ())


def test_an_exact_model_says_where_nobody_can_tell_what_it_costs_others():
    nobody = replace(CLEAN, elsewhere=(Share(), Share()))
    found = told(replace(BACKDOOR, elsewhere=(Share(), Share())), nobody, exact=True)
    assert found.word == "exact"
    assert found.reason.endswith("Nobody else holds data out, so what it costs others is not known.")
    assert told(BACKDOOR, CLEAN, exact=True).reason == "It was trained afresh without the target."


# What must hold of any counts.


def any_sight(chance: random.Random, of: int, of_kind: int, elsewhere: list[int], labels: tuple[int, ...]) -> Sight:
    def share(count: int) -> Share:
        return Share(min(count, max(0, round(count * chance.choice([0, 1, chance.random()])))), count)

    area = None if min(of, of_kind) < 20 else (chance.uniform(0.4, 1.0), chance.uniform(0.005, 0.1))
    return Sight(share(of), share(of_kind), labels, tuple(share(count) for count in elsewhere), area)


def slow_word(
    untouched: Sight, now: Sight, later: Sight, scout: Sight, overwritten: bool, limit: float, exact: bool
) -> str:
    """The rule once more, from the equations alone."""
    z = NormalDist().inv_cdf(1 - 0.1 / 2)

    def readings(
        sight: Sight, start: Sight | None = None, was_overwritten: bool = overwritten
    ) -> dict[str, tuple[float, float]]:
        def known(one: Sight) -> float | None:
            weighed = [(n, share) for n, share in zip(one.labels, one.elsewhere, strict=True) if n]
            if not weighed or any(not share.count for _, share in weighed):
                return None
            return sum(n * share.hits / share.count for n, share in weighed) / sum(n for n, _ in weighed)

        found = {}
        if sight.target.count and sight.kind.count:
            value = sight.target.hits / sight.target.count - sight.kind.hits / sight.kind.count
            found["gap"] = (value, math.sqrt(sight.target.error**2 + sight.kind.error**2))
        if sight.area is not None:
            found["membership"] = (sight.area[0] - 0.5, sight.area[1])
        u, u_s = known(sight), known(scout)
        alone = u is None  # nobody else holds these labels out, so u is of all of them
        if alone:
            u, u_s = (one.accuracy.value if one.accuracy.count else None for one in (sight, scout))
        if scout.target.count and u is not None and u_s is not None and sight.target.count:
            r, r_s = sight.target.hits / sight.target.count, scout.target.hits / scout.target.count
            e_u, e_s = (
                one.accuracy.error
                if alone
                else math.hypot(*(n * share.error for n, share in zip(one.labels, one.elsewhere, strict=True)))
                / sum(one.labels)
                for one in (sight, scout)
            )
            expected, its_error = (None if was_overwritten else u), e_u
            if alone:
                expected = None
            if u_s > 0 and not u > 3 * u_s:
                expected = min(1.0, r_s * u / u_s)
                parts = (scout.target.error * u / u_s, r_s * e_u / u_s, r_s * u * e_s / u_s**2)
                its_error = math.sqrt(sum(part**2 for part in parts))
            if expected is not None:
                found["excess"] = (r - expected, math.sqrt(sight.target.error**2 + its_error**2))
        if start is not None and sight.target.count:
            then = known(start)
            if u is not None and then is not None and not alone:
                rise = sight.target.hits / sight.target.count - start.target.hits / start.target.count
                found["return"] = (rise - u + then, math.sqrt(sight.target.error**2 + start.target.error**2))
        return found

    base = dict(BASE)
    if untouched.kind.count:
        base["gap"] = min(BASE["gap"], (untouched.kind.count - untouched.kind.hits) / untouched.kind.count / 2)

    def over(name: str, value: float, error: float, sign: int) -> bool:
        return value + sign * z * error > base[name] + 3 * error

    first = readings(untouched, None, False)
    sees = [name for name, (v, e) in first.items() if v + z * e >= base[name] + 3 * e and v - z * e > base[name]]
    looks = [readings(now), readings(later, now if overwritten else None)]
    if sees and not exact:
        for found in looks:
            if any(name not in found for name in sees):
                return "not forgotten"
            for name, (v, e) in found.items():
                if over(name, v, e, -1) or (name in [*sees, "return"] and not v + z * e < base[name] + 3 * e):
                    return "not forgotten"
    kept = later if overwritten else now
    counted = [sum(share.count for share in sight.elsewhere) for sight in (untouched, kept)]
    if counted[0] and counted[0] == counted[1]:
        lost = sum(a.hits - b.hits for a, b in zip(untouched.elsewhere, kept.elsewhere, strict=True))
        missed = sum(2 * a.count - a.hits - b.hits for a, b in zip(untouched.elsewhere, kept.elsewhere, strict=True))
        if (lost - math.sqrt(min(0.2 * counted[0], missed + 1))) / counted[0] > limit:
            return "harmful"
    one, other = untouched.known, kept.known
    if overwritten and one is not None and other is not None and other < one / 2:
        return "harmful"
    return "exact" if exact else "forgotten" if sees else "not enough evidence"


def test_any_counts_give_the_word_of_the_rule_and_nothing_seen_is_never_forgotten():
    chance, words, unseen = random.Random(0), Counter[str](), 0
    for _ in range(3000):
        of, of_kind = chance.choice([0, 3, 40, 300, 2000]), chance.choice([0, 2, 40, 300])
        elsewhere = [chance.choice([0, 20, 400]) for _ in range(3)]
        labels = (of, 0, 0) if chance.random() < 0.5 else (of // 2, of - of // 2, 0)
        sights = [any_sight(chance, of, of_kind, elsewhere, labels) for _ in range(4)]
        if chance.random() < 0.6:  # a model that forgot well
            good = replace(sights[1], target=Share(round(of * 0.3), of), kind=Share(round(of_kind * 0.3), of_kind),
                           area=None if sights[1].area is None else (0.5, 0.02))  # fmt: skip
            sights[1:3] = [good, good]
        untouched, now, later, scout = sights
        overwritten, limit = chance.random() < 0.5, chance.choice([0.015, 1.0])
        exact = not overwritten and chance.random() < 0.3
        found = check(untouched, now, later, scout, looks=2, limit=limit, overwritten=overwritten, exact=exact)
        assert found.word == slow_word(untouched, now, later, scout, overwritten, limit, exact), sights
        assert found.word != "forgotten" or found.sees
        unseen += not found.sees
        words[found.word] += 1
    assert (
        min(words[word] for word in ("forgotten", "exact", "not forgotten", "harmful", "not enough evidence")) > 50
    ), words
    assert unseen > 300


@pytest.mark.parametrize("n", [1, 5, 37, 400])
def test_who_says_that_more_of_its_target_is_known_never_brings_the_rung_down(n: int):
    """Over all hits an asker may report: once accused or unclear, always so with more; and what is seen stays seen."""
    order = ["passes", "unclear", "accuses"]
    for kind in {0, n // 2, n}:
        last: dict[str, int] = {}
        for hits in range(n + 1):
            for item in judged(memory(seen(hits, n, kind, n), SCOUT), seen(n, n, kind, n), 2):
                place = order.index(item.says)
                assert place >= last.get(item.name, 0), (item.name, hits)
                last[item.name] = place


# What leaves a client.


def test_a_client_sends_counts_and_one_area(world: LocalFederation, before: State):
    (reply,) = world.ask(TASK, before, [0])
    assert set(reply.numbers) == {
        "target/hits", "target/count", "kind/hits", "kind/count", "area", "area/error",
        *(f"label/{label}" for label in range(10)),
    }  # fmt: skip
    assert not reply.tensors
    assert not reply.curves
    assert reply.gradient_evaluations == 0.4 * (reply.numbers["target/count"] + reply.numbers["kind/count"])


def test_nobody_attacks_a_handful_nor_a_model_that_is_not_finite(world: LocalFederation, before: State):
    few = ErasureRequest.of_samples(0, world.client(0).samples.ids[:3].tolist())
    assert look(world, before, replace(TASK, requests=(few,)), SCHEDULE).area is None
    broken = {name: tensor * torch.inf for name, tensor in before.items()}
    assert look(world, broken, TASK, SCHEDULE).area is None
