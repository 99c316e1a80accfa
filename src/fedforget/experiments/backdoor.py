"""Figure of original and triggered images (fig:backdoor): what the poisoned target looks like.

One cell for each class: its first test image, without and with the trigger that the other experiments stamp on the
asking client's samples, and the wrong label that goes with it. Nothing is trained. A cell names the image; the figure
is drawn from a copy of the data. CelebA's licence forbids passing its images on, so its figure goes into the user's own
folder alone, never under docs/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
    "The licence of this data set forbids passing its images on: the figure is drawn from your own copy into your own "
    "--out folder alone, never under docs/."
)


def specs(options: Options) -> list[CellSpec]:
    return [
        CellSpec(ScenarioSpec((label,), options.seed), 0, label, "backdoor", "default")
        for label in options.chosen_classes()
    ]


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    (backdoor,) = scenario.backdoors
    image = first_of_class(scenario.dataset.test, scenario.spec.labels[0])
    changed = backdoor.trigger.stamp(image.features) != image.features
    return {
        "flipped_label": backdoor.flipped_label, "sample_id": int(image.ids[0]),
        "changed_pixels": int(changed.any(dim=1).sum()),
    }  # fmt: skip


def first_of_class(samples: Samples, label: int) -> Samples:
    found = (samples.true_labels == label).nonzero()[:1, 0]
    if len(found) == 0:
        raise InputError(f"There is no test image of class {label} to show; choose other --classes.")
    return samples.select(found)


def tables(rows: Sequence[Row]) -> list[Table]:
    trigger = find_configuration(rows[0]["dataset"], rows[0]["configuration"]).trigger
    columns = {"class": "class", "flipped label": "flipped_label", "image (sample id)": "sample_id",
               "pixels changed": "changed_pixels"}  # fmt: skip
    title = f"The trigger: {trigger.size}x{trigger.size} white pixels, {trigger.corner}, {trigger.margin} from the edge"
    return [Table(title, tuple(columns), [[str(row[column]) for column in columns.values()] for row in rows])]


def remarks(rows: Sequence[Row]) -> list[str]:
    return [] if rows[0]["dataset"] in MAY_BE_SHOWN else [NOT_SHOWN]


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Originals above, triggered images below, one column for each class; none without a copy of the data."""
    name = rows[0]["dataset"]
    if name not in MAY_BE_SHOWN and "docs" in stem.resolve().parts:
        return []
    try:
        dataset = load_dataset(name)
    except InputError:
        return []
    trigger = find_configuration(name, rows[0]["configuration"]).trigger
    columns = [(str(row["class"]), *own_pictures(dataset, trigger, row)) for row in rows]
    title = f"Original images (Ori) and images with the backdoor trigger (BKD), {name}"
    return pairs_of_pictures(stem, title, rows, columns)


def own_pictures(dataset: Dataset, trigger: Trigger, row: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Both pictures of a row, from a copy of the data: [height, width, channels] of bytes."""
    image = dataset.test.features[torch.isin(dataset.test.ids, torch.tensor([row["sample_id"]]))]
    original, triggered = (picture[0].permute(1, 2, 0).numpy() for picture in (image, trigger.stamp(image)))
    return original, triggered


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
