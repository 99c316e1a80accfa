"""Everybody's sketch of the retained data, merged (not in the paper): where the target client keeps none of its own."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedforget.federation.masking import check_masking
from fedforget.federation.rounds import participants
from fedforget.methods.fedaf.extensions.masked_sketch import masked_sketch
from fedforget.methods.fedaf.extensions.planning import Plan
from fedforget.methods.fedaf.sketching import SKETCH_KEY, BuildSketch
from fedforget.params import State


def check_masks(plan: Plan) -> None:
    """Refuse a masked sketch that too few clients would take part in."""
    if plan.settings.sketch_masked and any(_takes_everybodys(plan, request.client) for request in plan.requests):
        emptied = {client for client, size in plan.sizes.items() if size.retained == 0}
        check_masking(len(set(participants(plan.federation, plan.exclude)) - emptied))


def everybodys_sketch(plan: Plan, state: State, client: int) -> State:
    """What travels to this client beside the model; nothing where it makes a sketch of its own."""
    if plan.settings.preserver != "sketch" or not _takes_everybodys(plan, client):
        return {}
    with plan.federation.stage("sketch"):
        return (masked_sketch if plan.settings.sketch_masked else federation_sketch)(plan, state)


def federation_sketch(plan: Plan, state: State) -> State:
    """The merged rows and the count of their samples.

    Rows and samples are the whole federation's budget: each client sketches its part of the samples into its part of
    the rows. With more clients than rows several share a row, where their signed gradients add up."""
    clients = participants(plan.federation, plan.exclude)
    rows, samples = int(plan.settings.sketch_rows), plan.settings.sketch_samples
    part = replace(
        plan.settings,
        sketch_rows=max(1, rows // len(clients)),
        sketch_samples=None if samples is None else max(1, int(samples) // len(clients)),
    )
    task = plan.schedule.about(BuildSketch, plan.requests, plan.served, settings=part)
    merged, count = torch.zeros(0), 0
    for position, reply in enumerate(plan.federation.ask(task, state, clients)):
        if reply.numbers["count"]:
            block = reply.tensors[SKETCH_KEY]
            if not count:
                merged = block.new_zeros(rows, block.shape[1])
            merged[(position * int(part.sketch_rows)) % rows :][: len(block)] += block
            count += int(reply.numbers["count"])
    return {SKETCH_KEY: merged, f"{SKETCH_KEY}.count": torch.tensor(count)}


def _takes_everybodys(plan: Plan, client: int) -> bool:
    if plan.settings.sketch_scope == "auto":
        return plan.sizes[client].retained == 0
    return plan.settings.sketch_scope == "federation"
