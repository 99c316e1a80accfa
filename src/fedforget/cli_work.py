"""`fedforget work`: serve the ledger's requests until told to stop. And how a Flower federation gets into it."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fedforget.cli_acting import acting
from fedforget.cli_ledger import (
    AsOption,
    HomeOption,
    KeepOption,
    LedgerOption,
    LevelOption,
    LimitOption,
    MethodOption,
    PresetOption,
    TogetherOption,
    ledger_app,
    needs_service,
    open_ledger,
    print_registered,
)
from fedforget.cli_terminal import DeviceOption, JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.errors import InputError


def work(
    name: Annotated[
        str | None, typer.Option(help="What this worker is called in the trail (default: HOST/PID).")
    ] = None,
    federation: Annotated[str | None, typer.Option(help="Serve the requests of this federation alone.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits any more, for cron.")] = False,
    lease: Annotated[
        float, typer.Option(help="Seconds without a sign of life after which another worker takes over.", min=1.0)
    ] = 60.0,
    poll: Annotated[float, typer.Option(help="Seconds between two looks for something to do.", min=0.05)] = 1.0,
    device: DeviceOption = "cpu",
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve requests: forget, audit, and publish what is forgotten; the rest waits for an officer. Several workers may
    run at once. Ctrl-C or SIGTERM: what is under way is given back, and goes on where it was when it is taken up
    again."""
    with needs_service():
        from fedforget.ledger.worker import Worker
    log = logging.getLogger("fedforget")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.WARNING if as_json else logging.INFO)
    with open_ledger(home, url) as ledger:
        if federation is not None:
            ledger.federation(federation)
        worker = Worker(
            ledger, name, federation=federation, lease_seconds=lease, poll_seconds=poll, device=device
        )  # fmt: skip
        log.info("Worker %s serves the requests of %s.", worker.name, ledger.home)
        served = worker.run(_stopped_by_signals(), once=once)
    print_result(as_json, {"served": served}, [f"Served {served} request{'' if served == 1 else 's'}."])


def _stopped_by_signals() -> threading.Event:
    """Set by the first SIGTERM or Ctrl-C; the second one ends the process at once."""
    stop = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return stop


@ledger_app.command("register-flower")
def register_flower_federation(
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")],
    file: Annotated[Path, typer.Argument(help="A TOML file that says where it is.", metavar="FILE")],
    method: MethodOption = "fedaf",
    preset: PresetOption = None,
    audit_level: LevelOption = "quick",
    accuracy_limit: LimitOption = 2.0,
    keep_days: KeepOption = 30,
    together: TogetherOption = 1,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a Flower federation one that requests can be about. FILE names its connection, Flower's home and the run:
    see examples/deploy/federation.toml."""
    if not file.is_file():
        raise InputError(f"There is no file {file} that describes the federation.")
    with open_ledger(home, url) as ledger:
        from fedforget.ledger.executor_flower import register_flower

        actor = acting(ledger, as_account, Permission.ROLL_BACK).actor
        federation = register_flower(
            ledger, name, file, actor=actor, method=method, preset=preset,
            audit_level=audit_level, accuracy_limit=accuracy_limit, keep_days=keep_days, together=together,
        )  # fmt: skip
    print_registered(federation, as_json)
