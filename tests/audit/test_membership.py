"""Membership attacks at the client against a slow, obvious twin, and what may leave the client: the same few numbers
whatever the number of samples."""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import small_worlds
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedforget.audit.attacks import auc
from fedforget.audit.case import Case
from fedforget.audit.distributions import proportion_error
from fedforget.audit.membership import BINS, FEWEST, GRID, AttackMembership, attack_membership, same_kind
from fedforget.audit.verdict import Reading
from fedforget.data.own import from_arrays
from fedforget.data.samples import Samples
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.rounds import train
from fedforget.federation.tasks import Reply
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest

SCHEDULE = small_worlds.SCHEDULE
CLASS = ErasureRequest.of_class(0, 1)
SAMPLES = ErasureRequest.of_samples(0, [k for k in range(101) if k % 4 != 2])
CLIENT = ErasureRequest.of_client(1)
IDS = ["class", "samples", "client"]


def points(labels: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), 6, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 6)


def mislabelled(samples: Samples, every: int) -> Samples:
    """One sample in so many is trained as the next class."""
    labels = torch.where(torch.arange(len(samples)) % every == 0, samples.labels + 1, samples.labels) % 3
    return replace(samples, labels=labels)


def make_world(sizes: Sequence[int] = (101, 67, 40), outside: int = 331, flipped: bool = True) -> small_worlds.Tapped:
    """Clients with points of three classes; nobody trains on the held-out ones, which have other shares of each kind.
    Everybody's samples, and what they hold out, are partly mislabelled, if `flipped`."""
    labels, others = torch.arange(sum(sizes)) % 3, torch.arange(outside) * 7 // 5 % 3
    data = from_arrays(points(labels, 1), labels, points(others, 2), others)
    world = small_worlds.Tapped(data, list(torch.arange(sum(sizes)).split(list(sizes))), small_worlds.network())
    for client in world.clients if flipped else ():
        own = world.client(client)
        assert own.held_out is not None
        own.samples, own.held_out = mislabelled(own.samples, 5), mislabelled(own.held_out, 4)
    return world


def models(world: small_worlds.Tapped, count: int) -> list[State]:
    """`count` models that differ: after no round, one round, two rounds and so on."""
    start = state_of(world.model)
    found = [train(world, start, replace(SCHEDULE, rounds=rounds)) for rounds in range(count)]
    world.log.clear()
    return found


def task(*requests: ErasureRequest, model: str = "m", **more: Any) -> AttackMembership:
    return AttackMembership(seed=3, threads=1, requests=requests, model=model, **more)


def ask(world: small_worlds.Tapped, state: State, attack: AttackMembership, client: int) -> Reply:
    (reply,) = world.ask(attack, state, [client])
    return reply


# Held-out samples of the same kind


def samples_of(kinds: Sequence[tuple[int, int]], first_id: int = 0) -> Samples:
    """One sample for each pair (true class, trained label)."""
    true, trained = (torch.tensor([kind[side] for kind in kinds], dtype=torch.int64) for side in (0, 1))
    ids = torch.arange(first_id, first_id + len(kinds))
    return Samples(torch.zeros(len(kinds), 2), trained, true, ids)


def kinds_of(samples: Samples) -> Counter[tuple[int, int]]:
    return Counter(zip(samples.true_labels.tolist(), samples.labels.tolist(), strict=True))


KINDS = st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 1)), st.integers(1, 60), max_size=4).flatmap(
    lambda counts: st.randoms(use_true_random=False).map(lambda draw: shuffled(counts, draw))
)


def shuffled(counts: dict[tuple[int, int], int], draw: random.Random) -> list[tuple[int, int]]:
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    draw.shuffle(kinds)
    return kinds


