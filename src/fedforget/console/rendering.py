"""Pages from templates: compiled once, everything escaped, a missing value is an error and never a hole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache, wraps
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from fedforget.audit.verdict import GONE
from fedforget.console.permissions import Permission
from fedforget.console.problems import status_of
from fedforget.console.visitors import Visitor
from fedforget.errors import FedForgetError
from fedforget.ledger.clock import from_text, to_text
from fedforget.ledger.papers import STILL, for_people, listed
from fedforget.ledger.states import CLOSED, RequestState
from fedforget.ledger.trail import SOON

Handler = Callable[..., Response]
STATE_TONES = {
    "received": "new", "accepted": "wait", "queued": "wait", "forgetting": "work", "auditing": "work",
    "deciding": "decide", "done": "good", "failed": "bad", "refused": "off",
}  # fmt: skip
VERDICT_TONES = {"forgotten": "good", "exact": "good", "not forgotten": "bad", "over-forgotten": "bad"}


SENTENCES = {
    "Margins, target and held-out": "How sure the models are of the data, beside unseen data",
    "What comes back": "What the model knows of the data after further rounds without it",
    "Sensitivity to the feature": "How much the models listen to the withdrawn feature",
}
"""What a chart shows, in one sentence."""


def sentence(caption: str) -> str:
    """Of a chart, what it shows.

    >>> sentence("Membership attack (loss)")
    'Whether an attack can tell that the data was trained on (loss)'
    """
    return SENTENCES.get(caption) or caption.replace(
        "Membership attack", "Whether an attack can tell that the data was trained on"
    )


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("fedforget.console"), autoescape=True, undefined=StrictUndefined, auto_reload=False,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {
        "for_people": for_people, "sentence": sentence, "listed": listed,
        "moment": moment, "stamp": lambda text: moment(from_text(text)), "day": day, "iso": to_text,
        "thousands": "{:,}".format,
        "short": lambda hash: "–" if hash is None else hash[:12],
    }  # fmt: skip
    found.globals |= {
        "P": Permission, "asset": asset, "tone": tone, "deadline": deadline, "GONE": GONE, "STILL": STILL,
        "verdict_tone": lambda verdict: VERDICT_TONES.get(verdict, "unclear"),
    }  # fmt: skip
    return found


def render(visitor: Visitor, template: str, status: int = 200, problem: str = "", **values: Any) -> HTMLResponse:
    """A page for this visitor; `problem`: why what they sent was refused."""
    text = (
        environment()
        .get_template(template)
        .render(visitor=visitor, now=visitor.ledger.clock(), problem=problem, **values)
    )
    return HTMLResponse(text, status)


def shown_on(page: Handler) -> Callable[[Handler], Handler]:
    """A handler's refusals are shown on this page, which gets what the handler got: they belong beside the form."""

    def around(handler: Handler) -> Handler:
        @wraps(handler)
        def handled(visitor: Visitor, **given: Any) -> Response:
            try:
                return handler(visitor, **given)
            except FedForgetError as error:
                return page(visitor, **given, problem=str(error), status=status_of(error))

        return handled

    return around


MEDIA = {
    "json": "application/json", "pdf": "application/pdf", "csv": "text/csv", "txt": "text/plain", "html": "text/html",
    "pem": "application/x-pem-file",
}  # fmt: skip


def file_to_keep(name: str, content: str | bytes, **headers: str) -> Response:
    """An answer that a browser keeps as a file of this name."""
    headers["content-disposition"] = f'attachment; filename="{name}"'
    return Response(content, media_type=MEDIA[name.rpartition(".")[2]], headers=headers)


@cache
def asset(name: str) -> str:
    """The address of one of our files; it changes with the content, so browsers may keep it for ever."""
    data = files("fedforget.console").joinpath("static", name).read_bytes()
    return f"/static/{name}?{hashlib.sha256(data).hexdigest()[:10]}"


def tone(state: str, verdict: str | None = None) -> str:
    """The colour of a state, or of an event that is none. What was done with another verdict than that the target is
    gone does not look as if it were.

    >>> tone("done", "forgotten"), tone("done", "over-forgotten"), tone("auditing")
    ('good', 'decide', 'work')
    """
    if state == RequestState.DONE and verdict not in GONE:
        return "decide"
    return STATE_TONES.get(state, "wait")


def moment(value: datetime) -> str:
    """A time for people.

    >>> from datetime import UTC
    >>> moment(datetime(2026, 1, 5, 9, 3, tzinfo=UTC))
    '5 Jan 2026, 09:03 UTC'
    """
    return f"{day(value)}, {value:%H:%M} UTC"


def day(value: datetime) -> str:
    return f"{value.day} {value:%b %Y}"


def features(shape: Sequence[int]) -> str:
    """What features samples of this shape have; nothing where nobody said.

    >>> features([30]), features([1, 8, 8])
    ('There are columns 0 to 29.', 'The images have 8x8 pixels.')
    """
    if len(shape) == 1:
        return f"There are columns 0 to {shape[0] - 1}."
    return f"The images have {shape[1]}x{shape[2]} pixels." if len(shape) == 3 else ""


def deadline(state: str, due: datetime, now: datetime) -> tuple[str, str]:
    """(tone, words) of a request's date: overdue, soon, later, or closed; days as people count them, by the calendar.

    >>> from datetime import UTC
    >>> deadline("queued", datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 8, tzinfo=UTC))
    ('overdue', '3 days overdue')
    """
    if RequestState(state) in CLOSED:
        return "closed", "closed"
    left, days = due - now, (due.date() - now.date()).days
    words = "due today" if days == 0 else f"due in {_days(days)}" if days > 0 else f"{_days(-days)} overdue"
    return "overdue" if left < timedelta(0) else "soon" if left < SOON else "later", words


def _days(count: int) -> str:
    return f"{count} day" if count == 1 else f"{count} days"
