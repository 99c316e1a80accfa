"""`fedforget request submit|list|show|accept|refuse|extend|retry`: requests from a terminal, for scripts and cron."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedforget.cli.acting import acting
from fedforget.cli.service import AsOption, HomeOption, LedgerOption, ReasonOption, open_ledger
from fedforget.cli.targets import read_options
from fedforget.cli.terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.data.files import write_text
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.schema import Request

request_app = typer.Typer(
    help="Requests: submit, list, show, accept, refuse, extend, retry, decide.", no_args_is_help=True
)
IdArgument = Annotated[str, typer.Argument(help="The request's id, or its first digits.", metavar="ID")]


@request_app.command()
def submit(
    federation: Annotated[str, typer.Option(help="The federation that the request is about.")],
    client: Annotated[int, typer.Option(help="The client that asks.")],
    subject: Annotated[str, typer.Option(help="Your own reference, such as a case number; never personal data.")],
    ground: Annotated[str, typer.Option(help="The legal ground, such as 'consent withdrawn' or objection.")],
    label: Annotated[int | None, typer.Option("--class", help="Forget this class of the client.")] = None,
    samples: Annotated[Path | None, typer.Option(help="Forget the samples whose ids stand in this file.")] = None,
    feature: Annotated[
        str | None, typer.Option(help="Forget a feature of its samples: a column, or a patch as top,left,height,width.")
    ] = None,
    whole_client: Annotated[bool, typer.Option("--whole-client", help="Forget everything of the client.")] = False,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand in a request. The same one twice is one request."""
    target = read_options(client, label, samples, feature, whole_client)
    with open_ledger(home, url) as ledger:
        who = acting(ledger, as_account, Permission.SUBMIT)
        done = ledger.requests.submit(
            federation, target, subject=subject, ground=ground, asked_by=who.account, actor=who.actor
        )
    request = done.request
    line = f"Request {request.id} is {request.state}: {target.describe()}, due {request.due:%Y-%m-%d}."
    print_result(as_json, {**request.to_json(), "created": done.created},
           [line if done.created else f"{line} It was there before; nothing was added."])  # fmt: skip


@request_app.command("list")
def list_requests(
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    federation: Annotated[str | None, typer.Option(help="Only of this federation.")] = None,
    due_within: Annotated[int | None, typer.Option(help="Only what is due within so many days, or late.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """What is owed, soonest first; without --state, all that is open."""
    with open_ledger(home, url) as ledger:
        from fedforget.ledger.states import OPEN

        now = ledger.clock()
        before = None if due_within is None else now + timedelta(days=due_within)
        page = ledger.requests.page(
            states=state or sorted(OPEN), federation=federation, due_before=before, order="due", limit=limit
        )
        said = ledger.versions.verdicts(page.requests)
    if as_json:
        print(json.dumps([{**request.to_json(), "verdict": said.get(request.id)} for request in page.requests]))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("id", "due", "state", "verdict", "federation", "subject", "target"):
        table.add_column(column, no_wrap=column in ("id", "due", "state"))
    for request in page.requests:
        when = _when(request, now)
        table.add_row(request.id[:12], when, request.state, said.get(request.id, ""), request.federation,
                      request.subject, request.erasure.describe(), style="red" if "late" in when else None)  # fmt: skip
    Console(highlight=False).print(table if page.requests else "Nothing is open.")


def _when(request: Request, now: datetime) -> str:
    from fedforget.ledger.states import CLOSED

    late = request.due < now and request.state not in CLOSED
    return f"{request.due:%Y-%m-%d}{' (late)' if late else ''}"


@request_app.command()
def show(
    id: IdArgument,
    certificate: Annotated[Path | None, typer.Option(help="Write its certificate into this file.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Write its evidence into this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write its report into this file.")] = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """One request with its events; its papers into files."""
    with open_ledger(home, url) as ledger:
        request = ledger.requests.find(id)
        events = ledger.trail.events(request=request.id, after=0, limit=500)
        signed = ledger.versions.certificate_of(request.id)
        verdict = ledger.versions.verdicts([request]).get(request.id)
        papers = {
            "certificate": (certificate, None if signed is None else signed.content),
            "evidence": (evidence, ledger.requests.evidence_of(request.id)),
            "report": (report, ledger.requests.report_of(request.id)),
        }
    for name, (file, text) in papers.items():
        if file is not None:
            if text is None:
                raise InputError(f"Request {request.id} has no {name} yet: it is {request.state}.")
            write_text(file, text)
    about = {**request.to_json(), "verdict": verdict}
    values = {**about, "events": [event.to_json() for event in events]}
    lines = [f"{name}: {value}" for name, value in about.items() if value is not None]
    lines += [f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind}  by {event.actor}" for event in events]
    withdrawn = signed is not None and signed.withdrawn is not None
    print_result(as_json, values, [*lines, *(["Its certificate was withdrawn by a rollback."] if withdrawn else [])])


@request_app.command()
def accept(
    id: IdArgument, as_account: AsOption = None, home: HomeOption = None, url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Accept a request and queue it for a worker."""
    with open_ledger(home, url) as ledger:
        actor, found = acting(ledger, as_account, Permission.ACCEPT).actor, ledger.requests.find(id)
        ledger.requests.accept(found.id, actor=actor)
        _changed(ledger.requests.queue(found.id, actor=actor), as_json)


@request_app.command()
def refuse(
    id: IdArgument, reason: ReasonOption, as_account: AsOption = None, home: HomeOption = None,
    url: LedgerOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Refuse a request, with the reason."""
    with open_ledger(home, url) as ledger:
        actor = acting(ledger, as_account, Permission.REFUSE).actor
        _changed(ledger.requests.refuse(ledger.requests.find(id).id, reason, actor=actor), as_json)


@request_app.command()
def extend(
    id: IdArgument,
    reason: ReasonOption,
    months: Annotated[int, typer.Option(help="One or two; two in all.")] = 1,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a request's deadline, with the reason."""
    with open_ledger(home, url) as ledger:
        actor = acting(ledger, as_account, Permission.EXTEND).actor
        _changed(ledger.requests.extend(ledger.requests.find(id).id, months, reason, actor=actor), as_json)


@request_app.command()
def retry(
    id: IdArgument, as_account: AsOption = None, home: HomeOption = None, url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Queue a failed request again."""
    with open_ledger(home, url) as ledger:
        actor = acting(ledger, as_account, Permission.RETRY).actor
        _changed(ledger.requests.retry(ledger.requests.find(id).id, actor=actor), as_json)


@request_app.command()
def decide(
    id: IdArgument,
    reason: ReasonOption,
    publish: Annotated[bool, typer.Option("--publish/--reject", help="Publish the version all the same, or not.")],
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide about a version that the verdict, or the accuracy it would cost, held back; with the reason."""
    with open_ledger(home, url) as ledger:
        actor, found = acting(ledger, as_account, Permission.DECIDE).actor, ledger.requests.find(id)
        ledger.versions.decide(found.id, publish, reason, actor=actor)
        _changed(ledger.requests.get(found.id), as_json)


def _changed(request: Request, as_json: bool) -> None:
    line = f"Request {request.id} is {request.state}, due {request.due:%Y-%m-%d}."
    print_result(as_json, request.to_json(), [line])
