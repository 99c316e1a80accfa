"""The database: SQLite in the installation's folder, or PostgreSQL by URL; transactions, and the schema's version.

SQLite runs in WAL mode: readers never wait. One writer at a time, and the next one waits: a transaction that will write
begins with BEGIN IMMEDIATE, so it never finds out half-way that somebody else was first."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.orm import Session

from fedforget.errors import InputError
from fedforget.ledger import triggers
from fedforget.ledger.errors import BusyError
from fedforget.ledger.privacy import make_private

BUSY_SECONDS = 30.0
"""How long a writer waits for its turn."""
MIGRATIONS = Path(__file__).parent / "migrations"
SCHEMA_LOCK = 0x666F7267
"""PostgreSQL's advisory lock for whoever changes the schema."""


class Database:
    """Transactions on the ledger's database."""

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        self.engine = _engine(self.url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        if self.is_sqlite:
            make_private(Path(str(self.engine.url.database)))
        self._writer = self.engine.execution_options(writes=True)
        # Within a process the threads queue up here: SQLite's own waiting sleeps and looks again, and is not fair.
        self._turn: Any = threading.Lock() if self.is_sqlite else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with _explained(), self.engine.begin() as connection, _session(connection) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that writes: all of it, or nothing."""
        with self._turn, _explained(), self._writer.begin() as connection, _session(connection) as session:
            yield session
            session.flush()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A long read that sees one moment throughout."""
        engine = self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        with _explained(), engine.begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """The schema's version, None where there is none yet."""
        with _explained(), self.engine.begin() as connection:
            return current_revision(connection)

    @contextmanager
    def changing_schema(self) -> Iterator[Connection]:
        """A transaction in which the tables have no triggers, and nobody else changes the schema."""
        with self._turn, _explained(), self._writer.connect() as connection:
            # Only outside a transaction can this be set; a rebuilt table would take its references along.
            self._references(connection, "OFF")
            try:
                with connection.begin():
                    if not self.is_sqlite:
                        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
                    triggers.drop(connection)
                    yield connection
                    if self.is_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                        raise InputError("The ledger's tables do not fit together; restore it from a backup.")
            finally:
                self._references(connection, "ON")

    def _references(self, connection: Connection, switch: str) -> None:
        if self.is_sqlite:
            raw: Any = connection.connection.dbapi_connection
            raw.execute(f"PRAGMA foreign_keys={switch}")

    def close(self) -> None:
        self.engine.dispose()


def newest_revision() -> str:
    """The version of the schema that this code works with."""
    from alembic.script import ScriptDirectory

    found = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    assert found is not None
    return found


def current_revision(connection: Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection, to: str) -> None:
    """Run the migrations up to `to` in the transaction of `connection`."""
    from alembic.command import upgrade as run
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    run(config, to)


def _session(connection: Connection) -> Session:
    return Session(connection, expire_on_commit=False, autoflush=False)


@contextmanager
def _explained() -> Iterator[None]:
    """A database that does not answer is one sentence, and so is a NUL in a text. What it refuses by its rules goes
    through."""
    try:
        yield
    except (exc.DataError, UnicodeEncodeError, OverflowError):
        raise InputError("This holds a character or a number that no database can keep.") from None
    except (exc.OperationalError, exc.InterfaceError) as error:
        said = (str(error.orig).strip() or type(error.orig).__name__).splitlines()[0].rstrip(".")
        raise BusyError(f"The ledger's database does not answer: {said}.") from error
    except exc.TimeoutError:
        raise BusyError("The ledger has too many visitors at once; try again in a moment.") from None


def _checked(url: str) -> str:
    """The URL, with the driver we use in it."""
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise InputError(
            "The ledger's URL cannot be read; write sqlite:///FILE or postgresql://HOST/DATABASE."
        ) from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise InputError(f"A ledger lives in SQLite or PostgreSQL, not in {kind}; write postgresql://HOST/DATABASE.")
    if kind == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    elif not parsed.database or parsed.database == ":memory:":
        raise InputError("A ledger in memory would be lost; write sqlite:///FILE.")
    return parsed.render_as_string(hide_password=False)


def _engine(url: str) -> Engine:
    try:
        if not url.startswith("sqlite"):
            return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=40)
        engine = create_engine(
            url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}, pool_size=20, max_overflow=40
        )
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        raise InputError(
            f"The database's driver is missing ({error}); install it with pip install 'fedforget[service]'."
        ) from None
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _: Any) -> None:
    """A new connection to SQLite."""
    connection.isolation_level = None  # we say BEGIN ourselves
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    _switch_to_wal(cursor)
    cursor.execute("PRAGMA synchronous=FULL")  # what was answered is on the disk, also when the machine dies
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA recursive_triggers=ON")  # INSERT OR REPLACE deletes: the rules must see it
    cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    """Done once in a database's life. SQLite does not wait for another process that does it at the same moment."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
