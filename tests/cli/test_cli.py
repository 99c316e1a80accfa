"""The command line: JSON and nothing else on standard output, and every bad input one sentence and exit code 2."""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from in_process_command import Command, Said, in_process_command

from fedforget.audit.evidence import read_evidence, write_evidence
from fedforget.cli import main
from fedforget.data.files import write_json
from fedforget.data.mnist import MD5
from fedforget.data.samples import Samples
from fedforget.federation.rounds import Schedule
from fedforget.methods.fedaf.extensions import planning
from fedforget.params import digest
from fedforget.requests import ErasureRequest, requests_id
from fedforget.runs import audit as auditing
from fedforget.runs import demo
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.store import load_model
from fedforget.runs.train import train_run

ROW = {
    "method", "preset", "test_acc", "bd_acc", "bd_acc_test", "true_acc", "retained_acc", "per_class", "seconds",
    "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes",
}  # fmt: skip
SMALL = ("--dataset", "digits", "--clients", "3", "--rounds", "3", "--lr", "0.05", "--batch-size", "16",
         "--threads", "1", "--train-limit", "150")  # fmt: skip
CONFIG = RunConfig(
    clients=3, partition="shards:2", train_limit=150, schedule=Schedule(rounds=2, lr=0.05, batch_size=16, threads=1)
)


