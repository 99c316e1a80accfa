"""The demo federation: scikit-learn's digits on four clients, trained in a few seconds, registered as `demo`.

Run by the console as a process of its own: `python -m fedforget.console.demo_federation ACTOR`. It prints how far it is
as lines of JSON. As in `fedforget demo`, client 0's threes carry a trigger and a wrong label, so that everybody can see
what the model remembers, and that it does so no longer."""

from __future__ import annotations

import json
import sys
import time

from fedforget.console.orphans import end_with_parent
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger
from fedforget.runs.demo import demo_config
from fedforget.runs.folder import Run
from fedforget.runs.train import train_run

NAME = "demo"


def make_demo(ledger: Ledger, actor: str) -> None:
    """Train it, or go on where it was left, and register it."""
    folder = ledger.home / "runs" / NAME
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
    ledger.federations.register_run(NAME, folder, actor=actor)


def main() -> None:
    end_with_parent()
    try:
        with Ledger.open() as ledger:
            make_demo(ledger, sys.argv[1])
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
