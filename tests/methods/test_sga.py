"""SGA: the loss and its steps by hand, what the Fisher is measured on, replacement, stopping and divergence."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import slow_twins
import torch
from torch import Tensor, nn

from fedforget import LocalFederation, Schedule, build_model, load_dataset, train
from fedforget.data.partition import partition
from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.methods import forget, method_settings
from fedforget.methods.sga import EWC, FISHER_KEY, PLAIN, Ascend, MeasureFisher, SGASettings, ascend, ascent_loss
from fedforget.models import xavier_initialise
from fedforget.params import State, digest, distance, flatten, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

SCHEDULE = Schedule(rounds=2, lr=0.05, batch_size=16, threads=1)
CLASS = ErasureRequest.of_class(0, 3)


def test_the_loss_equals_the_equation_number_by_number():
    """The penalty pulls down and the cross entropy pushes up: both signs can be seen."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 3, generator=generator), torch.tensor([2, 0, 1, 1])
    theta, anchor, fisher = (torch.randn(5, generator=generator) for _ in range(3))
    fisher = fisher.abs()
    climbed = sum(-math.log(slow_twins.softmax(z.tolist())[y]) for z, y in zip(logits, labels.tolist(), strict=True))
    held = 0.0
    for j in range(5):
        held += 7.0 / 2 * float(fisher[j]) * (float(theta[j]) - float(anchor[j])) ** 2
    loss, cross_entropy, penalty = ascent_loss(logits, labels, theta, anchor, fisher, 7.0)
    assert float(cross_entropy) == pytest.approx(climbed / 4, rel=1e-5)
    assert float(penalty) == pytest.approx(held, rel=1e-5)
    assert float(loss) == pytest.approx(held - climbed / 4, rel=1e-5)
    assert float(ascent_loss(logits, labels, theta, anchor, None, 7.0)[0]) == pytest.approx(-climbed / 4, rel=1e-5)


# Steps by hand: a linear softmax model, whose gradient is (p - onehot) x^T


def linear_client(n: int = 9) -> tuple[Client, State]:
    generator = torch.Generator().manual_seed(1)
    model = xavier_initialise(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), 2)
    samples = Samples.of(torch.randn(n, 4, generator=generator), torch.arange(n) % 3)
    return Client(0, samples, model, Normalisation(), 3, torch.device("cpu")), state_of(model)


def by_hand(client: Client, state: State, which: Tensor, fisher: Tensor | None, settings: SGASettings, steps: int):
    """theta <- theta + lr dCE - lr lambda F (theta - theta*), in full batches."""
    w, b = state["1.weight"].double(), state["1.bias"].double()
    x, y = client.samples.features[which].double(), client.samples.labels[which]
    f = torch.zeros(15).double() if fisher is None else fisher.double()
    f_w, f_b, w0, b0 = f[:12].view(3, 4), f[12:], w.clone(), b.clone()
    for _ in range(steps):
        p = torch.softmax(x @ w.T + b, dim=1)
        error = (p - torch.eye(3).double()[y]) / len(y)
        w, b = (
            w + settings.lr * error.T @ x - settings.lr * settings.strength * f_w * (w - w0),
            b + settings.lr * error.sum(dim=0) - settings.lr * settings.strength * f_b * (b - b0),
        )
    return {"1.weight": w, "1.bias": b}


@pytest.mark.parametrize(("settings", "on"), [(PLAIN, []), (EWC, [1, 2, 4, 5, 7, 8])])
@pytest.mark.parametrize("steps", [1, 4])
def test_the_steps_by_hand(settings: SGASettings, on: list[int], steps: int):
    settings = replace(settings, lr=0.2, strength=min(settings.strength, 3.0), epochs=0, min_steps=steps)
    client, state = linear_client()
    reply = Ascend(seed=4, threads=1, requests=(ErasureRequest.of_class(0, 0),), settings=settings).run(state, client)
    fisher, seed = None, derive_seed(4, "sga", "fisher")
    if on:
        client.load(state)
        fisher = slow_twins.fisher_diagonal(client.model, client.samples.select(torch.tensor(on)), "sampled", seed)
    expected = by_hand(client, state, torch.tensor([0, 3, 6]), fisher, settings, steps)
    for name, values in expected.items():
        assert torch.allclose(reply.tensors[name].double(), values, atol=1e-5)
    assert len(reply.curves["samples"]) == steps
    assert reply.gradient_evaluations == 3 * steps + len(on)
    assert reply.stored_bytes == (2 * 4 * 15 if on else 0)
    assert reply.curves["penalty"][0] == 0.0, "zero at the anchor"


