"""The ledger is made of parts: each a class of its own, and they need each other one way."""

from __future__ import annotations

import ast
import inspect
import sys

import fedforget.ledger
from fedforget.ledger.book import Ledger
from fedforget.ledger.core import Core

PARTS = (
    "trail", "accounts", "keys", "models", "federations", "requests", "work", "versions", "withdrawals", "destruction",
    "register", "lineage",
)  # fmt: skip


def parts_of(ledger: Ledger) -> dict[str, object]:
    return {name: getattr(ledger, name) for name in PARTS}


def test_each_part_is_a_class_of_its_own_over_one_core(ledger: Ledger):
    parts = parts_of(ledger)
    assert all(type(part).__mro__ == (type(part), object) for part in parts.values())
    assert len({id(value) for part in parts.values() for value in vars(part).values() if isinstance(value, Core)}) == 1


def test_a_part_has_only_the_parts_above_it_in_the_room_s_own_list(ledger: Ledger):
    """And the list says which."""
    parts = parts_of(ledger)
    names = {id(part): name for name, part in parts.items()}
    doc = inspect.getdoc(fedforget.ledger) or ""
    lines = {line.split()[0]: line for line in doc.splitlines() if line.strip() and line.split()[0] in PARTS}
    assert tuple(lines) == PARTS
    for name, part in parts.items():
        used = [names[id(value)] for value in vars(part).values() if id(value) in names]
        assert all(PARTS.index(other) < PARTS.index(name) for other in used)
        assert (f"(uses {', '.join(used)})" in lines[name]) == bool(used), f"{name} uses {used}"


def test_no_part_reaches_into_what_is_private_to_another(ledger: Ledger):
    for part in parts_of(ledger).values():
        tree = ast.parse(inspect.getsource(sys.modules[type(part).__module__]))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                own = isinstance(node.value, ast.Name)  # self, or a row of the database
                assert own, f"{type(part).__name__} reads {ast.unparse(node)}"


def test_the_ledger_itself_forwards_nothing():
    assert {name for name in vars(Ledger) if not name.startswith("_")} == {"open", "close"}
