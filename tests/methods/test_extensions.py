"""FedAF's guard over several requests, and everybody's sketch with more clients than rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from small_worlds import SCHEDULE, federation, trained

from fedforget.federation.cost import Meter
from fedforget.federation.guard import Guard
from fedforget.methods.fedaf.extensions.federation_sketch import federation_sketch
from fedforget.methods.fedaf.extensions.holding import hold
from fedforget.methods.fedaf.settings import GUARDED, RECOMMENDED
from fedforget.methods.fedaf.sketching import SKETCH_KEY
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest

REQUEST = ErasureRequest.of_class(0, 1)


def moved(state: State, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {name: tensor + torch.randn(tensor.shape, generator=generator) for name, tensor in state.items()}


def test_an_earlier_guard_includes_what_a_later_request_moves():
    world = federation()
    before = state_of(world.model)
    first, second = moved(before, 1), moved(before, 2)
    names = list(before)
    for settings in (RECOMMENDED, replace(GUARDED, held=0.6)):
        meter = Meter(world)
        meter.guard = Guard.of(before, first, names, 0.6)
        assert digest(meter.guard.hold(second)) != digest(second), "else the test could not fail"
        hold(meter, first, second, settings.opened())
        assert digest(meter.guard.hold(second)) == digest(second)


def test_with_more_clients_than_rows_several_share_a_row():
    """Four clients, three rows: the last client's row is added to the first's."""
    world, before, _ = trained()
    settings = replace(RECOMMENDED, sketch_rows=3, sketch_samples=None).opened().for_network(1)
    merged = federation_sketch(Meter(world), before, [REQUEST], (), settings, SCHEDULE)
    own = [reply.tensors[SKETCH_KEY] for _, _, reply in world.log]
    assert [len(rows) for rows in own] == [1, 1, 1, 1]
    assert torch.equal(merged[SKETCH_KEY], torch.cat([own[0] + own[3], own[1], own[2]]))
    assert int(merged[f"{SKETCH_KEY}.count"]) == sum(int(reply.numbers["count"]) for _, _, reply in world.log)
