"""Models trained as one stack against the same models one after another, and the networks that cannot be stacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import small_worlds
import torch
from torch import Tensor, nn

from fedforget.data import Dataset, load_dataset
from fedforget.data.own import from_arrays
from fedforget.errors import DivergedError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.stacked import (
    CannotStackError,
    TrainStacked,
    can_stack,
    gains_from_stacking,
    stack,
    train_stacked,
    unstack,
)
from fedforget.federation.starts import Network
from fedforget.federation.tasks import Train
from fedforget.models import ResNet, VisionTransformer, build_model, fresh_copy, xavier_initialise
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest

SEEDS = (11, 2**62, 13)
EXCLUDE = (ErasureRequest.of_class(0, 1), ErasureRequest.of_client(2))


@cache
def digits() -> Dataset:
    return load_dataset("digits").first(145, 20)


def image_world(model: Network) -> LocalFederation:
    """Clients of 61, 49 and 35 digits: with batches of 16, a lone sample is left over at two of them."""
    return LocalFederation(digits(), list(torch.arange(145).split([61, 49, 35])), model)


class Branching(nn.Module):
    """Looks at its data before it decides what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if bool(x.sum() > 0) else -self.layer(x)


def point_world(*layers: nn.Module, sizes: tuple[int, ...] = small_worlds.SIZES) -> LocalFederation:
    """Clients with points of six coordinates and three classes."""
    world = small_worlds.federation(sizes)
    samples = [world.client(k).samples for k in world.clients]
    features, labels = torch.cat([s.features for s in samples]), torch.cat([s.labels for s in samples])
    data = from_arrays(features, labels, features[:9], labels[:9])
    model = xavier_initialise(nn.Sequential(*layers), 0)
    return LocalFederation(data, list(torch.arange(sum(sizes)).split(list(sizes))), model)


