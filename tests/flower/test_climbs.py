"""The ladder over Flower's messages: the rungs, words and bills of one process, and a node that dies on the way."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flower_worlds import SCHEDULE, World
from flwr.app import Message
from torch import Tensor

from fedforget.audit.check import CheckBeside
from fedforget.audit.verdict import Reading
from fedforget.data import load_dataset
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.errors import ClientError
from fedforget.federation.cost import Cost
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Task, Train
from fedforget.flower.messages import read_task
from fedforget.methods import LadderSettings
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb
from fedforget.runs.ladder import climb
from fedforget.runs.store import FolderRungs

pytestmark = pytest.mark.real

CLASS = ErasureRequest.of_class(0, 3)
TARGETS = {
    "class": [CLASS],
    "client": [ErasureRequest.of_client(2)],
    "two clients": [CLASS, ErasureRequest.of_class(1, 5)],
    "feature": [ErasureRequest.of_feature(0, (2, 2, 3, 3)), ErasureRequest.of_feature(2, (2, 2, 3, 3))],
}
LONG = Schedule(rounds=20, lr=0.1, batch_size=16, threads=1)
TO_THE_TOP = LadderSettings(limit=0.0)
"""Rebuilding costs somebody something, so it is harmful."""


def bill(cost: Cost) -> tuple[float, int, int]:
    """What does not depend on the clock."""
    return cost.gradient_evaluations, cost.bytes, cost.stored_bytes


def told(made: Climb) -> dict[str, Any]:
    """All that is said of a climb, but for its seconds."""
    return {
        "model": digest(made.state),
        "word": (made.word, made.exact),
        "rungs": [replace(rung, cost=Cost()) for rung in made.rungs],
        "bills": [bill(cost) for cost in (made.cost, made.checking, *(rung.cost for rung in made.rungs))],
        "retrain": made.retrain,
        "curves": made.curves,
        "notes": [re.sub(r"about [\d.]+ s", "about - s", note) for note in made.notes],
    }


@pytest.mark.parametrize(
    "kind",
    [
        "class",
        "feature",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("samples", "client", "two clients")),
    ],
)
def test_a_climb_is_the_one_in_process(world: World, tmp_path: Path, kind: str):
    half = ErasureRequest.of_samples(2, world.local().client(2).samples.ids[:30].tolist())
    requests = [half] if kind == "samples" else TARGETS[kind]
    expected = told(climb(world.local(), world.before, requests, SCHEDULE))
    for again in ("the first time", "once more, on nodes that have withdrawn it already"):
        federation = world.flower(world.grid(tmp_path))
        assert told(climb(federation, world.before, requests, SCHEDULE)) == expected, again


def noisy_world() -> World:
    """Digits so noisy that the network knows by heart those it saw."""
    data, generator = load_dataset("digits").first(400, 300), torch.Generator().manual_seed(0)

    def noisy(features: Tensor) -> Tensor:
        noise = 120 * torch.randn(features.shape, generator=generator)
        return (features.float() + noise).clamp(0, 255).to(torch.uint8)

    data = from_arrays(noisy(data.train.features), data.train.labels, noisy(data.test.features), data.test.labels)
    world = World(data, partition("iid", data.train.labels, 4, 0), "mlp")
    world.before = train(world.local(), state_of(world.network()), LONG)
    return world


def test_a_node_that_dies_on_a_rung_is_named_and_the_climb_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From rebuilding, which is said to be harmful, to Retrain: the checks and the rungs of one process, each done
    once."""
    monkeypatch.setattr("fedforget.audit.check.loss_of_accuracy", lambda before, after: Reading(1.0, 0.0))
    world, leaver = noisy_world(), ErasureRequest.of_client(0)
    expected = climb(world.local(), world.before, leaver, LONG, TO_THE_TOP)
    assert [(rung.name, rung.word) for rung in expected.rungs] == [("rebuild", "harmful"), ("retrain", "exact")]
    grid, kept = world.grid(tmp_path / "nodes"), FolderRungs(tmp_path / "rungs", "this climb")
    looks: list[int] = []

    def leave(number: int, reply: Message) -> list[Message]:
        """The target dies after the looks at the model before and at the scout, so before those of rebuilding."""
        if isinstance(_task(grid.sent[-1][1]), CheckBeside):
            looks.append(number)
        if len(looks) == 2:
            grid.dead.add(0)
        return [reply]

    grid.change = leave
    said: list[str] = []
    federation = world.flower(grid)
    with pytest.raises(ClientError, match=r"^Client 0 went away: its node no longer gives Flower a sign of life\.$"):
        climb(federation, world.before, leaver, LONG, TO_THE_TOP, kept=kept, say=said.append)
    assert [sentence.partition(":")[0] for sentence in said] == ["Overwriting is not tried", "rebuild"]
    grid.change = lambda _, reply: [reply]
    grid.dead.clear()
    grid.sent.clear()
    made = climb(world.flower(grid), world.before, leaver, LONG, TO_THE_TOP, kept=kept)
    assert told(made) == told(expected)
    trainings = {task.purpose for _, sent in grid.sent if isinstance(task := _task(sent), Train)}
    assert "rebuilding 0" in trainings
    assert "scout" not in trainings, "what was there is not done again"


def _task(message: Message) -> Task | None:
    return read_task(message.content)[0] if "fedforget" in message.content else None
