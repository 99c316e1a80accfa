"""Does it last? What a model knows of the target after further ordinary rounds without it.

Nobody shows R again, yet where a method only hid the memory it comes back (arXiv 2505.22310); Retrain stays as it is.
After each number of rounds, on R and beside held-out samples of the same kind (`audit.membership`):

    bd_acc         the share of R that still gets the label it was trained with, in percent
    true_acc       the share that gets its true class
    target_loss    the mean loss on R
    memory_gap     accuracy on R minus accuracy on held-out samples: 0 for data never seen
    loss_gap       mean loss on held-out samples minus on R: 0 for data never seen
    auc            P(the loss on a sample of R is lower than on a held-out one): 0.5 for data never seen

A figure is None where R, or what it would be compared with, is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedforget.audit.case import Case
from fedforget.audit.measures import measure_clients, share_as_trained, share_as_true
from fedforget.audit.membership import Membership, attack_membership
from fedforget.errors import InputError
from fedforget.federation.rounds import further_rounds
from fedforget.federation.tasks import Measure
from fedforget.params import State, copy_state

ROUNDS = (1, 3, 5)
"""After how many further rounds durability is told, beside the model as it is."""


@dataclass(frozen=True)
class Knowledge:
    """What one model knows of R."""

    bd_acc: float | None
    true_acc: float | None
    target_loss: float | None
    memory_gap: float | None
    loss_gap: float | None
    auc: float | None


@dataclass(frozen=True)
class Durability:
    """What a model knows of R after so many further `rounds` without it; the first is 0, the model as it is."""

    rounds: tuple[int, ...]
    known: tuple[Knowledge, ...]

    def to_json(self) -> dict[str, list[Any]]:
        """The rounds, and each figure as a list beside them."""
        figures = {item.name: [getattr(at, item.name) for at in self.known] for item in fields(Knowledge)}
        return {"rounds": list(self.rounds), **figures}


def knowledge_of(case: Case, state: State) -> Knowledge:
    """Measured where the data is: at the clients that ask."""
    target, _ = measure_clients(case.federation, state, case.about(Measure))
    attacked = attack_membership(case, state, keep=False)
    return Knowledge(share_as_trained(target), share_as_true(target), target.mean_loss, **beside_unseen(attacked))


def beside_unseen(attacked: Membership) -> dict[str, float | None]:
    """The figures of R that stand beside held-out samples of its kind."""
    found = {"memory_gap": attacked.gap, "loss_gap": attacked.loss_gap, "auc": attacked.areas.get("loss")}
    return {name: None if reading is None else reading.value for name, reading in found.items()}


def durability(case: Case, state: State, rounds: Sequence[int] = ROUNDS) -> Durability:
    """What `state` knows before any further round and after each number of `rounds`: ordinary rounds of everybody on
    what they retain; the first is the very round of `measure_now_and_later`."""
    if any(done < 1 for done in rounds):
        raise InputError(f"Further rounds are counted from 1, but {min(rounds)} was asked for.")
    found: dict[int, Knowledge] = {}
    last = max(rounds, default=0)
    for done, current in further_rounds(case.federation, copy_state(state), case.schedule, case.exclude, last):
        if done == 0 or done in rounds:
            found[done] = knowledge_of(case, current)
    return Durability(tuple(found), tuple(found.values()))
