"""The rounds of an attached app whose network has a ridge head: nobody trains and nothing is averaged. A round asks the
nodes for their sums and solves the head (`federation.sums`), which is the same however often it is done; the strategy
evaluates as ever, and the app's own train function is never called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from fedforget.errors import InputError
from fedforget.federation.rounds import run_round
from fedforget.flower.serving import Service
from fedforget.requests import ErasureRequest


def nodes_to_solve(strategy: Strategy, rounds: int) -> int:
    """How many nodes the strategy waits for. Refused is one that treats the nodes' answers in another way than to
    average them, such as one that adds noise: nothing of that would happen to sums."""
    if not isinstance(strategy, FedAvg) or type(strategy).aggregate_train is not FedAvg.aggregate_train:
        raise InputError(
            f"A ridge head is solved from the nodes' sums, so nothing that {type(strategy).__name__} does to their "
            "answers would be done; give FedAvg, or a network that is trained."
        )
    if rounds != 1:
        raise InputError(f"A ridge head is solved in one round, but Forget was given {rounds}; leave rounds out.")
    return strategy.min_available_nodes


@dataclass
class SolvedRounds:
    """In place of a strategy's `configure_train` and `aggregate_train`."""

    service: Callable[[Grid, ArrayRecord], Service]
    forgotten: Callable[[], Sequence[ErasureRequest]]
    _solved: ArrayRecord = field(default_factory=ArrayRecord)

    def configure(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Solve the head; no message is left for the strategy to send. Where a node is away, the total would not be
        whole: that is raised, and nothing has changed."""
        service = self.service(grid, arrays)
        task = service.schedule.train_task(0, self.forgotten())
        self._solved = service.arrays(run_round(service.federation, service.state(arrays), task), arrays)
        return []

    def aggregate(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self._solved, None
