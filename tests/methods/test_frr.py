"""FRR: the step against plain loops, one gradient per sample and dense Hessians; the schedule; the bill."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget import LocalFederation, Schedule, build_model, load_dataset
from fedforget.data.partition import partition
from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.client import Client
from fedforget.federation.training import minibatches
from fedforget.methods import forget, method_settings
from fedforget.methods.frr import CODE, PAPER, FRRSettings, Moments, TrainSecondOrder, hutchinson
from fedforget.models import xavier_initialise
from fedforget.params import State, digest, first_non_finite, flatten, move, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

SCHEDULE = Schedule(rounds=2, lr=0.05, batch_size=16, threads=1)
CLASS = ErasureRequest.of_class(0, 3)


# The step


@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
def test_the_step_equals_the_equations_number_by_number(power: float):
    settings = FRRSettings(lr=0.3, beta1=0.8, beta2=0.95, damping=0.02, power=power)
    generator = torch.Generator().manual_seed(0)
    moments = Moments(torch.zeros(4), settings)
    m, v = [0.0] * 4, [0.0] * 4
    for t in range(1, 6):
        g, d = torch.randn(4, generator=generator), torch.randn(4, generator=generator)
        got = moments.step(g, d)
        for j in range(4):
            m[j] = 0.8 * m[j] + 0.2 * float(g[j])
            v[j] = 0.95 * v[j] + 0.05 * float(d[j]) ** 2
            m_hat, v_hat = m[j] / (1 - 0.8**t), v[j] / (1 - 0.95**t)
            assert float(got[j]) == pytest.approx(-0.3 * m_hat / (v_hat ** (power / 2) + 0.02), rel=1e-4)


class Quadratic(nn.Module):
    """f = (1/2) sum_j a_j (theta_j - b_j)^2, whose Hessian is diag(a)."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.a, self.b = a, b
        self.theta = nn.Parameter(torch.tensor([3.0, -1.0, 0.5]))
        self.unused = nn.Parameter(torch.tensor([7.0]))

    def loss(self) -> Tensor:
        return 0.5 * (self.a * (self.theta - self.b).square()).sum()


def test_hutchinson_is_exact_on_a_diagonal_quadratic_and_one_step_reaches_its_minimum():
    model = Quadratic(torch.tensor([2.0, 0.1, 30.0]), torch.tensor([1.0, 4.0, -2.0]))
    gradient, diagonal = hutchinson(model.loss(), trainable(model), 1, torch.Generator().manual_seed(5))
    assert torch.allclose(diagonal, torch.tensor([2.0, 0.1, 30.0, 0.0]))
    newton = FRRSettings(curvature="hessian", lr=1.0, beta1=0.0, beta2=0.0, damping=1e-12)
    move(trainable(model), Moments(gradient, newton).step(gradient, diagonal))
    assert torch.allclose(model.theta, model.b, atol=1e-5)
    assert model.unused.tolist() == [7.0]


def dense_hessian(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    names, shapes = zip(*[(n, p.shape) for n, p in trainable(model).items()], strict=True)

    def loss(theta: Tensor) -> Tensor:
        parts = theta.split([shape.numel() for shape in shapes])
        values = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, values, (x,)), y)

    return torch.autograd.functional.hessian(loss, flatten(trainable(model)).to(x.dtype))


def test_hutchinson_equals_z_times_the_dense_hessian_times_z_and_has_its_diagonal_as_mean():
    model = xavier_initialise(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), 0).double()
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(6, 3, generator=generator).double(), torch.randint(0, 3, (6,), generator=generator)
    h = dense_hessian(model, x, y)
    _, got = hutchinson(F.cross_entropy(model(x), y), trainable(model), 3, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    zs = [2.0 * torch.randint(0, 2, (len(h),), generator=generator).double() - 1 for _ in range(3)]
    assert torch.allclose(got, sum(z * (h @ z) for z in zs) / 3)
    assert not torch.allclose(got, h.diagonal(), rtol=0.1), "three draws are not the expectation"

    many = [hutchinson(F.cross_entropy(model(x), y), trainable(model), 1, generator)[1] for _ in range(1500)]
    drawn = torch.stack(many)
    error = (drawn.mean(dim=0) - h.diagonal()).abs() / (drawn.std(dim=0) / math.sqrt(len(drawn)) + 1e-12)
    assert float(error.max()) < 4.5


# A client's round


def network(kind: str) -> nn.Module:
    if kind == "mlp":
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)]
    else:
        layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)]
    return xavier_initialise(nn.Sequential(*layers), 0)


def client_with(model: nn.Module, n: int = 11) -> Client:
    generator = torch.Generator().manual_seed(3)
    samples = Samples.of(torch.randn(n, 1, 4, 4, generator=generator), torch.arange(n) % 3, first_id=50)
    return Client(0, samples, model, Normalisation((0.0,), (1.0,)), 3, torch.device("cpu"))


