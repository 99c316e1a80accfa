"""What a server may ask of a client, and what comes back.

A task is a small frozen dataclass that can travel. Its `run` is the handler: it sees the client's model and data, and
what it returns is all that leaves the client. A reply holds model-sized tensors and numbers, never a sample.

What a task needs and returns is declared in its class, so that whoever carries it can check both sides without knowing
the task. A row of `METHODS` lists the tasks of a method, `audit/tasks.py` those of the audit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.federation.client import SUMS, Client
from fedforget.params import State
from fedforget.requests import ErasureRequest


@dataclass(frozen=True)
class Reply:
    """What one client sends back. `seconds` are the client's own, by stage; the rest is what a method needs."""

    client: int
    tensors: State = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    gradient_evaluations: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    stored_bytes: int = 0
    notes: tuple[str, ...] = ()
    """What a person should know of how it went."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Base of all tasks. `seed` names the run; `threads` travels along because the thread count changes float bits."""

    at_target: ClassVar[bool] = False
    """Whether only a client that one of the task's `requests` names can do it."""
    with_model: ClassVar[bool] = True
    """Whether a model goes along."""
    returns: ClassVar[Literal["numbers", "tensors", "model"]] = "numbers"
    """What a reply may hold: numbers and curves alone, or tensors too. A model is whole, or left out."""
    counts_samples: ClassVar[bool] = False
    """Whether a reply must say of how many `samples` it is made, since the server weighs it by them."""
    keeps: ClassVar[tuple[type, ...]] = ()
    """The dataclasses that it leaves in `Client.kept` for a next task."""

    seed: int
    threads: int

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        """What a tensor that travels beside the weights of `model` must look like: one of the same type and shape, on
        the device "meta". None where there can be none of this name."""
        return None

    @abstractmethod
    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        """The handler: runs at the client, in this process or on another machine."""


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """Local training of one round: `epochs` of minibatch SGD on the client's data without what `exclude` names.

    `share` < 1 trains on a seeded random part of it only (the recovery round after forgetting), though on no fewer than
    `min_samples` where there are so many."""

    returns = "model"
    counts_samples = True

    round: int
    epochs: int = 1
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 64
    share: float = 1.0
    min_samples: int = 0
    exclude: tuple[ErasureRequest, ...] = ()
    purpose: str = "train"
    participation: float = 1.0
    """The part of the clients that the server asks for it; no matter to the client."""

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        from fedforget.federation.training import train_at_client

        return train_at_client(self, state, client)


@dataclass(frozen=True, kw_only=True)
class CountSamples(Task):
    """n_k: how many samples the client trains on, without what `exclude` names. The target of `requests`, which is
    being forgotten, still counts unless it is excluded too."""

    with_model = False

    exclude: tuple[ErasureRequest, ...] = ()
    requests: tuple[ErasureRequest, ...] = ()
    unsummed: bool = False
    """Whether to count only what the client has to go through again: nothing, where it keeps sums of its data."""

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        retained = client.positions(self.exclude, self.requests)[1]
        kept = self.unsummed and SUMS in client.kept
        return Reply(client.index, numbers={"samples": 0.0 if kept else float(len(retained))})


@dataclass(frozen=True, kw_only=True)
class CheckRequests(Task):
    """How much of the client's data its own of the `requests` name, and how much is left; what names nothing is
    refused."""

    at_target = True
    with_model = False

    requests: tuple[ErasureRequest, ...]

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        for request in self.requests:
            if request.client == client.index:
                client.check(request)
        target, retained = client.sizes(self.requests)
        return Reply(client.index, numbers={"target": float(target), "retained": float(retained)})


@dataclass(frozen=True, kw_only=True)
class Withdraw(Task):
    """The client notes that `requests`, all of them its own, are withdrawn. It comes before the first task of every
    method. A client that remembers (a Flower node) never trains on the target again, in any run; in one process nobody
    remembers, since there every request branches off the same federation, and a round leaves out what it names."""

    at_target = True
    with_model = False

    requests: tuple[ErasureRequest, ...]

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        for request in self.requests:
            if request.client != client.index:
                raise InputError(f"Client {client.index} cannot withdraw {request.describe()}; that is not its own.")
            client.check(request)
        client.withdraw(self.requests)
        return Reply(client.index)


@dataclass(frozen=True, kw_only=True)
class TargetTask(Task):
    """Base of the tasks about what is being forgotten: the `requests`, and what was `served` before."""

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measure(TargetTask):
    """How the model does on the client's private data: on the target of `requests`, and on the retained rest.

    Only counts and sums of losses come back."""

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        from fedforget.federation.evaluation import measure_at_client

        return measure_at_client(self, state, client)


TASKS: tuple[type[Task], ...] = (Train, CountSamples, CheckRequests, Withdraw, Measure)
"""The tasks that belong to no method and to no audit."""
