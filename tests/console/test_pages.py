"""The pages: every one is served to an admin, with nothing missing in it."""

from __future__ import annotations

import json

import pytest
from console_visits import Of
from ledger_worlds import World

from fedforget.audit.evidence import evidence_record
from fedforget.audit.verdict import Evidence, Reading, conclude
from fedforget.console.evidence_view import evidence_view
from fedforget.console.rendering import environment
from fedforget.ledger.states import Role


@pytest.mark.daily(4)
@pytest.mark.parametrize(
    "path", ["/", "/?view=all", "/requests/new", "/federations", "/federations/digits", "/trail", "/verify", "/account",
             "/accounts", "/glossary", "/?view=new"],
)  # fmt: skip
def test_pages_are_served(visit: Of, world: World, path: str):
    world.served()
    answer = visit(Role.ADMIN).get(path)
    assert answer.status_code == 200, answer.text
    assert "fedforget" in answer.text
    assert 'style="' not in answer.text


def test_of_a_feature_the_page_shows_the_sensitivity():
    """On a line of its own length, beside the accuracy without the feature in percent."""

    def read(name: str, *values: float) -> Evidence:
        before, after, *oracles = (Reading(value, 0.001) for value in values)
        return Evidence(name, "high", after, before, tuple(oracles))

    readings = [
        read("sensitivity to the feature", 0.08, 0.02, 0.021, 0.019),
        read("unseen data without the feature", 86.5, 95.0, 96.0, 97.0),
    ]
    record = evidence_record(
        request={"samples": 12}, run={}, models={}, readings=readings, verdict=conclude(readings, with_oracle=True),
        pictures={}, level="quick",
    )  # fmt: skip
    view = evidence_view("f" * 64, json.dumps(record))
    assert view is not None
    heard, accuracy = view.rows
    assert (heard.place(0.08), heard.place(0.02), heard.shown(heard.after)) == (400.0, 100.0, "0.0200")
    assert heard.words == "before 0.0800, after 0.0200, models that never saw it 0.0200"
    assert accuracy.words == "before 86.5 %, after 95.0 %, models that never saw it 96.5 %"
    assert [chart.caption for chart in view.charts] == ["Sensitivity to the feature"]
    page = environment().get_template("evidence.html").render(evidence=view)
    assert "0.0800 → 0.0200</span>" in page
    assert "86 → 95 %</span>" in page
    assert 'style="' not in page
