"""What a federation holds, as far as a visitor may know: who asks needs the names, who decides also the numbers."""

from __future__ import annotations

from typing import Any

from fedforget.console.permissions import Permission
from fedforget.console.visitors import Visitor
from fedforget.ledger.schema import Federation


def description_for(visitor: Visitor, row: Federation) -> dict[str, Any]:
    """The federation's description; for who may not see them, no client's number of samples, of a class or in all."""
    if visitor.may(Permission.SEE_COUNTS):
        return {"shape": [], **row.description}
    clients = [{**client, "samples": None, "counts": []} for client in row.description["clients"]]
    return {"shape": [], **row.description, "clients": clients}
