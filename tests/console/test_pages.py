"""The pages: every one is served to an admin, with nothing missing in it."""

from __future__ import annotations

import pytest
from console_visits import Of
from ledger_worlds import World

from fedforget.ledger.states import Role


@pytest.mark.parametrize(
    "path", ["/", "/?view=all", "/requests/new", "/federations", "/federations/digits", "/trail", "/verify", "/account",
             "/accounts"],
)  # fmt: skip
def test_pages_are_served(visit: Of, world: World, path: str):
    world.served()
    answer = visit(Role.ADMIN).get(path)
    assert answer.status_code == 200, answer.text
    assert "fedforget" in answer.text
    assert 'style="' not in answer.text