@pytest.mark.real
@settings(max_examples=150, deadline=None)
@given(KINDS, KINDS)
def test_the_largest_part_of_the_same_kind(wanted: list[tuple[int, int]], available: list[tuple[int, int]]):
    target, held_out = samples_of(wanted), samples_of(available, first_id=1000)
    found = same_kind(target, held_out)
    counts, there, chosen = Counter(wanted), Counter(available), kinds_of(found)
    positions = (found.ids - 1000).tolist()
    assert positions == sorted(set(positions)), "each at most once, in its order"
    assert list(zip(found.true_labels.tolist(), found.labels.tolist(), strict=True)) == [
        available[place] for place in positions
    ]
    assert set(chosen) <= set(counts)
    if counts and all(there[kind] for kind in counts):
        # Whole numbers throughout: chosen[a] : counts[a] is the scarcest kind's ratio, less the part of a sample.
        scarce = min(counts, key=lambda kind: (there[kind] / counts[kind], kind))
        assert chosen[scarce] == there[scarce], "of the scarcest kind all are taken, so there is no larger part"
        for kind, count in counts.items():
            assert 0 <= there[scarce] * count - chosen[kind] * counts[scarce] < counts[scarce]
    else:
        assert len(found) == 0, "a kind that is not there leaves nothing to compare with"


def test_no_sample_is_lost_to_rounding():
    """7 / 10 in single precision is a little less than seven tenths."""
    for there, wanted in ((7, 10), (19, 40), (36, 35), (1, 3), (59, 58)):
        found = same_kind(samples_of([(0, 0)] * wanted), samples_of([(0, 0)] * there))
        assert len(found) == there


def test_a_label_is_not_taken_for_a_class():
    """A three that is trained as an eight is no eight that is trained as a three."""
    held_out = samples_of([(8, 3), (3, 3), (8, 8), (3, 8)])
    assert same_kind(samples_of([(3, 8)] * 30), held_out).ids.tolist() == [3]


# Against the twin


