"""A ridge head over Flower: the bits of one process, and what a node keeps between two messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flower_worlds import World

from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.errors import InputError
from fedforget.federation.client import SUMS
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.masking import SECRET_KEY
from fedforget.federation.ridge import random_ridge
from fedforget.federation.rounds import Schedule, train
from fedforget.flower.node_store import KeptInFiles
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.ladder import forget

pytestmark = pytest.mark.real

SCHEDULE = Schedule(rounds=1, threads=1)
TARGETS = {
    "class": ErasureRequest.of_class(0, 3),
    "samples": ErasureRequest.of_samples(0, [0]),
    "client": ErasureRequest.of_client(2),
    "feature": ErasureRequest.of_feature(0, (2, 2, 3, 3)),
}


@dataclass
class RidgeWorld(World):
    masked: bool = False

    def network(self) -> Any:
        return random_ridge(self.dataset.shape, len(self.dataset.classes), 48, 0, masked=self.masked)


def make(masked: bool) -> RidgeWorld:
    dataset = load_dataset("digits").first(240, 60)
    return RidgeWorld(dataset, partition("iid", dataset.train.labels, 4, 0), masked=masked)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_flower_has_the_bits_of_one_process(tmp_path: Path, masked: bool, kind: str):
    world, local = make(masked), make(masked).local()
    request = TARGETS[kind]
    if kind == "samples":
        request = ErasureRequest.of_samples(0, local.client(0).samples.ids[:5].tolist())
    expected = train(local, state_of(local.model), SCHEDULE)
    nodes = world.flower(world.grid(tmp_path))
    before = train(nodes, state_of(nodes.model), SCHEDULE)
    assert digest(before) == digest(expected)
    made, ours = forget(nodes, before, request, SCHEDULE), forget(local, before, request, SCHEDULE)
    assert digest(made.state) == digest(ours.state) != digest(before)
    assert made.exact
    asked = local.check([request])[request.client]
    assert made.cost.gradient_evaluations == pytest.approx(FORWARD_COST * asked.retained), "the others kept their sums"
    for k in range(4):
        kept = KeptInFiles(tmp_path / f"site-{k}")
        assert (SUMS in kept) == (kind != "client" or k != request.client)
        assert SECRET_KEY not in kept


def test_masks_without_a_state_dir_are_refused():
    world = make(masked=True)
    with pytest.raises(InputError, match="does not have the secret key of this masked sum"):
        train(world.flower(world.grid()), state_of(world.network()), SCHEDULE)


def test_without_a_state_dir_the_sums_are_made_again():
    world = make(masked=False)
    before = train(world.flower(world.grid()), state_of(world.network()), SCHEDULE)
    made = forget(world.flower(world.grid()), before, TARGETS["class"], SCHEDULE)
    expected = forget(world.local(), before, TARGETS["class"], SCHEDULE)
    assert digest(made.state) == digest(expected.state)
