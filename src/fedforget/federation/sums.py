"""The sums of a ridge head (`federation.ridge`): what a client keeps and sends of them, and how the server adds them.

A client keeps its sums, named by all that they are made of: who did not ask sends them again without a pass over its
data, and who asked makes them anew.

Without masks the server sees each client's sums, and from two of them the moments of what was withdrawn in between: of
one sample, its features. With masks (`federation.masking`, new ones for every sum) it sees the two totals alone; their
difference tells the same of the whole request. docs/security.md says what helps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedforget.data.samples import Samples
from fedforget.errors import ClientError, FedForgetError, InputError
from fedforget.federation.client import SUMS, Client
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.masking import (
    PUBLIC_KEY,
    check_masking,
    key_beside,
    key_of,
    masked,
    offered,
    taken,
    unmasked_sum,
)
from fedforget.federation.ridge import BACKBONE, CHUNK, Ridge
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.params import State, copy_state, digest, state_bytes
from fedforget.requests import ErasureRequest

GRAM, MOMENTS, BOTH = "ridge.gram", "ridge.moments", "ridge.masked"


@dataclass(frozen=True)
class KeptSums:
    """A client's sums, and the digest of all that they are made of."""

    made_of: str
    gram: Tensor
    moments: Tensor
    samples: int


