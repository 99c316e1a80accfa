"""What a run with a ridge head is made of: its backbone, where that comes from, and how the head is solved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedforget.data import Dataset
from fedforget.data.files import sha256_of_file
from fedforget.errors import InputError
from fedforget.federation.ridge import REGULARISATION, Ridge, random_ridge, ridge_on
from fedforget.models import build_model
from fedforget.runs.store import load_model

RANDOM = "random"
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


@dataclass(frozen=True)
class RidgeHead:
    """A ridge head (`federation.ridge`) in place of a network that is trained."""

    backbone: str = RANDOM
    """A file with weights of the run's `model` (safetensors), or `random`."""
    features: int = 1024
    """How many random features."""
    sha256: str = ""
    """Of the file."""
    origin: str = ""
    """Who trained the backbone, and on which data, in words."""
    regularisation: float = REGULARISATION
    """rho: lambda as a part of the mean of A's diagonal."""
    masked: bool = False
    """Whether the server sees the sum of all clients alone."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, kinds = getattr(self, item.name), _KINDS[str(item.type)]
            if not isinstance(value, kinds) or isinstance(value, bool) > (bool in kinds):
                raise InputError(f"The ridge head's setting '{item.name}' is {value!r}, but it must be a {item.type}.")
        if self.backbone != RANDOM and not self.origin.strip():
            raise InputError(
                "A backbone from a file needs an origin: say with --origin who trained it, and on which data. It is "
                "written down, since the verdict rests on it."
            )

    @classmethod
    def from_json(cls, values: Any) -> RidgeHead | None:
        if values is None:
            return None
        if not isinstance(values, Mapping):
            raise InputError("The run setting 'head' must be a table of settings, such as backbone and features.")
        unknown = values.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise InputError(f"The ridge head has the unknown setting '{min(unknown)}'.")
        return cls(**values)

    @classmethod
    def on_file(cls, path: Path, **settings: Any) -> RidgeHead:
        """A head on the backbone that lies in a file, as it is now."""
        try:
            sha256 = sha256_of_file(path)
        except OSError as error:
            raise InputError(f"The backbone {path} cannot be read: {error.strerror}.") from None
        return cls(str(path.resolve()), sha256=sha256, **settings)

    def build(self, model: str, dataset: Dataset, seed: int, *, weights: bool = True) -> Ridge:
        """The network. Without `weights` the backbone waits for those that come with a task, as on a Flower node."""
        shape, classes = dataset.shape, len(dataset.classes)
        how: dict[str, Any] = {"regularisation": self.regularisation, "masked": self.masked}
        if self.backbone == RANDOM:
            return random_ridge(shape, classes, self.features, seed, **how)
        given = load_model(Path(self.backbone), self.sha256) if weights else None
        return ridge_on(build_model(model, shape, classes, seed), classes, origin=self.origin, weights=given, **how)

    def check_origin(self, dataset: str, folder: Path) -> None:
        """Refuse a backbone that may know what will be withdrawn: a model of a run on the same data, beside `folder` or
        where the file itself lies."""
        if self.backbone == RANDOM:
            return
        file = Path(self.backbone)
        runs = {*file.parents, *(path.parent for path in Path(folder).resolve().parent.glob("*/run.json"))}
        for run in sorted(runs):
            if dataset != _dataset_of(run) or not (file.is_relative_to(run) or self.sha256 in set(_models_of(run))):
                continue
            raise InputError(
                f"The backbone is a model of the run {run}, which was trained on {dataset} too, so it may know what a "
                "client withdraws; give one that was trained on other people's data."
            )


def _dataset_of(run: Path) -> str | None:
    try:
        return str(json.loads((run / "run.json").read_text())["config"]["dataset"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _models_of(run: Path) -> Iterator[str]:
    """The checksums of all models in a run folder."""
    return (sha256_of_file(path) for path in run.rglob("*.safetensors"))