@pytest.fixture
def fedforget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return in_process_command(main, capsys, monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose clients hold some classes only; no test may change it."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    train_run(folder, CONFIG)
    return folder


@pytest.fixture
def own_copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


@pytest.fixture(scope="module")
def forgotten(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after a request of client 0 was served and Retrain trained for it; tests take copies."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("forgotten") / "run"))
    for method in ("fedaf-c", "retrain"):
        forget_run(folder, [ErasureRequest.of_class(0, held(0)[0])], method)
    return folder


@pytest.fixture(scope="module")
def judged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after a request for all of client 0 was served and judged without oracle; tests take copies."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("judged") / "run"))
    forget_run(folder, [ErasureRequest.of_client(0)], "not")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditing, "write_report", lambda *_: None)
        auditing.audit_run(folder, level="alone")
    return folder


@pytest.fixture
def evidence(judged: Path, tmp_path: Path) -> Path:
    """An evidence file with its model beside it."""
    (file,) = Path(shutil.copytree(judged, tmp_path / "judged")).glob("forgotten/not-*/evidence-alone.json")
    return file


@functools.cache
def samples_of(client: int) -> Samples:
    """What a client of the trained run holds."""
    return CONFIG.build_federation(CONFIG.load_dataset()).client(client).samples


def held(client: int) -> list[int]:
    return samples_of(client).true_labels.unique().tolist()


def ids_of(client: int) -> list[int]:
    return samples_of(client).ids.tolist()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def only_json(said: Said) -> Any:
    """The one document on standard output."""
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1
    assert said.out.endswith("\n")
    assert said.err == ""
    return json.loads(said.out, parse_constant=no_constant)


def refused(said: Said) -> str:
    """The one line on standard error."""
    assert said.code == 2
    assert said.out == ""
    assert said.err.endswith("\n")
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    return said.err.strip()


# What works.


def test_help_names_the_commands(fedforget: Command):
    said = fedforget("--help")
    assert said.code == 0
    assert "Make a federated model forget, and show that it did." in said.out
    panels = said.out.split("─ Train and forget ─")[1].split("─ Ledger and console ─")
    assert all(name in panels[0] for name in ("demo", "train", "forget", "audit", "verify"))
    assert all(name in panels[1] for name in ("serve", "work", "request", "ledger", "node", "reproduce", "bench"))


@pytest.mark.parametrize("command", ["demo", "train", "forget", "audit", "verify"])
def test_every_command_has_help(fedforget: Command, command: str):
    said = fedforget(command, "--help")
    assert said.code == 0
    assert "--json" in said.out


def test_the_help_of_a_command_says_what_its_arguments_are(fedforget: Command):
    assert "The run folder." in fedforget("audit", "--help").out


def test_train_forget_and_audit_as_json(fedforget: Command, tmp_path: Path):
    run = tmp_path / "run"
    learnt = (*SMALL[:-2], "--rounds", "10", "--backdoor", "client=0,class=3")
    trained = only_json(fedforget("train", *learnt, "--out", run, "--json"))
    assert trained.keys() >= {"run", "rounds", "test_acc"}
    assert trained["rounds"] == 10

    forgot = only_json(fedforget("forget", run, "--client", "0", "--class", "3", "--json"))
    assert (forgot["method"], forgot["preset"], forgot["target"]) == ("ladder", "default", "class 3 of client 0")
    assert forgot["rungs"][0]["name"] == "rebuild", "the ladder says what it tried"
    assert forgot["rungs"][-1]["word"] in ("forgotten", "exact")
    assert all(rung.keys() >= {"name", "forecast", "cost", "word", "reason"} for rung in forgot["rungs"])
    model = load_model(Path(forgot["folder"]) / "model.safetensors", forgot["sha256"])
    assert digest(model) != digest(Run(run).load_model())
    assert forgot["cost"]["seconds"] > 0

    audit = only_json(fedforget("audit", run, "--json"))
    assert [row["method"] for row in audit["rows"]] == ["before", "retrain", "ladder"]
    assert audit["rows"][2]["rungs"] == forgot["rungs"]
    assert all(row.keys() >= ROW for row in audit["rows"])
    assert all(row["bd_acc_test"] is not None for row in audit["rows"])
    assert (run / "report.html").exists()


@pytest.mark.real
def test_in_words(fedforget: Command, own_copy: Path):
    label = held(0)[0]
    said = fedforget("forget", own_copy, "--client", "0", "--class", label)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("Retrain is quick here, about ")
    assert lines[1].startswith("overwrite: about ")
    assert lines[2].startswith("overwrite: ")
    served = next(place for place, line in enumerate(lines) if line.startswith(f"Served class {label} of client 0 in "))
    assert lines[served + 1].startswith("Tried: overwrite (")
    assert lines[served + 2].startswith(("Ended at ", "The model stays as it was: "))
    assert [line for line in lines if lines.count(line) > 1] == [], "nothing is said twice"
    assert fedforget("forget", own_copy, "--client", "0", "--class", label, "--effort", "retrain").out.startswith(
        "retrain: about 100 % of a retraining."
    )
    said = fedforget("audit", own_copy)
    assert said.code == 0
    assert said.err == ""
    assert all(name in said.out for name in ("before", "retrain", "ladder"))
    assert f"Report: {own_copy / 'report.html'}" in said.out


@pytest.mark.real
def test_a_feature_of_a_table_is_forgotten_and_judged(fedforget: Command, tmp_path: Path):
    run = tmp_path / "run"
    table = ("--dataset", "breast_cancer", "--model", "mlp", "--clients", "2", "--rounds", "12", "--lr", "0.05",
             "--batch-size", "16", "--threads", "1")  # fmt: skip
    only_json(fedforget("train", *table, "--out", run, "--json"))
    both = ("--client", "0", "--feature", "20", "--target", "client=1,feature=20")
    forgot = only_json(fedforget("forget", run, *both, "--json"))
    assert forgot["target"] == "column 20 of client 0 and column 20 of client 1"
    audit = only_json(fedforget("audit", run, "--json"))
    before, retrain, fedaf = audit["rows"]
    assert all(row.keys() >= ROW for row in audit["rows"])
    assert [row["bd_acc"] for row in audit["rows"]] == [None] * 3, "the samples stay: no accuracy is a memory"
    for name in ("target", "unseen"):
        assert max(row["sensitivity"][name] for row in (retrain, fedaf)) < before["sensitivity"][name] / 2
    assert (before["verdict"]["word"], fedaf["verdict"]["word"]) == ("not forgotten", "forgotten")
    page = (run / "report.html").read_text()
    assert "takes the model’s sensitivity to column 20 of client 0" in page
    assert f"{fedaf['sensitivity']['target']:.4f}" in page
    assert "Still recognised as trained" not in page
    said = fedforget("audit", run).out
    assert "S at" in said
    assert f"{before['sensitivity']['target']:.4f}" in said
    alone = only_json(fedforget("audit", run, "--level", "alone", "--json"))
    assert alone["rows"][2]["verdict"]["word"] == "not enough evidence"


@pytest.mark.real
def test_a_patch_of_an_image_and_a_further_one(fedforget: Command, own_copy: Path):
    words = ("--client", "0", "--feature", "2,2,3,4", "--target", "client=2,feature=0:1:2:2")
    result = only_json(fedforget("forget", own_copy, *words, "--json"))
    assert result["target"] == "the 3x4 patch at 2,2 of client 0 and the 2x2 patch at 0,1 of client 2"


@pytest.mark.real
def test_a_diverged_method_has_a_whole_row(fedforget: Command, own_copy: Path):
    label = held(0)[0]
    words = (
        "forget",
        own_copy,
        "--client",
        "0",
        "--class",
        label,
        "--method",
        "fedaf",
        "--set",
        "lr=1e30",
        "--set",
        "epochs=5",
    )
    assert "diverged" in refused(fedforget(*words))
    audit = only_json(fedforget("audit", own_copy, "--json"))
    assert all(row.keys() >= ROW for row in audit["rows"])
    assert audit["rows"][2]["test_acc"] is None
    assert "diverged" in fedforget("audit", own_copy).out


@pytest.mark.real
def test_samples_whole_clients_and_several_targets(fedforget: Command, own_copy: Path, tmp_path: Path):
    ids = ids_of(1)[:6]
    (tmp_path / "ids.txt").write_text(f"{ids[0]}, {ids[1]}\n{ids[2]} {ids[3]}\n\n{ids[4]},{ids[5]}\n")
    forget = ("forget", own_copy, "--json", "--method", "fedaf-c")
    result = only_json(fedforget(*forget, "--client", "1", "--samples", tmp_path / "ids.txt"))
    assert result["target"] == "6 samples of client 1"
    assert requests_id([ErasureRequest.of_samples(1, ids)]) in result["folder"]
    result = only_json(fedforget(*forget, "--client", "1", "--whole-client"))
    assert result["target"] == "everything of client 1"
    label = held(0)[0]
    several = ("--client", "0", "--class", label, "--target", "client=1", "--target", f"client=2,samples={tmp_path}/2")
    (tmp_path / "2").write_text(str(ids_of(2)[0]))
    result = only_json(fedforget(*forget, *several))
    assert result["target"] == f"class {label} of client 0 and everything of client 1 and 1 samples of client 2"
    audit = only_json(fedforget("audit", own_copy, "--json", *several))
    assert audit["target"] == result["target"]


def test_settings_are_passed_on(fedforget: Command, own_copy: Path):
    label = held(0)[0]
    words = ("--method", "overwrite", "--set", "lr=0.02", "--set", "memory=uniform", "--set", "stop_below=none",
             "--set", "normalise=false")  # fmt: skip
    result = only_json(fedforget("forget", own_copy, "--client", "0", "--class", label, "--json", *words))
    chosen = {name: result["settings"][name] for name in ("lr", "memory", "stop_below", "normalise")}
    assert chosen == {"lr": 0.02, "memory": "uniform", "stop_below": None, "normalise": False}


def test_none_is_a_word_only_where_the_setting_has_that_word(fedforget: Command, own_copy: Path):
    """`sketch_samples` is a word by default (auto) and may be nothing; `preserver` has `none` among its words."""
    words = ("--method", "overwrite", "--set", "sketch_samples=none", "--set", "preserver=none", "--set", "lr=0.01")
    result = only_json(fedforget("forget", own_copy, "--client", "0", "--class", held(0)[0], "--json", *words))
    assert (result["settings"]["sketch_samples"], result["settings"]["preserver"]) == (None, "none")


def test_a_configuration_file_and_options_that_win(fedforget: Command, tmp_path: Path):
    toml = tmp_path / "run.toml"
    toml.write_text(
        'dataset = "digits"\nclients = 2\ntrain_limit = 100\nbackdoor = "client=1,class=4,size=3"\n'
        "[schedule]\nrounds = 2\nlr = 0.05\nthreads = 1\n"
    )
    words = ("train", "--config", toml, "--rounds", "1", "--out", tmp_path / "run", "--json")
    assert only_json(fedforget(*words))["rounds"] == 1
    config = Run(tmp_path / "run").config
    assert (config.clients, config.schedule.lr, config.schedule.rounds) == (2, 0.05, 1)
    assert config.backdoor is not None
    said = fedforget("train", "--config", toml, "--rounds", "1", "--out", tmp_path / "again")
    assert said.out.startswith("Trained 1 round into ")
    assert (config.backdoor.request, config.backdoor.trigger.size) == (ErasureRequest.of_class(1, 4), 3)


def test_resume(fedforget: Command, tmp_path: Path):
    run = tmp_path / "run"
    whole = only_json(fedforget("train", *SMALL, "--out", run, "--json"))
    again = only_json(fedforget("train", "--resume", "--out", run, "--json"))
    assert again == whole


@pytest.mark.real
def test_the_demo_as_json(fedforget: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "Schedule", lambda **values: replace(Schedule(**values), rounds=2, threads=1))
    monkeypatch.setattr(auditing, "write_report", lambda path, *_: path.write_text("drawing takes long"))
    said = fedforget("demo", "--out", tmp_path / "demo", "--json")
    audits = only_json(said._replace(err=""))["audits"]
    assert said.err.startswith("1  Training: ")
    assert [audit["target"] for audit in audits] == ["class 3 of client 0", "class 7 of client 1"]
    assert all(row.keys() >= ROW for audit in audits for row in audit["rows"])
    said = fedforget("demo", "--out", tmp_path / "demo")
    assert said.code == 0
    assert "Going on with the federation" in said.out
    assert f"Report: {tmp_path / 'demo' / 'poisoned.html'}" in said.out
    assert f"Report: {tmp_path / 'demo' / 'honest.html'}" in said.out


@pytest.mark.real
def test_audit_with_a_level_judges_every_method(fedforget: Command, own_copy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auditing, "write_report", lambda *_: None)
    assert fedforget("forget", own_copy, "--client", "0", "--whole-client", "--method", "not").code == 0
    for words, oracles in (
        (("--level", "alone"), 0),
        ((), 3),
        (("--oracles", "2"), 2),
        (("--level", "full", "--oracles", "2"), 2),
    ):
        audit = only_json(fedforget("audit", own_copy, *words, "--json"))
        (row,) = [row for row in audit["rows"] if row["method"] == "not"]
        assert row["verdict"]["oracles"] == oracles
        record = read_evidence(own_copy / row["evidence"]["file"])
        assert record["level"] == (words[1] if "--level" in words else "quick")
        assert record["verdict"] == row["verdict"]
        assert only_json(fedforget("verify", own_copy / row["evidence"]["file"], "--json"))["verdict"] == row["verdict"]
    said = fedforget("audit", own_copy, "--level", "alone")
    (line,) = [line for line in said.out.splitlines() if line.startswith("not (default): ")]
    (row,) = [r for r in json.loads((own_copy / "audit.json").read_text())["rows"] if r["method"] == "not"]
    assert line == f"not (default): {row['verdict']['word']} (without oracle): {row['verdict']['reasons'][0]}"
    assert "before (None)" not in said.out


def test_verify_says_what_it_checked(fedforget: Command, evidence: Path, tmp_path: Path):
    record = read_evidence(evidence)
    said = fedforget("verify", evidence)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        f"The file is as it was written ({record['created']}, fedforget {record['fedforget']}).",
        "The model is the one that was examined (not, default).",
        f"The verdict follows from the readings: {record['verdict']['word']} (without oracle): "
        f"{record['verdict']['reasons'][0]}",
    ]
    as_json = only_json(fedforget("verify", evidence, "--json"))
    assert as_json == {"verified": True, "verdict": record["verdict"], "models": record["models"]}
    moved = evidence.with_name("model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    assert fedforget("verify", evidence, "--model", moved).out == said.out


def test_a_queued_request_is_said(fedforget: Command, own_copy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Run, "finished", property(lambda self: False))
    words = ("forget", own_copy, "--client", "0", "--class", held(0)[0])
    with Run(own_copy).training_lock():
        assert only_json(fedforget(*words, "--json")) == {"queued": True}
        assert "the request is queued and served before its next round" in fedforget(*words).out


def test_ctrl_c_is_one_sentence_and_130(fedforget: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedforget.cli.train.train_run", interrupt)
    said = fedforget("train", *SMALL, "--out", tmp_path / "run")
    assert said == Said(
        130, "", "Interrupted; what is done is kept, and the same command goes on (train with --resume).\n"
    )


# What is refused: train.

TRAIN: dict[str, tuple[tuple[str, ...], str]] = {
    "data set": (("--dataset", "mnits"), "Data set 'mnits' is unknown; did you mean 'mnist'?"),
    "missing file": (("--dataset", "nowhere.npz"), "The data file nowhere.npz does not exist."),
    "model": (("--model", "gpt"), "Model 'gpt' is unknown; choose one of cnn, mlp,"),
    "partition": (("--partition", "fair"), "Partition 'fair' is unknown; choose iid,"),
    "partition number": (("--partition", "shards:x"), "In partition 'shards:x', 'x' is not a fitting number."),
    "no clients": (("--clients", "0"), "Run setting 'clients' is 0, but it must be a whole number, 1 or larger."),
    "many clients": (("--clients", "9999"), "150 samples cannot be spread over 9999 clients; use fewer."),
    "negative rounds": (("--rounds", "-1"), "Training setting 'rounds' is -1, but it must be a finite number 0 or"),
    "negative lr": (("--lr", "-1"), "Training setting 'lr' is -1.0, but it must be a finite number above 0."),
    "nan lr": (("--lr", "nan"), "Training setting 'lr' is nan, but it must be a finite number above 0."),
    "infinite lr": (("--lr", "inf"), "Training setting 'lr' is inf, but it must be a finite number above 0."),
    "momentum": (("--momentum", "1"), "Training setting 'momentum' is 1.0, but it must be below 1."),
    "batch size": (("--batch-size", "0"), "Training setting 'batch_size' is 0, but it must be a finite number above"),
    "epochs": (("--epochs", "0"), "Training setting 'epochs' is 0, but it must be a finite number above 0."),
    "seed": (("--seed", "-4"), "Training setting 'seed' is -4, but it must be a finite number 0 or larger."),
    "threads": (("--threads", "0"), "Training setting 'threads' is 0, but it must be a finite number above 0."),
    "limit": (("--train-limit", "-3"), "Run setting 'train_limit' is -3, but it must be a whole number, 1 or larger."),
    "device": (("--device", "abacus"), "Device 'abacus' cannot be used on this machine; use cpu."),
    "backdoor": (("--backdoor", "client"), "The backdoor 'client' cannot be read; write it as client=0,class=3."),
    "backdoor word": (("--backdoor", "client=0,class=x"), "'x' is no class; give a whole number."),
    "backdoor key": (("--backdoor", "client=0,hue=3"), "The target 'client=0,hue=3' cannot be read; write"),
    "backdoor client": (("--backdoor", "client=9,class=3"), "Client 9 does not exist; this federation has"),
    "backdoor class": (("--backdoor", "client=0,class=12"), "Class 12 does not exist; the data has classes 0 to 9."),
    "backdoor size": (
        ("--backdoor", "client=0,class=3,size=x"),
        "The size and margin of the backdoor 'client=0,class=3,size=x' must be whole numbers.",
    ),
    "backdoor too large": (("--backdoor", "client=0,class=3,size=50"), "A trigger of size 50 with margin 0 does not"),
    "backdoor corner": (("--backdoor", "client=0,class=3,corner=middle"), "Corner 'middle' is unknown; choose one of"),
    "no run to resume": (("--resume",), "is not a run folder (it has no run.json); make one with `fedforget train`."),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*TRAIN, "data set, as JSON"])
def test_train_refuses(fedforget: Command, tmp_path: Path, kind: str):
    words, sentence = TRAIN[kind.removesuffix(", as JSON")]
    as_json = ("--json",) if kind.endswith("JSON") else ()
    assert sentence in refused(fedforget("train", *SMALL, *words, "--out", tmp_path / "run", *as_json))
    assert not (tmp_path / "run").exists()


CONFIGS: dict[str, tuple[str, str]] = {
    "bad TOML": ("clients = = 3", "cannot be read: "),
    "not text": ("\udcff", "cannot be read: "),
    "unknown entry": ("colour = 3", "The configuration has the unknown entry 'colour'; it may have "),
    "unknown setting": ("[schedule]\nspeed = 3", "the schedule has the unknown setting 'speed'."),
    "no table": ("schedule = 3", "'schedule' must be a table; write [schedule] and its settings below."),
    "wrong type": ('clients = "four"', "Run setting 'clients' is 'four', but it must be a whole number, 1 or larger."),
    "fraction": ("[schedule]\nrounds = 1.5", "Training setting 'rounds' is 1.5, but it must be a whole number."),
    "word": ('[schedule]\nlr = "fast"', "Training setting 'lr' is 'fast', but it must be a number."),
    "nan": ("[schedule]\nlr = nan", "Training setting 'lr' is nan, but it must be a finite number above 0."),
    "negative": ("[schedule]\nlr = -0.1", "Training setting 'lr' is -0.1, but it must be a finite number above 0."),
    "backdoor table": ("[backdoor]\nclient = 0", "'backdoor' must be text such as \"client=0,class=3\"."),
    "data set": ("dataset = 'emnist'", "Data set 'emnist' is unknown;"),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_bad_configuration_is_refused(fedforget: Command, tmp_path: Path, kind: str):
    content, sentence = CONFIGS[kind]
    (tmp_path / "run.toml").write_bytes(content.encode(errors="surrogateescape"))
    said = fedforget("train", "--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert sentence in refused(said)
    assert not (tmp_path / "run").exists()


def test_a_missing_configuration_is_refused(fedforget: Command, tmp_path: Path):
    said = fedforget("train", "--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert refused(said).startswith(f"The configuration {tmp_path / 'run.toml'} cannot be read: ")


def test_train_does_not_write_over_anything(fedforget: Command, own_copy: Path, tmp_path: Path):
    before = files(own_copy)
    assert "exists already; resume it with --resume" in refused(fedforget("train", *SMALL, "--out", own_copy))
    assert files(own_copy) == before
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x.jpg").write_text("x")
    assert "is not an empty folder" in refused(fedforget("train", *SMALL, "--out", tmp_path / "photos"))
    assert files(tmp_path / "photos") == {"x.jpg": b"x"}


def test_a_corrupt_data_file_is_refused(fedforget: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in MD5:
        (folder / name).write_bytes(gzip.compress(bytes(4000), mtime=0)[:-9])
    monkeypatch.setenv("FEDFORGET_DATA", str(tmp_path / "data"))
    before = files(tmp_path)
    sentence = refused(fedforget("train", "--dataset", "mnist", "--out", tmp_path / "run"))
    assert str(folder / next(iter(MD5))) in sentence
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    before.pop("data/mnist/t10k-labels-idx1-ubyte.gz")
    refused(fedforget("train", "--dataset", "mnist", "--out", tmp_path / "run"))
    assert files(tmp_path) == before


# What is refused: forget and audit.

OVERWRITE = ("--method", "overwrite", "--set")
FORGET: dict[str, tuple[tuple[str, ...], str]] = {
    "method": (("--method", "amnesia"), "Method 'amnesia' is unknown; choose one of ladder, overwrite, rebuild, "),
    "preset": (("--method", "fedaf", "--preset", "best"), "Method 'fedaf' has no preset 'best'; choose one of paper, "),
    "preset of nothing": (("--preset", "paper"), "A preset is one method's; name the method too, such as --method "),
    "effort": (("--effort", "huge"), "The rung 'huge' is unknown; choose one of overwrite, rebuild, retrain."),
    "end": (("--at-most", "huge"), "The rung 'huge' is unknown; choose one of overwrite, rebuild, retrain."),
    "effort above the end": (
        ("--effort", "retrain", "--at-most", "rebuild"),
        "The climb would begin at retrain and end at rebuild, which lies below it; choose a higher end or",
    ),
    "effort and method": (("--effort", "rebuild", "--method", "sga"), "leave them out, or leave out --method."),
    "end and method": (("--at-most", "rebuild", "--method", "sga"), "leave them out, or leave out --method."),
    "setting of a rung": (
        ("--set", "lr=0.1"), "lowest, at_most, limit, exact_below. For a setting of one method, name that method.",
    ),
    "setting of the ladder": (("--set", "limit=-1"), "Setting 'limit' of 'ladder' is -1, but it must be a finite"),
    "number for a name": (("--set", "at_most=3"), "Setting 'at_most' of 'ladder' is 3, but it must be a name."),
    "setting": ((*OVERWRITE, "speed=3"), "Method 'overwrite' has no setting 'speed'; it has amnesia_steps,"),
    "setting of the function": ((*OVERWRITE, "progress=3"), "Method 'overwrite' has no setting 'progress'; it has"),
    "setting named method": ((*OVERWRITE, "method=x"), "Method 'overwrite' has no setting 'method'; it has amnesia_"),
    "setting without value": (("--set", "lr"), "The setting 'lr' cannot be read; write it as NAME=VALUE."),
    "nan": ((*OVERWRITE, "lr=nan"), "Setting 'lr' of 'overwrite' is nan, but it must be a finite number, 0 or larger"),
    "infinite": ((*OVERWRITE, "lr=inf"), "Setting 'lr' of 'overwrite' is inf, but it must be a finite number, 0 or"),
    "negative": ((*OVERWRITE, "lr=-1"), "Setting 'lr' of 'overwrite' is -1, but it must be a finite number, 0 or"),
    "zero": ((*OVERWRITE, "sketch_rows=0"), "'sketch_rows' is 0, but it must be a finite number above 0."),
    "word": ((*OVERWRITE, "lr=fast"), "Setting 'lr' of 'overwrite' is 'fast', but it must be a finite number, 0 or"),
    "fraction": ((*OVERWRITE, "batch_size=1.5"), "Setting 'batch_size' of 'overwrite' is 1.5, but it must be a whole"),
    "date": ((*OVERWRITE, "lr=2020-01-01"), "Setting 'lr' of 'overwrite' is 2020-01-01, but it must be a finite "),
    "list": ((*OVERWRITE, "lr=[1]"), "Setting 'lr' of 'overwrite' is [1], but it must be a finite number, 0 or larger"),
    "none for a count": ((*OVERWRITE, "batch_size=none"), "Setting 'batch_size' of 'overwrite' is none, but it must"),
    "none for a word": ((*OVERWRITE, "memory=none"), "Setting 'memory' of 'overwrite' is none, but it must be uniform"),
    "none for a size": ((*OVERWRITE, "sketch_rows=none"), "Setting 'sketch_rows' of 'overwrite' is none, but it must"),
    "none of nothing": ((*OVERWRITE, "speed=none"), "Method 'overwrite' has no setting 'speed'; it has amnesia_steps,"),
    "none of a property": ((*OVERWRITE, "dtype=none"), "Method 'overwrite' has no setting 'dtype'; it has amnesia_"),
    "unknown memory": ((*OVERWRITE, "memory=good"), "Setting 'memory' of 'overwrite' is 'good', but it must be"),
    "device": (("--device", "abacus"), "Device 'abacus' cannot be used on this machine; use cpu."),
    "sketch": ((*OVERWRITE, "sketch_rows=1000000000"), "A sketch of 1000000000 rows for "),
    "target": (("--target", "client=1,hue=3"), "The target 'client=1,hue=3' cannot be read; write client=0,class=3,"),
    "target words": (("--target", "everything"), "The target 'everything' cannot be read; write it as client=0,class="),
    "further client": (("--target", "client=7"), "Client 7 does not exist; this federation has clients 0 to 2."),
}  # fmt: skip


@pytest.mark.daily(10)
@pytest.mark.parametrize("kind", [*FORGET, "sketch, as JSON"])
def test_forget_refuses(fedforget: Command, trained: Path, kind: str):
    words, sentence = FORGET[kind.removesuffix(", as JSON")]
    as_json = ("--json",) if kind.endswith("JSON") else ()
    before = files(trained)
    target = ("--client", "0", "--class", held(0)[0])
    assert sentence in refused(fedforget("forget", trained, *target, *words, *as_json))
    assert files(trained) == before


TARGETS: dict[str, tuple[tuple[str, ...], str]] = {
    "no target": ((), "Name one target, and whose it is: --client 0 with --class 3, --samples FILE, --feature "
                      "COLUMN or --whole-client."),
    "no client": (("--class", "3"), "Name one target, and whose it is: "),
    "client alone": (("--client", "0"), "Name one target, and whose it is: "),
    "two targets": (("--client", "0", "--class", "3", "--whole-client"), "Name one target, and whose it is: "),
    "unknown class": (("--client", "0", "--class", "10"), "Class 10 does not exist; the data has classes 0 to 9."),
    "negative class": (("--client", "0", "--class", "-1"), "A class request must name the class to forget, a number"),
    "unknown client": (("--client", "3", "--class", "3"), "Client 3 does not exist; this federation has clients 0 to"),
    "negative client": (("--client", "-1", "--whole-client"), "Client -1 does not exist; clients are numbered from 0."),
    "class not held": (("--client", "0", "--class", "NOT HELD"), "Client 0 holds no sample of class "),
    "all there is": (
        ("--target", "client=0", "--target", "client=1", "--target", "client=2"),
        "The target is all the data there is, so no model would be left; delete the model instead.",
    ),
    "missing samples": (("--client", "0", "--samples", "FOLDER/none"), "cannot be read: No such file or directory."),
    "samples in a folder": (("--client", "0", "--samples", "FOLDER"), "cannot be read: Is a directory."),
    "junk samples": (("--client", "0", "--samples", "FOLDER/junk"), "is no sample id; give a whole number."),
    "binary samples": (("--client", "0", "--samples", "FOLDER/binary"), "is no sample id; give a whole number."),
    "empty samples": (("--client", "0", "--samples", "FOLDER/empty"), "The target is empty: a sample request must"),
    "unknown samples": (("--client", "0", "--samples", "FOLDER/unknown"), "Sample 999999 is not among client 0's"),
    "huge samples": (("--client", "0", "--samples", "FOLDER/huge"), "is no sample id; give a whole number"),
    "two features": (("--client", "0", "--feature", "0,0,2,2", "--class", "3"), "Name one target, and whose it is: "),
    "no feature": (("--client", "0", "--feature", "left"), "'left' is no feature; give the number of a column, or a"),
    "a column of an image": (("--client", "0", "--feature", "3"), "have the shape (1, 8, 8) and no columns;"),
    "a patch outside": (("--client", "0", "--feature", "6,6,3,3"), "The patch 6,6,3,3 reaches beyond the image of 8x8"),
    "an empty patch": (("--client", "0", "--feature", "6,6,0,3"), "The patch 6,6,0,3 is empty;"),
    "a feature among words": (("--target", "client=0,feature=left"), "'left' is no feature; give the number of a"),
    "a feature by samples": (
        ("--client", "0", "--feature", "2,2,2,2", "--method", "sga"),
        "Method 'sga' cannot forget the 2x2 patch at 2,2 of client 0: it takes back what the samples' labels taught",
    ),
    "a feature as in the paper": (
        ("--client", "0", "--feature", "2,2,2,2", "--method", "fedaf"),
        "it is the paper's, which says nothing of features; use one of ladder, overwrite, retrain,",
    ),
    "a feature and the rung that cannot": (
        ("--client", "0", "--feature", "2,2,2,2", "--effort", "rebuild"),
        "Method 'rebuild' cannot forget the 2x2 patch at 2,2 of client 0: it asks how well the target is known",
    ),
    "another's samples": (("--client", "0", "--samples", "FOLDER/foreign"), "(nor are 2 more); a client can only"),
}  # fmt: skip


@pytest.mark.daily(10)
@pytest.mark.parametrize("kind", TARGETS)
def test_forget_refuses_targets(fedforget: Command, trained: Path, tmp_path: Path, kind: str):
    (tmp_path / "junk").write_text("1, 2, three")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "unknown").write_text(f"{ids_of(0)[0]} 999999")
    (tmp_path / "huge").write_text(str(2**80))
    (tmp_path / "foreign").write_text(" ".join(map(str, ids_of(1)[:3])))
    absent = str(next(label for label in range(10) if label not in held(0)))
    words, sentence = TARGETS[kind]
    words = tuple(word.replace("FOLDER", str(tmp_path)).replace("NOT HELD", absent) for word in words)
    before = files(trained)
    assert sentence in refused(fedforget("forget", trained, *words))
    assert files(trained) == before


def test_a_sketch_that_does_not_fit_says_what_would(fedforget: Command, trained: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planning, "available_bytes", lambda device: 2**20)
    before = files(trained)
    words = ("--client", "0", "--class", held(0)[0], *OVERWRITE, "sketch_rows=75")
    sentence = refused(fedforget("forget", trained, *words))
    assert sentence.startswith("A sketch of 75 rows for 14,538 parameters needs 0.00 GiB")
    assert "use 14 rows or fewer, or store it as bfloat16." in sentence
    assert files(trained) == before


AUDIT: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing forgotten": ((), "Nothing has been forgotten in "),
    "half a target": (("--client", "0"), "Name one target, and whose it is: "),
    "level": (("--level", "deep"), "Level 'deep' is unknown; choose one of alone, quick, full."),
    "one oracle": (("--oracles", "1"), "1 oracles cannot judge anything; use 2 or more, with the level quick or full."),
    "oracles alone": (("--level", "alone", "--oracles", "3"), "3 oracles cannot judge anything; use 2 or more, with"),
}


@pytest.mark.parametrize("kind", AUDIT)
def test_audit_refuses(fedforget: Command, trained: Path, kind: str):
    words, sentence = AUDIT[kind]
    before = files(trained)
    assert sentence in refused(fedforget("audit", trained, *words))
    assert files(trained) == before


def test_audit_refuses_another_target(fedforget: Command, forgotten: Path):
    before = files(forgotten)
    sentence = refused(fedforget("audit", forgotten, "--client", "1", "--whole-client"))
    assert sentence.startswith("No method has forgotten everything of client 1 in ")
    assert files(forgotten) == before


def flip_a_byte(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_one_changed_byte_of_the_model_is_noticed(fedforget: Command, evidence: Path):
    model = evidence.with_name("model.safetensors")
    for place in (0, len(model.read_bytes()) // 2, -1):
        flip_a_byte(model, place)
        for words in (("verify", evidence), ("verify", evidence, "--json"), ("verify", evidence, "--model", model)):
            assert refused(fedforget(*words)).startswith(f"{model} is not the model that was examined: its SHA-256 is ")
        flip_a_byte(model, place)
    assert fedforget("verify", evidence).code == 0


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The file with another content and a right checksum."""
    record = read_evidence(path)
    change(record)
    write_evidence(path, record)


def flattered(record: dict[str, Any]) -> None:
    record["verdict"]["word"] = "over-forgotten"


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (lambda path: path.unlink(), "evidence-alone.json cannot be read: No such file or directory."),
    "a folder": (
        lambda path: (path.unlink(), path.mkdir()),
        "evidence-alone.json is not a run folder (it has no run.json)",
    ),
    "no JSON": (lambda path: path.write_text("{"), "is no evidence file, or it was changed: it is not readable JSON."),
    "no object": (lambda path: path.write_text("[]"), "is no evidence file, or it was changed"),
    "deep": (lambda path: path.write_text("[" * 100_000), "is no evidence file, or it was changed"),
    "a byte": (lambda path: flip_a_byte(path, len(path.read_bytes()) // 2), "evidence-alone.json "),
    "another schema": (lambda path: path.write_text('{"schema": 3}'), "has the schema 3, but this fedforget reads"),
    "no number": (
        lambda path: path.write_text(path.read_text().replace('"error": ', '"error": NaN, "was": ', 1)),
        "is no evidence file, or it was changed: what it holds makes no sense.",
    ),
    "another verdict": (lambda path: rewritten(path, flattered), "does not follow from its readings, which say: "),
    "no verdict": (lambda path: rewritten(path, lambda r: r.pop("verdict")), "what it holds makes no sense."),
    "no readings": (lambda path: rewritten(path, lambda r: r.pop("readings")), "what it holds makes no sense."),
    "no models": (lambda path: rewritten(path, lambda r: r.update(models=3)), "what it holds makes no sense."),
    "no time": (lambda path: rewritten(path, lambda r: r.pop("created")), "what it holds makes no sense."),
    "no model": (lambda path: path.with_name("model.safetensors").unlink(), "is not there; name it with --model."),
    "model folder": (
        lambda path: (path.with_name("model.safetensors").unlink(), path.with_name("model.safetensors").mkdir()),
        "model.safetensors cannot be read: Is a directory.",
    ),
}


@pytest.mark.parametrize("kind", FORGED)
def test_verify_refuses(fedforget: Command, evidence: Path, kind: str):
    change, sentence = FORGED[kind]
    change(evidence)
    assert sentence in refused(fedforget("verify", evidence))


def damage_version(run: Path) -> None:
    write_json(run / "run.json", json.loads((run / "run.json").read_text()) | {"version": 99})


def damage_seed(run: Path) -> None:
    text = (run / "run.json").read_text()
    assert '"seed": 0' in text
    (run / "run.json").write_text(text.replace('"seed": 0', '"seed": 1'))


def damage_checkpoint(run: Path) -> None:
    path = run / Run(run).state["model"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


RUNS: dict[str, tuple[Callable[[Path], object], str]] = {
    "not a run": (lambda run: (run / "run.json").unlink(), "is not a run folder (it has no run.json); make one with"),
    "not there": (shutil.rmtree, "is not a run folder (it has no run.json); make one with `fedforget train`."),
    "other version": (damage_version, "is of version 99, but this fedforget reads"),
    "no JSON": (lambda run: (run / "run.json").write_text("{"), "run.json is damaged"),
    "another seed": (damage_seed, "run.json is damaged (its checksum is not the one written down)"),
    "damaged state": (lambda run: (run / "state.json").write_text('{"round": 2}'), "state.json is damaged"),
    "no state": (lambda run: (run / "state.json").unlink(), "has no state.json, so its training never began;"),
    "damaged checkpoint": (damage_checkpoint, "is damaged (its checksum is not the one written down);"),
    "no checkpoint": (lambda run: (run / Run(run).state["model"]).unlink(), "is missing; restore it from a backup"),
}


@pytest.mark.daily(8)
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("command", ["forget", "audit", "train"])
def test_a_folder_that_is_no_whole_run_is_refused(
    fedforget: Command, forgotten: Path, tmp_path: Path, command: str, kind: str
):
    label = held(0)[0]
    run = Path(shutil.copytree(forgotten, tmp_path / "copy"))
    damage, sentence = RUNS[kind]
    damage(run)
    before = files(run)
    words: tuple[str | Path, ...] = {
        "forget": ("forget", run, "--client", "0", "--class", str(label)),
        "audit": ("audit", run),
        "train": ("train", "--resume", "--out", run),
    }[command]
    if (command, kind) == ("train", "no state"):
        assert fedforget(*words).code == 0, "the one thing training can mend: it begins"
        return
    assert sentence in refused(fedforget(*words))
    after = files(run)
    after.pop(".lock", None)
    before.pop(".lock", None)
    assert after == before


@pytest.mark.parametrize(
    "words", [("train",), ("train", "--out", "x", "--rounds", "many"), ("fly",), ("forget",), ("audit", "--nope")]
)
def test_usage_errors_exit_with_2_too(fedforget: Command, tmp_path: Path, monkeypatch: Any, words: tuple[str, ...]):
    monkeypatch.chdir(tmp_path)
    said = fedforget(*words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: " in said.err
    assert "Traceback" not in said.err
    assert files(tmp_path) == {}


@pytest.mark.real
@pytest.mark.parametrize(
    "command", [[str(Path(sys.executable).parent / "fedforget")], [sys.executable, "-m", "fedforget"]]
)
def test_the_installed_command_in_a_process_of_its_own(tmp_path: Path, command: list[str]):
    assert Path(command[0]).exists(), "the package is not installed in this environment"
    said = subprocess.run(
        [*command, "audit", str(tmp_path)], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == f"{tmp_path} is not a run folder (it has no run.json); make one with `fedforget train`.\n"
    usage = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=120, check=True).stdout
    assert "Usage: fedforget [OPTIONS]" in usage


def test_a_result_that_was_changed_is_not_shown(
    fedforget: Command, forgotten: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between being written and being shown; a result is read by its seal everywhere."""
    folder = Path(shutil.copytree(forgotten, tmp_path / "run"))
    (branch,) = folder.glob("forgotten/fedaf-c-*")
    path = branch / "result.json"
    path.write_text(path.read_text().replace('"exact": false', '"exact": true'))
    monkeypatch.setattr("fedforget.cli.forget.forget_run", lambda *_, **__: branch)
    said = fedforget("forget", folder, "--client", "0", "--class", str(held(0)[0]), "--method", "fedaf-c")
    assert f"{path} is damaged (its checksum is not the one written down)" in refused(said)