class Twin:
    """Everything about one client's target, one sample after another."""

    def __init__(self, world: small_worlds.Tapped, client: int, target: Tensor) -> None:
        own = world.client(client)
        assert own.held_out is not None
        self.world, self.own = world, own
        wanted = [self._kind(own.samples, k) for k in target.tolist()]
        available = [self._kind(own.held_out, k) for k in range(len(own.held_out))]
        numbers = {kind: wanted.count(kind) for kind in wanted}
        scarce = min(numbers, key=lambda kind: available.count(kind) / numbers[kind])
        room = {kind: available.count(scarce) * count // numbers[scarce] for kind, count in numbers.items()}
        self.inside = [(own.samples, k) for k in target.tolist()]
        self.outside: list[tuple[Samples, int]] = []
        for k, kind in enumerate(available):
            if room.get(kind, 0) > 0:
                room[kind] -= 1
                self.outside.append((own.held_out, k))

    @staticmethod
    def _kind(samples: Samples, k: int) -> tuple[int, int]:
        return int(samples.true_labels[k]), int(samples.labels[k])

    def flipped(self, samples: Samples, k: int) -> bool:
        return int(samples.true_labels[k]) != int(samples.labels[k])

    def look(self, state: State, side: Sequence[tuple[Samples, int]]) -> list[dict[str, float]]:
        """Loss, entropy and margin of each sample, and whether it gets its label."""
        model = small_worlds.loaded(self.world, state).eval()
        found = []
        for samples, k in side:
            with torch.no_grad():
                logits = model(self.own.inputs(samples.features[k : k + 1]))[0].double().tolist()
            parts = [math.exp(value - max(logits)) for value in logits]
            p, y = [part / sum(parts) for part in parts], int(samples.labels[k])
            rest = sum(share for c, share in enumerate(p) if c != y)
            found.append({
                "loss": math.log(p[y]), "entropy": sum(share * math.log(share) for share in p),
                "margin": math.log(p[y]) - math.log(rest), "p": p[y], "hit": float(max(p) == p[y]),
            })  # fmt: skip
        return found


def column(rows: Sequence[dict[str, float]], name: str) -> Tensor:
    return torch.tensor([row[name] for row in rows], dtype=torch.float64)


def rmia_by_hand(twin: Twin, state: State, references: Sequence[State]) -> tuple[Tensor, Tensor]:
    """The outside samples of each kind are dealt in turn: one to the population, one to be told from R."""
    order = sorted(range(len(twin.outside)), key=lambda k: (twin._kind(*twin.outside[k]), k))
    population, others = [twin.outside[k] for k in order[1::2]], [twin.outside[k] for k in order[0::2]]

    def over_marginal(side: Sequence[tuple[Samples, int]]) -> list[float]:
        mine, theirs = twin.look(state, side), [twin.look(reference, side) for reference in references]
        return [
            row["p"] / ((1.3 * sum(rows[k]["p"] for rows in theirs) / len(theirs) + 0.7) / 2)
            for k, row in enumerate(mine)
        ]

    bar = over_marginal(population)
    sides = [
        [sum(x >= z for z in bar) / len(bar) for x in over_marginal(side)] for side in (twin.inside, others)
    ]  # fmt: skip
    return torch.tensor(sides[0], dtype=torch.float64), torch.tensor(sides[1], dtype=torch.float64)


def curve_by_hand(members: Tensor, others: Tensor) -> list[float]:
    """The largest share of members found with no more than this share of the others taken for members."""
    choices = [
        (sum(o >= threshold for o in others.tolist()), sum(m >= threshold for m in members.tolist()) / len(members))
        for threshold in {*members.tolist(), *others.tolist()}
    ]
    return [
        max((found for mistakes, found in choices if mistakes * (GRID - 1) <= step * len(others)), default=0.0)
        for step in range(GRID)
    ]


def by_hand(twin: Twin, state: State, references: Sequence[State]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """(numbers, curves) that the client must send."""
    inside, outside = twin.look(state, twin.inside), twin.look(state, twin.outside)
    scores = {name: (column(inside, name), column(outside, name)) for name in ("loss", "entropy")}
    gaps = {"loss": scores["loss"]}
    if references:
        scores["rmia"] = rmia_by_hand(twin, state, references)
        theirs = [[twin.look(reference, side) for reference in references] for side in (twin.inside, twin.outside)]
        scores["calibrated"], gaps["calibrated"] = (
            tuple(
                column(rows, name) - sum(column(r, name) for r in others) / len(references)
                for rows, others in zip((inside, outside), theirs, strict=True)
            )
            for name in ("margin", "loss")
        )
    ids = sorted(int(samples.ids[k]) for samples, k in twin.inside)
    sha = hashlib.sha256(b"".join(struct.pack("<q", number) for number in ids)).hexdigest()
    numbers = {"target": len(inside), "outside": len(outside), "ids": int(sha[:12], 16)}
    curves = {}
    for name, (members, others) in scores.items():
        area = auc(members, others)
        assert area is not None
        numbers |= {f"{name}/auc": area.value, f"{name}/error": area.error}
        curves[f"{name}/roc"] = curve_by_hand(members, others)
    for name, (members, others) in gaps.items():
        mean = sum(others.tolist()) / len(others)
        variance = sum((value - mean) ** 2 for value in others.tolist()) / (len(others) - 1)
        numbers[f"{name}/gap"] = sum(members.tolist()) / len(members) - mean
        numbers[f"{name}/gap_error"] = math.sqrt(variance / len(members) + variance / len(others))
    any_flipped = any(twin.flipped(*place) for place in twin.inside)
    for side, places, rows in (("target", twin.inside, inside), ("outside", twin.outside, outside)):
        judged = [row for place, row in zip(places, rows, strict=True) if not any_flipped or twin.flipped(*place)]
        numbers |= {f"{side}/hits": sum(row["hit"] for row in judged), f"{side}/judged": len(judged)}
        bins = [0.0] * BINS
        for row in rows:
            bins[min(max(math.floor(row["margin"] + 20), 0), BINS - 1)] += 1
        curves[f"margin/{side}"] = bins
    held_out = twin.own.held_out
    assert held_out is not None
    classes = {label for samples, k in twin.inside for label in twin._kind(samples, k)}
    clean = [
        (held_out, k) for k in range(len(held_out))
        if not twin.flipped(held_out, k) and int(held_out.labels[k]) in classes
    ]  # fmt: skip
    right = sum(row["hit"] for row in twin.look(state, clean))
    numbers |= {"classes/hits": right, "classes/judged": len(clean)}
    every = [(held_out, k) for k in range(len(held_out)) if not twin.flipped(held_out, k)]
    right = sum(row["hit"] for row in twin.look(state, every))
    return numbers | {"all/hits": right, "all/judged": len(every)}, curves


@pytest.mark.daily(2)
@pytest.mark.parametrize("flipped", [False, True], ids=["clean", "mislabelled"])
@pytest.mark.parametrize("request_", [CLASS, SAMPLES, CLIENT], ids=IDS)
def test_the_attacks_equal_the_plain_loops(request_: ErasureRequest, flipped: bool):
    world = make_world(flipped=flipped)
    one, two, state = models(world, 3)
    client = request_.client
    for name, reference in (("one", one), ("two", two)):
        ask(world, reference, task(request_, model=name), client)
    reply = ask(world, state, task(request_, model="subject", references=("one", "two")), client)
    numbers, curves = by_hand(
        Twin(world, client, world.client(client).positions([request_])[0]), state, [one, two]
    )  # fmt: skip
    assert reply.numbers.keys() == numbers.keys()
    assert reply.numbers == pytest.approx(numbers, rel=1e-5, abs=1e-6)
    assert reply.numbers["ids"] == numbers["ids"]
    assert reply.curves.keys() == curves.keys()
    for name, values in curves.items():
        assert reply.curves[name] == pytest.approx(values, abs=1e-9), name
    assert reply.gradient_evaluations == pytest.approx(
        FORWARD_COST * (numbers["target"] + numbers["outside"] + numbers["all/judged"])
    )
    assert (reply.tensors, reply.notes) == ({}, ())


# What an attack needs


def test_models_that_were_not_scored_before_are_no_references():
    """One of them missing is enough: a mean over some would be another attack."""
    world = make_world()
    one, two, state = models(world, 3)
    ask(world, one, task(CLASS, model="one"), 0)
    lacking = ask(world, state, task(CLASS, references=("one", "two")), 0)
    assert not [n for n in (*lacking.numbers, *lacking.curves) if n.startswith(("rmia", "calibrated"))]
    assert "loss/auc" in lacking.numbers
    (note,) = lacking.notes
    assert note.startswith("Client 0 has not scored all 2 reference models on these samples")
    ask(world, two, task(CLASS, model="two"), 0)
    assert {"rmia/auc", "calibrated/auc"} <= ask(world, state, task(CLASS, references=("one", "two")), 0).numbers.keys()
    assert ask(world, state, task(CLASS), 0).notes == (), "who names none misses none"


def test_scores_of_another_target_of_the_same_size_are_no_references():
    world = make_world(flipped=False)
    one, state = models(world, 2)
    first, second = (ErasureRequest.of_samples(0, range(start, start + 60)) for start in (0, 30))
    before = ask(world, one, task(first, model="one"), 0)
    after = ask(world, state, task(second, references=("one",)), 0)
    assert before.numbers["target"] == after.numbers["target"]
    assert before.numbers["outside"] == after.numbers["outside"]
    assert "rmia/auc" not in after.numbers


@pytest.mark.parametrize(("target", "outside", "enough"), [(20, 20, True), (19, 40, False), (40, 19, False)])
def test_too_few_samples_are_told_and_give_no_figure(target: int, outside: int, enough: bool):
    world = make_world((100, 30), flipped=False)
    own = world.client(0)
    own.samples = Samples.of(points(torch.ones(target, dtype=torch.int64), 5), torch.ones(target))
    own.held_out = Samples.of(points(torch.ones(outside, dtype=torch.int64), 6), torch.ones(outside), first_id=900)
    (state,) = models(world, 1)
    reply = ask(world, state, task(CLASS), 0)
    found = attack_membership(Case(world, (CLASS,), SCHEDULE), state)
    assert FEWEST == 20
    assert (found.target, found.outside) == (target, outside), "how many there are is known all the same"
    if enough:
        assert "loss/auc" in reply.numbers
        assert found.areas.keys() == {"loss", "entropy"}
        return
    counts = {f"{part}/{what}" for part in ("all", "classes") for what in ("hits", "judged")}
    assert reply.numbers.keys() == {"target", "outside", "ids"} | counts
    assert reply.curves == {}
    assert reply.notes == found.notes == (
        f"Client 0 has {target} target samples and {outside} held-out ones of the same kind; attacks need at least 20 "
        "of each.",
    )  # fmt: skip
    assert (found.areas, found.curves) == ({}, {})
    assert [found.gap, found.loss_gap, found.same_classes] == [None] * 3
    hits = int(reply.numbers["all/hits"])
    assert pair(found.all_classes) == pytest.approx((100 * hits / outside, 100 * proportion_error(hits, outside)))


@pytest.mark.parametrize("held_out", ["none", "empty", "of another kind"])
def test_without_held_out_samples_of_its_kind_there_is_nothing_to_tell_r_from(held_out: str):
    world = make_world(flipped=False)
    own = world.client(0)
    assert own.held_out is not None
    other = own.held_out.select(own.held_out.labels != 1)
    own.held_out = {"none": None, "empty": other.select(torch.zeros(0, dtype=torch.int64))}.get(held_out, other)
    found = attack_membership(Case(world, (CLASS,), SCHEDULE), models(world, 1)[0])
    assert (found.target, found.outside, found.areas) == (34, 0, {})
    assert found.notes[0].startswith("Client 0 has 34 target samples and 0 held-out ones of the same kind;")


def test_what_was_served_before_is_left_out():
    world = make_world()
    (state,) = models(world, 1)
    gone = ErasureRequest.of_samples(0, range(0, 40))
    rest = ErasureRequest.of_samples(0, [k for k in range(40, 101) if k % 3 == 1])
    assert ask(world, state, task(CLASS, served=(gone,)), 0) == ask(world, state, task(rest), 0)
    whole = ask(world, state, task(CLASS), 0)
    assert whole.numbers["target"] == 34
    assert ask(world, state, task(CLASS, served=(CLIENT,)), 0) == whole, "what another client withdrew is its own"
    world.client(0).withdraw([CLASS])
    assert ask(world, state, task(CLASS), 0) == whole, "what is being audited may have been withdrawn"


# Several clients


def test_several_clients_are_weighted_by_their_targets():
    world = make_world()
    one, state = models(world, 2)
    requests = [CLIENT, CLASS]
    attack_membership(Case(world, tuple(requests), SCHEDULE), one)
    found = attack_membership(Case(world, tuple(requests), SCHEDULE), state, references=[one])
    told = [reply for *_, reply in world.log][-2:]
    assert [reply.client for reply in told] == [0, 1], "nobody else is asked"
    zero, two = (reply.numbers for reply in told)
    w, v = zero["target"], two["target"]
    assert (found.target, found.outside) == (w + v, zero["outside"] + two["outside"])
    assert found.fingerprint == int(zero["ids"]) ^ int(two["ids"])
    assert found.areas.keys() == {"loss", "entropy", "rmia", "calibrated"}
    for name, area in found.areas.items():
        a, b, e, f = (n[f"{name}/{what}"] for what in ("auc", "error") for n in (zero, two))
        assert area.value == pytest.approx((w * a + v * b) / (w + v))
        assert area.error == pytest.approx(math.hypot(w * e, v * f) / (w + v))
        assert found.curves[f"{name}/roc"] == pytest.approx([
            (w * a + v * b) / (w + v) for a, b in zip(*(r.curves[f"{name}/roc"] for r in told), strict=True)
        ])  # fmt: skip
    for gap, name in ((found.loss_gap, "loss"), (found.calibrated_gap, "calibrated")):
        assert gap is not None
        assert gap.value == pytest.approx((w * zero[f"{name}/gap"] + v * two[f"{name}/gap"]) / (w + v))
    w, v = zero["all/judged"], two["all/judged"]
    assert found.all_classes is not None
    assert found.all_classes.value == pytest.approx(100 * (zero["all/hits"] + two["all/hits"]) / (w + v))
    for side in ("target", "outside"):
        counts = zip(*(reply.curves[f"margin/{side}"] for reply in told), strict=True)
        assert found.curves[f"margin/{side}"] == [a + b for a, b in counts]
    assert attack_membership(Case(world, tuple(requests[::-1]), SCHEDULE), state, references=[one]) == found


def test_one_client_gives_its_own_figures():
    world = make_world()
    (state,) = models(world, 1)
    found = attack_membership(Case(world, (CLIENT,), SCHEDULE), state)
    n = world.log[-1][2].numbers

    def share(side: str) -> tuple[float, float]:
        hits, judged = n[f"{side}/hits"], int(n[f"{side}/judged"])
        return 100 * hits / judged, 100 * proportion_error(hits, judged)

    assert pair(found.same_classes) == pytest.approx(share("classes"))
    assert pair(found.all_classes) == pytest.approx(share("all"))
    spread = share("outside")[1] * math.sqrt(n["outside/judged"])
    error = math.sqrt(spread**2 / n["target/judged"] + spread**2 / n["outside/judged"])
    assert pair(found.gap) == pytest.approx((share("target")[0] - share("outside")[0], error)), (
        "the error is that of data never seen: the held-out samples' own spread on both sides"
    )
    assert pair(found.loss_gap) == pytest.approx((n["loss/gap"], n["loss/gap_error"]))
    assert found.calibrated_gap is None, "there are no references"


def pair(reading: Reading | None) -> tuple[float, float]:
    assert reading is not None
    return reading.value, reading.error


def constant_model(world: small_worlds.Tapped, label: int) -> State:
    """Gives every sample this label, whatever it is: it has never seen anything."""
    state = {name: torch.zeros_like(tensor) for name, tensor in state_of(world.model).items()}
    state[list(state)[-1]][label] = 1.0
    return state


def test_a_model_that_saw_nothing_shows_no_gap_however_the_clients_differ():
    """Client 0 has many target samples that are easy and few held-out ones, client 1 the other way round."""
    world = make_world((100, 25), flipped=False)
    for client, label, size, outside in ((0, 0, 100, 25), (1, 1, 25, 100)):
        own = world.client(client)
        label_of = torch.full((125,), label)
        own.samples = Samples.of(points(label_of, 1), label_of).select(torch.arange(size))
        own.held_out = Samples.of(points(label_of, 2), label_of, first_id=500).select(torch.arange(outside))
    both = (ErasureRequest.of_client(0), ErasureRequest.of_client(1))
    found = attack_membership(Case(world, both, SCHEDULE), constant_model(world, 0))
    assert found.gap is not None
    assert found.gap.value == pytest.approx(0.0)
    assert found.loss_gap is not None
    assert found.loss_gap.value == pytest.approx(0.0)


def test_a_model_that_saw_nothing_shows_no_gap_where_a_part_is_mislabelled():
    """Accuracy is over the mislabelled samples, on both sides."""
    world = make_world()
    (reply,) = world.ask(task(CLIENT), constant_model(world, 1), [1])
    found = attack_membership(Case(world, (CLIENT,), SCHEDULE), constant_model(world, 1))
    held_out = world.client(1).held_out
    assert held_out is not None
    assert found.gap is not None
    assert 0 < reply.numbers["outside/judged"] < reply.numbers["outside"]
    assert abs(found.gap.value) < 5, "but for whole samples the shares are the same"


def test_one_client_with_too_few_samples_leaves_no_figure_for_all():
    world = make_world((101, 15, 40))
    one, state = models(world, 2)
    attack_membership(Case(world, (CLASS,), SCHEDULE), one)
    found = attack_membership(Case(world, (CLASS, CLIENT), SCHEDULE), state, references=[one])
    assert found.target == 34 + 15
    assert found.areas == {}
    assert [note for note in found.notes if "attacks need at least 20" in note]


# Fingerprints


def test_the_fingerprint_is_of_the_ids_alone():
    world = make_world()
    one, state = models(world, 2)
    first = attack_membership(Case(world, (CLASS,), SCHEDULE), state).fingerprint
    assert 0 < first < 2**48
    assert attack_membership(Case(world, (CLASS,), SCHEDULE), one).fingerprint == first, "whatever the model"
    own = world.client(0)
    order = torch.randperm(len(own.samples), generator=torch.Generator().manual_seed(4))
    own.samples = own.samples.select(order)
    assert attack_membership(Case(world, (CLASS,), SCHEDULE), state).fingerprint == first, "whatever the order"
    own.samples = replace(own.samples, features=own.samples.features + 1, labels=own.samples.labels * 0 + 2)
    other = attack_membership(Case(world, (CLASS,), SCHEDULE), state).fingerprint
    assert other == first, "whatever the pictures and labels"
    own.samples = replace(own.samples, ids=own.samples.ids + (own.samples.ids == 1))
    other = attack_membership(Case(world, (CLASS,), SCHEDULE), state).fingerprint
    assert other != first, "one other id is another fingerprint"


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 2**62), min_size=1, max_size=30))
def test_the_fingerprint_travels_as_an_exact_number(ids: set[int]):
    world = make_world((30, 20), outside=20)
    own = world.client(0)
    ones = torch.ones(len(ids), dtype=torch.int64)
    own.samples = Samples(torch.zeros(len(ids), 6), ones, ones, torch.tensor([*ids]))
    number = ask(world, state_of(world.model), task(CLASS), 0).numbers["ids"]
    data = b"".join(struct.pack("<q", k) for k in sorted(ids))
    assert number == int(hashlib.sha256(data).hexdigest()[:12], 16), "48 bits of it"
    assert float(int(number)) == number < 2**48


