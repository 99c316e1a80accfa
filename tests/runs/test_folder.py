"""The run folder: what is written, what is refused on reading, and that no write leaves half a file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.files import write_bytes, write_json, write_text
from fedforget.data.samples import Dataset, Samples
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig, default_trigger
from fedforget.runs.folder import VERSION, Run
from fedforget.runs.store import load_model, read_sealed, save_model, write_sealed

CONFIG = RunConfig(
    clients=3,
    partition="dirichlet:0.7",
    schedule=Schedule(rounds=4, lr=0.05, batch_size=16, seed=5, threads=1),
    backdoor=Backdoor(ErasureRequest.of_class(0, 3), Trigger(2, margin=0), 7),
    train_limit=60,
)
STATE: State = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3), "half": torch.ones(2).bfloat16()}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", CONFIG, STATE)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


# Writing and reading.


def test_a_new_folder_holds_the_configuration_and_round_0(run: Run):
    again = Run(run.folder)
    assert again.config == CONFIG
    assert (again.rounds_done, again.finished, again.served, again.metrics()) == (0, False, (), [])
    assert digest(again.load_model()) == digest(STATE)
    header = json.loads((run.folder / "run.json").read_text())
    assert header["version"] == VERSION
    assert header["config"] == CONFIG.to_json()
    assert not list(run.folder.rglob("*.part"))


@pytest.mark.parametrize(
    "config",
    [CONFIG, RunConfig(), replace(CONFIG, backdoor=None), replace(CONFIG, train_limit=None), RunConfig(hold_out=0.2)],
)
def test_a_configuration_survives_json(config: RunConfig):
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_rounds_are_saved_and_found(run: Run):
    served = (ErasureRequest.of_class(1, 2), ErasureRequest.of_samples(0, [4, 9]), ErasureRequest.of_client(2))
    for round in (1, 2):
        run.save_round(round, {"w": torch.full((2,), float(round))}, served=())
    assert run.rounds_done == 2
    run.save_round(2, {"w": torch.full((2,), 9.0)}, served)
    again = Run(run.folder)
    assert again.served == served
    assert again.load_model()["w"].tolist() == [9.0, 9.0]
    assert not again.finished
    run.save_round(4, STATE, served)
    assert again.finished


def test_a_model_of_the_same_round_gets_its_own_file(run: Run):
    """Between the two writes of a served request, state.json still names the old model: it must be there unchanged."""
    run.save_round(1, {"w": torch.zeros(2)}, served=())
    before = run.state["model"]
    run.save_round(1, {"w": torch.ones(2)}, served=(ErasureRequest.of_client(2),))
    assert run.state["model"] != before
    assert (run.folder / before).exists()


def test_metrics_of_a_repeated_round_are_replaced(run: Run):
    for round, accuracy in ((1, 10.0), (2, 20.0), (3, 30.0), (2, 25.0)):
        run.add_metrics({"round": round, "test_acc": accuracy})
    assert run.metrics() == [{"round": 1, "test_acc": 10.0}, {"round": 2, "test_acc": 25.0}]


def test_models_survive_with_their_types(tmp_path: Path):
    checksum = save_model(tmp_path / "m.safetensors", STATE)
    read = load_model(tmp_path / "m.safetensors", checksum)
    assert digest(read) == digest(STATE)
    assert {name: t.dtype for name, t in read.items()} == {name: t.dtype for name, t in STATE.items()}


def test_the_federation_of_a_configuration(tmp_path: Path):
    config = replace(CONFIG, partition="iid")
    dataset = config.load_dataset()
    assert len(dataset.train) == 60
    federation = config.build_federation(dataset)
    assert len(federation.clients) == 3
    assert sum(len(federation.client(k).samples) for k in federation.clients) == 60
    poisoned = federation.client(0).samples
    assert (poisoned.labels[poisoned.true_labels == 3] == 7).all()
    assert digest(state_of(federation.model)) == digest(state_of(config.build_model(dataset)))
    other = replace(config, schedule=replace(config.schedule, seed=6)).build_model(dataset)
    assert digest(state_of(other)) != digest(state_of(federation.model))


@pytest.mark.parametrize(
    ("shape", "trigger"),
    [((1, 8, 8), (2, 0)), ((1, 28, 28), (5, 1)), ((3, 32, 32), (4, 1)), ((3, 64, 64), (8, 1)), ((20,), (2, 0))],
)
def test_the_default_trigger_fits_the_images(shape: tuple[int, ...], trigger: tuple[int, int]):
    samples = Samples.of(torch.zeros(2, *shape), torch.tensor([0, 1]))
    chosen = default_trigger(Dataset("x", samples, samples, ("a", "b")))
    assert (chosen.size, chosen.margin) == trigger


# What is refused.


def test_a_folder_that_is_no_run(tmp_path: Path):
    assert refusal(Run, tmp_path) == (
        f"{tmp_path} is not a run folder (it has no run.json); make one with `fedforget train`."
    )
    assert "is not a run folder" in refusal(Run, tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "is not a run folder" in refusal(Run, tmp_path / "file")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version(run: Run, version: object):
    header = json.loads((run.folder / "run.json").read_text())
    write_json(run.folder / "run.json", header | {"version": version})
    sentence = refusal(Run, run.folder)
    assert f"is of version {version}, but this fedforget reads" in sentence
    assert "damaged" not in sentence


@pytest.mark.parametrize("name", ["run.json", "state.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"version": 1}', b'{"version": 1, "config"']
)
def test_a_damaged_file_is_named(run: Run, name: str, content: bytes):
    (run.folder / name).write_bytes(content)
    sentence = refusal(lambda: Run(run.folder).rounds_done)
    assert str(run.folder / name) in sentence or (name == "run.json" and "is of version" in sentence)


@pytest.mark.parametrize("name", ["run.json", "state.json"])
def test_any_changed_byte_is_noticed(run: Run, name: str):
    """Also one that still gives good JSON, such as another seed."""
    path = run.folder / name
    good = path.read_bytes()
    for place in range(0, len(good), 7):
        for flip in (1, 2):
            damaged = bytearray(good)
            damaged[place] ^= flip
            if good[place : place + 1].isspace() and bytes(damaged[place : place + 1]).isspace():
                continue
            path.write_bytes(damaged)
            try:
                meaning = (Run(run.folder).config, Run(run.folder).state)
            except InputError:
                continue
            finally:
                path.write_bytes(good)
            assert meaning == (run.config, run.state), f"byte {place} changed the meaning unnoticed"
    assert Run(run.folder).config == CONFIG


def test_a_missing_state_says_how_to_begin(run: Run):
    (run.folder / "state.json").unlink()
    assert not run.started
    assert refusal(run.load_model) == (
        f"{run.folder} has no state.json, so its training never began; begin it with `fedforget train --resume`."
    )


def test_a_checkpoint_with_one_changed_byte(run: Run):
    path = run.folder / run.state["model"]
    good = bytearray(path.read_bytes())
    for place in (0, 9, len(good) // 2, len(good) - 1):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        assert refusal(run.load_model) == (
            f"Model file {path} is damaged (its checksum is not the one written down); restore it or train again."
        )
    path.write_bytes(good[:-1])
    assert "is damaged" in refusal(run.load_model)
    path.write_bytes(good)
    assert digest(run.load_model()) == digest(STATE)


def test_a_missing_checkpoint(run: Run):
    path = run.folder / run.state["model"]
    path.unlink()
    assert refusal(run.load_model) == f"Model file {path} is missing; restore it from a backup or train again."


def test_damaged_metrics(run: Run):
    run.add_metrics({"round": 1})
    (run.folder / "metrics.jsonl").write_text('{"round": 1}\n{"rou')
    assert "metrics.jsonl is damaged" in refusal(run.metrics)


def test_a_folder_in_use_is_not_overwritten(run: Run, tmp_path: Path):
    assert "exists already; resume it with --resume" in refusal(Run.create, run.folder, CONFIG, STATE)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("x")
    assert "is not an empty folder" in refusal(Run.create, tmp_path / "full", CONFIG, STATE)
    (tmp_path / "file").write_text("x")
    assert "is not an empty folder" in refusal(Run.create, tmp_path / "file", CONFIG, STATE)
    assert refusal(Run.create, tmp_path / "file" / "below", CONFIG, STATE).startswith("Cannot write at ")


def test_a_folder_that_a_kill_left_nearly_empty_can_be_used(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json.part").write_text('{"vers')
    assert Run.create(tmp_path / "run", CONFIG, STATE).config == CONFIG


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"colour": "red"}, "The configuration has the unknown entry 'colour'; it may have "),
        ({"clients": 2.5}, "Run setting 'clients' is 2.5, but it must be a whole number, 1 or larger."),
        ({"clients": 0}, "Run setting 'clients' is 0, but it must be a whole number, 1 or larger."),
        ({"clients": "four"}, "Run setting 'clients' is 'four', but it must be a whole number, 1 or larger."),
        ({"train_limit": -5}, "Run setting 'train_limit' is -5, but it must be a whole number, 1 or larger."),
        ({"dataset": 3}, "Run setting 'dataset' is 3, but it must be a name."),
        ({"model": None}, "Run setting 'model' is None, but it must be a name."),
        ({"schedule": {"rounds": 1.5}}, "Training setting 'rounds' is 1.5, but it must be a whole number."),
        ({"schedule": {"lr": "fast"}}, "Training setting 'lr' is 'fast', but it must be a number."),
        ({"schedule": {"lr": float("nan")}}, "Training setting 'lr' is nan, but it must be a finite number above 0."),
        ({"schedule": {"lr": 0}}, "Training setting 'lr' is 0, but it must be a finite number above 0."),
        (
            {"schedule": {"rounds": -1}},
            "Training setting 'rounds' is -1, but it must be a finite number 0 or larger.",
        ),
        ({"schedule": {"momentum": 1}}, "Training setting 'momentum' is 1, but it must be below 1."),
    ],
)
def test_configurations_that_make_no_sense(values: dict[str, Any], sentence: str):
    assert refusal(RunConfig.from_json, values).startswith(sentence)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (ErasureRequest.of_class(7, 3), "Client 7 does not exist; this federation has clients 0 to 2."),
        (ErasureRequest.of_class(0, 12), "Class 12 does not exist; the data has classes 0 to 9."),
    ],
)
def test_a_backdoor_for_nobody_is_refused(request_: ErasureRequest, sentence: str):
    config = replace(CONFIG, partition="iid", backdoor=Backdoor(request_, Trigger(2, margin=0), 7))
    assert refusal(config.build_federation, config.load_dataset()) == sentence


def test_a_device_that_is_not_there_is_refused():
    config = replace(CONFIG, partition="iid")
    for device in ("abacus", "cuda:99"):
        assert refusal(config.build_federation, config.load_dataset(), device) == (
            f"Device '{device}' cannot be used on this machine; use cpu."
        )


# The lock.


def test_one_trainer_at_a_time(run: Run):
    with run.training_lock() as first:
        assert first
        with Run(run.folder).training_lock() as second:
            assert not second
    with run.training_lock() as again:
        assert again, "the lock is given back"


def test_an_error_gives_the_lock_back(run: Run):
    with pytest.raises(ZeroDivisionError), run.training_lock():
        _ = 1 / 0
    with run.training_lock() as alone:
        assert alone


# Atomic writes.


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    path = tmp_path / "value.txt"
    write_text(path, "old")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class FullFile:
        def __init__(self, handle: Any) -> None:
            self.handle = handle

        def __enter__(self) -> FullFile:
            return self

        def __exit__(self, *_: object) -> None:
            self.handle.close()

        def write(self, data: bytes) -> None:
            self.handle.write(data[: len(data) // 2])
            self.handle.flush()
            fail()

    with monkeypatch.context() as patch:
        if step == "open":
            patch.setattr("builtins.open", fail)
        elif step == "write":
            real = open
            patch.setattr("builtins.open", lambda *a, **k: FullFile(real(*a, **k)))
        else:
            patch.setattr(os, step, fail)
        sentence = refusal(write_text, path, "new and longer")
    assert sentence == "There is no space left on the disk; free some and run the same command again."
    assert files(tmp_path) == {"value.txt": b"old"}
    write_text(path, "new")
    assert files(tmp_path) == {"value.txt": b"new"}


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "value.txt"
    write_text(path, "old")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert files(tmp_path) == {"value.txt": b"old"}


def test_a_forbidden_place_is_one_sentence(tmp_path: Path):
    assert refusal(write_bytes, tmp_path / "nowhere" / "x", b"").startswith(f"Cannot write at {tmp_path}/nowhere/x")


def test_sealed_files(tmp_path: Path):
    path = tmp_path / "x.json"
    values = {"b": [1, 0.1, 1e-300, None, True], "a": {"ä": "\n"}}
    write_sealed(path, values)
    assert read_sealed(path) == values
    changed = json.loads(path.read_text())
    changed["b"][0] = 2
    path.write_text(json.dumps(changed))
    assert refusal(read_sealed, path) == (
        f"{path} is damaged (its checksum is not the one written down); restore it from a backup."
    )
    write_json(path, values)
    assert "is damaged" in refusal(read_sealed, path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_leaves_the_last_whole_state(small_disk: Path):
    run = Run.create(small_disk / "run", CONFIG, STATE)
    model = {"w": torch.rand(40_000)}
    sentence, round = "", 0
    while not sentence and round < 100:
        round += 1
        try:
            run.save_round(round, {"w": model["w"] + round}, served=())
        except InputError as error:
            sentence = str(error)
    assert sentence.startswith("There is no space left on the disk")
    again = Run(run.folder)
    assert again.rounds_done == round - 1 > 0
    assert torch.equal(again.load_model()["w"], model["w"] + (round - 1))
    assert not list(small_disk.rglob("*.part")), "the half file is gone, and its space is free again"
    (run.folder / "checkpoints" / "round-001.safetensors").unlink()
    run.save_round(round, {"w": model["w"] + round}, served=())
    assert Run(run.folder).rounds_done == round


def test_a_disk_that_is_full_from_the_start(small_disk: Path):
    (small_disk / "ballast").write_bytes(bytes(2**20))
    sentence = refusal(Run.create, small_disk / "run", CONFIG, STATE)
    assert sentence.startswith("There is no space left on the disk")
