"""The scout: a fresh model, trained without R for a small part of the training (not in the paper).

It knows little, but it never saw R. The ladder's check compares with it (`audit/check.py`), and a network that can only
be rebuilt from nothing is trained on from it (`methods/rebuild.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, train_part
from fedforget.federation.sight import Left
from fedforget.methods.retrain import RetrainSettings, fresh_start, is_drawn
from fedforget.params import State
from fedforget.requests import ErasureRequest

SCOUT = 0.06
"""How long it is trained, as a part of the training."""
LEAST_STEPS = 34
"""But for so many steps of a client at least, and for at most `MOST` of the training."""
MOST = 0.15
MIN_SAMPLES = 64
"""No round of a short training takes fewer of a client's samples, where it has them."""
NEARLY_NOTHING = 0.01
"""The last learning rate of a short training as a part of the schedule's."""
NUMBER = 1_000_000
"""Its initial weights are no oracle's."""


def train_scout(federation: Meter, schedule: Schedule, left: Left, exclude: Sequence[ErasureRequest]) -> State:
    """The scout: its learning rate falls to almost nothing."""
    part = max(SCOUT, min(MOST, LEAST_STEPS / left.steps(schedule)))
    start = fresh_start(federation.model, schedule, RetrainSettings(NUMBER))
    with federation.stage("scout"):
        return train_part(
            federation, start, schedule, part, exclude, "scout", min_samples=MIN_SAMPLES, last_rate=NEARLY_NOTHING
        )


def never_saw(federation: Meter, schedule: Schedule) -> bool:
    """Whether its fresh start is a draw throughout; not so of weights that were given."""
    return is_drawn(federation.model, schedule, RetrainSettings(NUMBER))
