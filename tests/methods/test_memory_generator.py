"""Memories: every kind is a distribution, the teachers and the debiasing equal their one-sample twins."""

from __future__ import annotations

import math

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.methods.fedaf.memory_generator import debias, generate_memory, suppress, teacher_labels
from fedforget.models import MLP, fresh_copy, xavier_initialise
from fedforget.params import digest
from fedforget.seeds import derive_seed

KINDS = ["uniform", "random", "teacher", "debiased", "suppressed"]
CPU = torch.device("cpu")


def make_client(model: nn.Module, shape: tuple[int, ...], n: int, classes: int, seed: int = 0) -> Client:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    samples = Samples.of(torch.randn(n, *shape, generator=generator), labels)
    return Client(2, samples, model, Normalisation(), classes, CPU)


def mlp(classes: int = 4, seed: int = 0) -> nn.Module:
    return xavier_initialise(MLP((5,), classes, hidden=8), seed)


def batch_normed(classes: int = 3) -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes)]
    model = xavier_initialise(nn.Sequential(*layers), 0)
    model[1].running_mean.fill_(5.0)
    model[1].running_var.fill_(9.0)
    return model


def memory_of(kind: str, client: Client, seed: int = 0, teachers: int = 3, sigma: float | str = "auto") -> Tensor:
    return generate_memory(kind, client.model, client.samples, client, teachers=teachers, sigma=sigma, seed=seed)[0]


predictions = st.lists(
    st.lists(st.floats(0.001, 1.0), min_size=4, max_size=4).map(lambda w: [x / sum(w) for x in w]),
    min_size=1,
    max_size=6,
)
logit_rows = st.lists(st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4), min_size=1, max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("n", [1, 37])
def test_every_memory_is_a_probability_vector(kind, classes, n):
    client = make_client(mlp(classes), (5,), n, classes)
    memory = memory_of(kind, client)
    assert memory.shape == (n, classes)
    assert memory.dtype == torch.float32
    assert float(memory.min()) >= 0.0
    assert torch.allclose(memory.sum(dim=1), torch.ones(n), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits_and_the_global_generator_and_the_weights_are_left_alone(kind):
    client = make_client(batch_normed(), (1, 4, 4), 20, 3)
    weights, random_state = digest(client.model.state_dict()), torch.get_rng_state()
    first = memory_of(kind, client, seed=4)
    torch.rand(3)
    again, other = memory_of(kind, client, seed=4), memory_of(kind, client, seed=5)
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (kind in ("uniform", "suppressed")), "only these two do not draw"
    assert digest(client.model.state_dict()) == weights
    torch.set_rng_state(random_state)
    memory_of(kind, client)
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("kind", ["teacher", "debiased"])
def test_dropout_does_not_make_a_memory_random(kind):
    model = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.5), nn.Linear(30, 4))
    client = make_client(model, (5,), 10, 4)
    assert torch.equal(memory_of(kind, client), memory_of(kind, client))


def test_costs_in_gradient_evaluations():
    client = make_client(mlp(), (5,), 10, 4)
    spent = {
        kind: generate_memory(kind, client.model, client.samples, client, teachers=3, sigma="auto", seed=0)[1]
        for kind in KINDS
    }
    assert spent == {"uniform": 0.0, "random": 0.0, "teacher": 12.0, "debiased": 12.0, "suppressed": 4.0}


def test_an_unknown_memory_is_refused():
    with pytest.raises(InputError, match="Memory 'happy' is unknown; choose uniform, random, teacher"):
        memory_of("happy", make_client(mlp(), (5,), 3, 4))


# uniform and random


def test_uniform_gives_every_class_the_same():
    assert torch.equal(memory_of("uniform", make_client(mlp(), (5,), 3, 4)), torch.full((3, 4), 0.25))


def test_random_memory_of_two_classes_is_uniform_on_0_to_1():
    """[r, 1 - r] with r ~ U(0, 1): Kolmogorov-Smirnov, at a level of 1 in 10,000."""
    n = 5000
    r = memory_of("random", make_client(mlp(2), (5,), n, 2))[:, 0].double().sort().values
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    largest_gap = float(torch.maximum((steps - r).abs(), (steps - 1 / n - r).abs()).max())
    assert largest_gap < 2.23 / math.sqrt(n)


def test_random_memory_of_more_classes_is_dirichlet():
    """Dirichlet(1, ..., 1) over C classes: mean 1/C and variance (C - 1) / (C^2 (C + 1)) for each class."""
    memory = memory_of("random", make_client(mlp(), (5,), 5000, 4)).double()
    assert torch.allclose(memory.mean(dim=0), torch.full((4,), 0.25, dtype=torch.float64), atol=0.015)
    assert torch.allclose(memory.var(dim=0), torch.full((4,), 3 / 80, dtype=torch.float64), rtol=0.1)


# teachers


@pytest.mark.parametrize("teachers", [1, 4])
def test_teacher_is_the_mean_of_the_softmaxes_of_untrained_copies(teachers):
    client = make_client(mlp(), (5,), 6, 4)
    got = teacher_labels(client.model, client.samples, client, teachers, seed=9)
    expected = slow_twins.teacher_labels(client.model, client.samples.features, teachers, seed=9)
    assert torch.allclose(got.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6)


def test_teachers_know_nothing_of_the_trained_weights():
    client = make_client(mlp(), (5,), 6, 4)
    before = memory_of("teacher", client)
    with torch.no_grad():
        for parameter in client.model.parameters():
            parameter.add_(1.0)
    assert torch.equal(memory_of("teacher", client), before)


