"""What the API takes and gives, as types: they check the input and describe themselves."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedforget.ledger.federations import Settings
from fedforget.ledger.schema import Base
from fedforget.ledger.serving import Choices
from fedforget.ledger.states import Channel, Ground, RequestState, Role
from fedforget.methods import RUNGS
from fedforget.requests import ErasureRequest

LARGEST_NUMBER = 2**31 - 1
Number = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]
Reason = Annotated[str, Field(min_length=1, max_length=1000, description="Why, in a sentence; it is kept for ever.")]


class Strict(BaseModel):
    """Input: an unknown field is a mistake, not to be passed over."""

    model_config = ConfigDict(extra="forbid")


class TargetIn(Strict):
    """What must be forgotten of the client."""

    kind: Literal["class", "samples", "client", "feature"]
    label: Number | None = None
    sample_ids: Annotated[list[Annotated[int, Field(ge=0, le=2**63 - 1)]], Field(max_length=100_000)] = []
    feature: Annotated[
        list[Number], Field(max_length=4, description="A column, [7], or a patch, [top, left, height, width].")
    ] = []


class SubmissionIn(Strict):
    federation: Annotated[str, Field(max_length=64)]
    client: Number
    target: TargetIn
    subject: Annotated[str, Field(max_length=64, description="A case number of yours; never personal data.")]
    ground: Ground
    received: Annotated[date | None, Field(description="The day it reached you; the month runs from it.")] = None
    channel: Annotated[Channel | None, Field(description="How it came in.")] = None

    def erasure(self) -> ErasureRequest:
        return ErasureRequest.from_json({"client": self.client, **self.target.model_dump()})


class ReasonIn(Strict):
    reason: Reason


class IdentityIn(Strict):
    how: Annotated[str, Field(min_length=1, max_length=1000, description="How; never the number of a paper.")]


class AgainIn(Strict):
    effort: Annotated[str, Field(max_length=16, description="The one rung to try.")] = RUNGS[-1]


class ChoicesIn(Strict):
    """What is left out stays as it is; null: as the federation has it."""

    effort: Annotated[str | None, Field(max_length=16, description="This one rung alone.")] = None
    at_most: Annotated[str | None, Field(max_length=16, description="The highest rung.")] = None
    method: Annotated[str | None, Field(max_length=64)] = None
    accuracy_limit: float | None = None
    keep_days: Number | None = None

    def said(self) -> Choices:
        found: Any = self.model_dump(exclude_unset=True)
        return found


class FederationIn(ReasonIn):
    """What is left out stays as it is."""

    method: Annotated[str, Field(max_length=64)] | None = None
    preset: Annotated[str, Field(max_length=64)] | None = None
    settings: Annotated[dict[str, Any] | None, Field(description="Of the method, such as at_most; they join.")] = None
    audit_level: Annotated[str, Field(max_length=16)] | None = None
    accuracy_limit: float | None = None
    keep_days: Number | None = None
    together: Number | None = None
    allowance: Number | None = None
    four_eyes: bool | None = None

    def said(self) -> Settings:
        found: Any = self.model_dump(exclude_none=True, exclude={"reason"})
        return found


class ManyIn(Strict):
    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=500)]


class ExtensionIn(ReasonIn):
    months: Annotated[int, Field(ge=1, le=2)]


class DecisionIn(ReasonIn):
    publish: bool


class RollbackIn(ReasonIn):
    to: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]


class CheckIn(Strict):
    pins: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20)] = []
    whole: Annotated[bool, Field(description="Also rows, files and certificates, not the chain alone.")] = False


class Out(BaseModel):
    """What is given for a row of the ledger."""

    @classmethod
    def of(cls, row: Base, **more: Any) -> Self:
        """The row's own columns, and `more`: what it does not say by itself."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields if name not in more}, **more)


class TargetOut(BaseModel):
    client: int
    kind: str
    label: int | None = None
    sample_ids: list[int] | None = None
    feature: list[int] | None = None


class ProgressOut(Out):
    stage: str
    fraction: float
    at: datetime


