"""Membership attacks where the data is: the client scores its target R and held-out samples of the same kind, attacks,
and sends back what the attacks found, never a score of a single sample.

    loss, entropy    how sure the model is of x
    rmia             how much surer than reference models, beside other samples       (arXiv 2312.03262)
    calibrated       phi(x) - mean over reference models of their phi(x), phi the margin (Watson et al. 2111.08440)

Held-out samples are those that the client never trained on. Of the same kind means the same share of every pair of
true class and trained label as R has, so that an attack cannot win by telling classes apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.audit.attacks import auc, rmia, roc
from fedforget.audit.case import Case
from fedforget.audit.distributions import percentage, proportion_error
from fedforget.audit.scores import SCORES, finite, histogram
from fedforget.audit.verdict import Reading
from fedforget.data.samples import Samples
from fedforget.federation.beside import fingerprint, pairs, same_kind
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.params import State, digest

KEPT_BY_AUDIT = "audit-margins"
"""How the names of what a client keeps for the audit begin."""
FEWEST = 20
"""With fewer samples of R or of its kind an attack says nothing."""
ATTACKS = ("loss", "entropy", "rmia", "calibrated")
"""Confidence and margin order the samples of one model as the loss does, so their attacks would be the same."""
BINS, RANGE = 40, (-20.0, 20.0)
"""The margin's histogram, in logits."""
GRID = 51
"""Points of a ROC curve that leave the client: true positive rates at evenly spaced false positive rates."""


