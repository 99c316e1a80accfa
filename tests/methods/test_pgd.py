"""PGD: the others' mean, the ball, the ascent by hand, when it stops, and whose data it looks at."""

from __future__ import annotations

import math

import pytest
import slow_twins
import torch
from small_worlds import SCHEDULE, federation, inputs_and_labels, loaded, trained
from torch.nn import functional as F

from fedforget.errors import InputError
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.pgd import Climb, PGDSettings, ball_radius, project, reference
from fedforget.models import fresh_copy
from fedforget.params import State, copy_state, digest, flatten, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

CLASS = ErasureRequest.of_class(0, 1)


def flat(state: State) -> torch.Tensor:
    return torch.cat(
        [tensor.reshape(-1) for name, tensor in state.items() if "running" not in name and "num" not in name]
    )


@pytest.mark.parametrize("sizes", [(3.0, 1.0, 1.0, 1.0), (5.0, 7.0), (1.0, 60.0, 2.0)])
def test_the_reference_is_the_weighted_mean_of_the_others(sizes: tuple[float, ...]):
    models = [torch.randn(9, generator=torch.Generator().manual_seed(k)).double() for k in range(len(sizes))]
    theta = sum(n * w for n, w in zip(sizes, models, strict=True)) / sum(sizes)
    others = sum(n * w for n, w in zip(sizes[1:], models[1:], strict=True)) / sum(sizes[1:])
    assert torch.allclose(reference(theta, models[0], sizes[0], sum(sizes[1:])), others)


@pytest.mark.parametrize("radius", [0.0, 0.5, 2.0, 100.0])
def test_the_projection_is_the_nearest_point_of_the_ball(radius: float):
    generator = torch.Generator().manual_seed(2)
    point, centre = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    nearest = project(point, centre, radius)
    assert nearest.tolist() == pytest.approx(slow_twins.nearest_in_ball(point.tolist(), centre.tolist(), radius))
    for offset in torch.randn(50, 7, generator=generator, dtype=torch.float64):
        other = centre + offset / offset.norm() * radius * torch.rand(1, generator=generator)
        assert (point - nearest).norm() <= (point - other).norm() + 1e-9


def test_the_radius_is_the_root_of_a_third_of_the_mean_squared_distance():
    world = federation()
    centre = flatten(dict(world.model.named_parameters())) + 1.0
    squares = []
    for q in range(4):
        copy = torch.cat([p.detach().flatten() for p in fresh_copy(world.model, derive_seed(9, q)).parameters()])
        squares.append(sum((a - b) ** 2 for a, b in zip(centre.tolist(), copy.tolist(), strict=True)))
    assert ball_radius(centre, world.model, 4, 9) == pytest.approx(math.sqrt(sum(squares) / 4 / 3), rel=1e-5)


@pytest.mark.parametrize(("clip", "shrink"), [(1e9, 1.0), (0.01, 1.0), (1e9, 1e6)])
def test_one_step_is_the_projected_gradient_step_from_the_reference(
    clip: float, shrink: float, monkeypatch: pytest.MonkeyPatch
):
    """The whole target in one batch, without momentum, by hand; also with a tiny ball, which the step leaves."""
    monkeypatch.setattr("fedforget.methods.pgd.ball_radius", lambda *_: 1e3 / shrink)
    world, before, _ = trained()
    settings = PGDSettings(lr=0.3, momentum=0.0, batch_size=100, epochs=1, clip=clip, stop_distance=None)
    last = SCHEDULE.train_task(SCHEDULE.rounds)
    task = Climb(seed=0, threads=1, requests=(CLASS,), last=last, others=60.0, settings=settings)
    (reply,) = world.ask(task, before, [0])

    (own,) = world.ask(last, before, [0])
    w_ref = (90 * flat(before) - 30 * flat(own.tensors)) / 60
    target = world.client(0).positions([CLASS])[0]
    x, y = inputs_and_labels(world, 0, target)
    start = copy_state(before)
    place = 0
    for name, tensor in start.items():
        start[name] = w_ref[place : place + tensor.numel()].view_as(tensor)
        place += tensor.numel()
    model = loaded(world, start)
    loss = F.cross_entropy(model(x), y)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    gradient *= min(1.0, clip / float(gradient.norm()))
    expected = slow_twins.nearest_in_ball((w_ref + 0.3 * gradient).tolist(), w_ref.tolist(), 1e3 / shrink)
    assert flat(reply.tensors).tolist() == pytest.approx(expected, abs=2e-6)
    assert reply.curves["target_loss"] == pytest.approx([float(loss.detach())], rel=1e-5)
    assert reply.gradient_evaluations == 30 + len(target)


