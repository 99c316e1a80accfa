"""Figure of original and triggered images (fig:backdoor): what the poisoned target looks like.

One cell for each class: its first test image, without and with the trigger that the other experiments stamp on the
asking client's samples, and the wrong label that goes with it. Nothing is trained. Both pictures are kept in the cell,
so that the figure can be drawn anywhere.

CelebA's licence forbids passing its images on: its cells hold no picture, and its figure is drawn from the user's own
copy, into the user's own folder alone, never under docs/."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedforget.data import load_dataset
from fedforget.data.backdoor import Trigger
from fedforget.data.samples import Dataset, Samples
from fedforget.errors import InputError
from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.drawing import pairs_of_pictures
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.tables import Table

MAY_BE_SHOWN = ("digits", "mnist", "cifar10")
"""Data sets whose images may be passed on."""
NOT_SHOWN = (
    "The licence of this data set forbids passing its images on: the cells hold none, and the figure is drawn from "
    "your own copy into your own --out folder alone, never under docs/."
)


def specs(options: Options) -> list[CellSpec]:
    return [
        CellSpec(ScenarioSpec((label,), options.seed), 0, label, "backdoor", "default")
        for label in options.chosen_classes()
    ]


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    (backdoor,) = scenario.backdoors
    image = first_of_class(scenario.dataset.test, scenario.spec.labels[0])
    triggered = backdoor.trigger.stamp(image.features)
    pictures = {"original": image.features[0], "triggered": triggered[0]}
    may_be_kept = scenario.dataset.name in MAY_BE_SHOWN
    return {
        "flipped_label": backdoor.flipped_label, "sample_id": int(image.ids[0]),
        "shape": list(scenario.dataset.shape),
        "changed_pixels": int((triggered != image.features).any(dim=1).sum()),
        "pictures": {name: encode(picture) for name, picture in pictures.items()} if may_be_kept else None,
    }  # fmt: skip


def first_of_class(samples: Samples, label: int) -> Samples:
    found = (samples.true_labels == label).nonzero()[:1, 0]
    if len(found) == 0:
        raise InputError(f"There is no test image of class {label} to show; choose other --classes.")
    return samples.select(found)


def encode(picture: Tensor) -> str:
    return base64.b64encode(picture.numpy().tobytes()).decode()


def decode(text: str, shape: Sequence[int]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(shape)


def tables(rows: Sequence[Row]) -> list[Table]:
    trigger = find_configuration(rows[0]["dataset"], rows[0]["configuration"]).trigger
    body = [
        [str(row["class"]), str(row["flipped_label"]), str(row["sample_id"]), str(row["changed_pixels"])]
        for row in rows
    ]
    title = f"The trigger: {trigger.size}x{trigger.size} white pixels, {trigger.corner}, {trigger.margin} from the edge"
    return [Table(title, ("class", "flipped label", "image (sample id)", "pixels changed"), body)]


def remarks(rows: Sequence[Row]) -> list[str]:
    return [] if rows[0]["dataset"] in MAY_BE_SHOWN else [NOT_SHOWN]


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Originals above, triggered images below, one column for each class."""
    first = rows[0]
    if first["dataset"] in MAY_BE_SHOWN:
        pairs = [tuple(decode(row["pictures"][name], row["shape"]) for name in PICTURES) for row in rows]
    elif "docs" in stem.resolve().parts:
        return []
    else:
        try:
            dataset = load_dataset(first["dataset"])
        except InputError:
            return []
        trigger = find_configuration(first["dataset"], first["configuration"]).trigger
        pairs = [own_pictures(dataset, trigger, row) for row in rows]
    columns = [
        (str(row["class"]), *(picture.transpose(1, 2, 0) for picture in pair))
        for row, pair in zip(rows, pairs, strict=True)
    ]
    title = f"Original images (Ori) and images with the backdoor trigger (BKD), {first['dataset']}"
    return pairs_of_pictures(stem, title, rows, columns)  # type: ignore[arg-type]


PICTURES = ("original", "triggered")


def own_pictures(dataset: Dataset, trigger: Trigger, row: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Both pictures of a row, from a copy of the data."""
    image = dataset.test.features[torch.isin(dataset.test.ids, torch.tensor([row["sample_id"]]))]
    return image[0].numpy(), trigger.stamp(image)[0].numpy()


BACKDOOR = Experiment(
    name="backdoor",
    title="Original images and images with backdoor triggers",
    label="fig:backdoor",
    specs=specs,
    run=run,
    tables=tables,
    remarks=remarks,
    figures=figures,
    methods=None,
    needs_before=False,
)
