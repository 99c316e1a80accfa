"""`fedforget request`: requests from a terminal, for scripts and cron."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer
from rich import box
from rich.table import Table

from fedforget.cli.acting import Acting
from fedforget.cli.service import Choice, ReasonOption, Shown, ledger_command
from fedforget.cli.targets import ClassOption, FeatureOption, SamplesOption, WholeOption, read_options
from fedforget.console.permissions import Permission
from fedforget.data.files import write_text
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger
    from fedforget.ledger.schema import Request

request_app = typer.Typer(
    help="Requests in the ledger: submit, list, accept, decide, show, print, and more.",
    no_args_is_help=True,
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
    received: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The day it reached you; the month runs from it.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="How it came in, such as letter or e-mail.")] = None,
) -> Shown:
    """Hand in a request. The same one twice is one request."""
    target = read_options(client, label, samples, feature, whole_client)
    done = ledger.requests.submit(
        federation, target, subject=subject, ground=ground, asked_by=who.account, actor=who.actor,
        received=None if received is None else received.date(), channel=channel,
    )  # fmt: skip
    request = done.request
    line = f"Request {request.id} is {request.state}: {target.describe()}, due {request.due:%Y-%m-%d}."
    known = "" if done.created else " It was there before; nothing was added."
    return Shown({**request.to_json(), "created": done.created}, [line + known])


@ledger_command(request_app, "list")
def list_requests(
    ledger: Ledger,
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    federation: Annotated[str | None, typer.Option(help="Only of this federation.")] = None,
    text: Annotated[str | None, typer.Option("--find", help="Parts of words; looks in every state.")] = None,
    verdict: Annotated[str | None, typer.Option(help="Only with this verdict.")] = None,
    ground: Annotated[str | None, typer.Option(help="Only on this legal ground.")] = None,
    due_within: Annotated[int | None, typer.Option(help="Only what is due within this many days, or late.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
) -> Shown:
    """What is owed, soonest first; without --state, all that is open."""
    from fedforget.ledger.states import CLOSED, OPEN

    now = ledger.clock()
    before = None if due_within is None else now + timedelta(days=due_within)
    found = ledger.requests.page(
        states=state or (None if text or verdict else sorted(OPEN)), federation=federation, text=text, verdict=verdict,
        ground=ground, due_before=before, order="due", limit=limit,
    ).requests  # fmt: skip
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
def accept(
    ledger: Ledger,
    who: Acting,
    ids: Annotated[list[str], typer.Argument(help="The requests' ids, or their first digits.", metavar="ID...")],
) -> Shown:
    """Accept requests and queue them for a worker."""
    shown = []
    for found in [ledger.requests.find(id) for id in ids]:
        ledger.requests.accept(found.id, actor=who.actor)
        shown.append(_changed(ledger.requests.queue(found.id, actor=who.actor)))
    return shown[0] if len(shown) == 1 else Shown([one.values for one in shown], [*chain(*(s.lines for s in shown))])


@ledger_command(request_app, "refuse", Permission.REFUSE)
def refuse(ledger: Ledger, who: Acting, id: IdArgument, reason: ReasonOption) -> Shown:
    """Refuse a request, with the reason."""
    return _changed(ledger.decisions.refuse(ledger.requests.find(id).id, reason, actor=who.actor))


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
    """Queue a failed request again, to be served as before."""
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


@ledger_command(request_app, "options")
def options(ledger: Ledger, id: IdArgument) -> Shown:
    """What can be done next with a request that waits or failed, what it costs here and what it buys."""
    found = ledger.decisions.options(ledger.requests.find(id))
    lines = [f"{option.words}. {option.buys}\n  Cost: {option.costs}" for option in found]
    return Shown([vars(option) for option in found], lines or ["It neither waits for a decision, nor did it fail."])


@ledger_command(request_app, "again", Permission.DECIDE)
def again(
    ledger: Ledger,
    who: Acting,
    id: IdArgument,
    effort: Annotated[str, typer.Option(metavar="RUNG", help="overwrite, rebuild or retrain.")] = "retrain",
) -> Shown:
    """Try a request again that waits for a decision or failed, on the rung that is named; see `options`."""
    found = ledger.requests.find(id)
    ledger.decisions.again(found.id, effort, actor=who.actor)
    return _changed(ledger.requests.get(found.id))


@ledger_command(request_app, "withdraw", Permission.WITHDRAW)
def withdraw(ledger: Ledger, who: Acting, id: IdArgument, reason: ReasonOption) -> Shown:
    """Withdraw the certificate of a request that is done, since it was found later that it does not hold."""
    return _changed(ledger.withdrawals.withdraw(ledger.requests.find(id).id, reason, actor=who.actor))


@ledger_command(request_app, "choose", Permission.CHOOSE)
def choose(
    ledger: Ledger,
    who: Acting,
    id: IdArgument,
    **choices: Unpack[Choice],
) -> Shown:
    """Say how one request is served; what is left out is as the federation has it."""
    return _changed(ledger.requests.choose(ledger.requests.find(id).id, choices, actor=who.actor))


@ledger_command(request_app, "identity", Permission.CHECK_IDENTITY)
def identity(
    ledger: Ledger,
    who: Acting,
    id: IdArgument,
    how: Annotated[str, typer.Option(help="How it was checked; never the number of a paper.")],
) -> Shown:
    """Note that somebody made sure that who asks is who they say."""
    return _changed(ledger.requests.note_identity(ledger.requests.find(id).id, how, actor=who.actor))


def _changed(request: Request) -> Shown:
    return Shown(request.to_json(), [f"Request {request.id} is {request.state}, due {request.due:%Y-%m-%d}."])
