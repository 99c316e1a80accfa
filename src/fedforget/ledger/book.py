"""class Ledger: the one door to requests, versions, evidence, certificates, accounts and events.

ledger = Ledger.open(home)
ledger.federations.register_run("digits", folder)
ledger.requests.submit("digits", ErasureRequest.of_class(0, 3), subject="case-17", ground="objection", asked_by="ann")
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from sqlalchemy import insert
from sqlalchemy.orm import Session

from fedforget.data.files import writing
from fedforget.errors import InputError
from fedforget.ledger import triggers
from fedforget.ledger.accounts import Accounts
from fedforget.ledger.chain import BEGINNING
from fedforget.ledger.clock import Clock, utc_now
from fedforget.ledger.core import SYSTEM, Core
from fedforget.ledger.database import Database, current_revision, newest_revision, upgrade
from fedforget.ledger.decisions import Decisions
from fedforget.ledger.destruction import Destruction
from fedforget.ledger.federations import Federations
from fedforget.ledger.intake import Requests
from fedforget.ledger.keys import Keys
from fedforget.ledger.lineage import Traces
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.privacy import close_to_others, make_folder
from fedforget.ledger.register import Register
from fedforget.ledger.schema import Head
from fedforget.ledger.trail import Trail
from fedforget.ledger.versions import Versions
from fedforget.ledger.webhooks import Webhooks
from fedforget.ledger.withdrawals import Withdrawals
from fedforget.ledger.work import Work


class Ledger:
    """An opened ledger. Safe to share between threads; close it when done, or use it in a `with`."""

    def __init__(self, home: Path, database: Database, clock: Clock = utc_now) -> None:
        core = Core(home, database, clock)
        self.home, self.database, self.clock = home, database, clock
        self.trail, self.accounts, self.keys, self.models = Trail(core), Accounts(core), Keys(core), ModelFiles(core)
        self.federations = Federations(core, self.models)
        self.requests = Requests(core)
        self.work = Work(core, self.requests)
        self.versions = Versions(core, self.models, self.keys, self.federations, self.requests, self.work)
        self.withdrawals = Withdrawals(core, self.keys, self.federations, self.requests)
        self.decisions = Decisions(core, self.models, self.federations, self.requests)
        self.webhooks = Webhooks(core)
        self.destruction = Destruction(core, self.models, self.federations)
        self.register = Register(core, self.versions)
        self.lineage = Traces(core, self.models, self.keys, self.destruction)

    @classmethod
    def open(cls, home: Path | None = None, url: str | None = None, *, clock: Clock = utc_now) -> Ledger:
        """The ledger of an installation's folder (default: `default_home`), in SQLite there or at `url`; a new one
        where there is none. One with an older schema is refused: `fedforget ledger migrate` brings it up to date."""
        home = default_home() if home is None else Path(home)
        make_folder(home)
        with writing():
            close_to_others(home)
        database = Database(database_url(home, url))
        ledger = cls(home, database, clock)
        found, newest = database.revision(), newest_revision()
        if found is None:
            _begin(Core(home, database, clock))
        elif found != newest:
            database.close()
            raise InputError(
                f"The ledger has the schema {found}, but this fedforget works with {newest}; make a backup, then run "
                "`fedforget ledger migrate` (or use the fedforget that wrote it)."
            )
        return ledger

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begin(core: Core) -> None:
    """A new ledger: the tables, the rules, the first event."""
    with core.database.changing_schema() as connection:
        if current_revision(connection) is None:
            upgrade(connection, "head")
            name = uuid.uuid4().hex
            head = {"id": 1, "ledger": name, "number": 0, "hash": BEGINNING}
            connection.execute(insert(Head).values(head))
            triggers.create(connection)
            with Session(connection) as session:
                core.append(session, SYSTEM, "ledger made", {"ledger": name})
        else:
            triggers.create(connection)  # another process was first, and we took them away


def database_url(home: Path, url: str | None = None) -> str:
    """Where the database is: as named, or $FEDFORGET_LEDGER, else SQLite in the home."""
    return url or os.environ.get("FEDFORGET_LEDGER") or f"sqlite:///{home / 'ledger.sqlite'}"


def migrate(home: Path | None = None, url: str | None = None) -> tuple[str, str]:
    """Bring the tables of an older ledger up to date, with all that is in them; (the schema before, the schema now)."""
    home = default_home() if home is None else Path(home)
    database = Database(database_url(home, url))
    try:
        before, newest = database.revision() if home.is_dir() else None, newest_revision()
        if before is None:
            raise InputError(f"There is no ledger in {home} yet; it is made when it is first used.")
        if before > newest:
            raise InputError(f"The ledger's schema {before} is newer than this fedforget, which knows {newest}.")
        with database.changing_schema() as connection:
            upgrade(connection, "head")
            triggers.create(connection)  # as they are now: a table that is rebuilt loses its own
        return before, newest
    finally:
        database.close()


def default_home() -> Path:
    """$FEDFORGET_HOME, else the platform's place for a user's data."""
    chosen = os.environ.get("FEDFORGET_HOME")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "fedforget"
