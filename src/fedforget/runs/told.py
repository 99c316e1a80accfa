"""What is said of a climb: on the terminal while it goes on and at its end, and in the report, in the same words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fedforget.federation.cost import Cost
from fedforget.methods import QUICK_S
from fedforget.params import State
from fedforget.runs.climb import NOT_KEPT, SCOUT_RUNG, STAYS, KeptRungs, Rung

MEANS = {
    "forgotten": "By every measure that could tell, the target is now like data that the model never saw.",
    "exact": "The model was trained afresh and never saw the target.",
    "not enough evidence": "The check cannot say whether the target is forgotten. That is not a pass.",
    "not forgotten": "The target can still be told from data that the model never saw.",
    "harmful": "Too much of what the model knew of other data would be lost, so the new model is not used.",
    "diverged": "The weights left the finite numbers, so there is no new model.",
}
"""What the check's words mean."""


def rung_sentence(rung: Rung) -> str:
    """What came of one rung."""
    return f"{rung.name}: {rung.word}. {rung.reason}"


def untold(rungs: Sequence[Rung], told: Collection[str]) -> list[str]:
    """What came of the rungs, less what was `told` while the climb went on."""
    return [line for line in map(rung_sentence, rungs) if line not in told]


def ending(rungs: Sequence[Rung], notes: Sequence[str], cost: Cost, retrain: float | None) -> list[str]:
    """What was tried, where it ended, what the word means, and how to ask for Retrain where that is left to ask.

    `cost` is the whole bill; `retrain` what Retrain was forecast to cost, in gradient evaluations."""
    return [tried_sentence(rungs, cost, retrain), end_sentence(rungs), *notes_beside(rungs, notes)]


def tried_sentence(rungs: Sequence[Rung], cost: Cost, retrain: float | None) -> str:
    """What was tried, and what it cost."""
    spent = [rung.cost.gradient_evaluations for rung in rungs]
    tried = [
        f"{rung.name} ({', '.join(filter(None, [rung.word, share_of(paid, retrain)]))})"
        for rung, paid in zip(rungs, spent, strict=True)
    ]
    checks = cost.gradient_evaluations - sum(spent)
    billed = f" The checks: {share_of(checks, retrain)}." if checks and retrain else ""
    return f"Tried: {', then '.join(tried)}.{billed}"


def end_sentence(rungs: Sequence[Rung]) -> str:
    """Where it ended, and what the word means."""
    ended = ended_at(rungs)
    place = "The model stays as it was" if ended is None else f"Ended at {ended.name}"
    word = (ended or rungs[-1]).word
    return f"{place}: {word}. {MEANS[word]}"


def ended_at(rungs: Sequence[Rung]) -> Rung | None:
    """The rung whose model is used; None where the model stays as it was."""
    used = next((rung for rung in reversed(rungs) if rung.word not in NOT_KEPT), None)
    return None if used is None or STAYS in used.reason else used


def share_of(evaluations: float, retrain: float | None) -> str:
    """As a part of Retrain; nothing where nobody knows what Retrain costs."""
    return f"{100 * evaluations / retrain:.0f} % of Retrain" if retrain else ""


def notes_beside(rungs: Sequence[Rung], notes: Sequence[str]) -> list[str]:
    """The notes, less what the rungs' sentences say already."""
    left = []
    for note in notes:
        for rung in rungs:
            note = note.removeprefix(rung.reason).removeprefix(f" {STAYS}")
        left.append(note.strip())
    return [note for note in dict.fromkeys(left) if note]


class TellingRungs:
    """Keeps the rungs of a climb, and says what came of each as soon as it is known."""

    def __init__(self, kept: KeptRungs, say: Callable[[str], None]) -> None:
        self._kept, self._say = kept, say

    def load(self, name: str) -> tuple[dict[str, Any], State] | None:
        found = self._kept.load(name)
        if found is not None:
            self._tell(name, found[0])
        return found

    def save(self, name: str, state: State, note: Mapping[str, Any]) -> None:
        self._kept.save(name, state, note)
        self._tell(name, note)

    def _tell(self, name: str, note: Mapping[str, Any]) -> None:
        if name != SCOUT_RUNG:
            self._say(rung_sentence(Rung.from_json(note["rung"])))
        elif note["seconds"] < QUICK_S:
            self._say(f"Retrain is quick here, about {note['seconds']:.1f} s, and exact: ask with --effort retrain.")
