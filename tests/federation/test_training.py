"""Local training: plain SGD by hand, same bits, excluded samples, shares, batches and divergence."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import DivergedError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Train
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.models import xavier_initialise
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest

CPU = torch.device("cpu")
TASK = Train(seed=3, threads=1, round=2, epochs=2, lr=0.1, momentum=0.9, batch_size=8)


def network(kind: str = "mlp") -> nn.Module:
    layers = {
        "mlp": [nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)],
        "batchnorm": [nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 3)],
        "instancenorm": [
            nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True),
            nn.Flatten(), nn.Linear(6, 3),
        ],
        "dropout": [nn.Linear(6, 10), nn.Dropout(0.5), nn.ReLU(), nn.Linear(10, 3)],
    }  # fmt: skip
    return xavier_initialise(nn.Sequential(*layers[kind]), 0)


def random_samples(n: int = 40) -> Samples:
    generator = torch.Generator().manual_seed(1)
    return Samples.of(torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))


def make_client(samples: Samples, model: nn.Module | None = None, index: int = 4) -> Client:
    return Client(index, samples, network() if model is None else model, Normalisation(), 3, CPU)


def test_one_full_batch_is_one_plain_gradient_step():
    client = make_client(random_samples())
    start = state_of(client.model)
    reply = replace(TASK, epochs=1, batch_size=40, momentum=0.0).run(start, client)

    by_hand = copy.deepcopy(client.model)
    by_hand.load_state_dict(start)
    loss = F.cross_entropy(by_hand(client.samples.features), client.samples.labels)
    gradients = torch.autograd.grad(loss, list(by_hand.parameters()))
    mean_loss = loss.item()
    for (name, weight), gradient in zip(start.items(), gradients, strict=True):
        assert torch.allclose(reply.tensors[name], weight - 0.1 * gradient, atol=1e-6)
    assert reply.client == 4
    assert reply.numbers["samples"] == 40
    assert reply.numbers["loss"] == pytest.approx(mean_loss, rel=1e-5)
    assert reply.gradient_evaluations == 40


def test_two_full_batches_are_momentum_by_hand():
    client = make_client(random_samples())
    start = state_of(client.model)
    got = replace(TASK, epochs=2, batch_size=40).run(start, client).tensors

    by_hand = copy.deepcopy(client.model)
    by_hand.load_state_dict(start)
    weights, velocity = list(by_hand.parameters()), None
    for _ in range(2):
        gradients = torch.autograd.grad(
            F.cross_entropy(by_hand(client.samples.features), client.samples.labels), weights
        )
        velocity = gradients if velocity is None else [0.9 * v + g for v, g in zip(velocity, gradients, strict=True)]
        with torch.no_grad():
            for weight, v in zip(weights, velocity, strict=True):
                weight -= 0.1 * v
    for name, weight in by_hand.state_dict().items():
        assert torch.allclose(got[name], weight, atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "batchnorm", "dropout"])
def test_same_seed_same_bits_whatever_was_drawn_before(kind):
    client, samples = make_client(random_samples(), network(kind)), random_samples()
    start = state_of(client.model)
    first = digest(TASK.run(start, client).tensors)
    torch.rand(7)
    before = torch.get_rng_state()
    assert digest(TASK.run(start, client).tensors) == first
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    assert digest(TASK.run(start, make_client(samples, network(kind))).tensors) == first
    for other in (replace(TASK, seed=4), replace(TASK, round=3), replace(TASK, purpose="recovery")):
        assert digest(other.run(start, client).tensors) != first
    assert digest(TASK.run(start, make_client(samples, network(kind), index=5)).tensors) != first


def test_the_state_that_was_sent_is_not_changed():
    client = make_client(random_samples(), network("batchnorm"))
    start = state_of(client.model)
    before = digest(start)
    reply = TASK.run(start, client)
    assert digest(start) == before
    client.load(start)
    assert digest(reply.tensors) != before, "the reply does not share memory with the workspace"


@pytest.mark.parametrize(
    "request_", [ErasureRequest.of_class(4, 1), ErasureRequest.of_samples(4, [0, 7, 39]), ErasureRequest.of_class(4, 2)]
)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_excluded_samples_leave_no_trace(request_, share):
    """The same bits as a client that never had them."""
    samples = random_samples()
    without = samples.select(~request_.matches(samples))
    assert 0 < len(without) < len(samples)
    task = replace(TASK, share=share)
    start = state_of(network())
    got = replace(task, exclude=(request_,)).run(start, make_client(samples))
    expected = task.run(start, make_client(without))
    assert digest(got.tensors) == digest(expected.tensors)
    assert got.numbers == expected.numbers


def test_a_request_of_another_client_excludes_nothing():
    client = make_client(random_samples())
    start = state_of(client.model)
    other = replace(TASK, exclude=(ErasureRequest.of_client(0), ErasureRequest.of_class(1, 2)))
    assert digest(other.run(start, client).tensors) == digest(TASK.run(start, client).tensors)


def test_a_client_without_samples_says_so_and_sends_no_model():
    client = make_client(random_samples())
    reply = replace(TASK, exclude=(ErasureRequest.of_client(4),)).run(state_of(client.model), client)
    assert reply.numbers == {"samples": 0.0}
    assert reply.tensors == {}
    assert reply.gradient_evaluations == 0


@pytest.mark.parametrize(("share", "used"), [(0.5, 20), (0.26, 11), (0.001, 1), (1.0, 40)])
def test_share_trains_on_a_part(share, used):
    client = make_client(random_samples())
    reply = replace(TASK, share=share, epochs=3).run(state_of(client.model), client)
    assert reply.numbers["samples"] == used
    assert reply.gradient_evaluations == 3 * used


def test_share_is_another_part_in_another_round():
    client = make_client(random_samples())
    start = state_of(client.model)
    parts = {digest(replace(TASK, share=0.2, round=r, batch_size=40).run(start, client).tensors) for r in range(4)}
    assert len(parts) == 4


@pytest.mark.parametrize(("n", "batch_size"), [(40, 8), (41, 8), (42, 8), (7, 8), (9, 8), (2, 1), (5, 64), (65, 64)])
def test_minibatches_take_every_position_once_and_never_one_alone(n, batch_size):
    batches = list(minibatches(n, batch_size, torch.Generator().manual_seed(0), CPU))
    assert sorted(torch.cat(batches).tolist()) == list(range(n))
    assert all(2 <= len(batch) <= batch_size + 1 for batch in batches)


def test_minibatches_are_shuffled_anew():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.cat(list(minibatches(50, 8, generator, CPU))).tolist() for _ in range(2))
    assert first != second
    assert first != sorted(first)


def test_minibatches_of_one_sample_or_none():
    assert [b.tolist() for b in minibatches(1, 8, torch.Generator(), CPU)] == [[0]]
    assert sum(len(b) for b in minibatches(0, 8, torch.Generator(), CPU)) == 0


def test_training_mode_freezes_statistics_only():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    set_training_mode(model, freeze_normalisation=True)
    assert [m.training for m in model] == [True, False, True]
    set_training_mode(model, freeze_normalisation=False)
    assert [m.training for m in model] == [True, True, True]


@pytest.mark.parametrize("task", [replace(TASK, share=0.001), replace(TASK, batch_size=1, lr=0.001)])
def test_a_lone_sample_trains_with_the_running_statistics(task):
    """Batch statistics of one sample do not exist; the round must not fail for that."""
    client = make_client(random_samples(), network("batchnorm"))
    start = state_of(client.model)
    got = task.run(start, client).tensors
    assert torch.equal(got["1.running_mean"], start["1.running_mean"])
    assert not torch.equal(got["0.weight"], start["0.weight"])


def test_frozen_parameters_stay():
    client = make_client(random_samples())
    client.model[0].weight.requires_grad_(False)
    start = state_of(client.model)
    got = TASK.run(start, client).tensors
    assert torch.equal(got["0.weight"], start["0.weight"])
    assert not torch.equal(got["2.weight"], start["2.weight"])


def test_divergence_names_round_and_client():
    client = make_client(random_samples())
    with pytest.raises(DivergedError) as error:
        replace(TASK, lr=1e6, epochs=20).run(state_of(client.model), client)
    sentence = str(error.value)
    assert sentence.startswith("Training in round 2 at client 4 diverged: parameter '")
    assert sentence.endswith("is no longer finite; lower the learning rate (1e+06).")
