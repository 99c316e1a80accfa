"""The embedded federation: every client in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedforget.data.backdoor import Backdoor
from fedforget.data.samples import Dataset, Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.layout import takes_channels_last
from fedforget.federation.seam import TargetSize, check_something_is_left, thread_count
from fedforget.federation.shards import Ensemble, network_for
from fedforget.federation.starts import Network, network_of
from fedforget.federation.tasks import Reply, Task
from fedforget.models import check_model
from fedforget.params import copy_state
from fedforget.requests import ErasureRequest


class LocalFederation:
    """The embedded default: the clients' data lies in this process, and `ask` is a loop."""

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[Tensor],
        model: Network,
        *,
        initial: Mapping[str, Tensor] | None = None,
        backdoors: Sequence[Backdoor] = (),
        device: str | torch.device = "cpu",
        erased: Sequence[ErasureRequest] = (),
        held_out: Samples | Sequence[Samples] | None = None,
    ) -> None:
        """`parts` are the positions of each client's training samples; `held_out` is what each of them holds out, or
        all of them together: the test data if nothing else is named.

        `model` is best given as a factory, such as the network's class: Retrain and its like then begin as the network
        itself does. `initial` are the weights that the training begins from, where they are given ones: Retrain begins
        from exactly these, and what a pretraining has seen stays in it (`starts`)."""
        try:
            self.device = torch.device(device)
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError):
            raise InputError(f"Device '{device}' cannot be used on this machine; use cpu.") from None
        self.classes = len(dataset.classes)
        self.normalisation = dataset.normalisation
        if isinstance(model, Ensemble):
            model.check_clients(range(len(parts)))
            if initial is not None:
                raise InputError("Give the weights that the members begin with to the Ensemble, as its `initial`.")
        network = network_of(model, initial)
        check_model(network, dataset.shape, self.classes)
        self.model = network.to(self.device)
        if self.device.type == "cuda" and len(dataset.shape) == 3 and takes_channels_last(self.model, dataset.shape):
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.backdoors = tuple(backdoors)
        self._erased = tuple(erased)
        outside = dataset.test if held_out is None else held_out
        each = [outside] * len(parts) if isinstance(outside, Samples) else outside
        self._clients = [
            self._client(k, dataset.train.select(part), own)
            for k, (part, own) in enumerate(zip(parts, each, strict=True))
        ]
        together = torch.cat([client.samples.ids for client in self._clients])
        if len(together.unique()) != len(together):
            raise InputError("The partition gives a sample to more than one client.")

    def _client(self, index: int, samples: Samples, held_out: Samples) -> Client:
        for backdoor in self.backdoors:
            samples = backdoor.poison(index, samples)
            held_out = backdoor.poison_held_out(index, held_out)
        if self.device.type != "cpu":
            samples = samples.with_features(samples.features.to(self.device))
        own = tuple(request for request in self._erased if request.client == index)
        return Client(
            index, samples, self.model, self.normalisation, self.classes, self.device, held_out=held_out, erased=own
        )

    @property
    def clients(self) -> Sequence[int]:
        return range(len(self._clients))

    def client(self, index: int) -> Client:
        """One client with its private data: for tests and benchmarks, never for a method."""
        if not 0 <= index < len(self._clients):
            raise InputError(
                f"Client {index} does not exist; this federation has clients 0 to {len(self._clients) - 1}."
            )
        return self._clients[index]

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        state = copy_state(state, self.device)
        for index in sorted(self.clients if to is None else to):
            # On a copy: what a client withdraws for one request is not remembered for the next (see `Withdraw`).
            client = replace(self.client(index), model=network_for(self.model, state))
            with thread_count(task.threads):
                reply = task.run(state, client)
            yield reply

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        if not requests:
            raise InputError("No erasure request was given; name at least one target.")
        for request in requests:
            self.client(request.client).check(request)
        asking = sorted({request.client for request in requests})
        sizes = {index: TargetSize(*self.client(index).sizes(requests)) for index in asking}
        others = sum(len(self.client(k).positions(())[1]) for k in self.clients if k not in sizes)
        return check_something_is_left(sizes, others)