def slow_round(model: nn.Module, samples: Samples, settings: FRRSettings, epochs: int) -> State:
    """The round in double precision: a backward pass for each sample, or the whole Hessian."""
    model = copy.deepcopy(model).double()
    parameters = [p for p in model.parameters() if p.requires_grad]
    names = (7, "frr", 1, "client", 0)
    order, signs = derive_generator(*names, "order"), derive_generator(*names, "signs")
    size = sum(p.numel() for p in parameters)
    m, v, t = torch.zeros(size).double(), torch.zeros(size).double(), 0
    for _ in range(epochs):
        for batch in minibatches(len(samples), 4, order, torch.device("cpu")):
            x, y = samples.features[batch].double(), samples.labels[batch]
            model.train()
            g = torch.cat([q.flatten() for q in torch.autograd.grad(F.cross_entropy(model(x), y), parameters)])
            if settings.curvature == "fisher":
                model.eval()
                d = torch.zeros(size).double()
                for i in range(len(batch)):
                    loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
                    d += torch.cat([q.flatten() for q in torch.autograd.grad(loss, parameters)]) ** 2 / len(batch)
            else:
                z = 2.0 * torch.randint(0, 2, (size,), generator=signs).double() - 1
                d = z * (dense_hessian(model, x, y) @ z)
            t += 1
            m = settings.beta1 * m + (1 - settings.beta1) * g
            v = settings.beta2 * v + (1 - settings.beta2) * d**2
            step = settings.lr * m / (1 - settings.beta1**t)
            step = step / ((v / (1 - settings.beta2**t)).sqrt() + settings.damping)
            with torch.no_grad():
                for p, part in zip(parameters, step.split([p.numel() for p in parameters]), strict=True):
                    p -= part.view_as(p)
    return state_of(model)


@pytest.mark.parametrize(("kind", "curvature"), [("mlp", "fisher"), ("batchnorm", "fisher"), ("mlp", "hessian")])
def test_a_clients_round_equals_the_slow_one(kind: str, curvature: Any):
    """Also with batch normalisation: g in training mode, the samples' own gradients with the running statistics."""
    model = network(kind)
    settings = FRRSettings(curvature=curvature, lr=0.02, damping=0.05, beta1=0.7, beta2=0.9)
    task = TrainSecondOrder(
        seed=7, threads=1, round=1, epochs=2, batch_size=4, purpose="frr", settings=settings, lr=99.0, momentum=0.99
    )
    before, client = state_of(model), client_with(copy.deepcopy(model))
    reply = task.run(before, client)
    expected = slow_round(model, client.samples, settings, epochs=2)
    for name, values in expected.items():
        assert torch.allclose(reply.tensors[name].double(), values.double(), rtol=1e-3, atol=1e-4), name
        assert not torch.equal(reply.tensors[name].double(), before[name].double()), f"{name} has moved"
    assert reply.numbers["samples"] == 11
    assert reply.gradient_evaluations == 2 * 11 * (2 if curvature == "fisher" else 3)


def test_each_hutchinson_vector_is_on_the_bill():
    model = network("mlp")
    settings = replace(CODE, hutchinson_samples=4)
    task = TrainSecondOrder(seed=0, threads=1, round=1, batch_size=4, settings=settings)
    assert task.run(state_of(model), client_with(model)).gradient_evaluations == 11 * (1 + 2 * 4)


def test_a_lone_sample_and_no_sample():
    model = network("batchnorm")
    task = TrainSecondOrder(seed=0, threads=1, round=1, batch_size=4, settings=PAPER)
    reply = task.run(state_of(model), client_with(model, n=1))
    assert first_non_finite(reply.tensors) is None
    gone = replace(task, exclude=(ErasureRequest.of_client(0),))
    assert gone.run(state_of(model), client_with(model)).numbers == {"samples": 0.0}


@pytest.mark.parametrize("settings", [PAPER, CODE])
@pytest.mark.parametrize("kind", ["vit", "dropout"])
def test_attention_and_dropout_work_and_leave_the_global_generator_alone(kind: str, settings: FRRSettings):
    dataset = load_dataset("digits").first(40, 5)
    if kind == "vit":
        model = build_model("vit", dataset.shape, 10, 0)
    else:
        layers = [nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10)]
        model = xavier_initialise(nn.Sequential(*layers), 0)
    client = Client(0, dataset.train, model, dataset.normalisation, 10, torch.device("cpu"))
    task = TrainSecondOrder(seed=0, threads=1, round=1, batch_size=16, settings=settings)
    start = state_of(model)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = task.run(start, client)
    assert torch.equal(torch.get_rng_state(), before)
    assert first_non_finite(first.tensors) is None
    assert digest(task.run(start, client).tensors) == digest(first.tensors)


