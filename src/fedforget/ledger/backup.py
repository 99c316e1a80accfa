"""Backup and restore: one archive with every table as JSON lines and every model file, for both databases.

    manifest.json                  what is in it, with checksums; the schema's version; the head of the chain
    tables/NAME.jsonl              one line for a row
    models/SHA256.safetensors      and what remains beside versions, under its own path
    keys/ID.public.pem             and ID.pem, only if asked for
    console.toml                   the console's settings, if there are any

The tables are read in one transaction that sees one moment, so the ledger goes on working meanwhile. The same archive
restores into SQLite or PostgreSQL. Sessions and links are left out: who was signed in then is not signed in again.
Weights that are destroyed later are still in an older archive: keep archives no longer than weights."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Boolean, ColumnClause, Connection, TableClause, column, insert, inspect, select, table
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from fedforget.audit.evidence import code_version
from fedforget.data.files import sha256_of_file, writing
from fedforget.errors import InputError
from fedforget.ledger import triggers
from fedforget.ledger.archive import LONGEST_ROW, MANIFEST, SCHEMA, Archive, opened
from fedforget.ledger.book import Ledger, database_url
from fedforget.ledger.chain import Pin
from fedforget.ledger.clock import Clock, to_text, utc_now
from fedforget.ledger.core import SYSTEM, head_of
from fedforget.ledger.database import Database, current_revision, upgrade
from fedforget.ledger.errors import ConflictError, TamperedError
from fedforget.ledger.model_files import named_files
from fedforget.ledger.privacy import make_folder, new_file
from fedforget.ledger.recorded import SETTINGS_FILE
from fedforget.ledger.schema import Remains

LEFT_OUT = ("alembic_version", "sessions", "links")


def backup(ledger: Ledger, archive: Path, *, with_keys: bool = False, actor: str = SYSTEM) -> Pin:
    """Write an archive of the whole ledger; the head of the chain in it. With the private keys it is as good as them:
    keep it as you keep those."""
    archive = Path(archive)
    if archive.exists():
        raise InputError(f"{archive} exists; choose another name.")
    ledger.trail.note_settings()
    with writing():
        archive.parent.mkdir(parents=True, exist_ok=True)
        part = archive.with_name(archive.name + ".part")
        part.unlink(missing_ok=True)  # of one that was killed
        with new_file(part) as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
            pin = _fill(ledger, tar, with_keys)
        os.replace(part, archive)
    said = {"number": pin.number, "hash": pin.hash, "keys": with_keys}
    where = {"file": str(archive.resolve()), "sha256": sha256_of_file(archive)}
    ledger.trail.append(actor, "backup made", said | where)
    return pin


def _fill(ledger: Ledger, tar: tarfile.TarFile, with_keys: bool) -> Pin:
    files: dict[str, str] = {}
    with ledger.database.snapshot() as connection:
        tables = _tables(connection)
        rows: dict[str, int] = {}
        for name, columns in tables.items():
            order = [columns.c[key] for key in inspect(connection).get_pk_constraint(name)["constrained_columns"]]
            rows[name] = 0
            with tempfile.SpooledTemporaryFile(max_size=1 << 24) as spool:
                for row in connection.execute(select(columns).order_by(*order), execution_options={"yield_per": 500}):
                    line = (json.dumps(dict(row._mapping), allow_nan=False) + "\n").encode()
                    if len(line) > LONGEST_ROW:
                        raise InputError(
                            f"A row of {name} is longer than {LONGEST_ROW:,} bytes; no backup can hold it."
                        )
                    spool.write(line)
                    rows[name] += 1
                files[f"tables/{name}.jsonl"] = _add(tar, f"tables/{name}.jsonl", spool)
        with Session(connection) as session:
            pin, models = head_of(session), sorted(named_files(session))
            beside = set(session.scalars(select(Remains.path).where(Remains.destroyed.is_(None))))
        revision = current_revision(connection)
    for path in map(ledger.models.path, models):
        if not path.exists():
            raise InputError(f"{path} is missing, so the backup would not be whole; run `fedforget ledger check`.")
        name = f"models/{path.name}"
        with open(path, "rb") as file:
            files[name] = _add(tar, name, file)
        if files[name] != path.stem:
            raise TamperedError(f"{path} was changed; run `fedforget ledger check`.")
    for name in sorted(beside | {SETTINGS_FILE}):
        # A worker's own files: it may be writing them anew, or have cleared them away. And there may be no settings.
        with suppress(FileNotFoundError), open(ledger.home / name, "rb") as file:
            files[name] = _add(tar, name, file)
    for path in sorted(ledger.keys.folder.glob("*.pem")):
        if with_keys or path.name.endswith(".public.pem"):
            with open(path, "rb") as file:
                files[f"keys/{path.name}"] = _add(tar, f"keys/{path.name}", file)
    manifest = {
        "schema": SCHEMA, "fedforget": code_version(), "made": to_text(ledger.clock()), "revision": revision,
        "pin": str(pin), "rows": rows, "files": files, "sizes": {entry.name: entry.size for entry in tar.getmembers()},
    }  # fmt: skip
    _add(tar, MANIFEST, io.BytesIO((json.dumps(manifest, indent=1) + "\n").encode()))
    return pin


def restore(
    archive: Path, home: Path, url: str | None = None, *, pins: tuple[Pin, ...] = (), clock: Clock = utc_now
) -> Ledger:
    """A new ledger from an archive, in an empty home and an empty database: nothing is ever overwritten. What the chain
    does not confirm, or a pin, is not restored."""
    home = Path(home)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConflictError(f"{home} is not an empty folder; restore into a new one.")
    made = not home.exists()
    make_folder(home)
    try:
        with opened(Path(archive)) as found:
            found.check_tables()
            found.unpack(home)
            database = Database(database_url(home, url))
            try:
                if database.revision() is not None:
                    raise ConflictError("The database holds a ledger already; restore into an empty one.")
                with database.changing_schema() as connection:
                    upgrade(connection, found.revision)
                    try:
                        _load(found, connection)
                    except SQLAlchemyError:
                        raise InputError(f"{archive} is damaged: its rows do not fit into the tables.") from None
                    upgrade(connection, "head")
                    triggers.create(connection)
                    with Session(connection) as session:
                        trail = Ledger(home, database, clock).trail
                        problems = trail.problems(session, Pin.read(found.pin), *pins)
                    if problems:
                        raise TamperedError(f"The backup is not what was backed up: {problems[0]}")
            finally:
                database.close()
        ledger = Ledger.open(home, url, clock=clock)
        said = {name: found.manifest[name] for name in ("made", "fedforget")}
        ledger.trail.append(SYSTEM, "restored", said)
        return ledger
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        if not made:
            make_folder(home)
        raise


def _load(archive: Archive, connection: Connection) -> None:
    """Fill the tables as they were: there are no rules yet, so a request may begin as done."""
    for name, columns in _tables(connection).items():
        if name not in archive.rows:
            continue
        batch: list[dict[str, Any]] = []
        count = held = 0
        for row, length in archive.table(name):
            batch.append(row)
            count, held = count + 1, held + length
            if len(batch) == 500 or held > LONGEST_ROW:
                connection.execute(insert(columns), batch)
                batch, held = [], 0
        if batch:
            connection.execute(insert(columns), batch)
        if count != archive.rows[name]:
            raise InputError(f"The backup is damaged: {name} should have {archive.rows[name]} rows, not {count}.")


def _tables(connection: Connection) -> dict[str, TableClause]:
    """The tables as they are in this database, whatever version, after those that they refer to. Values come and go as
    plain text and numbers; yes and no are the numbers 1 and 0 in SQLite, and not in PostgreSQL."""
    inspector = inspect(connection)
    names = [name for name, _ in inspector.get_sorted_table_and_fkc_names() if name and name not in LEFT_OUT]
    return {name: table(name, *(_column(found) for found in inspector.get_columns(name))) for name in names}


def _column(found: ReflectedColumn) -> ColumnClause[Any]:
    return column(found["name"], Boolean() if isinstance(found["type"], Boolean) else None)


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> str:
    """Put a file into the archive; its SHA-256."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = file.seek(0, os.SEEK_END), 0o600
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    tar.addfile(entry, file)
    return sha256
