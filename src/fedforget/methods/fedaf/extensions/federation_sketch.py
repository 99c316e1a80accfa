"""Everybody's sketch of the retained data, merged (not in the paper): where the target client keeps none of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from fedforget.federation.cost import Meter
from fedforget.federation.masking import check_masking
from fedforget.federation.rounds import Schedule, participants
from fedforget.federation.seam import TargetSize
from fedforget.methods.fedaf.extensions.masked_sketch import masked_sketch
from fedforget.methods.fedaf.settings import PaperSettings
from fedforget.methods.fedaf.sketching import SKETCH_KEY, BuildSketch
from fedforget.params import State
from fedforget.requests import ErasureRequest


def check_masks(
    federation: Meter,
    requests: Sequence[ErasureRequest],
    served: Sequence[ErasureRequest],
    settings: PaperSettings,
    sizes: Mapping[int, TargetSize],
) -> None:
    """Refuse a masked sketch that too few clients would take part in."""
    if settings.sketch_masked and any(_takes_everybodys(settings, request.client, sizes) for request in requests):
        emptied = {client for client, size in sizes.items() if size.retained == 0}
        check_masking(len(set(participants(federation, (*served, *requests))) - emptied))


def everybodys_sketch(
    federation: Meter,
    state: State,
    client: int,
    requests: Sequence[ErasureRequest],
    served: Sequence[ErasureRequest],
    settings: PaperSettings,
    schedule: Schedule,
    sizes: Mapping[int, TargetSize],
) -> State:
    """What travels to this client beside the model; nothing where it makes a sketch of its own."""
    if settings.preserver != "sketch" or not _takes_everybodys(settings, client, sizes):
        return {}
    with federation.stage("sketch"):
        make = masked_sketch if settings.sketch_masked else federation_sketch
        return make(federation, state, requests, served, settings, schedule)


def federation_sketch(
    federation: Meter,
    state: State,
    requests: Sequence[ErasureRequest],
    served: Sequence[ErasureRequest],
    settings: PaperSettings,
    schedule: Schedule,
) -> State:
    """The merged rows and the count of their samples.

    Rows and samples are the whole federation's budget: each client sketches its part of the samples into its part of
    the rows. With more clients than rows several share a row, where their signed gradients add up."""
    clients = participants(federation, (*served, *requests))
    rows, samples = int(settings.sketch_rows), settings.sketch_samples
    part = replace(
        settings,
        sketch_rows=max(1, rows // len(clients)),
        sketch_samples=None if samples is None else max(1, int(samples) // len(clients)),
    )
    task = schedule.about(BuildSketch, requests, served, settings=part)
    merged, count = torch.zeros(0), 0
    for position, reply in enumerate(federation.ask(task, state, clients)):
        if reply.numbers["count"]:
            block = reply.tensors[SKETCH_KEY]
            if not count:
                merged = block.new_zeros(rows, block.shape[1])
            merged[(position * int(part.sketch_rows)) % rows :][: len(block)] += block
            count += int(reply.numbers["count"])
    return {SKETCH_KEY: merged, f"{SKETCH_KEY}.count": torch.tensor(count)}


def _takes_everybodys(settings: PaperSettings, client: int, sizes: Mapping[int, TargetSize]) -> bool:
    if settings.sketch_scope == "auto":
        return sizes[client].retained == 0
    return settings.sketch_scope == "federation"
