"""Data that each client sets aside before training: nobody trains on it, and the check looks at nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedforget.audit.check import CheckBeside
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.beside import CountElsewhere, half_of
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, run_round
from fedforget.federation.sight import look
from fedforget.federation.tasks import Reply, Task
from fedforget.params import state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig

CONFIG = RunConfig(clients=3, model="mlp", schedule=Schedule(rounds=2, lr=0.05, threads=1), hold_out=0.25)
CLASS = ErasureRequest.of_class(0, 3)


@pytest.fixture
def world() -> LocalFederation:
    return CONFIG.build_federation(CONFIG.load_dataset())


def ids(world: LocalFederation, client: int) -> tuple[set[int], set[int]]:
    """What a client trains on, and what it holds out."""
    found = world.client(client)
    assert found.held_out is not None
    return set(found.samples.ids.tolist()), set(found.held_out.ids.tolist())


def test_each_client_sets_a_part_of_its_own_samples_aside(world: LocalFederation):
    whole = replace(CONFIG, hold_out=0.0).build_federation(CONFIG.load_dataset())
    for client in world.clients:
        trained, aside = ids(world, client)
        all_of_them = set(whole.client(client).samples.ids.tolist())
        assert trained | aside == all_of_them
        assert not trained & aside
        assert len(aside) == round(0.25 * len(all_of_them))
        order = world.client(client).samples.ids.tolist()
        assert order == [id for id in whole.client(client).samples.ids.tolist() if id in trained], "in the order it had"
    again = CONFIG.build_federation(CONFIG.load_dataset())
    assert [ids(again, client) for client in world.clients] == [ids(world, client) for client in world.clients]
    other = replace(CONFIG, schedule=replace(CONFIG.schedule, seed=1)).build_federation(CONFIG.load_dataset())
    assert ids(other, 0) != ids(world, 0)


def test_without_it_clients_hold_out_what_they_did_before():
    dataset = CONFIG.load_dataset()
    world = replace(CONFIG, hold_out=0.0).build_federation(dataset)
    assert ids(world, 0)[1] == set(dataset.test.ids.tolist())
    assert "hold_out" not in replace(CONFIG, hold_out=0.0).to_json(), "an older run is the same run"


class Tapped(LocalFederation):
    """Counts what the others say that they looked at."""

    seen = 0.0

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if isinstance(task, CountElsewhere):
                self.seen += sum(count for name, count in reply.numbers.items() if name.startswith("count"))
            yield reply


def test_the_check_looks_at_that_and_not_at_the_test_data(world: LocalFederation):
    dataset = CONFIG.load_dataset()
    parts, held_out = CONFIG.parts(dataset)
    tapped = Tapped(dataset, parts, world.model, held_out=held_out)
    task = CheckBeside(seed=0, threads=1, requests=(CLASS,), half="judge")
    sight = look(tapped, run_round(tapped, state_of(world.model), CONFIG.schedule.train_task(0)), task, CONFIG.schedule)
    halves = [half_of(world.client(client), "judge", 0) for client in world.clients]
    tests = set(dataset.test.ids.tolist())
    assert not any(tests & set(half.ids.tolist()) for half in halves)
    assert tapped.seen == sight.accuracy.count == len(halves[1]) + len(halves[2])
    assert sight.kind.count == int((halves[0].labels == 3).sum())


def test_what_is_set_aside_of_a_poisoned_client_is_poisoned_as_unseen_data_is():
    backdoor = Backdoor(CLASS, Trigger(2, margin=0), 7)
    client = replace(CONFIG, backdoor=backdoor).build_federation(CONFIG.load_dataset()).client(0)
    assert client.held_out is not None
    threes = client.held_out.true_labels == 3
    assert bool(threes.any())
    assert bool((client.held_out.labels[threes] == 7).all())


@pytest.mark.parametrize("part", [-0.1, 1, "half", True, float("nan")])
def test_what_is_no_part_is_refused(part: Any):
    with pytest.raises(InputError, match=r"'hold_out' is .*, but it must be a part from 0 to below 1\.$"):
        RunConfig(hold_out=part)


def test_a_client_may_have_too_few_to_set_any_aside():
    kept, aside = CONFIG.set_aside(torch.tensor([5]), 0)
    assert (kept.tolist(), aside.tolist()) == ([5], [])
