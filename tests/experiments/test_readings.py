"""The table of readings: how far each is from the printed row, and which is the nearest everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.pages import command
from fedforget.experiments.readings import READINGS, distance, over_all, preset_of, reading_name, tables

PRESET = {name: reading_name(preset_of(find_configuration(name))) for name in ("mnist", "cifar10")}
COMMON = "1/n kept, replaces, lr 0.001, batch_size 64, momentum 0.0"


def row(dataset: str, setting: str, bd: float | None, test: float | None, seed: int = 100) -> dict[str, Any]:
    return {
        "dataset": dataset, "configuration": "default", "setting": setting, "class": 0, "seed": seed, "method": "fedaf",
        "preset": "paper", "bd_acc": bd, "test_acc": test, "note": None if bd is not None else "It diverged.",
        "quick": False, "paper": {"bd_acc": 1.0, "test_acc": 90.0},
    }  # fmt: skip


def test_the_distance_is_the_larger_of_both():
    assert distance(row("mnist", COMMON, 4.0, 89.0)) == 3.0
    assert distance(row("mnist", COMMON, 2.0, 80.0)) == 10.0
    assert distance(row("mnist", COMMON, None, None)) is None


def test_the_nearest_comes_first_and_what_left_no_model_last():
    (table,) = tables(
        [row("mnist", "far", 9.0, 90.0), row("mnist", "none", None, None), row("mnist", "near", 2.0, 90.0)]
    )
    assert [line[0] for line in table.rows] == ["near", "far", "none"]


def test_over_all_data_sets_the_preset_stands_beside_what_ran_everywhere():
    """MNIST's network has no running statistics: its reading stands beside both readings of CIFAR-10's."""
    cells = {
        "mnist": [row("mnist", PRESET["mnist"], 2.0, 90.0), row("mnist", COMMON, 1.0, 85.0)],
        "cifar10": [
            row("cifar10", PRESET["cifar10"], 5.0, 90.0), row("cifar10", f"{COMMON}, statistics of R", 1.0, 83.0),
            row("cifar10", f"{COMMON}, statistics frozen", None, None),
        ],
    }  # fmt: skip
    shown = over_all(cells)
    assert [line[0] for line in shown.rows] == ["the preset `paper`", f"{COMMON}, statistics of R"]
    assert [[entry.mean for entry in line[1:] if not isinstance(entry, str)] for line in shown.rows] == [[1, 4], [5, 7]]
    assert not shown.notes

    cells["cifar10"] = cells["cifar10"][::2]
    assert over_all(cells).notes == ("No reading with one learning rate and batch leaves a model on all of them.",)


def test_seeds_that_do_not_follow_each_other_have_a_command_each():
    rows = [row("mnist", COMMON, 1.0, 90.0, seed) for seed in (0, 1, 100)]
    said = command(READINGS, rows)
    assert said.count("fedforget reproduce readings") == 2
    assert "--trials 2 --seed 0`, then `" in said
    assert "--trials 1 --seed 100`;" in said


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_the_presets_reading_is_among_those_that_run(dataset: str):
    assert "1/n kept, averaged" in PRESET[dataset]
    assert ("statistics" in PRESET[dataset]) == (dataset == "cifar10")
