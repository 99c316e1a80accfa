"""Where withdrawn data lives on is found by looking through the whole home, and not by the ledger's own list."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from ledger_commands import Command
from ledger_worlds import DESCRIPTION, World
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from worker_worlds import Office

from fedforget.ledger.backup import backup
from fedforget.ledger.book import Ledger
from fedforget.ledger.certificate import read_keys
from fedforget.ledger.contents import look
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.lineage import Lineage, Trace
from fedforget.ledger.schema import Request
from fedforget.ledger.statements import LINEAGE, open_statement
from fedforget.requests import ErasureRequest

WEIGHTS = {"w": torch.arange(64.0)}


def holds(path: Path) -> bool:
    """The slow, obvious twin: whether any library can read an array out of it, or out of a file in it."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    with tarfile.open(fileobj=io.BytesIO(data)) if tarfile.is_tarfile(io.BytesIO(data)) else io.BytesIO() as tar:
        if isinstance(tar, tarfile.TarFile):
            return any(entry.name.endswith(".safetensors") for entry in tar)
    try:
        return bool(load_file(path))
    except SafetensorError:
        pass
    try:
        return bool(torch.load(io.BytesIO(data), weights_only=True))
    except Exception:
        pass
    try:
        return isinstance(np.load(io.BytesIO(data)), np.ndarray)
    except Exception:
        return False


def by_place(found: Lineage) -> dict[str, Trace]:
    return {trace.place: trace for trace in found.traces if trace.fate != "destroyed"}


@pytest.fixture
def lived_in(world: World) -> tuple[World, Request, Request]:
    """Two requests, a rollback, a backup in the home; a run folder, oracles, a history, and strays."""
    home, ledger = world.ledger.home, world.ledger
    run, oracles = home / "runs" / "one", home / "work" / "digits" / "0" / "oracles"
    for folder in (run / "checkpoints", run / "history" / "round-001", oracles, home / "notes"):
        folder.mkdir(parents=True)
    save_file({"w": torch.ones(3)}, run / "checkpoints" / "round-001.safetensors")
    save_file({"w": torch.zeros(3)}, run / "history" / "round-001" / "sent.safetensors")
    save_file({"w": torch.full((3,), 2.0)}, oracles / "a.safetensors")
    (run / "run.json").write_text("{}")
    ledger.federations.register(
        "elsewhere", "local", "/tmp/other", DESCRIPTION, {"w": torch.full((9,), 9.0)}, keep_days=1
    )
    first = world.queued()
    claim = world.claim()
    ledger.work.start_audit(claim)
    kept = (("checkpoint", "runs/one/checkpoints/round-001.safetensors"),)
    ledger.versions.finish(claim, world.result(claim, remains=kept))
    backup(ledger, home / "notes" / "saved.bin", actor="oscar")
    second = world.served()
    ledger.versions.roll_back("digits", 2, "It answers nonsense.", actor="oscar")
    torch.save(WEIGHTS, home / "notes" / "readme.txt")
    np.save(home / "notes" / "weights.npy", WEIGHTS["w"].numpy())
    with zipfile.ZipFile(home / "notes" / "old.zip", "w") as archive:
        archive.writestr("a/b.txt", save(WEIGHTS))
    (home / "notes" / "plain.txt").write_text("Nothing to see here: ü.")
    (home / "notes" / "blob").write_bytes(b"\x00\x01\x02" * 100)
    return world, ledger.requests.get(first.id), ledger.requests.get(second.id)


def test_every_file_in_the_home_is_listed_or_shown_to_be_clean(lived_in: tuple[World, Request, Request]):
    world, first, second = lived_in
    home = world.ledger.home
    everything = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    with_tensors = {name for name in everything if holds(home / name)}
    assert len(with_tensors) >= 9
    current = world.ledger.versions.current("digits")
    for request, hold in ((first, {1}), (second, {1, 2, 3, 4})):
        found = world.ledger.lineage.of(request)
        listed = by_place(found)
        assert listed.keys() | found.clean.keys() >= everything
        assert not listed.keys() & found.clean.keys()
        for name in with_tensors - listed.keys():
            assert found.clean[name].startswith(("version 2, which has forgotten it", "version 3, which has forg",
                                                 "version 4, which has forgotten it",
                                                 "version 1 of elsewhere, which is another")), name  # fmt: skip
        for version in world.ledger.versions.of("digits"):
            file = f"models/{version.sha256}.safetensors"
            assert (file in listed) == (version.number in hold or (version.sha256 == current.sha256 and 4 in hold)), (
                version.number
            )
        # Planted: by other names, in an archive, in a backup, and what nobody can read.
        assert {"notes/readme.txt", "notes/weights.npy", "notes/old.zip", "notes/saved.bin", "notes/blob"} <= {*listed}
        assert (listed["notes/readme.txt"].fate, listed["notes/blob"].fate) == ("needs a person", "needs a person")
        assert (listed["notes/saved.bin"].fate, listed["notes/old.zip"].fate) == ("out of our hands",) * 2
        assert found.clean["notes/plain.txt"] == "text"
        assert listed["work/digits/0/oracles/a.safetensors"].what == "oracle"
        beside = listed["runs/one/checkpoints/round-001.safetensors"]
        assert (beside.fate, (beside.until or "")[:10]) == ("kept until", "2026-03-02")
    assert world.ledger.lineage.of(second).traces != world.ledger.lineage.of(first).traces


