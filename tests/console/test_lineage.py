"""The picture of a federation's models."""

from __future__ import annotations

from console_visits import Of
from ledger_worlds import World

from fedforget.console.lineage import LEFT, MOST, draw_lineage
from fedforget.ledger.schema import Version
from fedforget.ledger.states import Role


def version(number: int, kind: str = "forgotten", restores: int | None = None, state: str = "superseded") -> Version:
    parent = number - 1 or None
    return Version(federation="x", number=number, sha256="0", parent=parent, kind=kind, state=state, restores=restores,
                   verdict=None)  # fmt: skip


def test_a_straight_line():
    picture = draw_lineage([version(1, "first"), version(2), version(3, state="current")], {3: "class 1 of client 0"})
    assert {node.x for node in picture.nodes} == {LEFT}
    assert [node.y for node in picture.nodes] == sorted((node.y for node in picture.nodes), reverse=True), (
        "newest on top"
    )
    assert len(picture.edges) == 2
    assert picture.nodes[2].about == "class 1 of client 0"
    assert picture.nodes[0].about == "as it was registered"


def test_a_rollback_leaves_versions_beside_the_line():
    rolled = [version(1, "first"), version(2), version(3), version(4, "rollback", 2), version(5, state="current")]
    picture = draw_lineage(rolled)
    assert [node.x == LEFT for node in picture.nodes] == [True, True, False, True, True]
    assert [edge.restores for edge in picture.edges] == [False, False, True, False]
    assert picture.nodes[3].about == "rolled back to version 2"


def test_very_many_versions():
    picture = draw_lineage([version(number) for number in range(1, 100)])
    assert (len(picture.nodes), picture.hidden) == (MOST, 99 - MOST)


def test_the_page_draws_it(visit: Of, world: World):
    world.served()
    page = visit(Role.AUDITOR).get("/federations/digits").text
    assert page.count('<circle class="node') == 2
    assert "class 1 (one) of client 0 · forgotten" in page
    requester = visit(Role.REQUESTER).get("/federations/digits").text
    assert "<circle" not in requester
    assert "SHA-256" not in requester
    assert "/nowhere" not in requester
