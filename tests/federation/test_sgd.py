"""Our steps against torch's own optimiser, bit for bit, and what they are there for: no compiler in every process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from fedforget.federation.sgd import SGD


def losses(model: nn.Module, steps: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(8, 5, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("lr", [0.3, 0.01])
def test_the_same_bits_as_torch(momentum: float, lr: float):
    torch.manual_seed(1)
    ours = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
    theirs = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
    theirs.load_state_dict(ours.state_dict())
    reference = torch.optim.SGD(theirs.parameters(), lr=lr, momentum=momentum)
    steps = SGD(ours.parameters(), lr, momentum)
    for x in losses(ours, 12):
        steps.step(ours(x).square().mean())
        reference.zero_grad()
        theirs(x).square().mean().backward()
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_long_gradient_lowers_the_learning_rate_for_good_and_a_short_one_does_not():
    """Its length is over all parameters together, before the momentum."""
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    steps = SGD([first, second], lr=1.0, momentum=0.5, longest=2.0)
    steps.step(3.0 * first.sum() + 4.0 * second.sum())  # of length 5
    assert torch.allclose(torch.cat([first, second]), torch.tensor([-1.2, -1.6]))
    steps.step(0.6 * first.sum() + 0.8 * second.sum())  # of length 1, with half of the one before, at 0.4 now
    assert torch.allclose(torch.cat([first, second]), torch.tensor([-1.2 - 0.4 * 2.1, -1.6 - 0.4 * 2.8]))
    plain, limited = (nn.Linear(5, 3) for _ in range(2))
    limited.load_state_dict(plain.state_dict())
    pair = SGD(plain.parameters(), 0.1, 0.9), SGD(limited.parameters(), 0.1, 0.9, longest=1e3)
    for x in losses(plain, 5):
        pair[0].step(plain(x).square().mean())
        pair[1].step(limited(x).square().mean())
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), limited.parameters(), strict=True))


def test_frozen_and_unused_parameters_stay():
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    steps = SGD([used, unused, frozen], 0.5, 0.9)
    steps.step((used * frozen).sum())
    assert used.tolist() == [0.5, 0.5]
    assert unused.tolist() == frozen.tolist() == [1.0, 1.0]


FORGET = """
import sys
from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, forget, load_dataset, partition
from fedforget import state_of, train
data = load_dataset("digits").first(200, 20)
model = build_model("cnn", data.shape, 10, seed=0)
federation = LocalFederation(data, partition("iid", data.train.labels, 4, 0), model)
schedule = Schedule(rounds=1, lr=0.05, batch_size=16, threads=1)
before = train(federation, state_of(model), schedule)
forget(federation, before, ErasureRequest.of_class(0, 3), schedule)
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.real
def test_a_request_imports_no_compiler():
    assert subprocess.run([sys.executable, "-c", FORGET], check=False).returncode == 0
