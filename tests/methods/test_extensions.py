"""Everybody's sketch with more clients than rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from small_worlds import SCHEDULE, trained

from fedforget.federation.cost import Meter
from fedforget.methods.fedaf.extensions.federation_sketch import federation_sketch
from fedforget.methods.fedaf.extensions.planning import Plan
from fedforget.methods.fedaf.settings import OVERWRITE
from fedforget.methods.fedaf.sketching import SKETCH_KEY
from fedforget.requests import ErasureRequest

REQUEST = ErasureRequest.of_class(0, 1)


def test_with_more_clients_than_rows_several_share_a_row():
    """Four clients, three rows: the last client's row is added to the first's."""
    world, before, _ = trained()
    settings = replace(OVERWRITE, sketch_rows=3, sketch_samples=None).opened().for_network(1)
    merged = federation_sketch(Plan(Meter(world), (REQUEST,), (), settings, SCHEDULE), before)
    own = [reply.tensors[SKETCH_KEY] for _, _, reply in world.log]
    assert [len(rows) for rows in own] == [1, 1, 1, 1]
    assert torch.equal(merged[SKETCH_KEY], torch.cat([own[0] + own[3], own[1], own[2]]))
    assert int(merged[f"{SKETCH_KEY}.count"]) == sum(int(reply.numbers["count"]) for _, _, reply in world.log)