# The method


@pytest.fixture(scope="module")
def federation() -> LocalFederation:
    dataset = load_dataset("digits").first(120, 30)
    model = build_model("cnn", dataset.shape, 10, 0)
    return LocalFederation(dataset, partition("iid", dataset.train.labels, 3, 0), model)


def test_when_to_take_plain_sgd():
    published = replace(CODE, sgd_first=10, sgd_every=5)
    plain = [round for round in range(200) if published.first_order(round)]
    assert plain == [*range(10), *range(10, 200, 5)]
    assert [round for round in range(20) if CODE.first_order(round)] == [0, 5, 10, 15]
    assert not any(PAPER.first_order(round) for round in range(20))


def test_with_sgd_alone_it_is_retrain(federation: LocalFederation):
    before = state_of(federation.model)
    ours = forget(federation, before, CLASS, SCHEDULE, "frr", sgd_first=2)
    assert digest(ours.state) == digest(forget(federation, before, CLASS, SCHEDULE, "retrain").state)
    later = forget(federation, before, CLASS, SCHEDULE, "frr", sgd_first=1)
    assert digest(later.state) != digest(ours.state)


@pytest.mark.parametrize(("preset", "passes"), [("paper", 2 + 2), ("code", 1 + 3)])
def test_the_bill_counts_every_pass(federation: LocalFederation, preset: str, passes: int):
    left = 120 - federation.check([CLASS])[0].target
    result = forget(federation, state_of(federation.model), CLASS, SCHEDULE, "frr", preset)
    assert result.cost.gradient_evaluations == left * passes


class Store:
    """Keeps what was saved; breaks off after the first save."""

    def __init__(self) -> None:
        self.saved: tuple[dict[str, Any], State] | None = None
        self.breaks = True

    def load(self) -> tuple[dict[str, Any], State] | None:
        return self.saved

    def save(self, state: State, round: int, *, cost: dict[str, Any]) -> None:
        self.saved = ({"round": round, "cost": cost}, state)
        if self.breaks:
            self.breaks = False
            raise KeyboardInterrupt


@pytest.mark.real
def test_it_goes_on_after_an_interruption_with_the_same_bits_and_bill(federation: LocalFederation):
    before, store = state_of(federation.model), Store()
    with pytest.raises(KeyboardInterrupt):
        forget(federation, before, CLASS, SCHEDULE, "frr", checkpoints=store)
    resumed = forget(federation, before, CLASS, SCHEDULE, "frr", checkpoints=store)
    whole = forget(federation, before, CLASS, SCHEDULE, "frr")
    assert digest(resumed.state) == digest(whole.state)
    assert resumed.cost.gradient_evaluations == whole.cost.gradient_evaluations


@pytest.mark.real
@pytest.mark.parametrize("preset", ["paper", "code"])
def test_it_learns_what_is_left(federation: LocalFederation, preset: str):
    """After ten rounds the training loss of the retained data is far below chance, log 10."""
    schedule = replace(SCHEDULE, rounds=10, epochs=2)
    state = forget(federation, state_of(federation.model), CLASS, schedule, "frr", preset).state
    client = federation.client(1)
    with torch.no_grad():
        logits = client.load(state).eval()(client.inputs(client.samples.features))
    assert float(F.cross_entropy(logits, client.samples.labels)) < 1.0


def test_divergence_is_a_sentence(federation: LocalFederation):
    with pytest.raises(DivergedError, match=r"^Second-order training in round 0 at client 0 diverged: .* damping"):
        forget(federation, state_of(federation.model), CLASS, SCHEDULE, "frr", lr=1e30, damping=1e-30)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"lr": 0.0}, "FRR setting 'lr' is 0.0, but it must be a finite number above 0."),
        ({"damping": 0.0}, "FRR setting 'damping' is 0.0, but it must be a finite number above 0."),
        ({"hutchinson_samples": 0}, "FRR setting 'hutchinson_samples' is 0, but it must be a finite number above 0."),
        ({"beta1": 1.0}, "FRR setting 'beta1' is 1.0, but it must be below 1."),
        ({"beta2": 1.5}, "FRR setting 'beta2' is 1.5, but it must be below 1."),
        ({"curvature": "newton"}, "'curvature' of 'frr' is 'newton', but it must be fisher or hessian."),
    ],
)
def test_settings_are_checked(overrides: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as refusal:
        method_settings("frr", **overrides)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("overrides", [{"curvature": "newton"}, {"lr": -1.0}, {"beta1": math.nan}])
def test_settings_are_checked_also_without_the_table(overrides: dict[str, Any]):
    with pytest.raises(InputError, match=f"^FRR setting '{next(iter(overrides))}' is "):
        FRRSettings(**overrides)
