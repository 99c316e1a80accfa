"""From readings to a verdict: `forgotten`, `not forgotten`, `over-forgotten`, `not enough evidence`, or `exact`.

With an oracle, the subject is asked to be one more retrained model. For a measure with value v on the subject and
o_1 .. o_N on the oracles, of mean o and deviation s, and with sampling error e of v,

    t = (v - o) / sqrt((1 + 1/N) (s^2 + e^2)),    degrees of freedom (s^2 + e^2)^2 / (s^4 / (N - 1))

is Student's if the subject comes from the oracles' distribution: the prediction interval for one more draw, where e
keeps a few oracles that happen to agree from making the interval too narrow (the degrees are Satterthwaite's).

Without an oracle nothing can be said. Older evidence has verdicts made so: there v is a difference that is 0 for data
the model never saw, and t = v / e.

Each measure gives two one-sided p-values: the subject remembers more than an oracle would, or less. Each family is
corrected for how many measures can accuse at its end, taken or missing (Holm 1979: the k-th smallest of m p-values is
held against LEVEL / (m - k + 1)), so that a retrained model is called forgotten at least 1 - 2 LEVEL of the time.

    not forgotten         some measure says that it remembers more
    over-forgotten        none does, and some measure says that it is worse than an oracle, on the target or elsewhere
    not enough evidence   neither, but a measure is missing, or the model before would have passed as well
    forgotten             neither, and nothing is missing, and the model before would have been caught

A test that the untouched model passes proves nothing of the model that forgot: hence the last condition.

    exact                 the model never saw the target, by the way it was made

`exact` does not come from readings, and no reading takes it away: a model that never saw the target is what all others
are compared with. Only a method can know it, and Retrain says it (`methods.retrain`); the run folder and the evidence
file hand it on to `conclude`. Where a federation prepared for forgetting (`models.Prepared`), the reasons say what is
assumed, and `fedforget verify RUN` trains once more without the target and compares the bits (`runs.repeat`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from fedforget.audit.student import student_distribution, student_quantile

Word = Literal["forgotten", "not forgotten", "over-forgotten", "not enough evidence", "exact"]
GONE: frozenset[str] = frozenset({"forgotten", "exact"})
"""The verdicts of a model in which the target is not, as far as anybody could tell or by construction."""
BY_CONSTRUCTION = "It is what the same training makes without the target, bit for bit."
LEVEL = 0.025
"""The chance that a retrained model is wrongly accused of remembering; the same again for over-forgetting."""
MOST_FREEDOM = 200
"""Beyond it Student's t is the normal distribution."""


@dataclass(frozen=True)
class Reading:
    """A measure on one model: its value, and its sampling error, by which it would scatter on as many new samples."""

    value: float
    error: float


@dataclass(frozen=True)
class Evidence:
    """One measure on the subject, on the model before, and on the oracles. None: it could not be taken.

    A model that remembers lies at the end `remembers`, and one that is over-forgotten at the other, if `over`. Without
    `memory` the first end means nothing, without `over` the second. Without an oracle a reading is a difference: 0 for
    data nobody trained on. `rest`: it is about all that the model knows, so that its end `over` is damage beyond the
    target; without an oracle it is 0 for a model that does as well as the one before."""

    name: str
    remembers: Literal["high", "low"]
    subject: Reading | None
    before: Reading | None
    oracles: tuple[Reading, ...] = ()
    over: bool = True
    memory: bool = True
    rest: bool = False


@dataclass(frozen=True)
class Finding:
    """What one measure says. The interval is where an oracle would lie (LEVEL on each side, uncorrected). A p-value is
    None where the measure is missing and where that end of it means nothing."""

    name: str
    value: float | None
    before: float | None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    p_remembers: float | None = None
    p_over: float | None = None
    p_before: float | None = None
    """That of the model before remembering."""
    says: Literal["as if never seen", "remembers", "over-forgotten", "missing"] = "missing"
    rest: bool = False


