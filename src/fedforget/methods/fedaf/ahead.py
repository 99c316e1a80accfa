"""A sketch made before any request, when training ends: then a request need not wait for it.

Nobody knows yet what will be withdrawn, and no row may hold a gradient of it afterwards. So the rows are made in a way
that a target touches few of them:

    S = a seeded random part of D_k, sorted by class and cut into s even pieces
    (J^)_r = sum over i in piece r of sigma(i) (J)_i

With random signs any fixed partition gives an unbiased sketch (`sketch.py`). A class that is withdrawn fills whole
pieces, which are dropped, and parts of two at most; single samples touch a piece each. Pieces that are touched lose
their row the moment the client withdraws (`without`), and the request makes them anew from what is left. What comes out
is, bit for bit on a CPU, what the same settings make with nothing prepared: preparing changes when, never what.

Subtracting the target's part would be no cheaper (its gradients are spread over all s rows of a hashed sketch, one
backward pass each) and would leave its rounding behind. A sketch for each class would take C times the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedforget.federation.client import AHEAD, Client
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply, Task
from fedforget.methods.fedaf.planning import fit_sketch, only_from, plan_sketch
from fedforget.methods.fedaf.settings import FedAFSettings
from fedforget.methods.fedaf.sketch import Sketch, signed_sums
from fedforget.methods.fedaf.sketching import Sketching
from fedforget.params import digest, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed

AHEAD_KEY = f"{AHEAD}fedaf.sketch"
FEWEST = 0.5
"""If the target leaves less than this part of S, the sketch is made of the retained data instead, as ever."""


@dataclass(frozen=True)
class AheadSketch:
    """The rows, one for each piece, and what they were made of: at which weights, how, from which samples."""

    weights: str
    settings: tuple[object, ...]
    seed: int
    rows: Tensor
    ids: Tensor
    sizes: tuple[int, ...]

    def without(self, ids: Tensor) -> AheadSketch:
        """The same without the rows that any of these samples has a part in: they are zeros."""
        gone = [bool(torch.isin(piece, ids).any()) for piece in self.ids.split(list(self.sizes))]
        rows = self.rows.clone()
        rows[torch.tensor(gone, device=rows.device)] = 0.0
        return AheadSketch(self.weights, self.settings, self.seed, rows, self.ids, self.sizes)


def sketch_ahead(
    federation: Federation,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    settings: FedAFSettings,
    served: Sequence[ErasureRequest] = (),
    to: Iterable[int] | None = None,
) -> Meter:
    """Every client (or those of `to`) sketches its data at the model `state` and keeps the sketch; the meter has the
    bill. `settings` are those that later requests come with; their `sketch_ahead` must be set."""
    settings, _ = fit_sketch(federation.model, settings, federation.device)
    meter = Meter(federation)
    task = PrepareSketch(seed=schedule.seed, threads=schedule.threads, settings=settings, served=tuple(served))
    with meter.measured(), meter.stage("sketch"):
        for _ in meter.ask(task, state, to):
            pass
    return meter


@dataclass(frozen=True, kw_only=True)
class PrepareSketch(Task):
    """Make the sketch that a request will need, and keep it; nothing of it leaves."""

    keeps = (AheadSketch,)

    settings: FedAFSettings
    served: tuple[ErasureRequest, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        with only_from(client.model, self.settings.first_moved):
            return self._prepare(state, client)

    def _prepare(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.load(state)
        pieces = _pieces(client, client.positions(self.served)[1], self.settings, self.seed)
        count = sum(len(piece) for piece in pieces)
        if count == 0:
            return Reply(client.index, numbers={"count": 0.0})
        rows = _rows(client, pieces, self.served, self.settings, self.seed)
        ids = client.samples.ids[torch.cat(pieces)]
        kept = AheadSketch(
            digest(trainable(client.model)), self.settings.sketch, self.seed, rows, ids, tuple(map(len, pieces))
        )
        client.kept[AHEAD_KEY] = kept
        return Reply(
            client.index, numbers={"count": float(count)}, gradient_evaluations=float(count),
            stored_bytes=rows.numel() * rows.element_size(),
        )  # fmt: skip


def sketch_made_ahead(client: Client, task: Sketching, weights: str) -> tuple[Sketch, float] | None:
    """(the sketch of S without the target, the gradient evaluations that it took now); None where too little is left.

    Of the target only ids and classes are looked at. What was kept is taken out: it serves one request, since the next
    one starts from another model."""
    kept = client.kept.pop(AHEAD_KEY, None)
    settings = task.settings
    pieces = _pieces(client, client.positions(task.served, task.requests)[1], settings, task.seed)
    retained = torch.zeros(len(client.samples), dtype=torch.bool)
    withdrawn = (*task.served, *task.requests)
    retained[client.positions(withdrawn)[1]] = True
    left = [piece[retained[piece]] for piece in pieces]
    count, before = sum(map(len, left)), sum(map(len, pieces))
    if count < max(1.0, FEWEST * before):
        return None
    ids = client.samples.ids[torch.cat(pieces)]
    known = (weights, settings.sketch, task.seed)
    if kept is None or (kept.weights, kept.settings, kept.seed) != known or not torch.equal(kept.ids, ids):
        filled = [piece for piece in left if len(piece)]
        return Sketch(_rows(client, filled, withdrawn, settings, task.seed), count), float(count)
    rows = kept.rows.to(client.device)
    touched = [n for n, piece in enumerate(left) if len(piece) and (len(piece) < len(pieces[n]) or not rows[n].any())]
    if touched:
        anew = _rows(client, [left[n] for n in touched], withdrawn, settings, task.seed)
        rows[torch.tensor(touched, device=rows.device)] = anew
    filled_rows = torch.tensor([len(piece) > 0 for piece in left])
    return Sketch(rows[filled_rows.to(rows.device)], count), float(sum(len(left[n]) for n in touched))


def _pieces(client: Client, pool: Tensor, settings: FedAFSettings, seed: int) -> list[Tensor]:
    """S as positions, in s pieces that are alike in size and, as far as that goes, of one class each."""
    limit = len(pool) if settings.sketch_samples is None else int(settings.sketch_samples)
    generator = derive_generator(seed, "sketch", "client", client.index, "ahead")
    chosen = pool[torch.randperm(len(pool), generator=generator)[:limit]]
    by_class = chosen[torch.sort(client.samples.true_labels[chosen], stable=True).indices]
    return list(by_class.tensor_split(max(1, min(int(settings.sketch_rows), len(by_class)))))


def _rows(
    client: Client, pieces: Sequence[Tensor], withdrawn: Sequence[ErasureRequest], settings: FedAFSettings, seed: int
) -> Tensor:
    plan_sketch(client.model, len(pieces), settings.dtype, client.device)
    return signed_sums(
        client.model, client.without_features(withdrawn), client.inputs, pieces, seed=derive_seed(seed, "sketch"),
        labels=settings.sketch_labels, batch_size=settings.batch_size, dtype=settings.dtype,
    )  # fmt: skip
