"""A small archive that unpacks to a large one is refused: in little memory, with a sentence, and nothing is left."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import edited
from ledger_worlds import World

from fedforget.errors import InputError
from fedforget.ledger import archive as reading
from fedforget.ledger.backup import backup, restore

MEGABYTE = 1 << 20
ROOM = 400 * MEGABYTE
"""What the restore may take more than the program itself."""


class Zeros(io.RawIOBase):
    """So many of one byte, without the memory."""

    def __init__(self, size: int, byte: bytes = b" ") -> None:
        self.left, self.piece = size, byte * MEGABYTE

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken = min(size, self.left, MEGABYTE)
        self.left -= taken
        return self.piece[:taken]


def with_entry(tar: tarfile.TarFile, name: str, size: int, kind: bytes = tarfile.REGTYPE) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    tar.addfile(entry, Zeros(size))


def sha256_of_zeros(megabytes: int) -> str:
    sha = hashlib.sha256()
    for _ in range(megabytes):
        sha.update(b" " * MEGABYTE)
    return sha.hexdigest()


def long_row(tar: tarfile.TarFile) -> None:
    manifest = {
        "schema": reading.SCHEMA, "revision": "0003", "pin": "", "made": "", "fedforget": "",
        "rows": {"accounts": 1}, "files": {"tables/accounts.jsonl": sha256_of_zeros(900)},
    }  # fmt: skip
    with_entry(tar, "tables/accounts.jsonl", 900 * MEGABYTE)
    data = json.dumps(manifest).encode()
    entry = tarfile.TarInfo("manifest.json")
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def long_manifest(tar: tarfile.TarFile) -> None:
    with_entry(tar, "manifest.json", 900 * MEGABYTE)


def long_header(tar: tarfile.TarFile) -> None:
    with_entry(tar, "x", 900 * MEGABYTE, tarfile.XHDTYPE)


def long_name(tar: tarfile.TarFile) -> None:
    with_entry(tar, "x", 900 * MEGABYTE, tarfile.GNUTYPE_LONGNAME)


def too_long(tar: tarfile.TarFile) -> None:
    with_entry(tar, "models/x", 1500 * MEGABYTE)


BOMBS: dict[str, tuple[Callable[[tarfile.TarFile], None], str]] = {
    "a row": (long_row, "a row of accounts is longer than a row can be"),
    "the manifest": (long_manifest, "longer than a manifest can be"),
    "a header": (long_header, "longer than a header can be"),
    "a name": (long_name, "longer than a header can be"),
    "all of it": (too_long, "unpacks to more than 1,073,741,824 bytes"),
}
RESTORE = """
import resource, sys
from pathlib import Path
from fedforget.errors import FedForgetError
from fedforget.ledger.backup import restore
import alembic.command, alembic.config
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + int(sys.argv[3]),) * 2)
try:
    restore(Path(sys.argv[1]), Path(sys.argv[2]))
except FedForgetError as error:
    sys.exit(str(error))
"""


@pytest.mark.real
@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, what: str):
    make, complaint = BOMBS[what]
    with gzip.open(tmp_path / "b", "wb", compresslevel=1) as file, tarfile.open(fileobj=file, mode="w") as tar:
        make(tar)
    assert (tmp_path / "b").stat().st_size < 10 * MEGABYTE
    said = subprocess.run(
        [sys.executable, "-c", RESTORE, str(tmp_path / "b"), str(tmp_path / "new"), str(ROOM)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert complaint in said.stderr, said.stderr
    assert "Traceback" not in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.real
def test_an_honest_archive_is_restored_in_little_memory(world: World, tmp_path: Path):
    world.served()
    backup(world.ledger, tmp_path / "b")
    said = subprocess.run(
        [sys.executable, "-c", RESTORE, str(tmp_path / "b"), str(tmp_path / "new"), str(ROOM)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


@pytest.fixture
def small(world: World, tmp_path: Path) -> Iterator[Path]:
    backup(world.ledger, tmp_path / "b")
    yield tmp_path / "b"
    assert not (tmp_path / "new").exists(), "nothing is left of it"


def refuse(archive: Path, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        restore(archive, archive.parent / "new")


@pytest.mark.parametrize(
    ("limit", "value", "complaint"),
    [
        ("UNPACKS_TO", 1 << 12, "unpacks to more than"),
        ("MOST_FILES", 5, "holds more than 5 files"),
        ("LONGEST_ROW", 100, "a row of [a-z]+ is longer than a row can be"),
    ],
)
def test_every_bound_holds(small: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, complaint: str):
    monkeypatch.setattr(reading, limit, value)
    monkeypatch.setattr(reading, "UNPACKS_TIMES", 0)
    refuse(small, complaint)


def test_a_file_is_as_long_as_the_manifest_declares(small: Path):
    def longer(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        manifest["sizes"]["tables/accounts.jsonl"] += 1
        files["manifest.json"] = json.dumps(manifest).encode()

    refuse(edited(small, longer, honest=False), r"accounts.jsonl has another size than its manifest declares")


def test_a_row_holds_nothing_nested(small: Path):
    def nested(files: dict[str, bytes]) -> None:
        files["tables/accounts.jsonl"] = b'{"name": [' + b"[]," * 1000 + b"1]}\n"

    refuse(edited(small, nested), "a row of accounts is no row")


def appended(archive: Path, entry: tarfile.TarInfo) -> Path:
    new = archive.with_name("appended")
    with tarfile.open(archive) as old, tarfile.open(new, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for member in old:
            tar.addfile(member, old.extractfile(member))
        tar.addfile(entry)
    return new


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files(small: Path, kind: bytes):
    entry = tarfile.TarInfo("models/x")
    entry.type, entry.linkname = kind, "manifest.json"
    refuse(appended(small, entry), "no plain file")


def test_every_file_once(small: Path):
    refuse(appended(small, tarfile.TarInfo("manifest.json")), "or is in it twice")


def test_a_file_with_holes_is_refused(small: Path):
    entry = tarfile.TarInfo("models/x")
    entry.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
                         "GNU.sparse.size": str(1 << 40), "GNU.sparse.name": "models/x"}  # fmt: skip
    new = small.with_name("sparse")
    with tarfile.open(small) as old, tarfile.open(new, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member in old:
            tar.addfile(member, old.extractfile(member))
        tar.addfile(entry)
    refuse(new, "no plain file")


@pytest.mark.parametrize("name", ["ledger.sqlite-journal", "ledger.sqlite", "notes", "models/x.safetensors", "keys/x"])
def test_only_what_the_rows_name_is_unpacked(small: Path, name: str):
    refuse(edited(small, lambda files: files.__setitem__(name, b"x")), "not one of ours")


def test_a_row_that_no_backup_could_hold_is_refused_when_it_is_made(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from fedforget.ledger import backup as writing

    monkeypatch.setattr(writing, "LONGEST_ROW", 100)
    with pytest.raises(InputError, match="no backup can hold it"):
        backup(world.ledger, tmp_path / "b")
    assert list(tmp_path.glob("b*")) == []