# Bits and sizes


def test_same_seed_same_bits_whatever_the_workspace_holds_and_the_input_stays():
    found = []
    for fill in (None, 7):
        world = make_world()
        one, state = models(world, 2)
        before = digest(state)
        attack_membership(Case(world, (CLASS, CLIENT), SCHEDULE), one)
        if fill is not None:
            with torch.no_grad():
                for tensor in world.model.state_dict().values():
                    tensor.fill_(fill)
        found.append(attack_membership(Case(world, (CLASS, CLIENT), SCHEDULE), state, references=[one]))
        assert digest(state) == before
    assert found[0] == found[1]


def test_nothing_that_leaves_grows_with_the_samples():
    """Twenty samples or two hundred, fewer or more than there are bins and points: the same names and lengths."""
    outlines = []
    for size, outside in ((20, 120), (BINS, 130), (GRID, 360), (200, 600)):
        world = make_world((3 * size, 30), 3 * outside, flipped=False)
        one, state = models(world, 2)
        for name, model in (("one", one), ("subject", state)):
            reply = ask(world, model, task(CLASS, model=name, references=("one",) * (name == "subject")), 0)
        assert reply.numbers["target"] == size
        assert reply.tensors == {}
        assert all(isinstance(value, float) for value in reply.numbers.values())
        outlines.append({name: len(curve) for name, curve in reply.curves.items()} | dict.fromkeys(reply.numbers, 1))
        assert sum(reply.curves["margin/target"]) == size
    assert outlines[-1] == outlines[-2] == outlines[1] == outlines[0]
    assert set(outlines[-1].values()) == {1, BINS, GRID}
