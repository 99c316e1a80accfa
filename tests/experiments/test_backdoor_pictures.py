"""The figure of triggered images: only the patch differs, and what may not be passed on is not written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedforget.data.samples import Dataset, Samples
from fedforget.errors import InputError
from fedforget.experiments import EXPERIMENTS, backdoor, scenario
from fedforget.experiments.backdoor import NOT_SHOWN, own_pictures
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import reproduce
from fedforget.experiments.options import Options
from fedforget.experiments.pages import render_folder, write_pages

BACKDOOR = EXPERIMENTS["backdoor"]


def test_the_pictures_differ_in_the_patch_alone(options: Options):
    chosen = replace(options, methods=None, quick=False)
    rows = reproduce(BACKDOOR, chosen)
    assert [row["class"] for row in rows] == list(range(10))
    dataset = scenario.load_dataset("digits")
    test = dataset.test
    trigger = CONFIGURATIONS["digits"]["default"].trigger
    for row in rows:
        original, triggered = (picture.transpose(2, 0, 1) for picture in own_pictures(dataset, trigger, row))
        (place,) = (test.ids == row["sample_id"]).nonzero()[0].tolist()
        assert int(test.labels[place]) == row["class"]
        assert np.array_equal(original, test.features[place].numpy())
        patch = np.zeros(original.shape, dtype=bool)
        patch[:, 8 - trigger.size :, 8 - trigger.size :] = True
        assert np.array_equal(original[~patch], triggered[~patch])
        assert (triggered[patch] == 255).all()
        assert row["changed_pixels"] == int((original[patch] != 255).sum()) > 0
        assert row["flipped_label"] != row["class"]
        assert row["bd_acc"] is row["seconds"] is None, "nothing is trained"
    assert not (chosen.out / "models").exists()


@pytest.fixture
def celeba(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Noise in the shape of CelebA."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randint(0, 255, (56, 3, 64, 64), generator=generator, dtype=torch.uint8)
    labels = torch.arange(56) % 4
    noise = Dataset(
        "celeba", Samples.of(features[:40], labels[:40]), Samples.of(features[40:], labels[40:], first_id=40),
        ("a", "b", "c", "d"),
    )  # fmt: skip
    monkeypatch.setattr(scenario, "load_dataset", lambda name: noise)
    monkeypatch.setattr(backdoor, "load_dataset", lambda name: noise)
    monkeypatch.setitem(CONFIGURATIONS["celeba"], "default", replace(CONFIGURATIONS["celeba"]["default"], model="cnn"))
    return noise


def test_celeba_is_drawn_for_its_owner_and_never_under_docs(options: Options, celeba: Dataset, tmp_path: Path):
    chosen = replace(options, dataset="celeba", methods=None, quick=False)
    reproduce(BACKDOOR, chosen)
    path = BACKDOOR.cell_file(chosen)
    assert all(len(line) < 1500 for line in path.read_text().splitlines()), "no picture hides in a cell"
    files = write_pages(BACKDOOR, path)
    assert [file.name for file in files if file.suffix in (".png", ".svg")] == [
        "backdoor-celeba.png", "backdoor-celeba.svg",
    ]  # fmt: skip
    assert NOT_SHOWN in files[0].read_text()

    docs = tmp_path / "docs" / "results"
    docs.mkdir(parents=True)
    (docs / path.name).write_bytes(path.read_bytes())
    written = render_folder(docs, [BACKDOOR])
    assert {file.suffix for file in docs.iterdir()} == {".jsonl", ".md", ".tex", ".json"}
    assert {file.suffix for file in written} == {".md", ".tex", ".json"}
    page = (docs / "backdoor-celeba.md").read_text()
    assert NOT_SHOWN in page
    assert "![" not in page
    assert "png" not in json.dumps(json.loads((docs / "backdoor-celeba.json").read_text()))


def test_without_a_copy_there_is_no_figure(options: Options, celeba: Dataset, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Dataset:
        raise InputError("CelebA is never downloaded.")

    chosen = replace(options, dataset="celeba", methods=None, quick=False)
    reproduce(BACKDOOR, chosen)
    monkeypatch.setattr(backdoor, "load_dataset", missing)
    assert {file.suffix for file in write_pages(BACKDOOR, BACKDOOR.cell_file(chosen))} == {".md", ".tex", ".json"}
