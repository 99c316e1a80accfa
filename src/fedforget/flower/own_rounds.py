"""Retrain through an app's own rounds: its strategy, its train function, from fresh weights, without the target.

The nodes have withdrawn the target by then, so the app's own training leaves it out (`attach.retained`). Nobody's
schedule is imitated: what comes out is what the app would have trained, clipped, noised and averaged as ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import nn

from fedforget.errors import DivergedError, FedForgetError
from fedforget.federation.cost import Cost
from fedforget.federation.rounds import Schedule
from fedforget.flower.arrays import arrays_of_state, names_in, state_of_arrays
from fedforget.flower.memories import Adapted, adapt_again, adapted, renew_memories
from fedforget.flower.renewal import Renewal
from fedforget.params import State, first_non_finite


@dataclass
class OwnRounds:
    """The rounds of the app that `strategy` runs; each is given `config`, as the app gives it."""

    grid: Grid
    strategy: Strategy
    configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]]
    aggregate: Callable[[int, Iterable[Message]], tuple[ArrayRecord | None, MetricRecord | None]]
    """The strategy's own, whatever stands in their place just now."""
    model: nn.Module
    schedule: Schedule
    arrays: ArrayRecord
    """Any arrays of the app, for their names and types."""
    config: ConfigRecord = field(default_factory=ConfigRecord)
    renewal: Renewal = field(default_factory=Renewal)
    timeout_s: float = 3600.0
    began: Adapted = field(default_factory=list)
    """What the strategy adapts, as it was when the app began."""

    def train(self, fresh: State) -> tuple[State, Cost]:
        """`schedule.rounds` rounds from these weights. What the strategy remembers then is of the new model alone."""
        began, names, cost = time.perf_counter(), names_in(self.model, self.arrays), Cost()
        current = arrays_of_state(fresh, self.arrays, names)
        config = ConfigRecord(dict(self.config))  # an app may change it from round to round
        now = adapted(self.strategy)
        self._begin_anew()
        adapt_again(self.began)
        try:
            for number in range(1, self.schedule.rounds + 1):
                current = self._round(number, current, config, cost)
            state = state_of_arrays(self.model, current, names)
            broken = first_non_finite(state)
            if broken is not None:
                raise DivergedError("The app's own training", f"its '{broken}' is no longer finite.")
        except FedForgetError:
            self._begin_anew()
            adapt_again(now)
            raise
        cost.seconds["training"] = time.perf_counter() - began
        return state, cost

    def _begin_anew(self) -> None:
        renew_memories(self.strategy)
        self.renewal.renew()

    def _round(self, number: int, arrays: ArrayRecord, config: ConfigRecord, cost: Cost) -> ArrayRecord:
        try:
            messages = self.renewal.marked(self.configure(number, arrays, config, self.grid))
            replies = list(self.grid.send_and_receive(messages, timeout=self.timeout_s))
            made, _ = self.aggregate(number, replies)
        except FedForgetError:
            raise
        except Exception as error:
            raise FedForgetError(
                f"The app's own training failed in round {number} of its retraining: {error}"
            ) from error
        if made is None:
            reasons = [" ".join(str(reply.error.reason).split())[:200] for reply in replies if reply.has_error()]
            raise FedForgetError(
                f"Nobody had a result in round {number} of the app's own retraining; "
                f"{f'the first reason: {reasons[0]}' if reasons else 'nobody answered.'}"
            )
        answers = [reply.content for reply in replies if reply.has_content()]
        cost.bytes += sum(len(array.data) for array in arrays.values()) * (len(messages) + len(answers))
        cost.gradient_evaluations += self.schedule.epochs * sum(map(_examples, answers))
        return made


def _examples(content: RecordDict) -> float:
    """How many samples a reply is made of, as the app says."""
    counts = [record.get("num-examples", 0) for record in content.metric_records.values()]
    return float(next((count for count in counts if isinstance(count, int | float) and count), 0))
