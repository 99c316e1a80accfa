"""FedOSD: the bounded loss, the orthogonal direction, the step and the post-training that does not go back."""

from __future__ import annotations

import math

import pytest
import slow_twins
import torch
from small_worlds import SCHEDULE, inputs_and_labels, loaded, trained
from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.fedosd import (
    FedOSDSettings,
    MeanGradient,
    orthogonal_direction,
    unlearning_loss,
    without_reverting,
)
from fedforget.params import State
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 1)
TARGET = MeanGradient(seed=0, threads=1, requests=(CLASS,), of="target", round=0, settings=FedOSDSettings())
RETAINED = MeanGradient(seed=0, threads=1, requests=(CLASS,), of="retained", round=0, settings=FedOSDSettings())


def flat(state: State) -> Tensor:
    return torch.cat([tensor.flatten().double() for tensor in state.values()])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_unlearning_loss_in_scalar_arithmetic():
    logits, labels = 4 * random(20, 5), torch.arange(20) % 5
    p = [slow_twins.softmax(z)[y] for z, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    assert float(unlearning_loss(logits, labels)) == pytest.approx(sum(-math.log(1 - q / 2) for q in p) / 20)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_unlearning_loss_is_bounded_by_log_2_and_0(sign: float):
    logits = torch.tensor([[sign * 100.0, 0.0]], requires_grad=True)
    loss = unlearning_loss(logits, torch.tensor([0]))
    assert float(loss.detach()) == pytest.approx(math.log(2) if sign > 0 else 0.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (4, 40), (7, 8)])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_direction_is_orthogonal_to_every_row_and_as_long_as_the_targets(rows: int, columns: int, scale: float):
    """Also where the retained gradients are tiny, as a trained model's are."""
    g, a = random(columns, seed=1), scale * random(rows, columns, seed=2)
    d = orthogonal_direction(g, a)
    assert d is not None
    assert float(d.norm()) == pytest.approx(float(g.norm()))
    for row in a:
        assert abs(float(row @ d)) < 1e-9 * float(row.norm() * d.norm())
    assert d.tolist() == pytest.approx(slow_twins.without_components(g.tolist(), a.tolist()), abs=1e-7)


def test_the_direction_is_the_nearest_of_all_orthogonal_ones():
    g, a = random(12, seed=1), random(3, 12, seed=2)
    d = orthogonal_direction(g, a)
    assert d is not None
    for seed in range(50):
        other = slow_twins.without_components(random(12, seed=100 + seed).tolist(), a.tolist())
        other = torch.tensor(other, dtype=torch.float64) / slow_twins.length(other) * g.norm()
        assert float(g @ d) >= float(g @ other)


def test_rows_that_depend_on_each_other_do_no_harm():
    g, a = random(9, seed=1), random(2, 9, seed=2)
    once = orthogonal_direction(g, a)
    again = orthogonal_direction(g, torch.stack([a[0], a[1], a[0], 2 * a[0] - a[1], torch.zeros(9)]))
    assert once is not None
    assert again is not None
    assert again.tolist() == pytest.approx(once.tolist(), abs=1e-6)


def test_where_nothing_is_orthogonal_there_is_no_direction():
    a = random(3, 9)
    assert orthogonal_direction(2 * a[0] - a[2], a) is None
    assert orthogonal_direction(torch.zeros(9), a) is None


def test_a_projected_update_is_orthogonal_to_the_drift_and_keeps_its_length():
    u, drift = random(30, seed=1), random(30, seed=2)
    kept = without_reverting(u, drift)
    assert abs(float(kept @ drift)) < 1e-12 * 30
    assert kept.tolist() == pytest.approx(slow_twins.without_components(u.tolist(), [drift.tolist()]))
    assert without_reverting(u, torch.zeros(30)) is u
    assert torch.isfinite(without_reverting(drift, drift)).all()