def test_a_rolled_back_request_is_in_every_model_again(lived_in: tuple[World, Request, Request]):
    world, first, second = lived_in
    current = f"models/{world.ledger.versions.current('digits').sha256}.safetensors"
    assert by_place(world.ledger.lineage.of(second))[current].fate == "in use"
    assert "has forgotten it" in world.ledger.lineage.of(first).clean[current]


def test_what_is_due_is_destroyed_by_the_rules_and_stands_on_the_receipt(lived_in: tuple[World, Request, Request]):
    world, first, _ = lived_in
    ledger = world.ledger
    old = ledger.versions.get("digits", 1)
    file = f"models/{old.sha256}.safetensors"
    listed = by_place(ledger.lineage.of(first))
    assert (listed[file].fate, (listed[file].until or "")[:10]) == ("kept until", "2026-03-02")
    world.clock.go_on(days=31)
    with pytest.raises(ConflictError, match="The clock went ahead by 30 days, 23:59"):
        ledger.lineage.destroy_due(actor="oscar")
    assert ledger.trail.events(kinds=["destruction announced"]) == []
    world.begun_anew()
    ledger.lineage.destroy_due(actor="oscar")
    assert ledger.models.path(old.sha256).exists(), "it is announced a day ahead"
    world.clock.go_on(days=1)
    world.begun_anew()
    ledger.lineage.destroy_due(actor="oscar")
    assert not ledger.models.path(old.sha256).exists()
    found = ledger.lineage.of(first)
    gone = {trace.place: trace for trace in found.traces if trace.fate == "destroyed"}
    assert gone[file].sha256 == old.sha256
    assert "runs/one/checkpoints/round-001.safetensors" in gone
    receipt = ledger.lineage.receipt(found, actor="oscar")
    signed = open_statement(receipt.encode(), read_keys([ledger.keys.folder]), LINEAGE, "it")
    assert signed.digests[file] == old.sha256
    assert signed.predicate["request"] == first.id
    (event,) = ledger.trail.events(kinds=["lineage told"])
    assert json.loads(event.body)["fates"]["destroyed"] == len(gone)
    assert ledger.trail.check().problems == ()


def test_what_a_link_leads_to_elsewhere_is_not_called_clean(world: World, tmp_path: Path):
    """Such as a folder that was moved to a larger disk: nobody looked into it."""
    home, larger = world.ledger.home, tmp_path / "larger"
    (larger / "models").mkdir(parents=True)
    save_file(WEIGHTS, larger / "models" / "old.safetensors")
    (home / "moved").symlink_to(larger / "models")
    (home / "one").symlink_to(larger / "models" / "old.safetensors")
    (home / "within").symlink_to(home / "models")
    found = world.ledger.lineage.of(world.served())
    for name in ("moved", "one"):
        trace = by_place(found)[name]
        assert (trace.fate, "nobody looked" in trace.why) == ("needs a person", True)
        assert str(larger) in trace.what
    assert found.clean["within"] == f"a link to {(home / 'models').resolve()}"


def test_a_request_that_wants_old_models_gone_sooner_has_that_day_in_its_rows(world: World):
    request = world.queued()
    world.ledger.requests.choose(request.id, {"keep_days": 2}, actor="oscar")
    world.serve()
    old = world.ledger.versions.get("digits", 1)
    trace = by_place(world.ledger.lineage.of(request))[f"models/{old.sha256}.safetensors"]
    assert (trace.fate, (trace.until or "")[:10]) == ("kept until", "2026-02-02")
    world.clock.go_on(days=1)
    world.begun_anew()
    world.ledger.lineage.destroy_due(actor="oscar")
    (event,) = world.ledger.trail.events(kinds=["destruction announced"])
    assert json.loads(event.body)["due"] == trace.until, "the day on which it goes"