@dataclass(frozen=True)
class Verdict:
    """The word, with or without oracle, and why."""

    word: Word
    with_oracle: bool
    oracles: int
    reasons: tuple[str, ...]
    would_change: str
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        return verdict_line(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """With lists, as a file gives them back."""
        return asdict(self) | {"reasons": list(self.reasons), "findings": [asdict(f) for f in self.findings]}


def compared_with(verdict: Mapping[str, Any]) -> str:
    """How the word of a verdict, as `Verdict.to_json` gives it, was found."""
    if verdict["word"] == "exact":
        return "by construction"
    return f"against {verdict['oracles']} oracles" if verdict["oracles"] else "without oracle"


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """A verdict in one line; of an exact model, with all that it rests on."""
    why = " ".join(verdict["reasons"] if verdict["word"] == "exact" else verdict["reasons"][:1])
    return f"{verdict['word']} ({compared_with(verdict)}): {why}"


def by_construction(assumed: Sequence[str]) -> list[str]:
    """Why a model is exact whose federation prepared for forgetting, and what that rests on."""
    return [BY_CONSTRUCTION, *(f"Assumed: {sentence}" for sentence in assumed)]


def conclude(
    evidence: Sequence[Evidence], *, with_oracle: bool, exact: bool = False, assumed: Sequence[str] = ()
) -> Verdict:
    """The verdict on the subject; pure arithmetic, so that anybody can repeat it from the readings alone. `exact`: the
    subject is known never to have seen the target; then the findings are there to be read, and decide nothing.
    `assumed`: what that rests on, where the federation prepared for it."""
    tests = [_tested(e, with_oracle) for e in evidence]
    able, worse = [e.memory for e in evidence], [e.over for e in evidence]
    remembers, noticed = _holm([t.p_remembers for t in tests], able), _holm([t.p_before for t in tests], able)
    over = _holm([t.p_over for t in tests], worse)
    findings = tuple(
        replace(test, says="remembers" if r else "over-forgotten" if o else test.says)
        for test, r, o in zip(tests, remembers, over, strict=True)
    )
    count = max((len(e.oracles) for e in evidence), default=0) if with_oracle else 0

    def verdict(word: Word, reasons: list[str], would_change: str) -> Verdict:
        return Verdict(word, with_oracle, count, tuple(reasons), would_change, findings)

    if exact:
        if assumed:
            return verdict("exact", by_construction(assumed), "an assumption that does not hold")
        why = "It began with fresh weights and was trained without the target, so it never saw it: no measure decides."
        return verdict("exact", [why], "nothing that is measured")
    told = [_reason(f, with_oracle) for f in findings if f.says == "remembers"]
    if told:
        return verdict("not forgotten", told, "a model on which every measure lies where an oracle's would")
    worse_off = [f for f in findings if f.says == "over-forgotten"]
    if worse_off:
        where = ["elsewhere" if rest else "on the target" for rest in sorted({f.rest for f in worse_off})]
        better = f"a model that does as well {' and '.join(where)} as one that never saw the target"
        return verdict("over-forgotten", [_reason(f, with_oracle) for f in worse_off], better)
    if with_oracle and not count and any(e.subject is not None for e in evidence):
        why = "No oracle was trained, so nobody knows what these figures would be had the target never been seen."
        return verdict("not enough evidence", [why], "an audit with oracles")
    lacking = [f.name for f in findings if f.says == "missing"]
    if lacking or not findings:
        names = ", ".join(lacking) or "every measure"
        return verdict("not enough evidence", [f"Missing: {names}."], f"taking what is missing: {names}")
    if not any(noticed):
        why = "The model before unlearning would have passed too, so passing proves nothing."
        return verdict("not enough evidence", [why], "more target or held-out samples, more oracles, a stronger attack")
    caught = [f.name for f, seen in zip(findings, noticed, strict=True) if seen]
    why = f"No measure tells it from {'an oracle' if with_oracle else 'data never seen'}, and {caught[0]} would have."
    return verdict("forgotten", [why], f"any of {', '.join(f.name for f in findings)} clearly beyond its interval")


def _tested(e: Evidence, with_oracle: bool) -> Finding:
    """The one-sided p-values of a measure and where an oracle is expected, before any correction."""
    value, before = (None if reading is None else reading.value for reading in (e.subject, e.before))
    if e.subject is None or (with_oracle and len(e.oracles) < 2):
        return Finding(e.name, value, before, rest=e.rest)
    sign = 1.0 if e.remembers == "high" else -1.0
    expected, spread, freedom = _expectation(e, e.subject.error, with_oracle)
    t = sign * (e.subject.value - expected) / spread
    p_before = None
    if e.before is not None and e.memory:
        _, its_spread, its_freedom = _expectation(e, e.before.error, with_oracle)
        p_before = _above(sign * (e.before.value - expected) / its_spread, its_freedom)
    reach = student_quantile(1.0 - LEVEL, freedom) * spread
    return Finding(
        e.name, value, before, expected, expected - reach, expected + reach,
        _above(t, freedom) if e.memory else None, _above(-t, freedom) if e.over else None, p_before,
        "as if never seen", e.rest,
    )  # fmt: skip


def _expectation(e: Evidence, error: float, with_oracle: bool) -> tuple[float, float, int]:
    return one_more(e.oracles, error) if with_oracle else (0.0, max(error, 1e-12), MOST_FREEDOM)


def one_more(oracles: Sequence[Reading], error: float) -> tuple[float, float, int]:
    """(expected value, its spread, degrees of freedom) of one more oracle whose sampling error is `error`."""
    values = [reading.value for reading in oracles]
    n = len(values)
    mean = math.fsum(values) / n
    square = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    # The oracles' own sampling error too: a subject at 0 % has none of its own to speak of.
    error = max(error, math.fsum(reading.error for reading in oracles) / n, 1e-12)
    variance = square + error**2
    freedom = MOST_FREEDOM if square == 0 else variance**2 / (square**2 / (n - 1))
    return mean, math.sqrt((1 + 1 / n) * variance), max(1, min(MOST_FREEDOM, int(freedom)))


def _above(t: float, freedom: int) -> float:
    """P(T >= t)."""
    below = student_distribution(abs(t), freedom)
    return max(0.0, 1.0 - below) if t >= 0 else below


def _holm(values: Sequence[float | None], family: Sequence[bool]) -> list[bool]:
    """Which are below LEVEL after Holm's correction for how many belong to the family; a missing one counts."""
    order = sorted((value, place) for place, value in enumerate(values) if value is not None)
    found, size = [False] * len(values), sum(family)
    for rank, (value, place) in enumerate(order):
        if value * (size - rank) > LEVEL:
            break
        found[place] = True
    return found


def _reason(f: Finding, with_oracle: bool) -> str:
    """One measure beyond its interval, at the end where it is beyond."""
    value, low, high = (float("nan") if number is None else number for number in (f.value, f.low, f.high))
    bound = f"below {high:.3g}" if value > high else f"above {low:.3g}"
    p = f.p_remembers if f.says == "remembers" else f.p_over
    chance = "p < 1e-12" if not p or p < 1e-12 else f"p = {p:.1g}"
    whose = "an oracle's is" if with_oracle else "of data never seen it is"
    if f.rest:
        whose = whose if with_oracle else "of a model as good as before it is"
        return f"The rest of the model was damaged: {f.name} is {value:.3g}, {whose} {bound} ({chance})."
    return f"{f.name} is {value:.3g}, {whose} {bound} ({chance})."
