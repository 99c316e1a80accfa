"""The guard against a weight-by-weight twin, in rounds, over several requests; on digits, what came back stays away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_worlds import SCHEDULE, trained
from torch import Tensor

from fedforget import Backdoor, LocalFederation, Schedule, Trigger, build_model, load_dataset, train
from fedforget.audit.durability import durability
from fedforget.audit.measures import measure
from fedforget.data.partition import partition
from fedforget.errors import InputError
from fedforget.federation.guard import Guard
from fedforget.federation.rounds import further_round, further_rounds, run_round
from fedforget.methods import METHODS, forget
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest

ONES, TWOS = ErasureRequest.of_class(0, 1), ErasureRequest.of_class(0, 2)
NAMES = ["kernel", "bias"]


def drawn(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"kernel": (3, 4), "bias": (5,), "running": (2,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def slowly_held(before: State, forgotten: State, share: float, later: State) -> dict[str, list[float]]:
    """Weight by weight: the ones that moved most, each of them no nearer to where it came from than `forgotten`."""
    places = [(name, place) for name in NAMES for place in range(before[name].numel())]

    def moved(place: tuple[str, int]) -> float:
        name, at = place
        return float(forgotten[name].flatten()[at] - before[name].flatten()[at])

    chosen = sorted(places, key=lambda place: -abs(moved(place)))[: max(1, round(share * len(places)))]
    found = {name: later[name].flatten().tolist() for name in later}
    for name, at in chosen:
        bound = float(forgotten[name].flatten()[at])
        limit = max if moved((name, at)) > 0 else min
        found[name][at] = limit(found[name][at], bound)
    return found


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_it_holds_the_weights_that_moved_most_on_their_side(seed: int, share: float):
    before, forgotten, later = drawn(seed), drawn(seed + 100), drawn(seed + 200)
    untouched = digest(later)
    guard = Guard.of(before, forgotten, NAMES, share)
    held = guard.hold(later)
    twin = slowly_held(before, forgotten, share, later)
    assert {name: tensor.flatten().tolist() for name, tensor in held.items()} == twin
    assert guard.count == max(1, round(share * 17))
    assert digest(guard.hold(held)) == digest(held), "once is enough"
    assert digest(later) == untouched
    assert digest(guard.hold(forgotten)) == digest(forgotten), "the model that forgot is where it may be"


def test_it_gives_the_nearest_model_that_keeps_the_bounds():
    """Closed form: a projection onto a box. No model between the two keeps the bounds."""
    before, forgotten, later = drawn(1), drawn(2), drawn(3)
    held = Guard.of(before, forgotten, NAMES, 1.0).hold(later)
    for name in NAMES:
        away = (forgotten[name] - before[name]).sign()
        assert bool(((held[name] - forgotten[name]) * away >= 0).all())
        assert bool(((held[name] == later[name]) | (held[name] == forgotten[name])).all())
        assert bool(((held[name] == later[name]) == ((later[name] - forgotten[name]) * away >= 0)).all())


def test_weights_that_did_not_move_are_free():
    before, later = drawn(1), drawn(3)
    moved = {**before, "bias": before["bias"] + torch.tensor([1.0, 0, 0, 0, 0])}
    guard = Guard.of(before, moved, NAMES, 0.5)
    assert guard.count == 1
    assert torch.equal(guard.hold(later)["kernel"], later["kernel"])


def test_several_requests_are_held_together_from_where_the_newest_moved_the_weights():
    """Weight by weight: an earlier bound that the newest request crossed is where it left the weight; then both."""
    before, first, second, later = (drawn(seed) for seed in range(4))
    old, new = Guard.of(before, first, NAMES, 0.6), Guard.of(first, second, NAMES, 0.6)
    both = old.including(second).then(new)
    assert digest(both.hold(second)) == digest(second), "nothing that was forgotten last is undone"
    held, frozen = both.hold(later), 0
    for name in NAMES:
        rows = [t.flatten().tolist() for t in (old.lower[name], old.upper[name], new.lower[name], new.upper[name])]
        for at, (least, most, own_least, own_most) in enumerate(zip(*rows, strict=True)):
            value, placed = float(later[name].flatten()[at]), float(second[name].flatten()[at])
            low, high = max(min(least, placed), own_least), min(max(most, placed), own_most)
            assert low <= high
            frozen += low == high
            assert float(held[name].flatten()[at]) == min(max(value, low), high)
    assert frozen, "some weights are held against each other"
    free = both.moved_to(later)
    assert free.count == both.count - frozen, "a break frees them"
    assert digest(free.hold(later)) == digest(later)


def test_of_steps_that_are_alike_none_is_free():
    zeros, ones = {"w": torch.zeros(10)}, {"w": torch.ones(10)}
    assert Guard.of(zeros, ones, ["w"], 0.5).count == 10


@pytest.mark.parametrize("foreign", [{"kernel": torch.ones(3, 4)}, {**drawn(3), "bias": torch.ones(1)}])
def test_a_guard_of_another_network_is_refused_before_any_work(foreign: State):
    with pytest.raises(InputError, match="another network: the model has no 'bias' of that shape"):
        Guard.of(drawn(1), drawn(2), NAMES, 0.5).check(foreign)
    world, before, _ = trained()
    with pytest.raises(InputError, match="another network"):
        forget(world, before, ONES, SCHEDULE, guard=Guard.of(drawn(1), drawn(2), NAMES, 0.5))
    assert world.log == []


def test_a_guard_goes_through_named_tensors():
    guard = Guard.of(drawn(1), drawn(2), NAMES, 0.5)
    again = Guard.from_state(guard.to_state())
    assert digest(again.to_state()) == digest(guard.to_state())
    assert digest(again.hold(drawn(3))) == digest(guard.hold(drawn(3)))


@pytest.mark.parametrize("change", [lambda s: s.pop("lower.bias"), lambda s: s.update(w=torch.ones(1)), dict.clear])
def test_what_is_no_guard_is_refused(change):
    state: dict[str, Tensor] = Guard.of(drawn(1), drawn(2), NAMES, 0.5).to_state()
    change(state)
    with pytest.raises(InputError, match="no guard"):
        Guard.from_state(state)


def test_a_request_leaves_a_guard_where_it_holds_something_and_rounds_keep_to_it():
    world, before, _ = trained()
    free = forget(world, before, ONES, SCHEDULE)
    assert free.guard is None
    result = forget(world, before, ONES, SCHEDULE, held=0.3)
    guard = result.guard
    assert guard is not None
    assert digest(guard.hold(result.state)) == digest(result.state), "the recovery is held to it already"
    task = further_round(SCHEDULE, SCHEDULE.rounds, [ONES])
    plain = run_round(world, result.state, task)
    assert digest(guard.hold(plain)) != digest(plain), "else the test could not fail"
    assert digest(run_round(world, result.state, task, guard=guard)) == digest(guard.hold(plain))
    state = result.state
    for done, later in further_rounds(world, result.state, SCHEDULE, [ONES], 2, guard):
        assert digest(later) == digest(state)
        state = run_round(world, state, further_round(SCHEDULE, SCHEDULE.rounds + done, [ONES]), guard=guard)


@pytest.mark.parametrize("preset", ["recommended", "lasting"])
def test_every_round_of_recovery_and_rebuilding_is_held(preset: str, monkeypatch: pytest.MonkeyPatch):
    """As often as there are such rounds, and each time it changes something."""
    world, before, _ = trained()
    changed: list[bool] = []
    plain = Guard.hold

    def watched(self: Guard, state: State) -> State:
        held = plain(self, state)
        changed.append(digest(held) != digest(state))
        return held

    monkeypatch.setattr(Guard, "hold", watched)
    forget(world, before, ONES, SCHEDULE, preset=preset, held=1.0, recovery_min_samples=0)
    assert changed == [True] * (3 if preset == "lasting" else 1)


@pytest.mark.parametrize("method", ["retrain", "fedquit", "not"])
def test_an_earlier_guard_goes_on_from_where_a_later_request_left_the_model(method: str):
    world, before, _ = trained()
    first = forget(world, before, ONES, SCHEDULE, held=0.3)
    free = forget(world, first.state, TWOS, SCHEDULE, method, served=[ONES])
    second = forget(world, first.state, TWOS, SCHEDULE, method, served=[ONES], guard=first.guard)
    assert METHODS[method].afresh == (method == "retrain")
    assert digest(second.state) == digest(free.state), "what the method made is not undone"
    if method == "retrain":
        assert second.guard is None
        return
    assert first.guard is not None
    assert second.guard is not None
    assert second.guard.count == first.guard.count
    assert digest(second.guard.to_state()) == digest(first.guard.including(second.state).to_state())


def test_a_feature_is_not_guarded_and_no_guard_brings_it_back():
    world, before, _ = trained()
    feature = ErasureRequest.of_feature(0, [0])
    first = forget(world, before, ONES, SCHEDULE, held=1.0)
    free = forget(world, first.state, feature, SCHEDULE, served=[ONES])
    held = forget(world, first.state, feature, SCHEDULE, served=[ONES], guard=first.guard, held=0.3)
    assert digest(held.state) == digest(free.state)
    assert any("of a feature" in note for note in held.notes)
    assert held.guard is not None
    assert digest(held.guard.hold(held.state)) == digest(held.state)


@pytest.mark.parametrize(("held", "why"), [(1.5, "at most 1"), (-0.1, "0 or larger")])
def test_a_share_of_the_weights_is_a_share(held: float, why: str):
    world, before, _ = trained()
    with pytest.raises(InputError, match=why):
        forget(world, before, ONES, SCHEDULE, held=held)


@pytest.mark.real
def test_a_backdoor_that_comes_back_stays_away_under_the_guard():
    """Real digits, a poisoned class of one client. Measured, at once and after 1, 3 and 5 rounds without R. The last
    layer cleared: 0, 92, 41, 43 %, and 0, 0, 8, 3 % under the guard; FedAF with short steps: 3, 22, 8, 14 %, and 3, 3,
    3, 3 %."""
    digits = load_dataset("digits").first(1000)
    request = ErasureRequest.of_class(0, 3)
    model, parts = build_model("mlp", digits.shape, 10, 0), partition("iid", digits.train.labels, 3, 0)
    world = LocalFederation(digits, parts, model, backdoors=[Backdoor(request, Trigger(2, margin=0), 8)])
    schedule = Schedule(rounds=12, epochs=2, lr=0.03, batch_size=16, threads=1)
    before = train(world, state_of(model), schedule)

    def back(state: State, guard: Guard | None) -> float:
        """The most that comes back."""
        known = durability(world, state, [request], schedule, (1, 3, 5), guard=guard).known
        return max(at.bd_acc for at in known if at.bd_acc is not None)

    cleared = {**before, **{name: torch.zeros_like(before[name]) for name in list(before)[-2:]}}
    assert back(cleared, None) > 60
    assert back(cleared, Guard.of(before, cleared, list(before), 1.0)) < 20
    short: dict[str, Any] = {"memory": "suppressed", "step_length": 0.05, "min_steps": 8}
    free, held = (forget(world, before, request, schedule, held=share, **short) for share in (0.0, 0.3))
    assert back(held.state, held.guard) < 10 < back(free.state, free.guard)


@pytest.mark.real
@pytest.mark.parametrize("preset", ["guarded", "lasting", "thorough"])
def test_a_second_request_is_served_as_well_under_the_guard_of_the_first(preset: str):
    """Real digits, two poisoned clients: what the first request holds neither keeps the second one's backdoor nor costs
    more than a few points of accuracy."""
    digits = load_dataset("digits").first(1000)
    first, second = ErasureRequest.of_class(0, 3), ErasureRequest.of_class(1, 5)
    model, parts = build_model("mlp", digits.shape, 10, 0), partition("iid", digits.train.labels, 3, 0)
    corner = Trigger(2, margin=0)
    backdoors = [Backdoor(first, corner, 8), Backdoor(second, replace(corner, corner="top-left"), 1)]
    world = LocalFederation(digits, parts, model, backdoors=backdoors)
    schedule = Schedule(rounds=12, epochs=2, lr=0.03, batch_size=16, threads=1)
    before = train(world, state_of(model), schedule)
    earlier = forget(world, before, first, schedule, held=0.3)
    figures = []
    for guard in (None, earlier.guard):
        found = forget(world, earlier.state, second, schedule, preset=preset, served=[first], guard=guard, held=0.3)
        figures.append(measure(world, found.state, [second], digits.test, served=[first]))
    free, held = figures
    assert held.bd_acc is not None
    assert free.test_acc is not None
    assert held.test_acc is not None
    assert held.bd_acc < 5
    assert held.test_acc > free.test_acc - 3
