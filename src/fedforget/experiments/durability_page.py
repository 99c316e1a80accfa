"""docs/results/durability.md: the price list. What each method's forgetting costs, and what is left of it when training
went on, over all data sets on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedforget.data.files import write_text
from fedforget.experiments.durability import DURABILITY, FIGURES, beside_retrain, cost_shares, shown_for
from fedforget.experiments.engine import Row
from fedforget.experiments.pages import provenance_of, rows_in
from fedforget.experiments.summaries import RETRAIN, by_method, by_setting
from fedforget.experiments.tables import Entry, Table
from fedforget.methods import RUNGS

INTRODUCTION = f"""\
A rung is picked with one option: `fedforget forget --effort {"|".join(RUNGS)}`; without it the ladder
picks one. Each line is a method minus Retrain after the same further ordinary rounds, none of which sees the target:
0 is as if it had never been there. For poisoned targets BD Acc tells; for clean ones the memory gap (accuracy on the
target minus accuracy on unseen samples of the same kind) and the AUC of a membership attack. What else was tried:
[rebuilding](../decisions/rebuilding.md)."""
AFTER = ("3", "5")


def render_durability(folder: Path) -> Path | None:
    """Write the page from the folder's durability-*.jsonl; None where there are none."""
    cells = rows_in(folder, DURABILITY)
    if not cells:
        return None
    targets = list(dict.fromkeys(target for rows in cells.values() for target in by_setting(rows)))
    parts = ["# The price of forgetting that lasts", INTRODUCTION]
    parts += [prices(target, cells).to_markdown() for target in targets]
    for name, rows in cells.items():
        parts.append(f"**{name}**: [all curves](durability-{name}.md). {provenance_of(rows)}")
        if (folder / f"durability-{name}.png").exists():
            parts.append(f"![The frontier on {name}](durability-{name}.png)")
    page = folder / "durability.md"
    write_text(page, "\n\n".join(parts) + "\n")
    return page


def prices(target: str, cells: Mapping[str, Sequence[Row]]) -> Table:
    """A line for each data set and method that stands beside a Retrain."""
    body: list[list[str | Entry]] = []
    for name, rows in cells.items():
        own = by_setting(rows).get(target, [])
        shares = cost_shares(own)
        gaps = {(figure, done): beside_retrain(own, done, figure) for figure in shown_for(target) for done in AFTER}
        for method in by_method(own):
            pairs = gaps[shown_for(target)[0], AFTER[0]].get(method, [])
            if method == RETRAIN or not pairs:
                continue
            line = [Entry.of(found.get(method, ()), digits=3 if figure == "auc" else 2)
                    for (figure, _), found in gaps.items()]  # fmt: skip
            cost = Entry.of([100.0 * share for share in shares.get(method, ())], digits=2)
            body.append([name, method, cost, *line, str(len(pairs))])
    heads = [f"{FIGURES[figure]}, {done} rounds" for figure in shown_for(target) for done in AFTER]
    return Table(f"Target {target}: minus Retrain", ("data", "model", "cost, % of Retrain's", *heads, "cells"), body)