def test_a_run_outside_the_home_and_nodes_are_out_of_our_hands(world: World, tmp_path: Path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    save_file({"w": torch.ones(5)}, run / "checkpoints" / "round-001.safetensors")
    (run / "state.json").write_text("{}")
    ledger = world.ledger
    ledger.federations.register("outside", "local", str(run), DESCRIPTION, {"w": torch.ones(5)})
    ledger.federations.register("site", "flower", str(run / "site.toml"), DESCRIPTION, {"w": torch.ones(6)})
    outside = ledger.lineage.of(world.served(federation="outside"))
    trace = by_place(outside)[str(run / "checkpoints" / "round-001.safetensors")]
    assert (trace.fate, trace.sha256) == ("out of our hands", look(Path(trace.place)).sha256)
    assert not any(place.endswith("state.json") for place in by_place(outside))
    nodes = [place for place in by_place(ledger.lineage.of(world.ask(federation="site"))) if place.startswith("the n")]
    assert nodes == [f"the node of client {client} of site" for client in range(3)]


def test_one_run_under_two_names_holds_it_under_both(world: World):
    first = world.ledger.versions.get("digits", 1)
    world.ledger.federations.register("again", "local", "/nowhere", DESCRIPTION, {"w": torch.full((7,), 7.0)})
    listed = by_place(world.ledger.lineage.of(world.served()))
    other = world.ledger.versions.current("again")
    assert {f"models/{version.sha256}.safetensors" for version in (first, other)} <= {*listed}


def test_a_backup_that_was_taken_away_is_listed_from_the_trail(world: World, tmp_path: Path):
    backup(world.ledger, tmp_path / "away.tar.gz", actor="oscar")
    request = world.served()
    trace = by_place(world.ledger.lineage.of(request))[str(tmp_path / "away.tar.gz")]
    assert (trace.fate, trace.sha256) == ("out of our hands", look(tmp_path / "away.tar.gz").sha256)


def test_databases_and_broken_archives(tmp_path: Path):
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("INSERT INTO t VALUES ('x', 1)")
    assert look(tmp_path / "a.sqlite").kind == "clean"
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("INSERT INTO t VALUES (?, 1)", (save(WEIGHTS),))
    assert look(tmp_path / "a.sqlite").kind == "unknown"
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(b"x" * 1000)[:-20])
    (tmp_path / "c").write_bytes(b"")
    (tmp_path / "d").write_text("text " * 300_000 + "ü")
    (tmp_path / "e").write_bytes(b"text" * 300_000 + b"\xff")
    assert [look(tmp_path / name).kind for name in ("b.tar.gz", "c", "d", "e")] == [
        "unknown", "clean", "clean", "unknown",
    ]  # fmt: skip


def test_from_the_command_line(fedforget: Command, tmp_path: Path):
    world, receipt = fedforget.world, tmp_path / "receipt.json"
    request = world.served()
    said = fedforget("ledger", "lineage", request.id, "--receipt", receipt)
    assert "weights of version 1 of digits" in said
    assert fedforget.json("ledger", "lineage", request.id)["traces"][0]["fate"] == "kept until"
    assert "The signature is genuine" in fedforget("verify", receipt)
    assert "Looked through" in fedforget("ledger", "lineage", request.id, "--destroy-due")
    refused = fedforget.refused("ledger", "lineage", request.id, "--destroy-due", "--as", "ann")
    assert "may not" in refused


@pytest.mark.real
def test_after_real_requests_no_model_in_the_home_is_missed(ledger: Ledger, run: Path):
    """A trained federation in the home: two requests by a real worker, a rollback, a backup."""
    shutil.copytree(run, ledger.home / "runs" / "digits")
    office = Office(ledger, ledger.home / "runs" / "digits")
    office.register(audit_level="quick")
    first = office.queue(ErasureRequest.of_class(0, 3))
    office.work()
    backup(ledger, ledger.home / "backup.tar.gz", actor="oscar")
    second = office.queue(ErasureRequest.of_class(1, 7))
    office.work()
    ledger.versions.roll_back("digits", 2, "It answers nonsense.", actor="oscar")
    with_tensors = {p.relative_to(ledger.home).as_posix() for p in ledger.home.rglob("*") if p.is_file() and holds(p)}
    for id in (first, second):
        found = ledger.lineage.of(ledger.requests.get(id))
        listed = by_place(found)
        missed = {name for name in with_tensors - listed.keys() if "has forgotten it" not in found.clean[name]}
        assert not missed
        assert listed["backup.tar.gz"].fate == "out of our hands"
        assert {trace.what for trace in listed.values()} >= {"oracle", "checkpoint"}
    assert len(with_tensors) >= 8
    assert ledger.trail.check().problems == ()