def test_batchnorm_of_a_teacher_uses_the_batch_and_not_the_running_statistics():
    client = make_client(batch_normed(), (1, 4, 4), 11, 3)
    got = teacher_labels(client.model, client.samples, client, 1, seed=3)
    teacher = fresh_copy(client.model, derive_seed(3, 0))
    convolved = teacher[0](client.samples.features)
    mean, variance = (
        convolved.mean(dim=(0, 2, 3), keepdim=True),
        convolved.var(dim=(0, 2, 3), keepdim=True, correction=0),
    )
    normalised = (convolved - mean) / torch.sqrt(variance + 1e-5)
    expected = F.softmax(teacher[4](F.relu(normalised).flatten(1)), dim=1)
    assert torch.allclose(got, expected, atol=1e-5)
    teacher.eval()
    assert not torch.allclose(got, F.softmax(teacher(client.samples.features), dim=1), atol=1e-3)


def test_a_lone_target_sample_has_a_memory_also_where_batch_statistics_need_two():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    memory = memory_of("debiased", make_client(model, (5,), 1, 3))
    assert memory.shape == (1, 3)
    assert bool(torch.isfinite(memory).all())


def test_many_target_samples_come_in_order():
    """1,001 samples make three batches: rows stay with their samples."""
    client = make_client(mlp(), (5,), 1001, 4)
    got = teacher_labels(client.model, client.samples, client, 2, seed=1)
    few = torch.tensor([0, 333, 334, 668, 1000])
    expected = slow_twins.teacher_labels(client.model, client.samples.features[few], 2, seed=1)
    assert torch.allclose(got[few].double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6)


# debiasing


@settings(max_examples=60, deadline=None)
@given(
    rows=predictions, sigma=st.one_of(st.sampled_from(["auto", "literal"]), st.floats(0, 1)), label=st.integers(0, 3)
)
def test_debias_equals_the_one_sample_twin(rows, sigma, label):
    labels = [(label + i) % 4 for i in range(len(rows))]
    got = debias(torch.tensor(rows, dtype=torch.float64), torch.tensor(labels), sigma)
    expected = [slow_twins.debias(row, y, sigma) for row, y in zip(rows, labels, strict=True)]
    assert torch.allclose(got, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(rows=predictions, label=st.integers(0, 3))
def test_debias_auto_brings_the_trained_label_down_to_the_average_and_never_lifts_it(rows, label):
    """Against the classes it leaves as they are, the trained label weighs the lesser of its own and the average."""
    y = torch.tensor(rows, dtype=torch.float64)
    labels = torch.full((len(rows),), label)
    memory = debias(y, labels, "auto")
    other = (label + 1) % 4
    weight = memory[:, label] / memory[:, other] * y[:, other]
    assert bool((weight <= 0.25 + 1e-9).all())
    assert torch.allclose(weight, y[:, label].clamp(max=0.25))
    assert bool((memory[:, label] <= y[:, label] + 1e-9).all())


def test_debias_with_sigma_0_gives_the_trained_label_nothing():
    y = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    memory = debias(y, torch.tensor([0, 2]), 0.0)
    assert memory[0].tolist() == pytest.approx([0.0, 2 / 3, 1 / 3])
    assert memory[1].tolist() == pytest.approx([1 / 9, 8 / 9, 0.0])


def test_debias_with_sigma_1_changes_nothing():
    y = torch.tensor([[0.7, 0.2, 0.1]])
    assert torch.allclose(debias(y, torch.tensor([1]), 1.0), y)


def test_the_literal_reading_amplifies_what_the_teachers_favour():
    """target / average > 1 exactly where the teachers favour the target, which it then lifts further."""
    y = torch.tensor([[0.6, 0.2, 0.2]])
    label = torch.tensor([0])
    assert float(debias(y, label, "literal")[0, 0]) == pytest.approx(1.08 / 1.48)
    assert float(debias(y, label, "auto")[0, 0]) == pytest.approx((1 / 3) / (1 / 3 + 0.4))
    assert float(debias(y, label, "auto")[0, 0]) < 0.6 < float(debias(y, label, "literal")[0, 0])


def test_debiased_memory_is_the_debiased_teacher():
    client = make_client(mlp(), (5,), 12, 4)
    teacher, debiased = memory_of("teacher", client), memory_of("debiased", client, sigma=0.3)
    assert torch.equal(debiased, debias(teacher, client.samples.labels, 0.3))


# suppressing


@settings(max_examples=60, deadline=None)
@given(rows=logit_rows, label=st.integers(0, 3))
def test_suppress_equals_the_one_sample_twin_and_gives_the_trained_label_the_least(rows, label):
    labels = [(label + i) % 4 for i in range(len(rows))]
    logits = torch.tensor(rows, dtype=torch.float64)
    got = suppress(logits, torch.tensor(labels))
    expected = [slow_twins.suppress(row, y) for row, y in zip(rows, labels, strict=True)]
    assert torch.allclose(got, torch.tensor(expected, dtype=torch.float64), atol=1e-12)
    for row, y in zip(got, labels, strict=True):
        assert float(row[y]) == float(row.min())


def test_suppressed_memory_is_the_current_models_belief_without_the_trained_label():
    client = make_client(batch_normed(), (1, 4, 4), 9, 3)
    client.model.train()
    memory = memory_of("suppressed", client)
    logits = client.model.eval()(client.samples.features)
    expected = [slow_twins.suppress(z, y) for z, y in zip(logits.tolist(), client.samples.labels.tolist(), strict=True)]
    assert torch.allclose(memory, torch.tensor(expected), atol=1e-6)
    assert not memory.requires_grad
