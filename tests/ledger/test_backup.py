"""Nothing is lost: an archive of one database becomes a ledger in another, and a damaged one becomes none."""

from __future__ import annotations

import gzip
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from archives import edited, replacing, without, without_last_line
from ledger_worlds import World
from sqlalchemy import text

from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.backup import backup, restore
from fedforget.ledger.book import Ledger
from fedforget.ledger.chain import Pin
from fedforget.ledger.errors import ConflictError, TamperedError


@pytest.fixture
def full(world: World) -> World:
    """Some of everything: done, held, queued, rolled back, extended, two keys, a token, a sketch."""
    world.served()
    world.ledger.keys.rotate()
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    (world.ledger.home / "runs").mkdir()
    (world.ledger.home / "runs" / "sketch.pt").write_bytes(b"sketch")
    page = world.ledger.home / "report.html"
    page.write_text("<html>")
    sketch = ("sketch", "runs/sketch.pt")
    world.ledger.versions.finish(claim, world.result(claim, report=page, remains=(sketch,)))
    world.queued()
    world.serve(says="over-forgotten")
    world.queued()
    world.ledger.versions.roll_back("digits", 2, "broken", actor="oscar")
    world.ledger.requests.extend(request.id, 1, "hard", actor="oscar")
    world.ledger.accounts.make_token("ann", "cron", actor="ann")
    world.ledger.accounts.open_session("ann", by="password")
    world.clock.go_on(days=31)
    return world


