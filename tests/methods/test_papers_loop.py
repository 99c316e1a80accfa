"""The paper's loop as a whole against a literal twin: memories, sketch, Eq. 13 as one loss, aggregation."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import slow_twins
import torch
from torch import Tensor, nn

from fedforget.data import Dataset
from fedforget.data.samples import Samples
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.training import minibatches
from fedforget.methods import METHODS, forget
from fedforget.models import xavier_initialise
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed

SCHEDULE = Schedule(rounds=4, lr=0.1, batch_size=8, threads=1, seed=5)
CLIENT, LABEL = 0, 1
PAPER = METHODS["fedaf"].presets["paper"]
MODEST: dict[str, Any] = {"sketch_rows": 7, "batch_size": 6, "epochs": 2, "lr": 0.01, "teachers": 3, "strength": 0.5}


def make() -> tuple[LocalFederation, State, list[Tensor], Dataset]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(120) % 3
    features = 2.0 * torch.randn(3, 6, generator=generator)[labels] + torch.randn(120, 6, generator=generator)
    test = Samples.of(features[:9], labels[:9], 120)
    dataset = Dataset("blobs", Samples.of(features, labels), test, ("a", "b", "c"))
    parts = [part.sort().values for part in torch.randperm(120, generator=generator).split((40, 50, 30))]
    model = network()
    federation = LocalFederation(dataset, parts, model)
    return federation, train(federation, state_of(model), SCHEDULE), parts, dataset


def network() -> nn.Module:
    return xavier_initialise(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)), 0)


def twin(start: State, settings: Any, own: Samples, inputs: Tensor) -> State:
    """The client's model by the slow twins alone. `inputs` are its samples as the network sees them."""
    model = network()
    model.load_state_dict(start)
    at_target = own.labels == LABEL
    x, y = inputs[at_target], own.labels[at_target]
    teachers_seed = derive_seed(SCHEDULE.seed, "memory", "teachers", CLIENT)
    predictions = slow_twins.teacher_labels(model, x, settings.teachers, teachers_seed)
    memory = torch.tensor([slow_twins.debias(p, LABEL, settings.sigma) for p in predictions], dtype=torch.float64)
    sketch_seed = derive_seed(SCHEDULE.seed, "sketch")
    rows = slow_twins.explicit_sketch(model, replace(own, features=inputs), "data", settings.sketch_rows, sketch_seed)
    weight = settings.strength / (len(own) if settings.normalise else 1)
    order = derive_generator(SCHEDULE.seed, "forget", "client", CLIENT, "order")
    cpu, batches = torch.device("cpu"), []
    for _ in range(int(settings.epochs)):
        for batch in minibatches(len(y), settings.batch_size, order, cpu):
            batches.append((x[batch], memory[batch], y[batch]))
    return state_of(slow_twins.papers_forgetting(model, batches, rows, weight, settings.lr, settings.momentum))


@pytest.mark.parametrize("anchor", ["global", "client"])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("sigma", ["auto", "literal"])
def test_the_papers_loop_is_its_literal_twin(anchor: str, normalise: bool, momentum: float, sigma: str):
    federation, before, parts, dataset = make()
    changed = MODEST | {"normalise": normalise, "momentum": momentum, "sigma": sigma, "anchor": anchor}
    changed |= {"aggregation": "replace", "strength": 20.0 if normalise else 0.5}
    settings = replace(PAPER, **changed)
    start = before
    if anchor == "client":
        task = replace(SCHEDULE.train_task(SCHEDULE.rounds), purpose="anchor")
        (reply,) = federation.ask(task, before, [CLIENT])
        start = dict(reply.tensors)
        assert not torch.equal(start["0.weight"], before["0.weight"])
    own = dataset.train.select(parts[CLIENT])
    inputs = federation.client(CLIENT).inputs(own.features)
    expected = twin(start, settings, own, inputs)
    request = ErasureRequest.of_class(CLIENT, LABEL)
    found = forget(federation, copy.deepcopy(before), request, SCHEDULE, "fedaf", "paper", **changed).state
    moved = max(float((found[name] - start[name]).abs().max()) for name in found)
    assert moved > 0.01, "so that the comparison says something"
    for name, values in found.items():
        assert torch.allclose(values.double(), expected[name].double(), atol=2e-5, rtol=0), name


def test_the_penalty_weighs_in_the_twin():
    """Without it the twin ends elsewhere, so the test above would see a loop that left it out."""
    federation, before, parts, dataset = make()
    own = dataset.train.select(parts[CLIENT])
    inputs = federation.client(CLIENT).inputs(own.features)
    ends = [
        twin(before, replace(PAPER, **MODEST | {"normalise": True, "strength": strength}), own, inputs)
        for strength in (20.0, 1e-9)
    ]
    assert float((ends[0]["2.weight"] - ends[1]["2.weight"]).abs().max()) > 1e-3
