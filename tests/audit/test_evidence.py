"""The evidence file: whatever byte is changed, in it or in the model, is noticed; and the verdict must follow."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from fedforget.runs.store import save_model

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
        with pytest.raises(InputError, match=r"schema|was changed"):
            verify_evidence(file)
    for other in (data + b"\n", data[:-1], b" " + data, data.replace(b'"level": ', b'"level":  '), b"[]", b""):
        file.write_bytes(other)
        with pytest.raises(InputError, match="was changed"):
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


def test_that_a_model_is_exact_is_said_where_it_is_named_and_in_the_verdict(file: Path):
    """Neither can be written without the other."""
    subject = GENUINE["models"]["subject"] | {"exact": True}
    exact = conclude(READINGS, with_oracle=True, exact=True)
    write_evidence(file, GENUINE | {"models": {"subject": subject}, "verdict": exact.to_json()})
    assert read_evidence(file)["verdict"]["word"] == "exact"
    for made in ({"models": {"subject": subject}}, {"verdict": exact.to_json()}):
        write_evidence(file, GENUINE | made)
        with pytest.raises(InputError, match="does not follow from its readings"):
            read_evidence(file)


def test_evidence_with_a_measure_missing_is_as_good_a_file(file: Path):
    """Its verdict is that there is not enough; it was still made against oracles."""
    readings = [READINGS[0], replace(READINGS[1], subject=None, oracles=())]
    write_evidence(file, record("model.safetensors", "0", readings))
    found = read_evidence(file)["verdict"]
    assert (found["word"], found["with_oracle"], found["oracles"]) == ("not enough evidence", True, 2)


def test_another_schema_is_refused(file: Path):
    for version in (1, 9):
        values = json.loads(file.read_text()) | {"schema": f"fedforget/evidence/{version}"}
        file.write_text(json.dumps(values))
        with pytest.raises(InputError, match="but this fedforget reads fedforget/evidence/2; audit the run again"):
            read_evidence(file)


def test_what_is_no_number_is_not_written(tmp_path: Path):
    broken = [Evidence("a", "high", Reading(float("nan"), 0.1), None, ())]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_evidence(tmp_path / "evidence.json", record("m", "0", broken))
    assert not (tmp_path / "evidence.json").exists()


# Whatever a file holds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is anything in a record, at any depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way] * bool(way) + [place for key, item in inner for place in places(item, (*way, key))]


GENUINE = json.loads(json.dumps(record("model.safetensors", "0")))


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A record with something else, or nothing, in one to three places."""
    made = copy.deepcopy(GENUINE)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(made)))
        inner = made
        for key in way:
            inner = inner[key]
        if draw(st.booleans()):
            inner[last] = draw(JSON)
        else:
            del inner[last]
        if not places(made):
            break
    return made


def refused_or_sound(path: Path) -> None:
    """Never anything but one sentence; what passes has the verdict that its readings say."""
    for check in (read_evidence, verify_evidence):
        found, said = None, ""
        try:
            found = check(path)
        except InputError as error:
            said = str(error)
        assert "\n" not in said
        assert len(said) < 1000
        if found is not None:
            again = conclude(readings_of(found), with_oracle=found["verdict"]["with_oracle"])
            assert again.word == found["verdict"]["word"]


@pytest.mark.real
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=spoiled())
def test_a_record_that_makes_no_sense_is_refused_though_its_checksum_is_right(tmp_path: Path, made: dict[str, Any]):
    write_evidence(tmp_path / "e.json", made)
    refused_or_sound(tmp_path / "e.json")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
       | st.dictionaries(st.sampled_from(sorted(GENUINE)), JSON).map(
           lambda value: json.dumps(value | {"schema": SCHEMA}).encode()))  # fmt: skip
def test_a_file_that_is_no_evidence_is_refused(tmp_path: Path, made: bytes):
    (tmp_path / "e.json").write_bytes(made)
    with pytest.raises(InputError) as refusal:
        read_evidence(tmp_path / "e.json")
    assert "\n" not in str(refusal.value)


SENSELESS: dict[str, Any] = {
    "no verdict": lambda r: r.pop("verdict"),
    "no oracle said": lambda r: r["verdict"].pop("with_oracle"),
    "no readings": lambda r: r.update(readings=[3]),
    "another end": lambda r: r["readings"][0].update(remembers="sideways"),
    "a reading without an error": lambda r: r["readings"][0]["subject"].pop("error"),
    "a reading that is a word": lambda r: r["readings"][0]["subject"].update(value="0.6"),
    "a reading that is true": lambda r: r["readings"][0]["subject"].update(value=True),
    "a reading beyond all numbers": lambda r: r["readings"][0]["subject"].update(value=10**400),
    "no oracle's reading": lambda r: r["readings"][0]["oracles"].append(None),
    "an end that is a word": lambda r: r["readings"][0].update(over="yes"),
    "one thing more": lambda r: r["readings"][0].update(more=1),
    "no notes": lambda r: r.update(notes=None),
    "no models": lambda r: r.update(models=3),
}


@pytest.mark.parametrize("kind", SENSELESS)
def test_what_makes_no_sense_is_said_so(file: Path, kind: str):
    made = copy.deepcopy(GENUINE)
    SENSELESS[kind](made)
    write_evidence(file, made)
    with pytest.raises(InputError, match=r"is no evidence file, or it was changed: what it holds makes no sense\.$"):
        read_evidence(file)


NO_MODEL: list[dict[str, Any]] = [
    {}, {"subject": None}, {"subject": {"file": 3, "sha256": "0"}}, {"subject": {"file": "m", "sha": "0"}},
    {"subject": {"file": "\0", "sha256": "0"}}, {"subject": {"file": "a\nb", "sha256": "0"}},
    {"subject": {"file": "../model.safetensors", "sha256": "0"}}, {"subject": {"file": "", "sha256": "0"}},
    {"subject": {"file": "model.safetensors", "sha256": "0\n"}}, {"subject": {"file": "m" * 9999, "sha256": "0"}},
]  # fmt: skip


@pytest.mark.parametrize("models", NO_MODEL)
def test_evidence_that_names_no_model_is_no_proof_of_one(file: Path, models: dict[str, Any]):
    write_evidence(file, GENUINE | {"models": models})
    read_evidence(file)
    with pytest.raises(InputError) as refusal:
        verify_evidence(file)
    assert "\n" not in str(refusal.value)


def test_evidence_does_not_send_its_reader_to_another_folder(file: Path):
    """Even where a model lies there that would do."""
    inner = file.parent / "inner"
    inner.mkdir()
    sha256 = json.loads(file.read_text())["models"]["subject"]["sha256"]
    for name in ("../model.safetensors", str(file.parent / "model.safetensors")):
        write_evidence(inner / "evidence.json", record(name, sha256))
        with pytest.raises(InputError, match=r"what it holds makes no sense\.$"):
            verify_evidence(inner / "evidence.json")
