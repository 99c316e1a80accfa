"""The federation's sketch where the server sees the sum alone (`sketch_masked`; the masks are in `federation.masking`).

    1  `OfferKey`            every client: a public key, and how many samples it would sketch
    2  `BuildMaskedSketch`   every client that has some: all public keys go out, y_k = mask(J^_k) comes back
       J^ = sum over k of J^_k                    the sketch of the union, whose samples are the pairs (client, id)

Every client sketches into all s rows. Blocks of rows, as without masks, would be no use: the sum would hold each
client's own block, unmasked. The hashes are everybody's to know, but their seed depends on

    the client           ids are unique within a client only; with one seed for all, samples with the same id would
                         share their sign, and their products would not cancel on average
    what is withdrawn    else two sums at one model would differ by the sketch of what was withdrawn between them, and
                         the server, which has both, would see it"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedforget.errors import FedForgetError
from fedforget.federation.client import Client
from fedforget.federation.masking import (
    PUBLIC_KEY,
    SECRET_KEY,
    check_masking,
    key_beside,
    key_of,
    masked,
    offered,
    taken,
    unmasked_sum,
)
from fedforget.federation.rounds import participants
from fedforget.federation.tasks import Reply
from fedforget.methods.fedaf.extensions.planning import Plan, only_from, plan_sketch
from fedforget.methods.fedaf.sketching import SAMPLES_PER_ROW, SKETCH_KEY, SketchTask, sketch_at_client, sketchable
from fedforget.params import State, weight_count
from fedforget.seeds import derive_seed


@dataclass(frozen=True, kw_only=True)
class OfferKey(SketchTask):
    """A key for one masked sketch. It takes the place of any that was not used."""

    with_model = False
    returns = "tensors"

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.kept.pop(SECRET_KEY, None)
        samples, limit = sketchable(client, self), self.settings.sketch_samples
        count = samples if limit is None else min(samples, int(limit))
        if count == 0:
            return Reply(client.index, numbers={"count": 0.0})
        return Reply(
            client.index, tensors={PUBLIC_KEY: offered(client.kept)}, numbers={"count": float(count)}
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BuildMaskedSketch(SketchTask):
    """A client's part of the federation's sketch under its masks. The key is used up first, whatever happens then."""

    returns = "tensors"

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        return key_beside(name)

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        secret, keys = taken(client.kept, state, client.index)
        client.load({name: tensor for name, tensor in state.items() if not name.startswith(PUBLIC_KEY)})
        with only_from(client.model, self.settings.first_moved):
            plan_sketch(client.model, int(self.settings.sketch_rows), self.settings.planned_dtype, torch.device("cpu"))
            sketch = sketch_at_client(client, self, masked_sketch_seed(self, client.index))
        return Reply(
            client.index,
            tensors={SKETCH_KEY: masked(sketch.rows, secret, client.index, keys)},
            numbers={"count": float(sketch.count)},
            gradient_evaluations=float(sketch.count),
            stored_bytes=sketch.bytes,
        )


def masked_sketch_seed(task: SketchTask, client: int) -> int:
    """The seed of one client's hashes."""
    withdrawn = json.dumps([request.to_json() for request in (*task.served, *task.requests)])
    return derive_seed(task.seed, "sketch", "without", withdrawn, "client", client)


def masked_sketch(plan: Plan, state: State) -> State:
    """Everybody's sketch of the retained data, as `federation_sketch` returns it, from masked parts.

    The samples are the whole federation's budget; the rows are as many as leave `SAMPLES_PER_ROW` of all clients'
    samples to each on average, since the server sees their sum."""
    federation, settings = plan.federation, plan.settings
    clients = participants(federation, plan.exclude)
    limit = settings.sketch_samples
    part = replace(settings, sketch_samples=None if limit is None else max(1, int(limit) // len(clients)))
    offer = plan.schedule.about(OfferKey, plan.requests, plan.served, settings=part)
    counts: dict[int, int] = {}
    keys: State = {}
    for reply in federation.ask(offer, {}, clients):
        if reply.numbers["count"]:
            counts[reply.client] = int(reply.numbers["count"])
            keys[f"{PUBLIC_KEY}{reply.client}"] = key_of(reply)
    check_masking(len(counts))
    total = sum(counts.values())
    rows = max(1, min(int(settings.sketch_rows), total // SAMPLES_PER_ROW))
    task = plan.schedule.about(
        BuildMaskedSketch, plan.requests, plan.served, settings=replace(part, sketch_rows=rows)
    )  # fmt: skip
    with only_from(federation.model, settings.first_moved):
        shape = (rows, weight_count(federation.model))
    parts = _parts(federation.ask(task, {**state, **keys}, counts), counts, shape)
    merged = unmasked_sum(parts, len(counts), settings.dtype).to(federation.device)
    return {SKETCH_KEY: merged, f"{SKETCH_KEY}.count": torch.tensor(total)}


def _parts(replies: Iterable[Reply], counts: Mapping[int, int], shape: tuple[int, int]) -> Iterator[Tensor]:
    """Everybody's part; a sum without one of them would mean nothing."""
    missing = dict(counts)
    for reply in replies:
        part = reply.tensors.get(SKETCH_KEY)
        if part is None or (part.dtype, tuple(part.shape)) != (torch.int64, shape):
            raise FedForgetError(f"Client {reply.client} sent a masked sketch that is not int64{list(shape)}.")
        if missing.pop(reply.client, None) != int(reply.numbers.get("count", -1)):
            raise FedForgetError(f"Client {reply.client} sent a masked sketch of other samples than it had offered.")
        yield part
    if missing:
        raise FedForgetError(
            f"Client {min(missing)} did not send its masked sketch, so the others' masks do not cancel; nothing has "
            "changed, try the request again."
        )
