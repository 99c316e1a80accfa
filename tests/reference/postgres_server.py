"""A real PostgreSQL of the tests' own: Debian's package, a folder that is thrown away, a socket and no port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

QUICK = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "listen_addresses": "",
    "max_connections": "100", "shared_buffers": "32MB",
}  # fmt: skip
"""What a database whose data nobody will miss can do without."""


class PostgresServer:
    """A running server; `new_database` gives the URL of an empty place of one's own: a schema, which is made in a
    moment where a database takes a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new_database(self) -> str:
        name = f"ledger_{uuid4().hex}"
        self._say(f"CREATE SCHEMA {name}")
        return f"postgresql://tests@/postgres?host={self.folder}&options=-csearch_path%3D{name}"

    def drop(self, url: str) -> None:
        self._say(f"DROP SCHEMA {url.rpartition('%3D')[2]} CASCADE")

    def _say(self, statement: str) -> None:
        with psycopg.connect(f"postgresql://tests@/postgres?host={self.folder}", autocommit=True) as connection:
            connection.execute(statement)


def programs() -> Path | None:
    """Where initdb and postgres are: Debian keeps them out of the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    found = shutil.which("initdb")
    candidates = [*folders, *([Path(found).resolve().parent] if found else [])]
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server, and stop it. It refuses to run as root: then it runs as another user."""
    found = programs()
    assert found is not None
    folder = Path(tempfile.mkdtemp(prefix="fedforget-postgres-"))
    other: dict[str, object] = {}
    if os.getuid() == 0:
        user = next(name for name in ("postgres", "nobody") if any(entry.pw_name == name for entry in pwd.getpwall()))
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        other = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    folder.chmod(0o755)
    data = folder / "data"
    options = [word for name, value in QUICK.items() for word in ("-c", f"{name}={value}")]
    with open(folder / "log", "wb") as log:
        subprocess.run(
            [found / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, stdout=log, stderr=log, cwd=folder, **other,
        )  # type: ignore[call-overload] # fmt: skip
        server = subprocess.Popen(
            [found / "postgres", "-D", data, "-k", folder, *options], stdout=log, stderr=log, cwd=folder, **other
        )  # type: ignore[call-overload]
    try:
        running = PostgresServer(folder)
        for _ in range(200):
            ready = subprocess.run([found / "pg_isready", "-q", "-h", folder, "-U", "tests"], check=False)
            if ready.returncode == 0:
                break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield running
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)