class Doubled(nn.Module):
    """A network in double precision. Deep ones with normalisations blow rounding up to any size within a few steps;
    in double precision they still show that the arithmetic is the same."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.double())


def doubled(make: Callable[[], nn.Module]) -> LocalFederation:
    return image_world(lambda: Doubled(make()))


def frozen_first() -> nn.Module:
    layer = nn.Linear(6, 10)
    layer.requires_grad_(False)
    return layer


WORLDS = {
    "cnn": lambda: image_world(build_model("cnn", (1, 8, 8), 10, 0)),
    "mlp": lambda: image_world(build_model("mlp", (1, 8, 8), 10, 0)),
    "batch normalisation": lambda: doubled(lambda: ResNet((1, 8, 8), 10, width=4)),
    "group normalisation": lambda: doubled(lambda: ResNet((1, 8, 8), 10, norm="group", width=4)),
    "attention": lambda: doubled(lambda: VisionTransformer((1, 8, 8), 10, dim=8, depth=1, heads=2)),
    "points": lambda: point_world(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 3)),
    "instance normalisation": lambda: point_world(
        nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True),
        nn.Flatten(), nn.Linear(6, 3),
    ),
    "a frozen layer": lambda: point_world(frozen_first(), nn.ReLU(), nn.Linear(10, 3)),
}  # fmt: skip


def starts(world: LocalFederation) -> list[State]:
    return [state_of(fresh_copy(world.model, seed)) for seed in SEEDS]


def assert_close(a: State, b: State) -> None:
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype
        tolerance = 1e-9 if a[name].dtype == torch.float64 else 1e-5
        assert torch.allclose(a[name], b[name], rtol=100 * tolerance, atol=tolerance), name


@pytest.mark.real
@pytest.mark.parametrize("kind", WORLDS)
def test_a_stack_is_one_after_another_up_to_rounding(kind: str):
    world = WORLDS[kind]()
    schedule = Schedule(rounds=2, epochs=2, lr=0.02, batch_size=16, threads=1)
    alone = [
        train(world, start, replace(schedule, seed=seed), exclude=EXCLUDE)
        for seed, start in zip(SEEDS, starts(world), strict=True)
    ]
    together = unstack(train_stacked(world, stack(starts(world)), schedule, SEEDS, exclude=EXCLUDE))
    for a, b, start in zip(alone, together, starts(world), strict=True):
        assert_close(a, b)
        assert digest(b) != digest(start)
    assert len({digest(model) for model in together}) == len(SEEDS)
    assert can_stack(world.model)
    assert not gains_from_stacking(world), "on a CPU the same bits are promised"


@pytest.mark.real
def test_a_stack_goes_on_after_any_round():
    world = WORLDS["batch normalisation"]()
    schedule = Schedule(rounds=3, lr=0.02, batch_size=16, threads=1)
    seen: dict[int, State] = {}
    whole = train_stacked(world, stack(starts(world)), schedule, SEEDS, on_round=seen.__setitem__)
    assert sorted(seen) == [1, 2, 3]
    assert digest(seen[3]) == digest(whole)
    assert digest(train_stacked(world, seen[1], schedule, SEEDS, start=1)) == digest(whole)


def test_stack_and_unstack():
    world = WORLDS["points"]()
    states = starts(world)
    stacked = stack(states)
    assert stacked["0.weight"].shape == (3, 10, 6)
    assert stacked["1.num_batches_tracked"].shape == (3,)
    again = unstack(stacked)
    assert [digest(state) for state in again] == [digest(state) for state in states]
    again[0]["0.weight"].zero_()
    assert bool(stacked["0.weight"][0].any())


def task(**changes: object) -> TrainStacked:
    values = {"seed": 0, "threads": 1, "round": 0, "seeds": SEEDS, "lr": 0.02, "batch_size": 16, **changes}
    return TrainStacked(**values)  # type: ignore[arg-type]


def test_what_a_client_sends_is_what_it_would_send_of_each_model():
    world = WORLDS["points"]()
    (reply,) = world.ask(task(exclude=EXCLUDE, epochs=2), stack(starts(world)), [0])
    lone = Train(seed=0, threads=1, round=0, lr=0.02, batch_size=16, exclude=EXCLUDE, epochs=2)
    replies = [
        next(world.ask(replace(lone, seed=seed), start, [0])) for seed, start in zip(SEEDS, starts(world), strict=True)
    ]
    assert reply.client == 0
    assert reply.numbers["samples"] == replies[0].numbers["samples"] == 20.0
    assert reply.numbers["loss"] == pytest.approx(sum(r.numbers["loss"] for r in replies) / 3, rel=1e-5)
    assert reply.gradient_evaluations == sum(r.gradient_evaluations for r in replies)
    assert {n: t.shape for n, t in reply.tensors.items()} == {n: t.shape for n, t in stack(starts(world)).items()}
    assert not any(tensor.requires_grad for tensor in reply.tensors.values())
    assert set(reply.numbers) == {"samples", "loss"}
    assert not reply.curves


def test_a_client_with_nothing_left_sends_no_model():
    world = WORLDS["points"]()
    (reply,) = world.ask(task(exclude=(ErasureRequest.of_client(1),)), stack(starts(world)), [1])
    assert (reply.numbers, reply.tensors) == ({"samples": 0.0}, {})


@pytest.mark.parametrize(("sizes", "batch_size"), [((1, 20), 16), ((5, 4), 1)])
def test_batches_of_one_keep_their_running_statistics(sizes: tuple[int, ...], batch_size: int):
    world = point_world(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 3), sizes=sizes)
    (stacked,) = world.ask(task(batch_size=batch_size), stack(starts(world)), [0])
    lone = Train(seed=0, threads=1, round=0, lr=0.02, batch_size=batch_size)
    for seed, start, own in zip(SEEDS, starts(world), unstack(stacked.tensors), strict=True):
        (alone,) = world.ask(replace(lone, seed=seed), start, [0])
        assert_close(alone.tensors, own)
        assert torch.equal(own["1.running_mean"], start["1.running_mean"])


def test_a_network_that_cannot_be_stacked_says_so():
    tied = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    tied[2].weight = tied[0].weight
    assert not can_stack(tied)
    assert not can_stack(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1)))
    assert can_stack(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0)))
    assert not can_stack(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)))
    assert can_stack(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)))


@pytest.mark.parametrize("layers", [[Branching()], [nn.Linear(6, 3), nn.RReLU()]], ids=["branch", "draw"])
def test_what_shows_only_in_the_forward_pass_is_an_error_of_its_own(layers: list[nn.Module]):
    world = point_world(*layers)
    assert can_stack(world.model)
    with pytest.raises(CannotStackError, match=r"^The network cannot be trained as a stack \(.*\)\.$"):
        list(world.ask(task(), stack(starts(world))))


def test_a_stack_that_leaves_the_finite_numbers_is_named():
    world = WORLDS["points"]()
    with pytest.raises(DivergedError, match="Training 3 models in round 0 at client 0 diverged: parameter '"):
        list(world.ask(task(lr=1e30), stack(starts(world))))


@pytest.mark.parametrize("seeds", [(), (1, 2)])
def test_a_stack_has_a_model_for_each_seed(seeds: tuple[int, ...]):
    world = WORLDS["points"]()
    with pytest.raises(InputError, match="one model for each seed"):
        list(world.ask(task(seeds=seeds), stack(starts(world))))