@dataclass(frozen=True, kw_only=True)
class AttackMembership(TargetTask):
    """Attack the model on the target of `requests`. The client keeps the margins under `model`, a name (not where it is
    empty); `references` are the names of models that it scored before, none of which saw R (for RMIA)."""

    at_target = True

    model: str
    references: tuple[str, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        network = client.load(state)
        target = client.target(self.requests, self.served)
        outside = same_kind(target, client.held_out or target.select(torch.zeros(0, dtype=torch.int64)))
        numbers = {"target": float(len(target)), "outside": float(len(outside)), "ids": fingerprint(target.ids)}
        numbers |= _unseen(network, target, client)
        cost = FORWARD_COST * numbers["all/judged"]
        if min(len(target), len(outside)) < FEWEST:
            note = (
                f"Client {client.index} has {len(target)} target samples and {len(outside)} held-out ones of the same "
                f"kind; attacks need at least {FEWEST} of each."
            )
            return Reply(client.index, numbers=numbers, gradient_evaluations=cost, notes=(note,))
        cost += FORWARD_COST * (len(target) + len(outside))
        logits = [predict(network, s.features, client.normalisation, client.device).cpu() for s in (target, outside)]
        labels = [samples.labels.cpu() for samples in (target, outside)]
        flipped = [(samples.labels != samples.true_labels).cpu() for samples in (target, outside)]
        for place, side in enumerate(("target", "outside")):
            hit = (finite(logits[place], 2, "logits").argmax(1) == labels[place]).double()
            if bool(flipped[0].any()):  # as `audit.measures` does; on both sides, or they would differ by that alone
                hit = hit[flipped[place]]
            numbers |= {f"{side}/hits": float(hit.sum()), f"{side}/judged": float(len(hit))}
        scores = {name: [score(z, y) for z, y in zip(logits, labels, strict=True)] for name, score in SCORES.items()}
        margins = scores["margin"]
        looked_at = f"{fingerprint(torch.cat([target.ids, outside.ids])):.0f}"
        if self.model:
            client.kept[_key(self.model, looked_at)] = torch.cat(margins)
        known = [client.kept.get(_key(name, looked_at)) for name in self.references]
        sides: dict[str, Sequence[Tensor]] = {"loss": scores["loss"], "entropy": scores["entropy"]}
        notes: tuple[str, ...] = ()
        if known and all(k is not None for k in known):
            references = torch.stack([k for k in known if k is not None])
            sides["rmia"] = _rmia(margins, references, pairs(outside))
            sides["calibrated"] = (torch.cat(margins) - references.mean(0)).split([len(target), len(outside)])
            easier = F.softplus(-references).mean(0) - F.softplus(-torch.cat(margins))
            numbers |= _gap("calibrated", *easier.split([len(target), len(outside)]))
        elif known:
            notes = (
                f"Client {client.index} has not scored all {len(known)} reference models on these samples, or could "
                "not keep the scores (a Flower node needs a state-dir for it), so there is no attack with references.",
            )
        curves: dict[str, list[float]] = {}
        for name, (members, others) in sides.items():
            area = auc(members, others)
            assert area is not None, "neither side is empty"
            numbers |= {f"{name}/auc": area.value, f"{name}/error": area.error}
            curves[f"{name}/roc"] = _curve(members, others)
        numbers |= _gap("loss", *scores["loss"])
        for side, values in zip(("target", "outside"), margins, strict=True):
            curves[f"margin/{side}"] = histogram(values, *RANGE, BINS).double().tolist()
        return Reply(client.index, numbers=numbers, curves=curves, gradient_evaluations=cost, notes=notes)


def _gap(name: str, inside: Tensor, outside: Tensor) -> dict[str, float]:
    """The mean on R minus that on held-out samples. Its error is that of data never seen, sqrt(v (1/n + 1/m)) with the
    held-out samples' own variance v: R's would be too small just where R is remembered. Nothing where v is 0: then
    nobody knows how the mean scatters."""
    error = float(outside.std()) * math.sqrt(1 / len(inside) + 1 / len(outside))
    return {f"{name}/gap": float(inside.mean() - outside.mean()), f"{name}/gap_error": error} if error else {}


def _rmia(margins: Sequence[Tensor], references: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """RMIA's scores of R and of every other held-out sample of each kind; the samples between are its population."""
    inside, outside = margins
    order = kinds.argsort(stable=True)
    theirs = references.sigmoid()
    theirs_in, theirs_out = theirs[:, : len(inside)], theirs[:, len(inside) :]
    mine_in, mine_out = inside.sigmoid(), outside.sigmoid()
    others, between = order[0::2], order[1::2]
    population = mine_out[between], theirs_out[:, between]
    return rmia(mine_in, theirs_in, *population), rmia(mine_out[others], theirs_out[:, others], *population)


def _unseen(network: nn.Module, target: Samples, client: Client) -> dict[str, float]:
    """Clean held-out samples, of all classes and of those that R has or was given, and how many get their class."""
    held_out = client.held_out
    if held_out is None or not len(clean := held_out.select(held_out.labels == held_out.true_labels)):
        return dict.fromkeys(("all/hits", "all/judged", "classes/hits", "classes/judged"), 0.0)
    logits = finite(predict(network, clean.features, client.normalisation, client.device), 2, "logits")
    right = logits.argmax(1) == clean.labels.cpu()
    own = torch.isin(clean.labels.cpu(), torch.cat([target.labels, target.true_labels]).cpu())
    parts = {"all": right, "classes": right[own]}
    counts = {name: {"hits": float(part.sum()), "judged": float(len(part))} for name, part in parts.items()}
    return {f"{name}/{what}": count for name, both in counts.items() for what, count in both.items()}


def _curve(members: Tensor, others: Tensor) -> list[float]:
    points = roc(members, others)
    grid = torch.linspace(0, 1, GRID, dtype=torch.float64)
    place = torch.searchsorted(points.fpr, grid, right=True) - 1
    return points.tpr[place].tolist()


def _key(model: str, samples: str) -> str:
    """Margins of one target are no reference for another's."""
    return f"{KEPT_BY_AUDIT}-{model}-{samples}"


@dataclass(frozen=True)
class Membership:
    """What the attacks found over all clients that ask; areas in [0, 1], accuracies in percent.

    `gap`: accuracy on R minus accuracy on held-out samples of its kind; `loss_gap`: the mean loss there minus on R;
    `calibrated_gap`: the same of the loss that the model spares, l(reference models) - l(model), sample by sample. They
    are 0 for data never seen and above 0 for what is remembered. `same_classes`: accuracy on clean held-out
    samples of the classes that R has or was given; `all_classes`: on all of them, wherever somebody has any."""

    target: int
    outside: int
    fingerprint: int
    areas: dict[str, Reading]
    gap: Reading | None
    loss_gap: Reading | None
    calibrated_gap: Reading | None
    same_classes: Reading | None
    all_classes: Reading | None
    curves: dict[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def attack_membership(
    case: Case, state: State, references: Sequence[Mapping[str, Tensor]] = (), *, keep: bool = True
) -> Membership:
    """Attack `state` at every client that asks; `references` must have been attacked before it, at the same clients,
    which `keep` what they need for that.

    Several clients' figures are averaged with the sizes of their targets as weights."""
    task = case.about(
        AttackMembership, model=digest(state)[:16] if keep else "",
        references=tuple(digest(state)[:16] for state in references),
    )  # fmt: skip
    replies = list(case.federation.ask(task, state, case.askers))
    told = [reply for reply in replies if "target/judged" in reply.numbers]
    whole = len(told) == len(replies)
    fingerprint = 0
    for reply in replies:
        fingerprint ^= int(reply.numbers["ids"])

    def mean(value: str, error: str) -> Reading | None:
        if not whole or not all(value in reply.numbers for reply in told):
            return None
        return _weighted([(r.numbers["target"], r.numbers[value], r.numbers[error]) for r in told])

    def share(side: str) -> Reading | None:
        shares = [_share(r.numbers, side) for r in told]
        if not whole or None in shares:
            return None
        return _weighted([(r.numbers["target"], s.value, s.error) for r, s in zip(told, shares, strict=True) if s])

    def everywhere() -> Reading | None:
        shares = [(r.numbers["all/judged"], _share(r.numbers, "all")) for r in replies]
        known = [(judged, share.value, share.error) for judged, share in shares if share is not None]
        return _weighted(known) if known else None

    def gap() -> Reading | None:
        if share("target") is None or share("outside") is None:
            return None
        return _weighted([(r.numbers["target"], *_accuracy_gap(r.numbers)) for r in told])

    curves: dict[str, list[float]] = {}
    for reply in told:
        weight = reply.numbers["target"] / sum(r.numbers["target"] for r in told)
        for name, values in reply.curves.items():
            if all(name in other.curves for other in told):
                scale = weight if name.endswith("/roc") else 1.0
                sums = curves.setdefault(name, [0.0] * len(values))
                curves[name] = [a + scale * b for a, b in zip(sums, values, strict=True)]
    return Membership(
        target=int(sum(reply.numbers["target"] for reply in replies)),
        outside=int(sum(reply.numbers["outside"] for reply in replies)),
        fingerprint=fingerprint,
        areas={name: r for name in ATTACKS if (r := mean(f"{name}/auc", f"{name}/error"))},
        gap=gap(),
        loss_gap=mean("loss/gap", "loss/gap_error"),
        calibrated_gap=mean("calibrated/gap", "calibrated/gap_error"),
        same_classes=share("classes"),
        all_classes=everywhere(),
        curves=curves,
        notes=tuple(note for reply in replies for note in reply.notes),
    )


def _weighted(parts: Sequence[tuple[float, float, float]]) -> Reading:
    """The mean of values with weights and independent errors."""
    total = sum(weight for weight, _, _ in parts)
    value = sum(weight * value for weight, value, _ in parts) / total
    return Reading(value, math.sqrt(sum((weight * error) ** 2 for weight, _, error in parts)) / total)


def _share(numbers: Mapping[str, float], side: str) -> Reading | None:
    """The share of hits."""
    return percentage(int(numbers[f"{side}/hits"]), int(numbers[f"{side}/judged"]))


def _accuracy_gap(numbers: Mapping[str, float]) -> tuple[float, float]:
    """(difference of the two shares, its error if both had the held-out samples' share)."""
    n, m, hits = (int(numbers[name]) for name in ("target/judged", "outside/judged", "outside/hits"))
    inside = 100.0 * numbers["target/hits"] / n
    return inside - 100.0 * hits / m, 100.0 * proportion_error(hits, m) * math.sqrt(1 + m / n)
