"""Forgetting a class whose samples are gone (the paper's section 6 leaves it to future work).

When training ends the client keeps, for each class c of its data and each label y it was trained with, the mean and the
deviation of the embedding h(x), the input of the network's head W (its last linear layer):

    n_cy,   mu_cy = mean of h(x),   sigma_cy = deviation of h(x), dimension by dimension

When the class must go and its samples are no longer there, n_cy of them are drawn anew in embedding space, and the head
learns new memories of them by FedAF's own loss, under the preserver of the head's own sketch over h(D'):

    z ~ N(mu_cy, diag sigma_cy^2),    min over W of  L_M(W z, y~) + (lambda/2) ||J^ (W - W*)||^2

y~ is what the model believes of z apart from the trained label (`suppressed`). The layers before the head move in the
recovery round alone. No statistic ever leaves the client, and none is kept of fewer than `FEWEST` samples."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import InputError
from fedforget.federation.client import STATISTICS, Client
from fedforget.federation.embedding import find_head, last_linear_inputs
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply, Task
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.sketching import SKETCH_KEY, sketch_samples
from fedforget.params import State, digest, slices, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

FEWEST = 8
"""A mean over fewer samples says too much of each."""


@dataclass(frozen=True)
class ClassStatistics:
    """What a client keeps of its classes: row i is of the class `labels[i]`, trained as `trained[i]`."""

    weights: str
    """The digest of the model whose embedding it is."""
    labels: Tensor
    trained: Tensor
    counts: Tensor
    means: Tensor
    deviations: Tensor


def keep_statistics(
    federation: Federation,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
    to: Iterable[int] | None = None,
) -> dict[int, int]:
    """Every client (or those of `to`) keeps the statistics of its classes at the model `state`, in place of older ones.
    Ask for it whenever a model is published: statistics of another model are of no use. How many rows each keeps."""
    task = KeepStatistics(seed=schedule.seed, threads=schedule.threads, served=tuple(served))
    return {reply.client: int(reply.numbers["rows"]) for reply in federation.ask(task, state, to)}


@dataclass(frozen=True, kw_only=True)
class KeepStatistics(Task):
    """Keep the statistics of all classes that the client still holds; nothing of them leaves."""

    keeps = (ClassStatistics,)

    served: tuple[ErasureRequest, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.load(state)
        samples = client.retained(self.served)
        kept = statistics_of(client, samples)
        client.kept[STATISTICS] = kept
        size = sum(t.numel() * t.element_size() for t in (kept.means, kept.deviations))
        return Reply(
            client.index, numbers={"rows": float(len(kept.labels))}, stored_bytes=size,
            gradient_evaluations=FORWARD_COST * len(samples),
        )  # fmt: skip


def statistics_of(client: Client, samples: Samples) -> ClassStatistics:
    """The statistics of these samples at the weights the client's model has now."""
    weights = digest(trainable(client.model))
    pairs = torch.stack([samples.true_labels, samples.labels], dim=1)
    kinds, member, counts = pairs.unique(dim=0, return_inverse=True, return_counts=True)
    enough = [number for number, count in enumerate(counts.tolist()) if count >= FEWEST]
    if not enough:
        empty = torch.zeros(0, dtype=torch.int64)
        return ClassStatistics(weights, empty, empty, empty, torch.zeros(0, 0), torch.zeros(0, 0))
    rows = last_linear_inputs(client.model, samples.features, client.inputs).float()
    groups = [rows[member == number] for number in enough]
    return ClassStatistics(
        weights, kinds[enough, 0], kinds[enough, 1], counts[enough],
        torch.stack([group.mean(dim=0) for group in groups]),
        torch.stack([group.std(dim=0, correction=0) for group in groups]),
    )  # fmt: skip


def check_class_requests(requests: Sequence[ErasureRequest]) -> None:
    """Statistics are kept by class, so nothing else can be forgotten from them."""
    for request in requests:
        if request.kind != "class":
            raise InputError(
                f"Without its data only a class can be forgotten, not {request.describe()}; "
                "use the preset 'recommended'."
            )


