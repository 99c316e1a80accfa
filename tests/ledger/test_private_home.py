"""Nobody else reads what is in a home, whatever its mode and the umask were before."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_worlds import World
from typer.testing import CliRunner

from fedforget.cli.app import app
from fedforget.errors import InputError
from fedforget.ledger.book import Ledger


@pytest.fixture(autouse=True)
def everybody_reads() -> Iterator[None]:
    """The umask of most machines."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(home: Path) -> list[str]:
    return sorted(str(path) for path in (home, *home.rglob("*")) if not path.is_symlink() and mode(path) & 0o077)


def test_an_older_home_is_closed_and_it_is_said_once(world: World, caplog: pytest.LogCaptureFixture):
    ledger, home = world.ledger, world.ledger.home
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    home.chmod(0o755)
    (home / "work" / "digits").mkdir(parents=True)
    (home / "work" / "digits" / "oracle").touch()
    for _ in range(2):
        Ledger.open(home, ledger.database.url).close()
    assert open_to_others(home) == []
    assert mode(home) == 0o700
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        f"Others could read {home}; it and what the ledger keeps in it are their owner's alone now."
    ]
    assert ledger.trail.check().intact


def test_every_new_file_is_its_owner_s_alone(ledger: Ledger):
    world = World(ledger, ledger.clock)  # type: ignore[arg-type]
    world.served()
    home = ledger.home
    Ledger.open(home, ledger.database.url).close()
    ours = [path for path in home.rglob("*") if path.suffix != ".json"]  # the evidence that the test wrote there
    assert len(ours) > 4
    assert [path for path in ours if mode(path) & 0o077] == []


def test_a_database_elsewhere_is_closed_too(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "book.sqlite"
    with Ledger.open(tmp_path / "home", f"sqlite:///{file}"):
        assert mode(file) == 0o600
    file.chmod(0o644)
    with Ledger.open(tmp_path / "home", f"sqlite:///{file}") as ledger:
        ledger.trail.append("ann", "looked")
        assert {mode(path) for path in file.parent.iterdir()} == {0o600}
    assert mode(file.parent) == 0o755, "not ours"


def test_what_else_is_in_a_home_is_left_alone(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "tool").touch(mode=0o755)
    (home / "runs").mkdir()
    (tmp_path / "outside").touch(mode=0o644)
    (home / "runs" / "link").symlink_to(tmp_path / "outside")
    Ledger.open(home).close()
    assert mode(home / "tool") == 0o755
    assert mode(tmp_path / "outside") == 0o644


def test_everybody_s_folder_is_no_home(tmp_path: Path):
    home = tmp_path / "tmp"
    home.mkdir()
    home.chmod(0o1777)
    with pytest.raises(InputError, match="everybody's folder"):
        Ledger.open(home)
    assert mode(home) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_somebody_else_s_is_left_alone(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    os.chown(home, 65534, 65534)
    Ledger.open(home).close()
    assert mode(home) == 0o755
    assert mode(home / "ledger.sqlite") == 0o600


def test_a_command_makes_nothing_for_others(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    said = CliRunner().invoke(app, ["ledger", "pin", "--out", str(tmp_path / "pin"), "--home", str(home)])
    assert said.exit_code == 0, said.output
    assert open_to_others(home) == []
    assert os.umask(0o022) == 0o077