def test_sampled_labels_are_the_fisher_information_of_the_model():
    client, state = linear_client()
    fisher, _ = Ascend(seed=4, threads=1, requests=(ErasureRequest.of_class(0, 0),), settings=EWC)._fisher({}, client)
    client.load(state)
    retained = client.samples.select(client.samples.labels != 0)
    assert torch.allclose(
        fisher.double(), slow_twins.fisher_diagonal(client.model, retained, "sampled", derive_seed(4, "sga", "fisher")),
        rtol=1e-4, atol=1e-7,
    )  # fmt: skip


def test_the_fisher_looks_at_no_more_samples_than_it_may():
    client, state = linear_client(60)
    task = Ascend(
        seed=4,
        threads=1,
        requests=(ErasureRequest.of_class(0, 0),),
        settings=replace(EWC, fisher_samples=7, min_steps=1),
    )
    assert task.run(state, client).gradient_evaluations == 7 + 5 * 20


def test_what_was_erased_before_is_not_climbed():
    client, state = linear_client()
    before = (ErasureRequest.of_samples(0, [0, 1, 3]),)
    task = Ascend(seed=4, threads=1, requests=(ErasureRequest.of_class(0, 0),), served=before, settings=PLAIN)
    assert task.run(state, client).numbers["target"] == 1.0


# The method


@pytest.fixture(scope="module")
def world() -> tuple[LocalFederation, State]:
    dataset = load_dataset("digits").first(240, 30)
    model = build_model("cnn", dataset.shape, 10, 0)
    federation = LocalFederation(dataset, partition("iid", dataset.train.labels, 3, 0), model)
    return federation, train(federation, state_of(model), replace(SCHEDULE, rounds=5))


@pytest.mark.real
def test_the_clients_model_replaces_the_global_one_and_clients_come_one_after_another(world):
    federation, before = world
    one, two = CLASS, ErasureRequest.of_class(1, 5)
    together = forget(federation, before, [two, one], SCHEDULE, "sga")
    first = Ascend(seed=0, threads=1, requests=(one,), settings=EWC).run(before, federation.client(0))
    assert digest(forget(federation, before, one, SCHEDULE, "sga").state) == digest(first.tensors)
    second = Ascend(seed=0, threads=1, requests=(two,), settings=EWC).run(first.tensors, federation.client(1))
    assert digest(together.state) == digest(second.tensors)
    assert together.curves["target_loss"] == first.curves["target_loss"] + second.curves["target_loss"]


def accuracy(federation: LocalFederation, state: State, client: int, requests: list[ErasureRequest]) -> list[float]:
    """On (target, retained)."""
    holder = federation.client(client)
    model = holder.load(state).eval()
    with torch.no_grad():
        right = model(holder.inputs(holder.samples.features)).argmax(1) == holder.samples.labels
    return [float(right[positions].float().mean()) for positions in holder.positions(requests)]


def test_it_forgets_and_destroys_and_the_penalty_holds_some_of_it(world):
    federation, before = world
    start, kept = accuracy(federation, before, 0, [CLASS])
    plain = forget(federation, before, CLASS, SCHEDULE, "sga", "plain")
    ewc = forget(federation, before, CLASS, SCHEDULE, "sga", "ewc")
    assert (start, kept) > (0.8, 0.8)
    assert accuracy(federation, plain.state, 0, [CLASS])[0] == accuracy(federation, ewc.state, 0, [CLASS])[0] == 0.0
    assert accuracy(federation, plain.state, 0, [CLASS])[1] < kept - 0.1, "destructive"
    for state in (plain.state, ewc.state):
        assert state["0.weight"].isfinite().all()
    assert distance(ewc.state, before) < distance(plain.state, before)


def test_a_stronger_penalty_holds_the_weights_that_matter(world):
    federation, before = world
    holder = federation.client(0)
    retained = holder.samples.select(holder.positions([CLASS])[1])
    holder.load(before)
    fisher = slow_twins.fisher_diagonal(holder.model, _as_floats(holder, retained), "sampled", 0)
    moved = []
    for strength in (0.0, 100.0, 5000.0):
        state = forget(federation, before, CLASS, SCHEDULE, "sga", strength=strength, stop_above=None, lr=3e-4).state
        moved.append(float((fisher * (_flat(state) - _flat(before)).double().square()).sum()))
    assert moved[0] > moved[1] > moved[2]


def _as_floats(holder: Client, samples: Samples) -> Samples:
    return samples.with_features(holder.inputs(samples.features))


