"""Rebuild: the two breaks against their equations, the trainings between and after them, and what steers it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from small_worlds import SCHEDULE, Tapped, federation, network, trained
from torch import nn

from fedforget.errors import InputError
from fedforget.federation.beside import CountBeside, CountElsewhere, Left, Share
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import FEWEST_ROUNDS, train_part
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.rebuild import (
    RebuildSettings,
    broken,
    kernel_to_turn,
    last_part,
    needs_more,
    rebuild,
    second_break,
)
from fedforget.methods.scout import MIN_SAMPLES, train_scout
from fedforget.models import build_model, fresh_copy
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

REQUEST = ErasureRequest.of_class(0, 1)
SETTINGS = RebuildSettings()


def rebuilt(world: Tapped, before: State, **settings: Any) -> tuple[State, dict[str, list[float]]]:
    world.log.clear()
    return rebuild(Meter(world), before, (REQUEST,), RebuildSettings(**settings), SCHEDULE)


def rounds_of(world: Tapped) -> list[tuple[Train, State]]:
    """Each round's task, and the model that it began from."""
    found: dict[tuple[str, int], tuple[Train, State]] = {}
    for task, state, _ in world.log:
        if isinstance(task, Train):
            found.setdefault((task.purpose, task.round), (task, state))
    return list(found.values())


# Breaking.


def slow_break(world: Tapped, state: Mapping[str, torch.Tensor], c: float, turned: str | None, number: int) -> State:
    """Weight by weight."""
    fresh = state_of(fresh_copy(world.model, derive_seed(SCHEDULE.seed, "rebuild", number)))
    weights = {name for name, _ in world.model.named_parameters()}
    made = {}
    for name, tensor in state.items():
        values = [
            -old if name == turned else c * old + (1 - c) * new if name in weights else old
            for old, new in zip(tensor.flatten().tolist(), fresh[name].flatten().tolist(), strict=True)
        ]
        made[name] = torch.tensor(values, dtype=tensor.dtype).view_as(tensor)
    return made


def test_the_breaks_are_those_of_the_equations_and_leave_buffers():
    world, before, _ = trained(normalised=True)
    _, curves = rebuilt(world, before, times=1)
    between, after = (
        next(state for task, state in rounds_of(world) if (task.purpose, task.round) == (purpose, 0))
        for purpose in ("between", "rebuilding 0")
    )
    whole, first, second = curves["stays"]
    assert whole == 1.0
    assert first == 0.75
    for name, tensor in slow_break(world, before, first, "0.weight", 0).items():
        assert torch.allclose(between[name].to(tensor), tensor, atol=1e-6), name
    halfway = train_part(
        world, between, SCHEDULE, SETTINGS.between, (REQUEST,), "between", min_samples=MIN_SAMPLES, last_rate=1.0
    )
    for name, tensor in slow_break(world, halfway, second, None, 1).items():
        assert torch.allclose(after[name].to(tensor), tensor, atol=1e-5), name
    assert digest(broken(world.model, before, 0.5, None, 0, 0)) != digest(broken(world.model, before, 0.5, None, 0, 1))


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("cnn", None), ("mlp", None), ("resnet10", "stem.0.weight"), ("resnet10-gn", "stem.0.weight")],
)
def test_the_kernel_is_turned_only_where_a_normalisation_follows_it(name: str, kernel: str | None):
    assert kernel_to_turn(build_model(name, (1, 8, 8), 10, 0)) == kernel


def test_which_layer_follows_the_first_kernel():
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    assert kernel_to_turn(nn.Sequential(linear, nn.ReLU(), norm)) == "0.weight"
    assert kernel_to_turn(nn.Sequential(norm, linear, nn.ReLU(), nn.Linear(4, 4), norm)) is None
    assert kernel_to_turn(nn.Sequential(linear, nn.ReLU(), nn.Linear(4, 4), norm)) is None
    assert kernel_to_turn(linear) is None
    assert kernel_to_turn(nn.Sequential(norm)) is None, "no kernel at all"
    assert kernel_to_turn(nn.Sequential(linear, nn.LocalResponseNorm(2))) == "0.weight", "one without weights"


