"""`fedforget request`: requests from a terminal, for scripts and cron."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from fedforget.cli.acting import Acting
from fedforget.cli.service import ReasonOption, Shown, ledger_command
from fedforget.cli.targets import ClassOption, FeatureOption, SamplesOption, WholeOption, read_options
from fedforget.console.permissions import Permission
from fedforget.data.files import write_text
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger
    from fedforget.ledger.schema import Request

request_app = typer.Typer(
    help="Requests: submit, list, show, accept, refuse, extend, retry, decide, retrain, withdraw.", no_args_is_help=True
)
IdArgument = Annotated[str, typer.Argument(help="The request's id, or its first digits.", metavar="ID")]


@ledger_command(request_app, "submit", Permission.SUBMIT)
def submit(
    ledger: Ledger,
    who: Acting,
    federation: Annotated[str, typer.Option(help="The federation that the request is about.")],
    client: Annotated[int, typer.Option(help="The client that asks.")],
    subject: Annotated[str, typer.Option(help="Your own reference, such as a case number; never personal data.")],
    ground: Annotated[str, typer.Option(help="The legal ground, such as 'consent withdrawn' or objection.")],
    label: ClassOption = None,
    samples: SamplesOption = None,
    feature: FeatureOption = None,
    whole_client: WholeOption = False,
) -> Shown:
    """Hand in a request. The same one twice is one request."""
    target = read_options(client, label, samples, feature, whole_client)
    done = ledger.requests.submit(
        federation, target, subject=subject, ground=ground, asked_by=who.account, actor=who.actor
    )
    request = done.request
    line = f"Request {request.id} is {request.state}: {target.describe()}, due {request.due:%Y-%m-%d}."
    known = "" if done.created else " It was there before; nothing was added."
    return Shown({**request.to_json(), "created": done.created}, [line + known])


@ledger_command(request_app, "list")
def list_requests(
    ledger: Ledger,
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    federation: Annotated[str | None, typer.Option(help="Only of this federation.")] = None,
    due_within: Annotated[int | None, typer.Option(help="Only what is due within this many days, or late.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
) -> Shown:
    """What is owed, soonest first; without --state, all that is open."""
    from fedforget.ledger.states import CLOSED, OPEN

    now = ledger.clock()
    before = None if due_within is None else now + timedelta(days=due_within)
    found = ledger.requests.page(
        states=state or sorted(OPEN), federation=federation, due_before=before, order="due", limit=limit
    ).requests
    said = ledger.versions.verdicts(found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("id", "due", "state", "verdict", "federation", "subject", "target"):
        table.add_column(column, no_wrap=column in ("id", "due", "state"))
    for request in found:
        late = request.due < now and request.state not in CLOSED
        due = f"{request.due:%Y-%m-%d}{' (late)' if late else ''}"
        about = (request.federation, request.subject, request.erasure.describe())
        style = "red" if late else None
        table.add_row(request.id[:12], due, request.state, said.get(request.id, ""), *about, style=style)
    rows = [{**request.to_json(), "verdict": said.get(request.id)} for request in found]
    return Shown(rows, [table if found else "Nothing is open."])


@ledger_command(request_app, "show")
def show(
    ledger: Ledger,
    id: IdArgument,
    certificate: Annotated[Path | None, typer.Option(help="Write its certificate into this file.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Write its evidence into this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write its report into this file.")] = None,
) -> Shown:
    """One request with its events; its papers into files."""
    request = ledger.requests.find(id)
    events = ledger.trail.events(request=request.id, after=0, limit=500)
    signed = ledger.versions.certificate_of(request.id)
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
    about = {**request.to_json(), "verdict": ledger.versions.verdicts([request]).get(request.id)}
    lines = [f"{name}: {value}" for name, value in about.items() if value is not None]
    lines += [f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind}  by {event.actor}" for event in events]
    if signed is not None and signed.withdrawn is not None:
        lines.append(f"Its certificate was withdrawn. {ledger.withdrawals.reason(signed)}")
    return Shown({**about, "events": [event.to_json() for event in events]}, lines)


@ledger_command(request_app, "accept", Permission.ACCEPT)
def accept(ledger: Ledger, who: Acting, id: IdArgument) -> Shown:
    """Accept a request and queue it for a worker."""
    found = ledger.requests.find(id)
    ledger.requests.accept(found.id, actor=who.actor)
    return _changed(ledger.requests.queue(found.id, actor=who.actor))


@ledger_command(request_app, "refuse", Permission.REFUSE)
def refuse(ledger: Ledger, who: Acting, id: IdArgument, reason: ReasonOption) -> Shown:
    """Refuse a request, with the reason."""
    return _changed(ledger.requests.refuse(ledger.requests.find(id).id, reason, actor=who.actor))


@ledger_command(request_app, "extend", Permission.EXTEND)
def extend(
    ledger: Ledger,
    who: Acting,
    id: IdArgument,
    reason: ReasonOption,
    months: Annotated[int, typer.Option(help="One or two; two in all.")] = 1,
) -> Shown:
    """Move a request's deadline, with the reason."""
    return _changed(ledger.requests.extend(ledger.requests.find(id).id, months, reason, actor=who.actor))


@ledger_command(request_app, "retry", Permission.RETRY)
def retry(ledger: Ledger, who: Acting, id: IdArgument) -> Shown:
    """Queue a failed request again."""
    return _changed(ledger.requests.retry(ledger.requests.find(id).id, actor=who.actor))


@ledger_command(request_app, "decide", Permission.DECIDE)
def decide(
    ledger: Ledger,
    who: Acting,
    id: IdArgument,
    reason: ReasonOption,
    publish: Annotated[bool, typer.Option("--publish/--reject", help="Publish the version all the same, or not.")],
) -> Shown:
    """Decide about a version that the verdict, or the accuracy it would cost, held back; with the reason."""
    found = ledger.requests.find(id)
    ledger.versions.decide(found.id, publish, reason, actor=who.actor)
    return _changed(ledger.requests.get(found.id))


@ledger_command(request_app, "retrain", Permission.DECIDE)
def retrain(ledger: Ledger, who: Acting, id: IdArgument) -> Shown:
    """Have a request retrained that waits for a decision or failed: exact, at the price of a training."""
    found = ledger.requests.find(id)
    ledger.decisions.again(found.id, actor=who.actor)
    return _changed(ledger.requests.get(found.id))


@ledger_command(request_app, "withdraw", Permission.WITHDRAW)
def withdraw(ledger: Ledger, who: Acting, id: IdArgument, reason: ReasonOption) -> Shown:
    """Withdraw the certificate of a request that is done, since it was found later that it does not hold."""
    return _changed(ledger.withdrawals.withdraw(ledger.requests.find(id).id, reason, actor=who.actor))


def _changed(request: Request) -> Shown:
    return Shown(request.to_json(), [f"Request {request.id} is {request.state}, due {request.due:%Y-%m-%d}."])