def everything(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables but sessions and links."""
    tables = ("accounts", "tokens", "federations", "documents", "versions", "requests", "candidates", "remains",
              "certificates", "keys", "progress", "events")  # fmt: skip
    with ledger.database.reading() as session:
        return {name: sorted(map(tuple, session.execute(text(f"SELECT * FROM {name}"))), key=repr) for name in tables}


def test_there_and_back(full: World, new_url: str | None, tmp_path: Path):
    """From either database into either, row by row and file by file; and it works on."""
    ledger, archive = full.ledger, tmp_path / "backup.tar.gz"
    before = everything(ledger)
    pin = backup(ledger, archive, with_keys=True)
    assert pin == Pin(
        ledger.trail.head().ledger, ledger.trail.head().number - 1, ledger.trail.events(limit=1)[0].previous
    )
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with restore(archive, tmp_path / "new", new_url, pins=(pin,), clock=full.clock) as again:
        after = everything(again)
        assert set(before.pop("events")) < set(after.pop("events"))
        assert after == before
        assert again.trail.head().number == pin.number + 1
        assert again.trail.events(limit=1)[0].kind == "restored"
        assert again.trail.check(pin).intact
        assert sorted(p.name for p in again.models.folder.iterdir()) == sorted(
            p.name for p in ledger.models.folder.iterdir()
        )
        assert (again.home / "runs" / "sketch.pt").read_bytes() == b"sketch"
        assert again.accounts.session("anything") is None
        other = World.__new__(World)
        other.ledger, other.clock = again, full.clock
        assert other.serve().version is not None
        full.clock.go_on(days=31)
        assert [version.number for version in other.destroy()] == [1, 2, 3, 4]
        assert not (again.home / "runs" / "sketch.pt").exists()
        assert again.trail.check(pin).intact


def test_keys_only_if_asked_for(full: World, tmp_path: Path):
    backup(full.ledger, tmp_path / "b")
    with restore(tmp_path / "b", tmp_path / "new", clock=full.clock) as again:
        names = {path.name for path in again.keys.folder.iterdir()}
        assert names == {f"{key.id}.public.pem" for key in full.ledger.keys.all()}
        with pytest.raises(InputError, match="is not there; copy it"):
            again.keys.check_signing()
        again.keys.rotate()
        assert again.trail.check().intact


def test_no_session_and_no_link_comes_back(full: World, tmp_path: Path):
    secret, link = full.ledger.accounts.open_session("ann", by="x"), full.ledger.accounts.make_link("ann")
    backup(full.ledger, tmp_path / "b")
    with restore(tmp_path / "b", tmp_path / "new", clock=full.clock) as again:
        assert again.accounts.session(secret) is None
        assert again.accounts.redeem_link(link) is None


def test_nothing_is_overwritten(full: World, new_url: str | None, tmp_path: Path):
    archive = tmp_path / "b"
    backup(full.ledger, archive)
    with pytest.raises(InputError, match="exists"):
        backup(full.ledger, archive)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(ConflictError, match="not an empty folder"):
        restore(archive, tmp_path / "used", new_url)
    with pytest.raises(ConflictError, match="not an empty folder"):
        restore(archive, full.ledger.home, new_url)
    if not full.ledger.database.is_sqlite:
        with pytest.raises(ConflictError, match="holds a ledger already"):
            restore(archive, tmp_path / "new", full.ledger.database.url)
        assert not (tmp_path / "new").exists()
    assert full.ledger.trail.check().intact


def test_while_others_write(full: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A backup is of one moment, whatever happens while it is made."""
    real = tarfile.TarFile.addfile
    happened = []

    def meanwhile(self: tarfile.TarFile, entry: tarfile.TarInfo, *more: Any) -> None:
        real(self, entry, *more)
        if entry.name.startswith("tables/"):
            happened.append(full.ask().id)

    monkeypatch.setattr(tarfile.TarFile, "addfile", meanwhile)
    pin = backup(full.ledger, tmp_path / "b")
    assert len(happened) > 5
    with restore(tmp_path / "b", tmp_path / "new", pins=(pin,), clock=full.clock) as again:
        assert again.trail.head().number == pin.number + 1
        assert again.trail.check().intact
    assert full.ledger.trail.check().intact


def test_what_a_worker_cleared_away_is_not_missed(full: World, tmp_path: Path):
    (full.ledger.home / "runs" / "sketch.pt").unlink()
    backup(full.ledger, tmp_path / "b")
    with restore(tmp_path / "b", tmp_path / "new", clock=full.clock) as again:
        assert again.trail.check().intact


@pytest.mark.parametrize("what", ["versions", "candidates"])
def test_a_ledger_that_is_not_whole_is_not_backed_up(full: World, tmp_path: Path, what: str):
    with full.ledger.database.reading() as session:
        sha256 = session.scalars(text(f"SELECT sha256 FROM {what} ORDER BY 1 DESC")).first()
    path = full.ledger.models.path(str(sha256))
    data = path.read_bytes()
    path.write_bytes(data + b"x")
    with pytest.raises(TamperedError, match="was changed"):
        backup(full.ledger, tmp_path / "b")
    path.unlink()
    with pytest.raises(InputError, match="would not be whole"):
        backup(full.ledger, tmp_path / "b")
    assert list(tmp_path.glob("b*")) == []


CHANGES = {
    "an event": replacing("tables/events.jsonl", b'"oscar"', b'"mallory"'),
    "the last event": without_last_line("tables/events.jsonl"),
    "a request": replacing("tables/requests.jsonl", b'"case-1"', b'"case-9"'),
    "no table": without("tables/requests.jsonl"),
    "a file elsewhere": lambda files: files.__setitem__("../../evil", b"x"),
    "a file at the root": lambda files: files.__setitem__("/tmp/evil", b"x"),
    "no JSON": replacing("tables/events.jsonl", b"{", b"["),
    "an unknown column": replacing("tables/keys.jsonl", b'"made"', b'"when"'),
}  # fmt: skip


@pytest.mark.daily(4)
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("honest", [True, False])
def test_what_was_changed_is_not_restored(world: World, tmp_path: Path, what: str, honest: bool):
    world.served()
    backup(world.ledger, tmp_path / "b")
    archive = edited(tmp_path / "b", CHANGES[what], honest=honest)
    if what.startswith("a file") and not honest:
        pytest.skip("what the manifest does not name is not looked at")
    with pytest.raises(FedForgetError, match=r"backup|damaged"):
        restore(archive, tmp_path / "new" / "home")
    assert not (tmp_path / "new" / "home").exists(), "nothing is left of it"
    assert not (tmp_path / "evil").exists()


def test_a_whole_new_chain_is_noticed_by_the_pin(world: World, tmp_path: Path):
    """The archive fits together, but it is not what was pinned."""
    pin = world.ledger.trail.head()
    backup(world.ledger, tmp_path / "b")
    false = Pin(pin.ledger, pin.number, "0" * 64)
    with pytest.raises(TamperedError, match="not the one that was pinned"):
        restore(tmp_path / "b", tmp_path / "new", pins=(false,))
    restore(tmp_path / "b", tmp_path / "new", pins=(pin,)).close()


@pytest.mark.parametrize(
    "data", [b"", b"no archive", gzip.compress(b"no tar"), gzip.compress(b"\0" * 10240)], ids=["0", "1", "2", "3"]
)
def test_no_backup(tmp_path: Path, data: bytes):
    (tmp_path / "b").write_bytes(data)
    with pytest.raises(InputError, match=r"no backup|cannot be read"):
        restore(tmp_path / "b", tmp_path / "new")
    with pytest.raises(InputError, match="No such file"):
        restore(tmp_path / "missing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_cut_is_noticed(world: World, tmp_path: Path):
    """An archive that was not written to its end."""
    backup(world.ledger, tmp_path / "b")
    data = (tmp_path / "b").read_bytes()
    for length in range(0, len(data) * 9 // 10, max(1, len(data) // 25)):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(InputError, match="is no backup of a ledger, or it is damaged"):
            restore(tmp_path / "cut", tmp_path / "new")