def _flat(state: State) -> Tensor:
    return flatten(state)


@pytest.mark.real
@pytest.mark.parametrize(
    "requests", [[ErasureRequest.of_client(0)], [ErasureRequest.of_client(0), ErasureRequest.of_class(1, 5)]]
)
def test_a_client_that_keeps_nothing_takes_the_others_fisher(world, requests: list[ErasureRequest]):
    federation, before = world
    meter = Meter(federation)
    state, _ = ascend(meter, before, requests, EWC, SCHEDULE)
    total, weight = torch.zeros(()), 0
    for k in (1, 2):
        task = MeasureFisher(seed=0, threads=1, exclude=tuple(requests), settings=EWC)
        reply = task.run(before, federation.client(k))
        kept = len(federation.client(k).positions(requests)[1])
        assert reply.numbers["samples"] == reply.gradient_evaluations == kept
        assert reply.tensors[FISHER_KEY].shape == flatten(trainable(federation.model)).shape
        total, weight = total + kept * reply.tensors[FISHER_KEY].double(), weight + kept
    message = {**before, FISHER_KEY: (total / weight).float()}
    expected = Ascend(seed=0, threads=1, requests=(requests[0],), settings=EWC).run(message, federation.client(0))
    if len(requests) == 1:
        assert all(torch.allclose(state[name], expected.tensors[name], atol=1e-6) for name in before)
    assert meter.notes == ["Client 0 keeps no data, so the other clients' Fisher was used."]
    meter = Meter(federation)
    ascend(meter, before, requests[:1], PLAIN, SCHEDULE)
    assert meter.notes == [], "plain ascent needs none"


def test_what_was_withdrawn_before_is_refused(world):
    federation, before = world
    with pytest.raises(InputError, match="Client 0 withdrew all of that before"):
        forget(federation, before, CLASS, SCHEDULE, "sga", served=[CLASS])


@pytest.mark.parametrize("freeze", [True, False])
def test_running_statistics_stay_unless_asked(freeze: bool):
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)]
    dataset = load_dataset("digits").first(60, 10)
    model = xavier_initialise(nn.Sequential(*layers), 0)
    federation = LocalFederation(dataset, list(torch.arange(60).split(30)), model)
    before = state_of(model)
    request = ErasureRequest.of_class(0, 5)
    after = forget(federation, before, request, SCHEDULE, "sga", freeze_normalisation=freeze, min_steps=2).state
    assert torch.equal(after["1.running_mean"], before["1.running_mean"]) == freeze
    assert not torch.equal(after["1.weight"], before["1.weight"])


def test_it_stops_once_the_loss_is_high(world):
    federation, before = world
    curve = forget(federation, before, CLASS, SCHEDULE, "sga", "plain", stop_above=4.0).curves["target_loss"]
    assert curve[-1] >= 4.0 > max(curve[:-1])
    assert len(curve) < 100


def test_climbing_without_end_diverges_in_a_sentence(world):
    federation, before = world
    given = copy.deepcopy(before)
    with pytest.raises(DivergedError, match=r"^Gradient ascent at client 0 diverged: .*ascent has no bound"):
        forget(federation, given, CLASS, SCHEDULE, "sga", "plain", stop_above=None, lr=1.0, min_steps=1000)
    assert digest(given) == digest(before)
    with pytest.raises(DivergedError, match=r"the penalty is stable only below a learning rate of [\d.e-]+, and it is"):
        forget(federation, before, CLASS, SCHEDULE, "sga", stop_above=None, lr=0.01, strength=1e9)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"lr": 0.0}, "SGA setting 'lr' is 0.0, but it must be a finite number above 0."),
        ({"batch_size": 0}, "SGA setting 'batch_size' is 0, but it must be a finite number above 0."),
        ({"fisher_samples": 0}, "SGA setting 'fisher_samples' is 0, but it must be a finite number above 0."),
        ({"stop_above": 0.0}, "SGA setting 'stop_above' is 0.0, but it must be a finite number above 0."),
        ({"epochs": 0, "min_steps": 0}, "SGA settings 'epochs' and 'min_steps' are both 0"),
    ],
)
def test_settings_are_checked(overrides: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as refusal:
        method_settings("sga", **overrides)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("overrides", [{"strength": -1.0}, {"lr": math.inf}, {"batch_size": "many"}])
def test_settings_are_checked_also_without_the_table(overrides: dict[str, Any]):
    with pytest.raises(InputError, match=f"^SGA setting '{next(iter(overrides))}' is "):
        SGASettings(**overrides)
