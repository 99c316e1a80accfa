"""What an earlier fedforget wrote still reads, without the guard that it names, and what is written reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedforget.audit.evidence import read_evidence
from fedforget.errors import InputError
from fedforget.ledger.results import CheckedResult
from fedforget.requests import ErasureRequest
from fedforget.runs.folder import Run
from fedforget.runs.forget import results_of
from fedforget.runs.job import Job, Outcome
from fedforget.runs.record import Audit, Result
from fedforget.runs.store import read_sealed, write_sealed

OLD = Path(__file__).parent.parent / "reference" / "old_run"
"""A run folder without its models, from before there were records, and what its ledger kept of a held result."""
GUARDED, DIVERGED = (OLD / "forgotten" / f"fedaf-{name}-7fd7bb6c69" for name in ("guarded", "paper"))
ASKED = (ErasureRequest.of_class(client=0, label=3),)


def test_the_results_of_an_old_run_still_read():
    run = Run(OLD)
    results = results_of(run)
    assert results.keys() == {GUARDED, DIVERGED}
    result, diverged = results[GUARDED], results[DIVERGED]
    assert {r.requests for r in results.values()} == {ASKED}
    assert {r.before for r in results.values()} == {run.trunk}
    assert (result.name, result.id, result.diverged) == ("fedaf:guarded", "7fd7bb6c69", None)
    assert (result.sha256[:8], result.exact) == ("33c9ca6d", False)
    assert result.cost.total_seconds == pytest.approx(4.855, abs=0.001)
    assert result.settings["teachers"] == 10
    assert diverged.diverged == "forgetting diverged: the loss is no longer finite; lower lr (0.05)."


@pytest.mark.parametrize("folder", [GUARDED, DIVERGED], ids=["made", "diverged"])
def test_a_result_is_written_as_it_was(folder: Path, tmp_path: Path):
    written, result = read_sealed(folder / "result.json"), Result.read(folder)
    written.pop("guard", None)
    assert result.to_json() == (written if "diverged" in written else {**written, "exact": False})
    result.write(tmp_path)
    assert Result.read(tmp_path) == result


@pytest.mark.parametrize("gone", ["method", "requests", "before", "sha256", "cost"])
def test_a_result_that_lacks_something_is_refused(tmp_path: Path, gone: str):
    values = read_sealed(GUARDED / "result.json")
    write_sealed(tmp_path / "result.json", {name: value for name, value in values.items() if name != gone})
    with pytest.raises(InputError, match="is damaged and cannot be read; delete its folder and forget again"):
        Result.read(tmp_path)


def test_the_audit_of_an_old_run_still_reads(tmp_path: Path):
    written = json.loads((OLD / "audit.json").read_text())
    audit = Audit.from_json(written)
    assert (audit.requests, audit.level, audit.target_samples) == (ASKED, None, 74)
    assert [row.name for row in audit.rows] == ["before", "retrain:default", "fedaf:guarded", "pgd:default"]
    row = audit.row("fedaf:guarded")
    assert row.cost == Result.read(GUARDED).cost
    assert row.now is not None
    assert row.now.retained_acc == written["rows"][2]["retained_acc"]
    assert row.evidence is not None
    assert OLD / row.evidence["file"] == GUARDED / "evidence-quick-return.json"
    left = {"closeness", "class_gaps"}
    rows = [{name: value for name, value in row.items() if name not in left} for row in written["rows"]]
    assert audit.to_json() == written | {"level": None, "rows": rows}, "all but what an audit no longer finds"
    audit.write(tmp_path)
    assert Audit.from_json(json.loads((tmp_path / "audit.json").read_text())) == audit


def test_what_an_earlier_fedforget_said_of_a_job_is_said_again(tmp_path: Path):
    """It serves the job once more, from the model that is there."""
    run, audit = Run(OLD), Audit.from_json(json.loads((OLD / "audit.json").read_text()))
    job = Job(run.config, 1, "model.safetensors", run.trunk.sha256, ASKED, (), "fedaf", "guarded")
    write_sealed(
        tmp_path / "outcome.json", {"job": job.id, "method": "fedaf", "model": "forgotten/x/model.safetensors"}
    )
    assert Outcome.read(tmp_path, job) is None
    outcome = Outcome(job.id, "forgotten/x", Result.read(GUARDED), audit.row("before"), audit.row("fedaf:guarded"))
    outcome.write(tmp_path)
    assert Outcome.read(tmp_path, job) == outcome
    assert outcome.model == "forgotten/x/model.safetensors"


def test_old_evidence_still_reads_and_its_verdict_follows():
    record = read_evidence(GUARDED / "evidence-quick-return.json")
    assert record["verdict"]["word"] == "not enough evidence"
    assert record["models"]["subject"]["sha256"] == Result.read(GUARDED).sha256


def test_an_old_result_that_waits_for_an_officer_still_reads():
    held = json.loads((OLD / "candidate.json").read_text())
    checked, result = CheckedResult(**held), Result.read(GUARDED)
    assert checked.to_json() == held | {"rungs": (), "retrain": {}}, "it is of before the ladder"
    assert checked.model == result.sha256
    assert checked.reason_to_hold(1.0, 0.0) == "The audit says: not enough evidence."