def test_the_model_stays_in_the_ball_and_the_target_is_lost(monkeypatch: pytest.MonkeyPatch):
    world, before, _ = trained()
    centres: list[torch.Tensor] = []

    def seen(centre: torch.Tensor, *_: object) -> float:
        centres.append(centre.clone())
        return 0.7

    monkeypatch.setattr("fedforget.methods.pgd.ball_radius", seen)
    result = forget(world, before, CLASS, SCHEDULE, "pgd", lr=1.0, stop_distance=None, recovery_rounds=0)
    assert float((flat(result.state) - centres[0]).norm()) == pytest.approx(0.7, rel=1e-4), "the step is on the sphere"
    x, y = inputs_and_labels(world, 0, world.client(0).positions([CLASS])[0])
    assert F.cross_entropy(loaded(world, result.state)(x), y) > 2 * F.cross_entropy(loaded(world, before)(x), y)


def test_it_stops_once_it_is_far_from_the_clients_own_model():
    world, before, _ = trained()
    at_once = forget(world, before, CLASS, SCHEDULE, "pgd", stop_distance=1e-9).curves
    never = forget(world, before, CLASS, SCHEDULE, "pgd", stop_distance=None, batch_size=4, epochs=3).curves
    assert len(at_once["target_loss"]) == 1
    assert len(never["target_loss"]) == 3 * math.ceil(10 / 4)
    limit = never["squared_distance"][3]
    some = forget(world, before, CLASS, SCHEDULE, "pgd", stop_distance=limit, batch_size=4, epochs=3).curves
    assert some["squared_distance"][-1] > limit >= max(some["squared_distance"][:-1])


def test_the_clients_own_model_is_one_epoch_on_all_it_holds_but_what_went_before():
    world, before, _ = trained()
    served = [ErasureRequest.of_class(0, 2), ErasureRequest.of_client(3)]
    forget(world, before, CLASS, SCHEDULE, "pgd", served=served)
    ((task, _, reply),) = [entry for entry in world.log if isinstance(entry[0], Climb)]
    assert isinstance(task, Climb)
    assert isinstance(task.last, Train)
    assert (task.last.epochs, set(task.last.exclude)) == (1, set(served))
    assert task.others == 20 + 25, "client 3 is gone, client 0 is the one that asks"
    assert reply.numbers["samples"] == 10


def test_running_statistics_stay_those_of_the_global_model():
    world, before, _ = trained(normalised=True)
    result = forget(world, before, CLASS, SCHEDULE, "pgd", recovery_rounds=0)
    buffers = [name for name, _ in world.model.named_buffers()]
    assert len(buffers) == 3
    assert digest({n: result.state[n] for n in buffers}) == digest({n: before[n] for n in buffers})
    assert digest(result.state) != digest(before)


def test_several_clients_climb_one_after_another():
    world, before, _ = trained()
    forget(world, before, [CLASS, ErasureRequest.of_client(2)], SCHEDULE, "pgd")
    first, second = [entry for entry in world.log if isinstance(entry[0], Climb)]
    assert (first[2].client, second[2].client) == (0, 2)
    assert digest(second[1]) == digest(first[2].tensors)


def test_a_lone_client_is_refused_before_any_work():
    alone = federation(sizes=(30,))
    with pytest.raises(InputError, match=r"^PGD needs the mean of the others, but only client 0 has data left; use"):
        forget(alone, state_of(alone.model), CLASS, SCHEDULE, "pgd")
    world, before, _ = trained()
    served = [
        ErasureRequest.of_client(1),
        ErasureRequest.of_client(3),
        *(ErasureRequest.of_class(2, c) for c in range(3)),
    ]
    with pytest.raises(InputError, match=r"^PGD needs the mean of the others"):
        forget(world, before, CLASS, SCHEDULE, "pgd", served=served)
    assert world.log == alone.log == []


def test_what_was_withdrawn_before_cannot_be_climbed_on():
    world, before, _ = trained()
    again = r"^Client 0 withdrew all of that before; there is nothing left to forget\.$"
    for served in (CLASS, ErasureRequest.of_client(0)):
        with pytest.raises(InputError, match=again):
            forget(world, before, CLASS, SCHEDULE, "pgd", served=[served])
    assert world.log == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"lr": 0.0}, "PGD setting 'lr' is 0.0, but it must be a finite number above 0."),
        ({"epochs": 0}, "PGD setting 'epochs' is 0, but it must be a finite number above 0."),
        ({"clip": math.nan}, "PGD setting 'clip' is nan, but it must be a finite number above 0."),
        ({"recovery_rounds": -1}, "PGD setting 'recovery_rounds' is -1, but it must be a finite number 0 or larger."),
        ({"momentum": 1.0}, "PGD setting 'momentum' is 1.0, but it must be below 1."),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, float], sentence: str):
    with pytest.raises(InputError) as refusal:
        PGDSettings(**values)  # type: ignore[arg-type]
    assert str(refusal.value) == sentence
