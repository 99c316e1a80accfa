"""`fedforget work`: serve the ledger's requests until told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from fedforget.cli.service import HomeOption, LedgerOption, needs_service, open_ledger
from fedforget.cli.terminal import DeviceOption, JsonOption, print_result


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
    """Serve requests: forget, audit, and publish what is forgotten; the rest waits for an officer.

    Several workers may run at once. Ctrl-C or SIGTERM: what is under way is given back, and goes on where it was when
    it is taken up again."""
    with needs_service():
        from fedforget.ledger.worker import Worker
    log = logging.getLogger("fedforget")
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    log.setLevel(logging.WARNING if as_json else logging.INFO)
    with open_ledger(home, url) as ledger:
        if federation is not None:
            ledger.federations.get(federation)
        worker = Worker(ledger, name, federation=federation, lease_seconds=lease, poll_seconds=poll, device=device)
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
