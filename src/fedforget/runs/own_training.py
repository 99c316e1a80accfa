"""A Retrain whose training is not ours, as in an attached app: by the app's own rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedforget.federation.cost import Cost, Meter
from fedforget.federation.rounds import Schedule
from fedforget.federation.tasks import CountSamples
from fedforget.methods import Forgetting
from fedforget.methods.retrain import RetrainSettings, fresh_start, is_drawn
from fedforget.params import State
from fedforget.requests import ErasureRequest

OwnTraining = Callable[[State], tuple[State, Cost]]
"""(the model, the bill) of a whole training from these fresh weights, without what the clients have withdrawn."""
AGAIN = (
    "Client {}'s node no longer leaves out all that was withdrawn there, so the app trained on that again; give the "
    "node the state-dir of then, unless its operator took the request back."
)


def retrained_by(
    training: OwnTraining,
    meter: Meter,
    requests: tuple[ErasureRequest, ...],
    served: tuple[ErasureRequest, ...],
    schedule: Schedule,
) -> Forgetting:
    """Retrain by `training`. It is exact where every node still left out what was served before."""
    model, settings = meter.model, RetrainSettings()
    state, cost = training(fresh_start(model, schedule, settings))
    notes = _trained_on_again(meter, requests, served, schedule)
    exact = is_drawn(model, schedule, settings) and not notes
    return Forgetting(state, "retrain", "default", requests, cost, settings, {}, notes, exact)


def _trained_on_again(
    meter: Meter, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest], schedule: Schedule
) -> tuple[str, ...]:
    """Who no longer leaves out what was served: in an app's own training nobody but the nodes does."""
    asked = {request.client for request in served} & set(meter.clients)
    left: list[dict[int, float]] = []
    for exclude in ((), (*served, *requests)) if asked else ():
        task = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=exclude)
        left.append({reply.client: reply.numbers["samples"] for reply in meter.ask(task, {}, asked)})
    return tuple(AGAIN.format(client) for client in sorted(asked) if left[0][client] != left[1][client])
