"""A method with a task of its own travels by its row in the table alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flower_worlds import SCHEDULE, World
from torch import Tensor, nn

from fedforget.errors import FedForgetError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, Task
from fedforget.flower import ClientError
from fedforget.flower.values import known_classes, known_tasks
from fedforget.methods import METHODS, Method, forget
from fedforget.params import State, digest
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 3)


@dataclass(frozen=True)
class ShrinkSettings:
    by: float = 0.5


@dataclass(frozen=True)
class Counted:
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class Shrink(Task):
    """All weights times a factor and a scale that travels beside the model."""

    at_target = True
    returns = "model"
    keeps = (Counted,)

    requests: tuple[ErasureRequest, ...]
    settings: ShrinkSettings

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        return torch.empty(1, device="meta") if name == "toy.scale" else None

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        times = client.kept["toy"].rows + 1.0 if "toy" in client.kept else torch.ones(1)
        client.kept["toy"] = Counted(times)
        factor = self.settings.by * state["toy.scale"] * times
        tensors = {name: factor * t if t.is_floating_point() else t for name, t in state.items() if name != "toy.scale"}
        return Reply(client.index, tensors, gradient_evaluations=1.0)


def shrink(
    federation: Any, state: State, requests: Sequence[ErasureRequest], settings: ShrinkSettings, schedule: Any,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:  # fmt: skip
    task = Shrink(seed=schedule.seed, threads=schedule.threads, requests=tuple(requests), settings=settings)
    for _ in range(2):
        (reply,) = federation.ask(task, {**state, "toy.scale": torch.full((1,), 0.5)}, [requests[0].client])
    return reply.tensors, {}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    row = Method(shrink, {"default": ShrinkSettings()}, "shrink the weights", (Shrink,))
    monkeypatch.setitem(METHODS, "shrink", row)
    _forget_the_classes()
    yield
    _forget_the_classes()


def _forget_the_classes() -> None:
    known_tasks.cache_clear()
    known_classes.cache_clear()


@pytest.mark.usefixtures("listed")
def test_its_task_settings_tensors_and_what_it_keeps_travel(world: World, tmp_path: Path):
    result = forget(world.flower(world.grid(tmp_path)), world.before, CLASS, SCHEDULE, "shrink")
    expected = {name: 0.5 * t if t.is_floating_point() else t for name, t in world.before.items()}
    assert digest(result.state) == digest(expected), "0.5 x 0.5, the second time by two"


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("tensor", [{"toy.scale": torch.ones(2)}, {"toy.other": torch.ones(1)}, {}])
def test_a_tensor_that_it_does_not_declare_is_refused(world: World, tensor: State):
    task = Shrink(seed=0, threads=1, requests=(CLASS,), settings=ShrinkSettings())
    state = {**({} if not tensor else world.before), **tensor}
    with pytest.raises(ClientError, match=r"^Client 0 refused: (Tensor 'toy\.|The model that came lacks )"):
        list(world.flower(world.grid()).ask(task, state, [0]))


def test_without_its_row_it_cannot_travel(world: World):
    task = Shrink(seed=0, threads=1, requests=(CLASS,), settings=replace(ShrinkSettings(), by=1.0))
    with pytest.raises(FedForgetError, match=r"^A 'Shrink' cannot travel; list it among a method's tasks"):
        list(world.flower(world.grid()).ask(task, world.before, [0]))