@pytest.mark.parametrize("batch_size", [3, 100])
def test_a_gradient_is_the_mean_over_single_samples(batch_size: int):
    """In evaluation mode, so that no sample depends on its batch."""
    world, before, _ = trained(normalised=True)
    target, retained = world.client(0).positions([CLASS])
    for task, positions in ((TARGET, target), (RETAINED, retained)):
        task = MeanGradient(**{**vars(task), "settings": FedOSDSettings(batch_size=batch_size)})
        (reply,) = world.ask(task, before, [0])
        model = loaded(world, before).double().eval()
        names = [name for name, _ in model.named_parameters()]
        total = dict.fromkeys(names, 0.0)
        losses = []
        for position in positions:
            x, y = inputs_and_labels(world, 0, position[None])
            p = torch.softmax(model(x.double()), dim=1)[0, y[0]]
            loss = -torch.log(1 - p / 2) if task.of == "target" else -torch.log(p)
            losses.append(float(loss.detach()))
            for name, g in zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                total[name] = total[name] + g / len(positions)
        assert list(reply.tensors) == names
        for name in names:
            assert torch.allclose(reply.tensors[name].double(), total[name], atol=1e-6)
        assert reply.numbers == {"samples": len(positions), "loss": pytest.approx(sum(losses) / len(losses), rel=1e-4)}
        assert reply.gradient_evaluations == len(positions)


def test_a_gradient_of_a_part_is_another_one_in_every_round():
    world, before, _ = trained()
    few = FedOSDSettings(samples=5)
    seen = []
    for round in (0, 0, 1):
        task = MeanGradient(seed=0, threads=1, requests=(CLASS,), of="retained", round=round, settings=few)
        (reply,) = world.ask(task, before, [0])
        assert reply.numbers["samples"] == reply.gradient_evaluations == 5
        seen.append(flat(reply.tensors))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


@pytest.mark.parametrize("requests", [[CLASS], [CLASS, ErasureRequest.of_client(2)]])
def test_a_round_of_unlearning_is_one_step_along_the_direction(requests: list[ErasureRequest]):
    world, before, _ = trained()
    result = forget(world, before, requests, SCHEDULE, "fedosd", rounds=1, lr=0.7, recovery_rounds=0)
    rows = {"target": [], "retained": []}
    for task, _, reply in world.log:
        assert isinstance(task, MeanGradient)
        rows[task.of].append(flat(reply.tensors).tolist())
    assert len(rows["target"]) == len(requests)
    assert len(rows["retained"]) == 4 - (len(requests) - 1), "a client that withdrew altogether has no row"
    mean = [sum(column) / len(requests) for column in zip(*rows["target"], strict=True)]
    expected = slow_twins.without_components(mean, rows["retained"])
    step = (flat(result.state) - flat(before)) / -0.7
    assert step.tolist() == pytest.approx(expected, abs=1e-5)


def test_post_training_does_not_go_back():
    """One round: the average update has no component along where the model came from, and has its clients' length."""
    world, before, _ = trained()
    unlearned = forget(world, before, CLASS, SCHEDULE, "fedosd", lr=1.0, recovery_rounds=0).state
    world.log.clear()
    after = forget(world, before, CLASS, SCHEDULE, "fedosd", lr=1.0, recovery_rounds=1).state
    drift, update = flat(unlearned) - flat(before), flat(after) - flat(unlearned)
    assert float(drift.norm()) > 0.1
    assert abs(float(drift @ update)) < 1e-5 * float(drift.norm() * update.norm())
    plain = [flat(reply.tensors) - flat(unlearned) for task, _, reply in world.log if isinstance(task, Train)]
    assert max(abs(float(drift @ u)) / float(drift.norm() * u.norm()) for u in plain) > 1e-3, "without it, it would"
    expected = (
        sum(
            n * torch.tensor(slow_twins.without_components(u.tolist(), [drift.tolist()]), dtype=torch.float64)
            for n, u in zip([20, 20, 25, 15], plain, strict=True)
        )
        / 80
    )
    assert torch.allclose(update, expected, atol=1e-5)


def test_the_target_is_unlearned_and_the_curve_shows_it():
    world, before, _ = trained()
    losses = forget(world, before, CLASS, SCHEDULE, "fedosd", lr=1.0).curves["unlearning_loss"]
    assert len(losses) == 10
    assert losses[-1] < 0.5 * losses[0]


def test_running_statistics_move_in_post_training_alone():
    world, before, _ = trained(normalised=True)
    unlearned = forget(world, before, CLASS, SCHEDULE, "fedosd", recovery_rounds=0).state
    after = forget(world, before, CLASS, SCHEDULE, "fedosd", recovery_rounds=1).state
    for name, _ in world.model.named_buffers():
        assert torch.equal(unlearned[name], before[name])
        assert not torch.equal(after[name], before[name])
    assert after["1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize("name", ["rounds", "lr", "samples", "batch_size"])
def test_settings_that_make_no_sense(name: str):
    with pytest.raises(InputError, match=rf"^FedOSD setting '{name}' is 0, but it must be a finite number above 0\.$"):
        FedOSDSettings(**{name: 0})
