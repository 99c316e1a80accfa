"""The evidence file: whatever byte is changed, in it or in the model, is noticed; and the verdict must follow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedforget.audit.evidence import (
    SCHEMA,
    evidence_record,
    read_evidence,
    readings_of,
    verify_evidence,
    write_evidence,
)
from fedforget.audit.verdict import Evidence, Reading, conclude
from fedforget.errors import InputError
from fedforget.runs import save_model

READINGS = [
    Evidence("accuracy", "high", Reading(0.6, 0.2), Reading(66.0, 1.2), tuple(Reading(v, 0.2) for v in (0.4, 0.7))),
    Evidence("loss", "low", Reading(2.0, 0.1), Reading(0.1, 0.1), tuple(Reading(v, 0.1) for v in (2.1, 1.9)), False),
]


def record(file: str, sha256: str, readings: list[Evidence] = READINGS) -> dict[str, Any]:
    return evidence_record(
        request={"requests": [], "samples": 12},
        run={"dataset": "digits"},
        models={"subject": {"file": file, "sha256": sha256}},
        readings=readings,
        verdict=conclude(readings, with_oracle=True),
        pictures={"curve": [0.5, 1.0]},
        level="quick",
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sha256 = save_model(tmp_path / "model.safetensors", {"w": torch.ones(3)})
    write_evidence(tmp_path / "evidence.json", record("model.safetensors", sha256))
    return tmp_path / "evidence.json"


def test_it_comes_back_as_it_was_written(file: Path):
    found = verify_evidence(file)
    assert found["schema"] == SCHEMA
    assert found["verdict"]["word"] == "forgotten"
    assert readings_of(found) == READINGS


def test_every_byte_counts(file: Path):
    """Each byte in turn, changed in its lowest bit."""
    data = file.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        file.write_bytes(bytes(changed))
        with pytest.raises(InputError):
            verify_evidence(file)
    for other in (data + b"\n", data[:-1], b" " + data, data.replace(b'"level": ', b'"level":  '), b"[]", b""):
        file.write_bytes(other)
        with pytest.raises(InputError):
            verify_evidence(file)
    file.write_bytes(data)
    verify_evidence(file)


def test_a_changed_model_is_noticed(file: Path):
    model = file.with_name("model.safetensors")
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(bytes(data))
    with pytest.raises(InputError, match="is not the model that was examined"):
        verify_evidence(file)
    model.unlink()
    with pytest.raises(InputError, match="is not there; name it with --model"):
        verify_evidence(file)


def test_a_verdict_that_does_not_follow_is_noticed_even_with_a_right_checksum(file: Path):
    values = record("model.safetensors", "0")
    values["verdict"]["word"] = "not forgotten"
    write_evidence(file, values)
    with pytest.raises(InputError, match=r"does not follow from its readings, which say: forgotten"):
        read_evidence(file)


def test_evidence_with_a_measure_missing_is_as_good_a_file(file: Path):
    """Its verdict is that there is not enough; it was still made against oracles."""
    readings = [READINGS[0], replace(READINGS[1], subject=None, oracles=())]
    write_evidence(file, record("model.safetensors", "0", readings))
    found = read_evidence(file)["verdict"]
    assert (found["word"], found["with_oracle"], found["oracles"]) == ("not enough evidence", True, 2)


def test_another_schema_is_refused(file: Path):
    values = json.loads(file.read_text()) | {"schema": "fedforget/evidence/9"}
    file.write_text(json.dumps(values))
    with pytest.raises(InputError, match="but this fedforget reads fedforget/evidence/1"):
        read_evidence(file)


def test_what_is_no_number_is_not_written(tmp_path: Path):
    broken = [Evidence("a", "high", Reading(float("nan"), 0.1), None, ())]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_evidence(tmp_path / "evidence.json", record("m", "0", broken))
    assert not (tmp_path / "evidence.json").exists()