class RequestOut(Out):
    id: str
    federation: str
    asked_by: str
    subject: str
    client: int
    target: TargetOut
    describes: str
    ground: Ground
    channel: Channel | None
    received: datetime = Field(description="When it reached the organisation.")
    due: datetime
    overdue: bool
    extended: int
    extension_reason: str | None
    state: RequestState
    reason: str | None
    changed: datetime
    attempts: int
    effort: str | None = Field(description="This and the next four are of this request alone; null: the federation's.")
    at_most: str | None
    method: str | None
    accuracy_limit: float | None
    keep_days: int | None
    version: int | None
    verdict: str | None = Field(description="Of the version, or of what waits for an officer; null: there is neither.")
    evidence: str | None
    report: str | None
    progress: ProgressOut | None = None


class OptionOut(BaseModel):
    act: Literal["again", "publish", "refuse"]
    effort: str | None = Field(description="The rung, of `again`.")
    costs: str
    buys: str


class AcceptedOut(BaseModel):
    id: str
    state: str | None
    problem: str | None = Field(description="Why it was not accepted; null: it was.")


class RequestPage(BaseModel):
    requests: list[RequestOut]
    next: str | None = Field(description="Ask for the page after with after=...; null: there is none.")


class ClientOut(BaseModel):
    client: int
    name: str
    samples: int | None = Field(description="null: not for your role.")
    counts: list[int] = Field(description="By class; empty: nobody said, or not for your role.")


class FederationOut(Out):
    name: str
    kind: str
    classes: list[str]
    clients: list[ClientOut]
    shape: list[int] = Field(description="Of one sample, columns or channels, height, width; empty: nobody said.")
    serving: str | None = Field(None, description="What it has prepared for exact forgetting, if anything.")
    method: str
    preset: str
    settings: dict[str, Any]
    audit_level: str
    accuracy_limit: float
    keep_days: int
    together: int
    four_eyes: bool = Field(description="Somebody else decides than who submitted or accepted.")
    allowance: int = Field(
        description="How often in 30 days one client's requests may send a climb up to Retrain without an officer."
    )
    registered: datetime


class VersionOut(Out):
    federation: str
    number: int
    sha256: str
    parent: int | None
    kind: str
    state: str
    published: datetime
    superseded: datetime | None
    destroyed: datetime | None
    restores: int | None
    method: str | None
    preset: str | None
    verdict: str | None
    accuracy_before: float | None
    accuracy_after: float | None
    evidence: str | None


class EventOut(BaseModel):
    """With exactly what its hash is made of, and the hash."""

    number: int
    at: str
    actor: str
    kind: str
    request: str | None
    body: dict[str, Any]
    previous: str
    hash: str


class EventPage(BaseModel):
    events: list[EventOut]
    next: int | None = Field(description="Ask for older ones with before=...; null: there are none.")


class HeadOut(BaseModel):
    ledger: str
    number: int
    hash: str
    pin: str = Field(description="One line to keep outside the ledger.")


class CheckOut(BaseModel):
    intact: bool
    events: int
    head: str
    problems: list[str]


class VerifiedOut(BaseModel):
    genuine: bool
    request: str
    verdict: str
    decision: dict[str, Any] | None = Field(description="The officer, the reason, and why it was held; null: nobody.")
    key: str
    issued: str
    withdrawn: bool = Field(description="It holds no more.")
    why_withdrawn: str | None = Field(description="null: it was not withdrawn.")
    code: str = Field(description="As it stands on the printed page.")
    describes: str


class TraceOut(BaseModel):
    place: str
    what: str
    sha256: str | None
    fate: str
    until: str | None
    why: str


class LineageOut(BaseModel):
    request: str
    federation: str
    made: str
    traces: list[TraceOut]
    clean: dict[str, str] = Field(description="Why each of the other files holds nothing of it.")


class KeyOut(Out):
    id: str
    public: str
    made: datetime
    retired: datetime | None


class AccountOut(Out):
    name: str
    role: Role
    made: datetime
    disabled: Annotated[bool, BeforeValidator(bool)]


class TokenOut(Out):
    id: str
    account: str
    label: str
    made: datetime
    expires: datetime | None
    revoked: datetime | None


class MeOut(BaseModel):
    name: str
    role: Role
    expires: datetime | None
    may: list[str]
