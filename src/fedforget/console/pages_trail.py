"""Pages: the event trail, the check of the chain, and the check of a certificate."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from starlette.responses import Response

from fedforget.console import trails
from fedforget.console.models import VerifiedOut
from fedforget.console.permissions import Permission
from fedforget.console.rendering import render, shown_on
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router
from fedforget.ledger.chain import ChainCheck

router = guarded_router(include_in_schema=False)
Reader = Annotated[Visitor, allow(Permission.SEE_TRAIL)]
Verifier = Annotated[Visitor, allow(Permission.VERIFY)]
PAGE = 50


@router.get("/trail")
def trail(visitor: Reader, kind: str = "", actor: str = "", before: str = "") -> Response:
    return _trail(visitor, kind=kind[:32], actor=actor[:128], before=before)


def _trail(
    visitor: Visitor,
    *,
    kind: str = "",
    actor: str = "",
    before: str = "",
    checked: ChainCheck | None = None,
    whole: bool = False,
    problem: str = "",
    status: int = 200,
) -> Response:
    number = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    events = visitor.ledger.trail.events(kinds=[kind] if kind else None, actor=actor or None, before=number, limit=PAGE)
    kept = {name: value for name, value in (("kind", kind), ("actor", actor)) if value}
    older = f"/trail?{urlencode({**kept, 'before': events[-1].number})}" if len(events) == PAGE else None
    return render(
        visitor, "trail.html", status, events=events, head=visitor.ledger.trail.head(), older=older, kind=kind,
        actor=actor, checked=checked, whole=whole, problem=problem,
    )  # fmt: skip


@router.post("/trail/check")
async def check(visitor: Annotated[Visitor, allow(Permission.CHECK)], form: Posted) -> Response:
    """Is the chain intact, and is it the one that was pinned?"""
    return await visitor.console.compute(lambda: _check(visitor, form))


@shown_on(_trail)
def _check(visitor: Visitor, form: dict[str, str]) -> Response:
    whole = form.get("whole") == "yes"
    checked = trails.check(visitor, form.get("pins", "").splitlines()[:20], whole=whole)
    return _trail(visitor, checked=checked, whole=whole)


@router.get("/trail/pin.txt")
def pin(visitor: Reader) -> Response:
    """The head, as a file to keep elsewhere."""
    head = visitor.ledger.trail.head()
    name = f"fedforget-pin-{head.number}.txt"
    return Response(
        f"{head}\n", media_type="text/plain", headers={"content-disposition": f'attachment; filename="{name}"'}
    )


@router.get("/verify")
def verify_page(visitor: Verifier) -> Response:
    return _verify(visitor)


def _verify(visitor: Visitor, *, found: VerifiedOut | None = None, problem: str = "", status: int = 200) -> Response:
    return render(visitor, "verify.html", status, found=found, problem=problem, keys=visitor.ledger.keys.all())


@router.post("/verify")
@shown_on(_verify)
def verify(visitor: Verifier, form: Posted) -> Response:
    """A certificate, as a file or pasted."""
    text = form.get("file", "").strip() or form.get("certificate", "").strip()
    return _verify(visitor, found=trails.verify(visitor, (text + "\n").replace("\r\n", "\n").encode()))
