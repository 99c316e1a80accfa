"""FedQUIT: its loss in scalar arithmetic, a step by hand, the teacher, and when it stops."""

from __future__ import annotations

import pytest
import slow_twins
import torch
from small_worlds import SCHEDULE, inputs_and_labels, loaded, trained

from fedforget.errors import InputError
from fedforget.methods import forget
from fedforget.methods.fedquit import Distil, FedQUITSettings, distillation_loss, stalled
from fedforget.params import digest
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 1)


def test_the_loss_is_the_mean_kl_to_the_suppressed_teacher():
    generator = torch.Generator().manual_seed(0)
    student, teacher = 3 * torch.randn(2, 11, 5, generator=generator)
    labels = torch.randint(0, 5, (11,), generator=generator)
    rows = [slow_twins.suppress(z, y) for z, y in zip(teacher.tolist(), labels.tolist(), strict=True)]
    by_hand = [slow_twins.kl_divergence(p, slow_twins.softmax(z)) for p, z in zip(rows, student.tolist(), strict=True)]
    assert float(distillation_loss(student, torch.tensor(rows))) == pytest.approx(sum(by_hand) / 11, rel=1e-5)
    assert float(distillation_loss(torch.tensor(rows).log(), torch.tensor(rows))) == pytest.approx(0, abs=1e-6)


def test_the_first_step_is_adams_from_the_global_model():
    """Adam's first step is lr g / (|g| + eps), whatever the decay rates."""
    world, before, _ = trained()
    settings = FedQUITSettings(lr=0.01, epochs=1, batch_size=100)
    (reply,) = world.ask(Distil(seed=0, threads=1, requests=(CLASS,), settings=settings), before, [0])
    x, y = inputs_and_labels(world, 0, world.client(0).positions([CLASS])[0])
    model = loaded(world, before)
    logits = model(x)
    teacher = torch.tensor(
        [slow_twins.suppress(z, label) for z, label in zip(logits.tolist(), y.tolist(), strict=True)]
    )
    loss = (teacher * (teacher.log() - torch.log_softmax(logits, dim=1))).sum() / len(y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for (name, weight), g in zip(before.items(), gradients, strict=True):
        certain = g.abs() > 1e-4
        expected = weight - 0.01 * g / (g.abs() + 1e-8)
        assert torch.allclose(reply.tensors[name][certain], expected[certain], atol=1e-5)
    assert reply.curves["distillation_loss"] == pytest.approx([float(loss.detach())], rel=1e-5)
    assert reply.gradient_evaluations == pytest.approx(1.4 * len(y))


def test_the_student_ends_where_the_teacher_is():
    """The teacher is the model that came, not the one that moves."""
    world, before, _ = trained()
    result = forget(world, before, CLASS, SCHEDULE, "fedquit", lr=0.02, epochs=300, patience=300, recovery_rounds=0)
    x, y = inputs_and_labels(world, 0, world.client(0).positions([CLASS])[0])
    teacher = torch.tensor(
        [slow_twins.suppress(z, label) for z, label in zip(loaded(world, before)(x).tolist(), y.tolist(), strict=True)]
    )
    student = torch.softmax(loaded(world, result.state)(x), dim=1)
    assert (student - teacher).abs().max() < 0.1
    assert result.curves["distillation_loss"][-1] < 0.02 < result.curves["distillation_loss"][0]


def test_it_stops_when_the_loss_no_longer_falls():
    world, before, _ = trained()
    wild = forget(world, before, CLASS, SCHEDULE, "fedquit", lr=1.0, batch_size=3, patience=2, epochs=200)
    losses = wild.curves["distillation_loss"]
    assert len(losses) < 200
    assert min(losses[-2:]) >= min(losses[:-2])
    assert not any(stalled(losses[:k], 2) for k in range(len(losses)))
    assert len(forget(world, before, CLASS, SCHEDULE, "fedquit").curves["distillation_loss"]) == 20


def test_running_statistics_are_left_alone_at_the_client():
    world, before, _ = trained(normalised=True)
    result = forget(world, before, CLASS, SCHEDULE, "fedquit", recovery_rounds=0)
    for name, _ in world.model.named_buffers():
        assert torch.equal(result.state[name], before[name])


def test_several_clients_are_taught_one_after_another():
    world, before, _ = trained()
    result = forget(world, before, [CLASS, ErasureRequest.of_client(2)], SCHEDULE, "fedquit", epochs=2)
    first, second = [entry for entry in world.log if isinstance(entry[0], Distil)]
    assert (first[2].client, second[2].client) == (0, 2)
    assert digest(second[1]) == digest(first[2].tensors)
    assert len(result.curves["distillation_loss"]) == 4


@pytest.mark.parametrize("name", ["lr", "epochs", "patience", "batch_size"])
def test_settings_that_make_no_sense(name: str):
    with pytest.raises(InputError, match=rf"^FedQUIT setting '{name}' is 0, but it must be a finite number above 0\.$"):
        FedQUITSettings(**{name: 0})
