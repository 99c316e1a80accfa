"""FedAF on a feature: which weights are redrawn, by a closed form and by a slow twin."""

from __future__ import annotations

import pytest
import torch
from small_worlds import SCHEDULE, SIZES, federation, loaded, trained
from torch import nn

from fedforget.data.own import from_arrays
from fedforget.federation.local import LocalFederation
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.features import ReadFeatures, column_weights, redrawn, share, signed_derivatives
from fedforget.models import fresh_copy, xavier_initialise
from fedforget.params import digest, state_of, trainable, unflatten
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed


def column(client: int) -> ErasureRequest:
    return ErasureRequest.of_feature(client, 2)


def linear_world() -> LocalFederation:
    """The small worlds' points, and a model with one layer."""
    small = federation()
    features = torch.cat([small.client(k).samples.features for k in small.clients])
    labels = torch.cat([small.client(k).samples.labels for k in small.clients])
    data = from_arrays(features, labels, features[:9], labels[:9])
    parts = list(torch.arange(sum(SIZES)).split(list(SIZES)))
    return LocalFederation(data, parts, xavier_initialise(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), 0))


def shares(world: LocalFederation, requests: list[ErasureRequest]) -> dict[str, torch.Tensor]:
    task = ReadFeatures(seed=0, threads=1, requests=tuple(requests))
    replies = list(world.ask(task, state_of(world.model)))
    r = share(*(sum(reply.tensors[name] for reply in replies) for name in ("by_feature", "read")))
    return unflatten(r, trainable(world.model))


def test_of_a_linear_model_the_column_alone_is_redrawn():
    """In closed form: the derivative by W_ci is x_i, so r is 1 in the column that all withdraw, and else 0."""
    r = shares(linear_world(), [column(k) for k in range(4)])
    expected = torch.zeros(3, 6)
    expected[:, 2] = 1.0
    assert torch.allclose(r["1.weight"], expected.double())
    assert r["1.bias"].abs().max() == 0


def test_of_one_client_its_part_of_the_columns_squares():
    world = linear_world()
    squares = [float(world.client(k).samples.features[:, 2].double().square().sum()) for k in world.clients]
    r = shares(world, [column(1)])["1.weight"]
    assert torch.allclose(r[:, 2], torch.full((3,), squares[1] / sum(squares)).double())
    assert r[:, [0, 1, 3, 4, 5]].abs().max() == 0


def test_the_derivatives_are_those_of_one_sample_after_another():
    world, before, _ = trained()
    model = loaded(world, before)
    x = world.client(0).inputs(world.client(0).samples.features[:5])
    signs = torch.tensor([[1.0, -1.0, 1.0]]).repeat(5, 1)
    rows = signed_derivatives(model, x, signs)
    for place in range(5):
        gradients = torch.autograd.grad((model(x[place : place + 1])[0] * signs[place]).sum(), list(model.parameters()))
        assert torch.allclose(rows[place], torch.cat([g.flatten() for g in gradients]), atol=1e-6)


def test_a_share_is_at_most_one_and_of_nothing_nothing():
    by_feature, read = torch.tensor([0.0, 3.0, 1.0, 0.0]), torch.tensor([4.0, 2.0, 2.0, 0.0])
    assert share(by_feature, read).tolist() == [0.0, 1.0, 0.5, 0.0]


def test_redrawn_lies_between_the_old_and_the_fresh():
    world, before, _ = trained()
    fresh = state_of(fresh_copy(world.model, 7))
    size = sum(p.numel() for p in trainable(world.model).values())
    assert digest(redrawn(world.model, before, torch.zeros(size), 7)) == digest(before)
    assert digest(redrawn(world.model, before, torch.ones(size), 7)) == digest(fresh)
    half = redrawn(world.model, before, torch.full((size,), 0.5), 7)
    assert all(torch.allclose(half[name], (before[name] + fresh[name]) / 2) for name in before)


def test_the_method_trains_on_without_the_feature_alone():
    world, before, _ = trained()
    requests = [column(k) for k in range(4)]
    result = forget(world, before, requests, SCHEDULE, "overwrite")
    kinds = [type(task) for task, _, _ in world.log]
    assert kinds == [ReadFeatures] * 4 + [Train] * 4 * 3, "three rounds: a fifth of five is less than the fewest"
    assert all(task.exclude == tuple(requests) for task, _, _ in world.log if isinstance(task, Train))
    assert result.cost.seconds["rebuilding"] > 0


def test_what_a_linear_first_layer_reads_of_the_column_is_a_fresh_draw():
    """Nobody has the column any more, so training never moves its weights away from the draw."""
    world, before, _ = trained()
    state = forget(world, before, [column(k) for k in range(4)], SCHEDULE, "overwrite").state
    assert not torch.allclose(state["0.weight"][:, 2], before["0.weight"][:, 2], atol=0.05)
    start = next(s for task, s, _ in world.log if isinstance(task, Train))["0.weight"][:, 2]
    assert torch.allclose(state["0.weight"][:, 2], start)


