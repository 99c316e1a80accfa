"""What a training run is made of, and the federation that it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.data import Dataset, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import Ridge
from fedforget.federation.rounds import Schedule
from fedforget.federation.shards import Ensemble
from fedforget.models import build_model
from fedforget.requests import ErasureRequest
from fedforget.runs.head import RidgeHead
from fedforget.seeds import derive_generator

AT_NODES = "at the nodes of an attached app"
"""In place of a data set's name, where nobody but the nodes has the data."""
NOT_HERE = (
    "This is the folder of an attached app: its data lie at its nodes, so nothing can be trained, measured or audited "
    "from here. What the nodes' check said of each request is in its forgotten/*/result.json, and in answers/."
)


@dataclass(frozen=True)
class RunConfig:
    """What a training run is made of. `schedule.seed` is the run's one seed."""

    dataset: str = "digits"
    clients: int = 4
    partition: str = "iid"
    model: str = "cnn"
    schedule: Schedule = field(default_factory=Schedule)
    backdoor: Backdoor | None = None
    train_limit: int | None = None
    """Use only the first so many training samples."""
    history_interval: int | None = None
    """Keep the clients' models of every so-many-th round, for methods that need them. None: keep none."""
    hold_out: float = 0.0
    """Part of its samples that each client sets aside before training, for the check and the audit. 0: they look at the
    test data, or at what `train_limit` leaves out."""
    shards: int = 1
    """How many federations of disjoint clients are trained apart, and served as one model (`federation.shards`)."""
    head: RidgeHead | None = None
    """A ridge head in place of a network that is trained; None: there is none."""

    def __post_init__(self) -> None:
        for name in ("dataset", "partition", "model"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"Run setting '{name}' is {getattr(self, name)!r}, but it must be a name.")
        for name, optional in (
            ("clients", False),
            ("shards", False),
            ("train_limit", True),
            ("history_interval", True),
        ):
            value = getattr(self, name)
            if not (optional and value is None) and (not isinstance(value, int) or value < 1):
                raise InputError(f"Run setting '{name}' is {value!r}, but it must be a whole number, 1 or larger.")
        part = self.hold_out
        if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1:
            raise InputError(f"Run setting 'hold_out' is {part!r}, but it must be a part from 0 to below 1.")
        if self.shards > self.clients:
            raise InputError(f"{self.shards} shards need at least as many clients, but there are {self.clients}.")
        if self.shards > 1 and self.history_interval is not None:
            raise InputError("A history is for methods that a federation with shards has no use for; leave it out.")
        if self.head is not None and (self.schedule.rounds, self.schedule.participation, self.shards) != (1, 1.0, 1):
            raise InputError(
                "A ridge head is solved once, from every client's sums: it takes 1 round, everybody, and no shards."
            )
        if self.head is not None and self.history_interval is not None:
            raise InputError("A ridge head needs no models of the clients; leave the history out.")

    def to_json(self) -> dict[str, Any]:
        backdoor = None if self.backdoor is None else self.backdoor.to_json()
        values = {**vars(self), "schedule": asdict(self.schedule), "backdoor": backdoor}
        if not self.hold_out:  # runs from before had none
            del values["hold_out"]
        if self.shards == 1:
            del values["shards"]
        values["head"] = None if self.head is None else asdict(self.head)
        if self.head is None:
            del values["head"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunConfig:
        known = {item.name for item in fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise InputError(
                f"The configuration has the unknown entry '{min(unknown)}'; it may have {', '.join(sorted(known))}."
            )
        schedule, backdoor = Schedule(**values.get("schedule", {})), values.get("backdoor")
        planted = None if backdoor is None else Backdoor.from_json(backdoor)
        head = RidgeHead.from_json(values.get("head"))
        return cls(**{**values, "schedule": schedule, "backdoor": planted, "head": head})

    @property
    def serving(self) -> str | None:
        """What the federation has and what a request comes to, if it prepared for forgetting (`models.Prepared`)."""
        return Ridge.serving if self.head is not None else Ensemble.serving if self.shards > 1 else None

    @property
    def attached(self) -> bool:
        """Whether this is the folder of an attached app: nothing of its data is here."""
        return self.dataset == AT_NODES

    def load_dataset(self) -> Dataset:
        if self.attached:
            raise InputError(NOT_HERE)
        dataset = load_dataset(self.dataset)
        return dataset if self.train_limit is None else dataset.first(self.train_limit)

    def held_out(self, dataset: Dataset) -> Samples:
        """What nobody trains on, for the audit: training samples that `train_limit` leaves out, as many as there are
        test samples, since they are most like what is trained on; else the test data itself."""
        if self.train_limit is None:
            return dataset.test
        whole = load_dataset(self.dataset).train
        left = torch.arange(self.train_limit, min(len(whole), self.train_limit + len(dataset.test)))
        return whole.select(left) if len(left) == len(dataset.test) else dataset.test

    def parts(self, dataset: Dataset) -> tuple[list[Tensor], list[Samples]]:
        """(the positions of what each client trains on, what each holds out)."""
        whole = partition(self.partition, dataset.train.labels, self.clients, self.schedule.seed)
        if not self.hold_out:
            return whole, [self.held_out(dataset)] * len(whole)
        both = [self.set_aside(part, client) for client, part in enumerate(whole)]
        return [kept for kept, _ in both], [dataset.train.select(aside) for _, aside in both]

    def set_aside(self, positions: Tensor, client: int) -> tuple[Tensor, Tensor]:
        """(what the client trains on, what it sets aside of it), each in the order it had."""
        order = torch.randperm(len(positions), generator=derive_generator(self.schedule.seed, "hold out", client))
        aside = torch.zeros(len(positions), dtype=torch.bool)
        aside[order[: round(self.hold_out * len(positions))]] = True
        return positions[~aside], positions[aside]

    def build_model(self, dataset: Dataset, *, weights: bool = True) -> nn.Module:
        """The network with its initial weights, both from the seed; with shards the ensemble of them. Without
        `weights`, a backbone that lies in a file may be missing here."""
        if self.head is not None:
            return self.head.build(self.model, dataset, self.schedule.seed, weights=weights)
        network = build_model(self.model, dataset.shape, len(dataset.classes), self.schedule.seed)
        return network if self.shards == 1 else Ensemble(network, self.shards, self.schedule.seed)

    def build_federation(
        self, dataset: Dataset, device: str = "cpu", erased: Sequence[ErasureRequest] = ()
    ) -> LocalFederation:
        """The federation this configuration describes, in this process. Its clients do not have what is `erased`."""
        parts, held_out = self.parts(dataset)
        backdoors = () if self.backdoor is None else (self.backdoor,)
        federation = LocalFederation(
            dataset, parts, self.build_model(dataset), backdoors=backdoors, device=device, held_out=held_out,
            erased=erased,
        )  # fmt: skip
        for backdoor in backdoors:
            federation.client(backdoor.request.client).check(backdoor.request)
        return federation


def default_trigger(dataset: Dataset) -> Trigger:
    """The size that leaves a memory: 5x5 on 28x28 images, 4x4 on 32x32 colour images, 2x2 on 8x8 digits."""
    side = min(dataset.shape[-2:]) if len(dataset.shape) == 3 else 0
    return Trigger(
        size=2 if side <= 12 else 5 if dataset.shape[0] == 1 else max(4, side // 8), margin=0 if side <= 12 else 1
    )