def test_a_turned_kernel_and_its_normalisation_say_the_negative():
    """A closed form: with the kernel turned, the normalised values have the opposite sign, and what is known stays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5, affine=False))
    x = torch.randn(20, 6)
    straight = model(x)
    with torch.no_grad():
        model[0].weight.neg_()  # type: ignore[operator,union-attr]
    assert torch.allclose(model(x), -straight, atol=1e-6)


@pytest.mark.parametrize("first", [0.4, 0.75])
def test_the_second_break_leaves_what_is_asked_for_of_a_memory_that_falls_as_a_power(first: float):
    """m(c) = m0 c^k: after both breaks left * m0 is left, wherever neither end of the range is met."""
    met, settings = 0, RebuildSettings(first=first)
    for k in (0.5, 1, 2, 3, 5, 8):
        for m0 in (0.05, 0.6):
            c = second_break(m0, m0 * first**k, settings)
            assert settings.hardest <= c <= first
            if settings.hardest < c < first:
                assert m0 * (first * c) ** k == pytest.approx(settings.left * m0)
                met += 1
            elif c == first:
                assert (first * first) ** k <= settings.left * (1 + 1e-9), "it is enough"
            else:
                assert (first * settings.hardest) ** k >= settings.left * (1 - 1e-9), "it would not be enough"
    assert met > 0


def test_the_second_break_where_nothing_can_be_measured():
    for before, halfway in [(None, 0.1), (0.1, None), (0.0, 0.1), (-0.1, 0.1), (0.5, 0.01), (0.5, -0.2)]:
        assert second_break(before, halfway, SETTINGS) == SETTINGS.first, "as the first"
    for halfway in (0.5, 0.7):
        assert second_break(0.5, halfway, SETTINGS) == SETTINGS.hardest, "nothing went"
    harder = [second_break(0.6, m, SETTINGS) for m in (0.05, 0.1, 0.2, 0.4, 0.59)]
    assert harder == sorted(harder, reverse=True), "the more is left, the harder"


# Training.


@pytest.mark.parametrize(
    ("normalised", "trainings"),
    [
        (True, [("between", 0.03, 1.0, 1.0), ("rebuilding 0", 0.10, 1.0, 0.01)]),
        (False, [("scout", 0.06, 1.0, 0.01), ("rebuilding 0", 0.18, 2.0, 0.5)]),
    ],
)
def test_the_trainings_are_parts_of_the_one_before_without_the_target(
    normalised: bool, trainings: list[tuple[str, float, float, float]]
):
    world = federation((400, 300, 350, 250), normalised)
    before = state_of(world.model)
    schedule = replace(SCHEDULE, rounds=20)
    rebuild(Meter(world), before, (REQUEST,), RebuildSettings(times=1), schedule)
    retained = {k: len(world.client(k).positions([REQUEST])[1]) for k in world.clients}
    for purpose, part, first, last in trainings:
        replies = [(task, r) for task, _, r in world.log if isinstance(task, Train) and task.purpose == purpose]
        tasks = list({task.round: task for task, _ in replies}.values())
        assert all(task.exclude == (REQUEST,) for task in tasks)
        rounds = max(FEWEST_ROUNDS, math.ceil(part * 20))
        assert len(tasks) == rounds
        for client, count in retained.items():
            each = max(math.ceil(part * 20 / rounds * count), min(MIN_SAMPLES, count))
            assert [r.numbers["samples"] for _, r in replies if r.client == client] == [each] * rounds
        rates = [task.lr / schedule.lr for task in tasks]
        assert rates[0] == first
        assert rates[-1] == pytest.approx(last)
        steps = [a - b for a, b in pairwise(rates)]
        assert steps == pytest.approx([steps[0]] * len(steps)), "in a straight line"


def slow_needs_more(accuracies: list[Share], before: Share, within: float) -> bool:
    missed = 2 * before.count - before.hits - accuracies[-1].hits
    back = before.hits / before.count - within - math.sqrt(min(0.2 * before.count, missed + 1)) / before.count
    shares = [share.hits / share.count for share in accuracies]
    return shares[-1] < back and (len(shares) == 1 or shares[-1] > shares[-2] + 0.005)


def test_it_trains_again_while_the_accuracy_is_not_back_and_still_rises():
    before = Share(900, 1000)
    for within, latest in itertools.product((0.01, 0.03), range(700, 1000, 3)):
        once = [Share(latest, 1000)]
        assert needs_more(once, before, within, 0.005) == slow_needs_more(once, before, within)
        for last in (latest - 20, latest - 5, latest, latest + 5):
            seen = [Share(last, 1000), Share(latest, 1000)]
            assert needs_more(seen, before, within, 0.005) == slow_needs_more(seen, before, within)
    assert not needs_more([Share()], Share(), 0.01, 0.005), "nobody holds anything out"
    assert not needs_more([Share(1, 10)], before, 0.01, 0.005), "other samples than before"


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("normalised", [True, False])
def test_the_last_training_is_repeated_and_so_often_at_most(
    normalised: bool, times: int, monkeypatch: pytest.MonkeyPatch
):
    """Though the accuracy is never called back."""
    monkeypatch.setattr(sys.modules["fedforget.methods.rebuild"], "needs_more", lambda *_: True)
    world, before, _ = trained(normalised)
    world.log.clear()
    schedule = replace(SCHEDULE, rounds=100)
    rebuild(Meter(world), before, (REQUEST,), RebuildSettings(times=times), schedule)
    lengths: dict[str, float] = {}
    for task, _ in rounds_of(world):
        lengths[task.purpose] = lengths.get(task.purpose, 0.0) + task.share * task.epochs
    steps = 80 / 4 / 8 * 100  # 80 of 90 samples are left, at four clients
    parts = {"between": 0.03} if normalised else {"scout": 34 / steps}
    parts |= {f"rebuilding {n}": 0.05 if n else 0.10 if normalised else 0.32 for n in range(times)}
    assert lengths == pytest.approx({name: part * 100 for name, part in parts.items()})


@pytest.mark.parametrize(("kept", "part"), [(1000, 0.32), (1600, 115 / 500), (4000, 0.18)])
def test_a_network_that_is_built_anew_gets_a_few_steps_at_least(kept: int, part: float):
    """115 steps of 8 samples, for each of four clients."""
    left, schedule = Left(target=10, kept=kept, clients=4), replace(SCHEDULE, rounds=10)
    assert left.steps(schedule) == kept * 10 / 32
    assert left.steps(replace(schedule, participation=0.25)) == kept * 10 / 128, "who is drawn less often takes fewer"
    assert last_part(network(), schedule, left, SETTINGS) == pytest.approx(part)
    assert last_part(network(normalised=True), schedule, left, SETTINGS) == 0.10


def test_it_is_steered_by_the_half_that_nobody_judges_by_and_looks_at_both_ends():
    world, before, _ = trained(normalised=True)
    _, curves = rebuilt(world, before)
    looks = [task for task, _, _ in world.log if isinstance(task, CountBeside | CountElsewhere)]
    assert {task.half for task in looks} == {"steer"}
    assert {reply.client for task, _, reply in world.log if isinstance(task, CountBeside)} == {0}
    assert {reply.client for task, _, reply in world.log if isinstance(task, CountElsewhere)} == {1, 2, 3}
    repeats = len({task.purpose for task, _ in rounds_of(world)} - {"between"})
    assert len(curves["accuracy"]) == 2 + repeats


def test_the_same_seed_gives_the_same_bits_and_the_model_before_stays():
    world, before, _ = trained(normalised=True)
    given = digest(before)
    results = [forget(world, before, REQUEST, SCHEDULE, "rebuild") for _ in range(2)]
    assert digest(results[0].state) == digest(results[1].state) != given
    assert digest(before) == given
    other = forget(world, before, REQUEST, replace(SCHEDULE, seed=1), "rebuild")
    assert digest(other.state) != digest(results[0].state)
    assert results[0].cost.seconds.keys() >= {"looking", "rebuilding"}


@pytest.mark.parametrize(("normalised", "stays"), [(True, [1.0, 0.75, 0.75]), (False, [1.0, 0.0])])
def test_a_federation_that_holds_nothing_out_is_rebuilt_unsteered(normalised: bool, stays: list[float]):
    world = federation(normalised=normalised)
    for client in world.clients:
        world.client(client).held_out = None
    before = state_of(network(normalised))
    state, curves = rebuilt(world, before)
    assert curves == {"stays": stays}
    assert digest(state) != digest(before)


def test_the_scout_of_the_ladder_is_trained_on_and_else_one_is_trained():
    world, before, _ = trained()
    own, _ = rebuilt(world, before, times=1)
    left = Left.count(world, (REQUEST,), (), SCHEDULE)
    scout = train_scout(Meter(world), SCHEDULE, left, (REQUEST,))
    world.log.clear()
    meter = Meter(world)
    given, _ = rebuild(meter, before, (REQUEST,), RebuildSettings(times=1), SCHEDULE, scout=scout)
    assert {task.purpose for task, _ in rounds_of(world)} == {"rebuilding 0"}
    assert digest(given) == digest(own)
    assert meter.exact
    assert not any(digest(state) == digest(before) for _, state in rounds_of(world)), "nothing begins from the old one"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"first": 1.0}, "Rebuild setting 'first' is 1.0, but it must be below 1."),
        ({"left": 0.0}, "Rebuild setting 'left' is 0.0, but it must be a finite number above 0."),
        ({"times": 0}, "Rebuild setting 'times' is 0, but it must be a finite number above 0."),
        ({"after": math.nan}, "Rebuild setting 'after' is nan, but it must be a finite number above 0."),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, float], sentence: str):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        RebuildSettings(**change)  # type: ignore[arg-type]
