"""The processes that the console starts beside itself, by `processes`: a worker, and the training of the demo.

    python -m fedforget.console.children worker
    python -m fedforget.console.children demo ACTOR

Home and ledger come by the environment. Standard input is a pipe from the console: when it closes, or at a SIGTERM, a
child ends cleanly, and the worker gives back a request under way."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time

from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger
from fedforget.ledger.worker import Worker
from fedforget.runs.demo import demo_config
from fedforget.runs.folder import Run
from fedforget.runs.train import train_run

DEMO = "demo"


def end_with_parent() -> None:
    """From now on, this process asks itself to end (SIGTERM) when nobody holds the other end of its input."""

    def wait() -> None:
        # Of the raw descriptor: a reader of sys.stdin would hold its lock when the interpreter ends.
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    descriptor = sys.stdin.fileno()
    threading.Thread(target=wait, name="waits for the parent's end", daemon=True).start()


def work(ledger: Ledger) -> None:
    """Serve requests until told to stop."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    Worker(ledger).run(stop)


def make_demo(ledger: Ledger, actor: str) -> None:
    """scikit-learn's digits on four clients: train them in a few seconds, or go on where that was left, and register
    them as `demo`. Prints how far it is as lines of JSON.

    As in `fedforget demo`, client 0's threes carry a trigger and a wrong label: everybody can see what the model
    remembers, and that it does so no longer."""
    folder = ledger.home / "runs" / DEMO
    last = 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2 or done == total:
            last = time.monotonic()
            print(json.dumps({"stage": what, "fraction": done / max(1, total)}), flush=True)

    report("loading data", 0, 1)
    config = demo_config()
    begun = (folder / "run.json").exists() and Run(folder).config == config
    train_run(folder, None if begun else config, progress=report)
    report("registering", 1, 1)
    ledger.federations.register_run(DEMO, folder, actor=actor)


def main(what: str, *given: str) -> None:
    end_with_parent()
    try:
        with Ledger.open() as ledger:
            if what == "worker":
                work(ledger)
            else:
                make_demo(ledger, *given)
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
