"""The audit of a run folder with verdicts: what it writes, what it trains and what it does not, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedforget.audit.evidence import read_evidence, verify_evidence
from fedforget.audit.membership import AttackMembership
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import DivergedError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs import audit as auditing
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import branch_folder, forget_run
from fedforget.runs.store import load_model
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)
OTHER = ErasureRequest.of_class(1, 5)
CONFIG = RunConfig(
    clients=3,
    model="mlp",
    schedule=Schedule(rounds=3, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=750,
)
WORDS = {"forgotten", "not forgotten", "over-forgotten", "not enough evidence"}


class Stop(Exception):
    """An interruption of the test's own."""


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest; tests/report/test_report.py looks at the page."""
    monkeypatch.setattr(auditing, "write_report", lambda *_: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Every task that reaches a client, once for each client."""
    log: list[Task] = []
    ask = LocalFederation.ask

    def recorded(
        self: LocalFederation, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None
    ) -> Iterator[Reply]:
        for reply in ask(self, task, state, to):
            log.append(task)
            yield reply

    monkeypatch.setattr(LocalFederation, "ask", recorded)
    return log


def trainings(asked: list[Task]) -> Counter[int]:
    """How many clients trained in ordinary rounds for each seed: Retrain and oracle 0 have the run's own."""
    return Counter(task.seed for task in asked if isinstance(task, Train) and task.purpose == "train")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which two methods have served the request; tests take copies."""
    folder = train_run(tmp_path_factory.mktemp("auditing") / "run", CONFIG).folder
    for method in ("fedaf-c", "not"):
        forget_run(folder, [CLASS], method)
    return folder


@pytest.fixture
def run(forgotten: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(forgotten, tmp_path / "run"))


@pytest.fixture(scope="module")
def audited(forgotten: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after a quick audit; tests take copies or only look."""
    folder = Path(shutil.copytree(forgotten, tmp_path_factory.mktemp("audited") / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditing, "write_report", lambda *_: None)
        audit_run(folder, level="quick")
    return folder


def evidence_files(folder: Path, level: str = "quick") -> dict[str, Path]:
    """By the method whose model they speak of."""
    found = folder.glob(f"forgotten/*/evidence-{level}.json")
    return {path.parent.name.partition("-default")[0]: path for path in found}


def without_the_time(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "created"}


# What is written


def test_every_model_that_forgot_gets_a_verdict_and_its_evidence(audited: Path):
    audit = json.loads((audited / "audit.json").read_text())
    rows = {row["method"]: row for row in audit["rows"]}
    assert list(rows) == ["before", "retrain", "fedaf-c", "not"]
    assert {name for name, row in rows.items() if row.get("verdict")} == {"before", "fedaf-c", "not"}
    assert rows["before"]["verdict"]["word"] == "not forgotten"
    found = evidence_files(audited)
    assert found.keys() == {"fedaf-c", "not"}, "Retrain is one of the oracles, and before has forgotten nothing"
    run = Run(audited)
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    own = federation.client(0).samples
    ids = sorted(own.ids[own.true_labels == 3].tolist())
    fingerprint = hashlib.sha256(b"".join(struct.pack("<q", number) for number in ids)).hexdigest()[:12]
    for method, path in found.items():
        record, row = verify_evidence(path), rows[method]
        assert row["verdict"] == record["verdict"]
        assert row["evidence"] == {
            "file": str(path.relative_to(audited)), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }  # fmt: skip
        assert record["verdict"]["word"] in WORDS
        assert (record["verdict"]["oracles"], record["verdict"]["with_oracle"], record["level"]) == (3, True, "quick")
        assert record["request"] == {
            "requests": [CLASS.to_json()], "served": [], "samples": len(ids), "ids_fingerprint": fingerprint,
        }  # fmt: skip
        assert record["run"]["config"] == CONFIG.to_json()
        subject, before = record["models"]["subject"], record["models"]["before"]
        result = json.loads(path.with_name("result.json").read_text())
        model = load_model(path.with_name("model.safetensors"), result["sha256"])
        assert (subject["method"], subject["sha256"], subject["digest"]) == (method, result["sha256"], digest(model))
        assert subject["settings"] == result["settings"]
        assert before == {"digest": digest(run.load_model()), "sha256": run.trunk.sha256}
        assert len(set(record["models"]["oracles"])) == 3
        assert record["models"]["oracles"][0] == rows["retrain"]["model"]
        assert all(len(reading["oracles"]) == 3 for reading in record["readings"])
        assert {"subject", "before", "oracles"} == record["pictures"].keys()
        assert record["notes"] == []


@pytest.mark.real
def test_nothing_is_trained_twice(audited: Path, tmp_path: Path, asked: list[Task]):
    folder = Path(shutil.copytree(audited, tmp_path / "run"))
    first = {method: read_evidence(path) for method, path in evidence_files(folder).items()}
    before = json.loads((folder / "audit.json").read_text())
    again = audit_run(folder, level="quick").to_json()
    assert again == json.loads((folder / "audit.json").read_text()), "what is returned is what is written"
    assert trainings(asked) == {}
    assert [row.get("verdict") for row in again["rows"]] == [row.get("verdict") for row in before["rows"]]
    for method, path in evidence_files(folder).items():
        assert without_the_time(verify_evidence(path)) == without_the_time(first[method])

    asked.clear()
    more = audit_run(folder, level="quick", oracles=4).to_json()
    assert sorted(trainings(asked).values()) == [3 * 3], "one oracle more: three clients, three rounds"
    assert {row["verdict"]["oracles"] for row in more["rows"] if row.get("verdict")} == {4}
    kept = [read_evidence(path)["models"]["oracles"][:3] for path in evidence_files(folder).values()]
    assert kept == [record["models"]["oracles"] for record in first.values()]


@pytest.mark.real
def test_oracles_are_trained_without_the_target_and_with_seeds_of_their_own(run: Path, asked: list[Task]):
    audit_run(run, level="quick", oracles=2)
    seeds = trainings(asked)
    assert seeds.pop(CONFIG.schedule.seed) == 3 * 3, "Retrain, which is oracle 0, is trained once"
    assert list(seeds.values()) == [3 * 3]
    assert {task.exclude for task in asked if isinstance(task, Train)} == {(CLASS,)}
    assert len(list((run / "oracles").glob("*.safetensors"))) == 1, "Retrain has its own folder"


def test_alone_trains_no_retrain_and_no_oracle(run: Path, asked: list[Task]):
    audit = audit_run(run, level="alone").to_json()
    assert trainings(asked) == {}
    assert [row["method"] for row in audit["rows"]] == ["before", "fedaf-c", "not"]
    assert not (run / "oracles").exists()
    assert not list((run / "forgotten").glob("retrain-*"))
    for row in audit["rows"]:
        assert (row["verdict"]["oracles"], row["verdict"]["word"]) == (0, "not enough evidence")
    assert evidence_files(run, "alone").keys() == {"fedaf-c", "not"}
    for path in evidence_files(run, "alone").values():
        record = verify_evidence(path)
        assert (record["level"], record["models"]["oracles"]) == ("alone", [])
        assert all("oracles" not in reading or reading["oracles"] == [] for reading in record["readings"])


@pytest.mark.real
def test_alone_a_retrain_that_is_there_is_examined_like_any_other_and_exact(audited: Path, tmp_path: Path):
    folder = Path(shutil.copytree(audited, tmp_path / "run"))
    rows = {row["method"]: row for row in audit_run(folder, level="alone").to_json()["rows"]}
    assert rows["retrain"]["verdict"]["word"] == "exact"
    assert rows["retrain"]["verdict"]["findings"][0]["value"] is not None
    assert evidence_files(folder, "alone").keys() == {"retrain", "fedaf-c", "not"}
    for method, path in evidence_files(audited).items():
        assert evidence_files(folder)[method].read_bytes() == path.read_bytes(), "another level's evidence stays"
    assert rows["not"]["evidence"]["file"].endswith("/evidence-alone.json")


@pytest.mark.real
def test_full_looks_closer(audited: Path, tmp_path: Path):
    """With as few oracles as can be; it takes eight otherwise."""
    assert auditing.ORACLES == {"alone": 0, "quick": 3, "full": 8}
    folder = Path(shutil.copytree(audited, tmp_path / "run"))
    audit_run(folder, level="full", oracles=2)
    record = verify_evidence(evidence_files(folder, "full")["not"])
    assert (record["level"], record["verdict"]["oracles"]) == ("full", 2)
    assert record["pictures"]["subject"]["comes back"]["rounds"] == [0, 1, 3, 5]


def test_without_a_level_there_is_no_verdict(run: Path, asked: list[Task]):
    audit = audit_run(run).to_json()
    assert not any("verdict" in row for row in audit["rows"])
    assert not list(run.rglob("evidence*"))
    assert not any(isinstance(task, AttackMembership) for task in asked)


def test_a_method_that_diverged_has_no_verdict_and_the_others_do(run: Path):
    with pytest.raises(DivergedError, match="diverged"):
        forget_run(run, [CLASS], "fedaf", "paper", lr=1e30, epochs=5)
    rows = {row["method"]: row for row in audit_run(run, level="alone").to_json()["rows"]}
    assert "verdict" not in rows["fedaf"]
    assert rows["not"]["verdict"]["word"] in WORDS
    assert evidence_files(run, "alone").keys() == {"fedaf-c", "not"}


@pytest.mark.real
def test_a_model_made_anew_is_not_the_one_that_was_examined(audited: Path, tmp_path: Path):
    folder = Path(shutil.copytree(audited, tmp_path / "run"))
    path = evidence_files(folder)["fedaf-c"]
    forget_run(folder, [CLASS], "fedaf-c", lr=0.03)
    with pytest.raises(InputError, match="is not the model that was examined"):
        verify_evidence(path)
    audit_run(folder, level="quick")
    assert verify_evidence(path)["models"]["subject"]["settings"]["lr"] == 0.03


@pytest.mark.real
def test_the_second_request_is_judged_without_what_the_first_took(run: Path, asked: list[Task]):
    forget_run(run, [CLASS], "not", adopt=True)
    forget_run(run, [OTHER], "not")
    asked.clear()
    audit_run(run, [OTHER], level="quick", oracles=2)
    assert {task.exclude for task in asked if isinstance(task, Train)} == {(CLASS, OTHER)}
    assert {task.served for task in asked if isinstance(task, AttackMembership)} == {(CLASS,)}
    record = verify_evidence(branch_folder(Run(run), [OTHER], "not", "default") / "evidence-quick.json")
    assert record["request"]["served"] == [CLASS.to_json()]
    assert record["request"]["requests"] == [OTHER.to_json()]
    assert record["models"]["before"]["digest"] == digest(Run(run).load_model())
    assert record["request"]["samples"] > 20
    assert record["notes"] == []


@pytest.mark.real
def test_evidence_in_which_no_oracle_has_a_measure_is_accepted(run: Path):
    """So few samples that there are no attacks, of any model."""
    own = CONFIG.build_federation(CONFIG.load_dataset()).client(1).samples
    few = ErasureRequest.of_samples(1, own.ids[:12].tolist())
    forget_run(run, [few], "not")
    audit_run(run, [few], level="quick", oracles=2)
    record = verify_evidence(branch_folder(Run(run), [few], "not", "default") / "evidence-quick.json")
    assert record["verdict"]["with_oracle"]
    assert record["verdict"]["word"] == "not enough evidence"
    assert record["notes"][0].startswith("Client 1 has 12 target samples and ")


# Interruptions


def stop_at(what: str, done: int) -> Callable[[str, int, int], None]:
    """A progress callback that interrupts once `what` has come so far."""

    def progress(now: str, so_far: int, total: int) -> None:
        if now == what and so_far == done:
            raise Stop

    return progress


@pytest.mark.real
@pytest.mark.parametrize(
    ("what", "done"),
    [("retrain", 5), ("oracles", 4), ("oracles", 15), ("examining", 2)],
)
def test_an_interrupted_audit_goes_on_and_finds_the_same(
    run: Path, audited: Path, asked: list[Task], what: str, done: int
):
    with pytest.raises(Stop):
        audit_run(run, level="quick", progress=stop_at(what, done))
    assert not (run / "audit.json").exists()
    begun = sum(trainings(asked).values())
    asked.clear()
    audit_run(run, level="quick")
    twice = begun + sum(trainings(asked).values()) - 3 * 9
    assert twice == (0 if what == "examining" else (done - 1) % 3 + 1), "the round that was cut off is done again"
    for method, path in evidence_files(audited).items():
        expected, found = read_evidence(path), verify_evidence(evidence_files(run)[method])
        assert without_the_time(found) == without_the_time(expected)
    assert not list((run / "oracles").glob("*unfinished*"))


@pytest.mark.real
def test_the_progress_counts_to_its_total(run: Path):
    seen: list[tuple[str, int, int]] = []
    audit_run(run, level="quick", oracles=2, progress=lambda *step: seen.append(step))
    for what in ("retrain", "measuring", "oracles", "examining oracles", "examining"):
        steps = [(done, total) for name, done, total in seen if name == what]
        assert steps[-1][0] == steps[-1][1] > 0, what
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


# Refusals


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"level": "deep"}, "Level 'deep' is unknown; choose one of alone, quick, full."),
        ({"level": "quick", "oracles": 1}, "1 oracles cannot judge anything; use 2 or more, with the level quick or"),
        ({"level": "full", "oracles": 0}, "0 oracles cannot judge anything; use 2 or more, with the level quick or"),
        ({"level": "quick", "oracles": -3}, "-3 oracles cannot judge anything; use 2 or more, with the level quick or"),
        ({"level": "alone", "oracles": 3}, "3 oracles cannot judge anything; use 2 or more, with the level quick or"),
        ({"oracles": 3}, "3 oracles cannot judge anything; use 2 or more, with the level quick or full."),
    ],
)
def test_what_is_refused_leaves_no_trace(forgotten: Path, asked: list[Task], words: dict[str, Any], sentence: str):
    before = files(forgotten)
    with pytest.raises(InputError) as refusal:
        audit_run(forgotten, **words)
    assert str(refusal.value).startswith(sentence)
    assert str(refusal.value).count(".") == 1
    assert files(forgotten) == before
    assert asked == []
