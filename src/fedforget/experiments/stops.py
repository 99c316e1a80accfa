"""The ladder's check against the truth: does it stop where it may, and climb where it must? (no table of the paper)

The truth of a model is the audit's word beside three retrained models. A model that never saw the target is `forgotten`
by the way it was made, whatever an audit finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedforget.experiments.engine import Row
from fedforget.experiments.tables import Entry, Table

DECIDED = ("forgotten", "not forgotten", "over-forgotten")
"""Words by which the audit decides."""
CLIMBS = ("not forgotten", "harmful")


class Said(NamedTuple):
    """What the check says of one model, and what the audit says of it."""

    check: str
    audit: str


def said_in_climbs(rows: Sequence[Row]) -> list[Said]:
    """Of every rung of these climbs; of the model before, where it stayed as it was."""
    found = []
    for row in rows:
        for rung in row["rungs"] if row["note"] is None else ():
            made = rung["truth"] is not None and rung["check"] is not None
            if rung["word"] == "exact":
                found.append(Said("exact", "forgotten"))
            elif made:
                found.append(Said(rung["check"]["word"], rung["truth"]["word"]))
            elif rung["truth"] is None and rung["word"] == "not enough evidence":
                found.append(Said(rung["word"], row["untouched"]["word"]))
    return found


def said_of_models(rows: Sequence[Row]) -> list[Said]:
    """Of models of which the truth is known, where the check was asked, too."""
    return [Said(row["check"]["word"], row["verdict"]["word"]) for row in rows if row.get("check")]


def against_the_truth(benches: Mapping[str, Sequence[Said]]) -> Table:
    """A line for each bench, and one for all. In a climb, `not enough evidence` is wrong wherever the audit decides."""
    every = [said for some in benches.values() for said in some]
    body: list[list[str | Entry]] = []
    for name, some in [*benches.items(), ("all", every)]:
        bad = [said for said in some if said.audit in DECIDED[1:]]
        good = [said for said in some if said.audit == DECIDED[0]]
        decided = [said for said in some if said.audit in DECIDED]
        body.append([
            name, str(len(some)),
            _part([said.check in ("forgotten", "exact") for said in bad]),
            _part([said.check in CLIMBS for said in good]),
            _part([said.check == "not enough evidence" for said in decided]),
        ])  # fmt: skip
    columns = ("bench", "models", "false stops", "needless climbs", "says nothing where the audit decides")
    notes = (
        "False stops: `forgotten`, of those that the audit calls not forgotten or over-forgotten. Needless climbs: "
        "`not forgotten` or `harmful`, of those that it calls forgotten.",
    )
    return Table("The check against the truth", columns, body, notes)


def _part(told: Sequence[bool]) -> str:
    """`3 of 60 (5 %)`."""
    return f"{sum(told)} of {len(told)}" + (f" ({100 * sum(told) / len(told):.0f} %)" if told else "")
