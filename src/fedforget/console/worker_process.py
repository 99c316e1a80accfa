"""The console's own worker, as a process: `python -m fedforget.console.worker_process`.

Home and ledger come by the environment (`processes.child`). SIGTERM, or the end of the console, ends it cleanly: a
request under way is given back."""

from __future__ import annotations

import logging
import signal
import sys
import threading

from fedforget.console.orphans import end_with_parent
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger
from fedforget.ledger.worker import Worker


def main() -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    end_with_parent()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    try:
        with Ledger.open() as ledger:
            Worker(ledger).run(stop)
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
