"""Memory is planned before the work: what gives way, what is refused, what is left of a control group."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, forget, load_dataset, partition, state_of
from fedforget.errors import InputError
from fedforget.federation.memory import _left_in_groups
from fedforget.methods.fedaf.extensions import planning
from fedforget.methods.fedaf.extensions.planning import FEWEST_ROWS, fit_sketch, only_from, plan_sketch
from fedforget.methods.fedaf.settings import FullSettings
from fedforget.params import trainable, weight_count

CPU = torch.device("cpu")
NETWORK = nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 10))
WEIGHTS = weight_count(NETWORK)
ROWS = int(FullSettings().for_network(WEIGHTS).sketch_rows)


def with_room_for(monkeypatch: pytest.MonkeyPatch, numbers: float, width: int) -> None:
    """So much memory that a sketch of so many numbers of this width fits, and not one number more."""
    monkeypatch.setattr(planning, "available_bytes", lambda device: 2 * int(numbers * width) + 1)


def test_nothing_gives_way_where_all_fits(monkeypatch: pytest.MonkeyPatch):
    with_room_for(monkeypatch, ROWS * WEIGHTS, 4)
    settings, note = fit_sketch(NETWORK, FullSettings(), CPU)
    assert (settings.sketch_rows, settings.sketch_dtype, settings.first_moved, note) == (ROWS, "float32", None, "")


def test_first_the_numbers_become_shorter(monkeypatch: pytest.MonkeyPatch):
    with_room_for(monkeypatch, ROWS * WEIGHTS, 2)
    settings, note = fit_sketch(NETWORK, FullSettings(), CPU)
    assert (settings.sketch_rows, settings.sketch_dtype, settings.first_moved) == (ROWS, "bfloat16", None)
    assert note == "The whole sketch would not fit into memory, so it is kept as bfloat16."


def test_then_the_rows_become_fewer(monkeypatch: pytest.MonkeyPatch):
    with_room_for(monkeypatch, 60 * WEIGHTS, 2)
    settings, note = fit_sketch(NETWORK, FullSettings(), CPU)
    assert (settings.sketch_rows, settings.sketch_dtype, settings.first_moved) == (60, "bfloat16", None)
    assert "60 rows of bfloat16, not 75" in note


def test_then_only_the_last_layers_move(monkeypatch: pytest.MonkeyPatch):
    last = sum(parameter.numel() for name, parameter in NETWORK.named_parameters() if name[0] in "24")
    with_room_for(monkeypatch, FEWEST_ROWS * last, 2)
    settings, note = fit_sketch(NETWORK, FullSettings(), CPU)
    assert (settings.sketch_rows, settings.first_moved) == (FEWEST_ROWS, "2.weight")
    assert "over the layers from '2.weight' on, and only they move" in note


def test_under_masks_a_number_takes_eight_bytes(monkeypatch: pytest.MonkeyPatch):
    with_room_for(monkeypatch, 60 * WEIGHTS, 8)
    settings, note = fit_sketch(NETWORK, FullSettings(sketch_masked=True, sketch_scope="federation"), CPU)
    assert settings.sketch_rows == 60
    assert "60 rows" in note
    with pytest.raises(InputError, match="use 96 rows or fewer, or set sketch_masked to false"):
        plan_sketch(NETWORK, 750, settings.planned_dtype, CPU)


def test_what_the_user_set_does_not_give_way(monkeypatch: pytest.MonkeyPatch):
    with_room_for(monkeypatch, 60 * WEIGHTS, 2)
    settings, note = fit_sketch(NETWORK, FullSettings(sketch_rows=75, sketch_dtype="float32"), CPU)
    assert (settings.sketch_rows, settings.sketch_dtype, note) == (75, "float32", "")
    with pytest.raises(InputError, match="may be used"):
        plan_sketch(NETWORK, 750, torch.float32, CPU)


def test_only_from_freezes_inside_alone():
    before = list(trainable(NETWORK))
    with only_from(NETWORK, "2.weight"):
        assert list(trainable(NETWORK)) == before[2:]
    with pytest.raises(ZeroDivisionError), only_from(NETWORK, "4.bias"):
        raise ZeroDivisionError
    assert list(trainable(NETWORK)) == before


def test_a_request_with_little_memory_moves_the_last_layers_and_says_so(monkeypatch: pytest.MonkeyPatch):
    dataset = load_dataset("digits")
    model = build_model("mlp", dataset.shape, 10, 0)
    federation = LocalFederation(dataset, partition("iid", dataset.train.labels, 3, 0), model)
    start, schedule = state_of(model), Schedule(rounds=1, threads=1)
    head = sum(t.numel() for name, t in model.named_parameters() if name.startswith("5"))
    monkeypatch.setattr(planning, "available_bytes", lambda device: 2 * FEWEST_ROWS * head * 2)
    result = forget(federation, start, ErasureRequest.of_class(0, 3), schedule, "overwrite", recovery_rounds=0)
    assert any("only they move" in note for note in result.notes)
    changed = {name for name, tensor in result.state.items() if not torch.equal(tensor, start[name])}
    assert changed == {"5.weight", "5.bias"}
    assert result.cost.stored_bytes == FEWEST_ROWS * head * 2
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_sketch_that_does_not_fit_is_refused_with_what_would(monkeypatch):
    """1,000 weights x 4 bytes: of 4,000,000 free bytes 80 % may be used, which is 800 rows."""
    monkeypatch.setattr(planning, "available_bytes", lambda device: 4_000_000)
    model, cpu = nn.Linear(1000, 1, bias=False), torch.device("cpu")
    assert plan_sketch(model, 800, torch.float32, cpu) == 800 * 4000
    assert plan_sketch(model, 1600, torch.bfloat16, cpu) == 1600 * 2000
    with pytest.raises(InputError) as refusal:
        plan_sketch(model, 801, torch.float32, cpu)
    assert re.fullmatch(
        r"A sketch of 801 rows for 1,000 parameters needs [\d.]+ GiB, but only [\d.]+ GiB of memory may be used; "
        r"use 800 rows or fewer, or store it as bfloat16\.",
        str(refusal.value),
    )


def test_the_refusal_counts_in_gib_and_trainable_weights_only(monkeypatch):
    monkeypatch.setattr(planning, "available_bytes", lambda device: 5 * 2**30)
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False))
    model[0].requires_grad_(False)
    with pytest.raises(InputError, match=r"1,048,576 parameters needs 7\.81 GiB, but only 4\.00 GiB .* use 1024 rows"):
        plan_sketch(model, 2000, torch.float32, torch.device("cpu"))


def test_the_refusal_when_not_even_one_row_fits(monkeypatch):
    monkeypatch.setattr(planning, "available_bytes", lambda device: 100)
    with pytest.raises(InputError, match="use a smaller model"):
        plan_sketch(nn.Linear(1000, 1), 1, torch.float32, torch.device("cpu"))


def group(folder: Path, limit: str, used: int, cached: int, names: tuple[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"active_file 5\ninactive_file {cached}\n")


def test_what_a_control_group_allows_counts(tmp_path: Path):
    two = ("memory.max", "memory.current")
    group(tmp_path / "a" / "b", "max", 50, 0, two)
    group(tmp_path / "a", "1000", 300, 100, two)
    (tmp_path / "own").write_text("0::/a/b\n")
    assert min(_left_in_groups(tmp_path, tmp_path / "own")) == 800


def test_so_does_one_of_version_1(tmp_path: Path):
    one = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    group(tmp_path / "memory" / "box", "2000", 500, 0, one)
    (tmp_path / "own").write_text("5:devices:/\n4:memory:/box\n0::/\n")
    assert min(_left_in_groups(tmp_path, tmp_path / "own")) == 1500


def test_no_control_group_allows_everything(tmp_path: Path):
    assert min(_left_in_groups(tmp_path, tmp_path / "none")) > 2**60