@dataclass(frozen=True, kw_only=True)
class ForgetFromStatistics(Forget):
    """`Forget` in embedding space: the client's model is its head, its samples are embeddings, the target is drawn.

    A client that has the samples still, and no statistics, makes them first; then it does without the samples too."""

    def _serve(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        weights = {name: tensor for name, tensor in state.items() if not name.startswith(SKETCH_KEY)}
        model = client.load(weights)
        statistics, made = self._statistics(client)
        blank = client.samples.features.new_zeros((1, *client.samples.features.shape[1:]))  # it may have no sample left
        name = find_head(model, client.inputs(blank))
        retained, sketch = self._retained(state, client, name)
        target = self._drawn(statistics, client)
        head = copy.deepcopy(model.get_submodule(name))
        embedded = _together(retained, target)
        embedded = embedded.with_features(embedded.features.to(client.device))
        inner = Client(
            client.index, embedded, head, Normalisation(), client.classes, client.device
        )  # fmt: skip
        own = replace(self.settings, first_moved=None)
        plain = Forget(seed=self.seed, threads=self.threads, requests=self.requests, settings=own)
        reply = plain.run({**head.state_dict(), **sketch}, inner)
        changed = {f"{name}.{part}": tensor for part, tensor in reply.tensors.items()}
        return replace(
            reply,
            tensors={key: changed.get(key, tensor) for key, tensor in weights.items()},
            numbers=reply.numbers | {"samples": float(len(client.samples) + len(target))},
            gradient_evaluations=reply.gradient_evaluations + FORWARD_COST * (len(retained) + made),
        )

    def _retained(self, state: Mapping[str, Tensor], client: Client, head: str) -> tuple[Samples, State]:
        """(embeddings of the client's own retained samples, nothing), or (no sample, the head's columns of everybody's
        sketch) where that came along."""
        if SKETCH_KEY in state:
            places = [place for name, place in slices(trainable(client.model)) if name.startswith(f"{head}.")]
            columns = torch.cat([state[SKETCH_KEY][:, place] for place in places], dim=1)
            count = f"{SKETCH_KEY}.count"
            return client.samples.select(torch.zeros(0, dtype=torch.int64)), {SKETCH_KEY: columns, count: state[count]}
        samples = sketch_samples(client, self)
        rows = last_linear_inputs(client.model, samples.features, client.inputs).float()
        return replace(samples, features=rows), {}

    def _statistics(self, client: Client) -> tuple[ClassStatistics, int]:
        """What was kept at this very model, or what the samples say; and how many samples it took."""
        wanted = torch.tensor([int(request.label or 0) for request in self.requests])
        kept = client.kept.get(STATISTICS)
        usable = isinstance(kept, ClassStatistics) and bool(torch.isin(wanted, kept.labels).all())
        if kept is not None and usable and kept.weights == digest(trainable(client.model)):
            return kept, 0
        target = client.target(self.requests, self.served)
        found = statistics_of(client, target)
        missing = wanted[~torch.isin(wanted, found.labels)].tolist()
        if missing:
            raise InputError(
                f"Client {client.index} keeps no statistics of class {missing[0]} for this model, and fewer than "
                f"{FEWEST} of its samples are there to make them from; keep_statistics must run while they are."
            )
        return found, len(target)

    def _drawn(self, statistics: ClassStatistics, client: Client) -> Samples:
        """As many embeddings as there were samples; none below 0 where no mean is (after a ReLU)."""
        parts, labels, trained = [], [], []
        asked = {request.label for request in self.requests}
        for row, label in enumerate(statistics.labels.tolist()):
            if label in asked:
                count, as_label = int(statistics.counts[row]), int(statistics.trained[row])
                generator = derive_generator(self.seed, "statistics", "client", client.index, label, as_label)
                noise = torch.randn(count, statistics.means.shape[1], generator=generator)
                parts.append(statistics.means[row] + statistics.deviations[row] * noise)
                labels += [label] * count
                trained += [as_label] * count
        drawn = torch.cat(parts)
        if bool((statistics.means >= 0).all()):
            drawn = drawn.clamp(min=0.0)
        return replace(Samples.of(drawn, torch.tensor(trained)), true_labels=torch.tensor(labels))


def _together(retained: Samples, target: Samples) -> Samples:
    """Both; the drawn get ids that none of the others has."""
    if len(retained) == 0:
        return target
    return Samples.concatenate([retained, replace(target, ids=target.ids + int(retained.ids.max()) + 1)])