@pytest.mark.parametrize("asking", [[0, 1, 2, 3], [1]])
def test_behind_a_linear_first_layer_nothing_else_is_redrawn(asking: list[int]):
    """All that was learnt of the column came through its weights; how much of them goes is in closed form again, since
    J_j(x0) = 0 there: the askers' part of n_k E ||J_j(x)||^2."""
    world, before, _ = trained()
    forget(world, before, [column(k) for k in asking], SCHEDULE, "overwrite")
    start = next(state for task, state, _ in world.log if isinstance(task, Train))
    fresh = state_of(fresh_copy(world.model, derive_seed(SCHEDULE.seed, "fedaf", "fresh")))
    task = ReadFeatures(seed=SCHEDULE.seed, threads=1, requests=tuple(column(k) for k in asking), samples=1000)
    read = torch.stack([reply.tensors["read"] for reply in world.ask(task, before)])
    r = torch.zeros_like(before["0.weight"])
    both = unflatten(read[asking].sum(dim=0) / read.sum(dim=0), trainable(world.model))
    r[:, 2] = both["0.weight"][:, 2].float()
    assert torch.allclose(start["0.weight"], (1 - r) * before["0.weight"] + r * fresh["0.weight"], atol=1e-6)
    assert all(torch.equal(start[name], before[name]) for name in before if name != "0.weight")


def test_two_clients_withdraw_two_columns():
    """Each column by its own asker's part."""
    world, before, _ = trained()
    forget(world, before, [ErasureRequest.of_feature(0, 2), ErasureRequest.of_feature(1, 4)], SCHEDULE, "overwrite")
    start = next(state for task, state, _ in world.log if isinstance(task, Train))
    moved = (start["0.weight"] - before["0.weight"]).abs().sum(dim=0) > 0
    assert moved.tolist() == [False, False, True, False, True, False]


class Beside(nn.Module):
    """The input also goes around the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.first(x).relu())


class WithACategory(nn.Module):
    """The first column is a number of a category."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds, self.last = nn.Embedding(4, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.kinds(x[:, 0].long()), x[:, 1:]], dim=1))


@pytest.mark.parametrize(
    ("model", "feature"),
    [
        (WithACategory(), (2,)),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), (2,)),
        (Beside(), (2,)),
        (nn.Sequential(nn.LayerNorm(6)), (2,)),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), (2, 2, 4, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)), (2,)),
        (nn.Sequential(nn.Linear(6, 3).requires_grad_(False), nn.ReLU(), nn.Linear(3, 3)), (2,)),
        (nn.Sequential(nn.Linear(2, 3)), (2,)),
    ],
    ids=[
        "other values than numbers",
        "something before it",
        "a way around it",
        "no layer",
        "a patch",
        "a kernel that slides",
        "frozen",
        "too narrow",
    ],
)
def test_where_more_than_the_column_of_the_first_layer_reads_it_all_are_redrawn_by_their_part(
    model: nn.Module, feature: tuple[int, ...]
):
    assert column_weights(model, state_of(model), [ErasureRequest.of_feature(0, feature)], 0) is None


def test_the_columns_of_a_linear_first_layer_are_found():
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    found = column_weights(model, state_of(model), [column(0), ErasureRequest.of_feature(1, 5)], 0)
    assert found is not None
    assert found[:24].view(4, 6).all(dim=0).tolist() == [False, False, True, False, False, True]
    assert int(found.sum()) == 8


def test_a_class_and_a_feature_of_one_client_go_together():
    world, before, _ = trained()
    requests = [ErasureRequest.of_class(0, 1), column(0)]
    result = forget(world, before, requests, SCHEDULE, "overwrite")
    names = [type(task).__name__ for task, _, _ in world.log]
    assert names.index("Forget") < names.index("ReadFeatures")
    assert result.requests == tuple(requests)
    forgets = [task for task, _, _ in world.log if type(task).__name__ == "Forget"]
    assert all(task.requests == (requests[0],) and task.served == (requests[1],) for task in forgets)


@pytest.mark.parametrize("samples", [3, None])
def test_few_samples_stand_for_all(samples: int | None):
    world = linear_world()
    task = ReadFeatures(seed=0, threads=1, requests=(column(0),), samples=samples)
    (reply,) = world.ask(task, state_of(world.model), [0])
    looked_at = SIZES[0] if samples is None else samples
    assert reply.gradient_evaluations == 2 * looked_at
    assert float(reply.tensors["read"][-1]) == pytest.approx(SIZES[0]), "the bias' derivative is 1 for each sample"