@dataclass(frozen=True, kw_only=True)
class SendSums(Task):
    """A_k and B_k of the client's data without what `exclude` names."""

    returns = "tensors"
    counts_samples = True
    keeps = (KeptSums,)

    exclude: tuple[ErasureRequest, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        sums, cost = sums_at(client, state, self)
        if sums is None:
            return Reply(client.index, numbers={"samples": 0.0})
        tensors = {GRAM: sums.gram, MOMENTS: sums.moments}
        return Reply(
            client.index, tensors=tensors, numbers={"samples": float(sums.samples)}, gradient_evaluations=cost,
            stored_bytes=state_bytes(tensors),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OfferSumKey(Task):
    """A key for one masked sum, from a client that has a sample to add."""

    with_model = False
    returns = "tensors"

    exclude: tuple[ErasureRequest, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        samples = len(client.positions(self.exclude)[1])
        key = {PUBLIC_KEY: offered(client.kept)} if samples else {}
        return Reply(client.index, tensors=key, numbers={"samples": float(samples)})


@dataclass(frozen=True, kw_only=True)
class SendMaskedSums(Task):
    """The same sums under the client's masks; all public keys come beside the model."""

    returns = "tensors"
    keeps = (KeptSums,)

    exclude: tuple[ErasureRequest, ...] = ()

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        return key_beside(name)

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        secret, keys = taken(client.kept, state, client.index)
        weights = {name: tensor for name, tensor in state.items() if not name.startswith(PUBLIC_KEY)}
        sums, cost = sums_at(client, weights, self)
        if sums is None:
            raise InputError(f"Client {client.index} has no sample left to add to a masked sum; try the request again.")
        both = torch.cat([sums.gram, sums.moments.flatten()]).unsqueeze(0)
        return Reply(
            client.index, tensors={BOTH: masked(both, secret, client.index, keys)},
            numbers={"samples": float(sums.samples)}, gradient_evaluations=cost, stored_bytes=state_bytes({BOTH: both}),
        )  # fmt: skip


TASKS: tuple[type[Task], ...] = (SendSums, OfferSumKey, SendMaskedSums)


def sums_at(
    client: Client, state: Mapping[str, Tensor], task: SendSums | SendMaskedSums
) -> tuple[KeptSums | None, float]:
    """(the client's sums, what they cost): those that it keeps, if they are made of the very same backbone and samples.
    None where it has no sample left."""
    samples = client.retained(task.exclude)
    if len(samples) == 0:
        client.kept.pop(SUMS, None)
        return None, 0.0
    made_of = _made_of(state, samples, client, task.threads)
    kept = client.kept.get(SUMS)
    if isinstance(kept, KeptSums) and kept.made_of == made_of:
        return kept, 0.0
    model = client.load(state)
    assert isinstance(model, Ridge)
    sums = KeptSums(made_of, *model.sums(samples, client), len(samples))
    client.kept[SUMS] = sums
    return sums, FORWARD_COST * len(samples)


def _made_of(state: Mapping[str, Tensor], samples: Samples, client: Client, threads: int) -> str:
    """A digest of all that decides the bits of a client's sums. Reading the data is quick beside a pass over them."""
    sha = hashlib.sha256(f"{CHUNK}|{threads}|{client.device.type}|{client.normalisation}|{torch.__version__}".encode())
    sha.update(digest({name: tensor for name, tensor in state.items() if name.startswith(BACKBONE)}).encode())
    sha.update(digest({"features": samples.features, "labels": samples.labels}).encode())
    return sha.hexdigest()


def solve_again(
    federation: Federation, model: Ridge, state: Mapping[str, Tensor], task: Train, clients: Sequence[int]
) -> State:
    """One "round" of a ridge federation: the head from everybody's sums without what `task` excludes. No head goes
    into it, so it says the same whatever was there before."""
    if model.masked:
        gram, moments = _masked_totals(federation, model, state, task, clients)
    else:
        gram, moments = _totals(federation, model, state, task, clients)
    head = {name: tensor.to(federation.device) for name, tensor in model.solved(gram, moments).items()}
    return {**copy_state(state), **head}


def _totals(
    federation: Federation, model: Ridge, state: Mapping[str, Tensor], task: Train, clients: Sequence[int]
) -> tuple[Tensor, Tensor]:
    d, classes = model.head.in_features + 1, model.head.out_features
    shapes = {GRAM: (d * (d + 1) // 2,), MOMENTS: (d, classes)}
    totals = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    asked = SendSums(seed=task.seed, threads=task.threads, exclude=task.exclude)
    missing = set(clients)
    samples = 0.0
    for reply in federation.ask(asked, state, clients):
        missing.discard(reply.client)
        samples += reply.numbers["samples"]
        if not reply.numbers["samples"]:
            continue
        for name, shape in shapes.items():
            totals[name] += _part(reply, name, shape, torch.float64).cpu()
    _all_there(missing, samples)
    return totals[GRAM], totals[MOMENTS]


def _masked_totals(
    federation: Federation, model: Ridge, state: Mapping[str, Tensor], task: Train, clients: Sequence[int]
) -> tuple[Tensor, Tensor]:
    d, classes = model.head.in_features + 1, model.head.out_features
    triangle = d * (d + 1) // 2
    offer = OfferSumKey(seed=task.seed, threads=task.threads, exclude=task.exclude)
    counts: dict[int, float] = {}
    keys: State = {}
    for reply in federation.ask(offer, {}, clients):
        if reply.numbers["samples"]:
            counts[reply.client] = reply.numbers["samples"]
            keys[f"{PUBLIC_KEY}{reply.client}"] = key_of(reply)
    check_masking(len(counts))
    asked = SendMaskedSums(seed=task.seed, threads=task.threads, exclude=task.exclude)
    missing = set(counts)

    def parts(replies: Iterable[Reply]) -> Iterator[Tensor]:
        for reply in replies:
            if reply.numbers.get("samples") != counts.get(reply.client):
                raise ClientError(reply.client, "sent masked sums of other samples than it had offered.")
            missing.discard(reply.client)
            yield _part(reply, BOTH, (1, triangle + d * classes), torch.int64)

    total = unmasked_sum(parts(federation.ask(asked, {**state, **keys}, counts)), len(counts), torch.float64)[0]
    _all_there(missing, sum(counts.values()))
    return total[:triangle], total[triangle:].reshape(d, classes)


def _part(reply: Reply, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    part = reply.tensors.get(name)
    if part is None or (part.dtype, tuple(part.shape)) != (dtype, shape):
        raise ClientError(reply.client, f"sent sums that are not {str(dtype).removeprefix('torch.')}{list(shape)}.")
    return part


def _all_there(missing: Iterable[int], samples: float) -> None:
    away = min(missing, default=None)
    if away is not None:
        raise ClientError(away, "did not send its sums, so the total is not whole; nothing has changed, try again.")
    if not samples:
        raise FedForgetError("No client has a sample left, so there is nothing to solve.")
