"""The verdict: its arithmetic against scipy, its words, and how often it accuses models drawn like the oracles."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fedforget.audit.verdict import LEVEL, Evidence, Reading, Verdict, conclude

ORACLES = tuple(Reading(value, 0.2) for value in (0.4, 0.7, 0.5))


def evidence(value: float, then: float = 66.0, **more: object) -> Evidence:
    made = Evidence("bd_acc", "high", Reading(value, 0.2), Reading(then, 1.2), ORACLES)
    return replace(made, **more)  # type: ignore[arg-type]


def word(*items: Evidence) -> str:
    return conclude(items, with_oracle=True).word


def test_the_four_words():
    assert word(evidence(0.6)) == "forgotten"
    assert word(evidence(66.0)) == "not forgotten"
    assert word(evidence(0.6, then=0.7)) == "not enough evidence"
    assert word(evidence(-40.0)) == "over-forgotten"
    assert word(evidence(-40.0, over=False)) == "forgotten"
    assert word(evidence(66.0, remembers="low", then=-40.0)) == "over-forgotten"


def test_the_untouched_model_is_never_forgotten():
    """Whatever the readings: either it is caught, or nothing would be."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        before = Reading(*(torch.randn(2, generator=generator).exp() * 3).tolist())
        oracles = tuple(Reading(float(v), 0.5) for v in torch.randn(3, generator=generator))
        made = [Evidence(name, "high", before, before, oracles) for name in "abc"]
        assert word(*made) != "forgotten"


def test_what_is_missing_never_counts_as_passed():
    passed = evidence(0.6)
    for lacking in (
        evidence(0.6, subject=None),
        evidence(0.6, oracles=()),
        evidence(0.6, oracles=ORACLES[:1]),
    ):
        verdict = conclude([passed, replace(lacking, name="probe")], with_oracle=True)
        assert verdict.word == "not enough evidence"
        assert verdict.reasons == ("Missing: probe.",)
        assert [f.says for f in verdict.findings] == ["as if never seen", "missing"]
    assert word() == "not enough evidence"
    assert word(evidence(66.0), evidence(0.6, subject=None)) == "not forgotten", "what is there may still accuse"
    assert word(evidence(0.6, before=None)) == "not enough evidence", "nobody knows whether it would notice anything"


def test_the_p_values_are_those_of_the_formula():
    from scipy import stats

    finding = conclude([evidence(1.1)], with_oracle=True).findings[0]
    values = [0.4, 0.7, 0.5]
    mean, square = sum(values) / 3, torch.tensor(values, dtype=torch.float64).var().item()
    variance = square + 0.2**2
    freedom = int(variance**2 / (square**2 / 2))
    spread = math.sqrt(4 / 3 * variance)
    assert finding.expected == pytest.approx(mean)
    assert finding.p_remembers == pytest.approx(stats.t.sf((1.1 - mean) / spread, freedom), rel=1e-9)
    assert finding.p_over == pytest.approx(1 - finding.p_remembers)
    assert finding.high == pytest.approx(mean + stats.t.ppf(1 - LEVEL, freedom) * spread)
    before = stats.t.sf((66 - mean) / math.sqrt(4 / 3 * (square + 1.2**2)), 200)
    assert finding.p_before == pytest.approx(before, abs=1e-12)


def test_a_model_without_an_error_of_its_own_is_judged_with_the_oracles():
    """At 0 % a share has no sampling error; the oracles' own still says how far a model may lie from them."""
    certain, unsure = (
        conclude([evidence(1.1, subject=Reading(1.1, error))], with_oracle=True).findings[0] for error in (0.0, 0.2)
    )
    assert certain == unsure
    wider = conclude([evidence(1.1, subject=Reading(1.1, 0.4))], with_oracle=True).findings[0]
    assert wider.p_remembers > certain.p_remembers


ENDS = {"both": [(True, True)] * 7, "one": [(True, False)] * 5 + [(False, True)] * 2}
"""(memory, over) of seven measures."""


@pytest.mark.real
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("count", [3, 8])
def test_a_model_like_the_oracles_is_rarely_accused(count: int, ends: str):
    """Seven measures with their own spreads and no sampling error: at most 2 LEVEL of them, within what 2000 draws
    show, wherever they accuse at both ends or at one only."""
    generator = torch.Generator().manual_seed(count)
    accused, draws = 0, 2000
    for _ in range(draws):
        made = []
        for k, (memory, over) in enumerate(ENDS[ends]):
            values = torch.randn(count + 1, generator=generator, dtype=torch.float64).mul(10.0 ** (k - 3)).tolist()
            oracles = tuple(Reading(value, 0.0) for value in values[1:])
            subject, before = Reading(values[0], 0.0), Reading(1e9, 1.0)
            made.append(Evidence(str(k), "high", subject, before, oracles, over=over, memory=memory))
        accused += conclude(made, with_oracle=True).word != "forgotten"
    rate = accused / draws
    assert rate <= 2 * LEVEL + 3 * math.sqrt(2 * LEVEL / draws)
    assert rate > 0, "a test that never accuses has no power"


def test_without_an_oracle_a_reading_is_a_difference():
    made = Evidence("gap", "high", Reading(0.01, 0.02), Reading(0.2, 0.02))
    verdict = conclude([made], with_oracle=False)
    assert (verdict.word, verdict.oracles) == ("forgotten", 0)
    assert "without oracle" in str(verdict)
    assert conclude([replace(made, subject=Reading(0.1, 0.02))], with_oracle=False).word == "not forgotten"
    assert conclude([replace(made, subject=Reading(-0.1, 0.02))], with_oracle=False).word == "over-forgotten"


def test_holm_corrects_for_the_number_of_measures():
    """A p-value just below LEVEL accuses alone, and does not among ten."""
    just = evidence(1.32)
    alone: Verdict = conclude([just], with_oracle=True)
    p = alone.findings[0].p_remembers
    assert p is not None
    assert LEVEL / 10 < p < LEVEL
    assert alone.word == "not forgotten"
    assert word(just, *[evidence(0.53)] * 9) == "forgotten"


def test_holm_counts_only_what_can_accuse_at_that_end():
    """Nine measures that cannot say so do not weaken the one that can; that one of them is missing does."""
    just, below = evidence(1.32), evidence(-0.26)
    silent, unable = evidence(0.53, memory=False), evidence(0.53, over=False)
    assert word(just, *[silent] * 9) == "not forgotten"
    assert word(just, *[unable] * 9) == "forgotten"
    assert word(below, *[unable] * 9) == "over-forgotten"
    assert word(below, *[silent] * 9) == "forgotten"
    assert word(just, *[replace(silent, subject=None)] * 9) == "not forgotten"
    assert word(just, *[evidence(0.53, subject=None)] * 9) == "not enough evidence", "what is missing counts"
    assert word(below, *[replace(unable, subject=None)] * 9) == "over-forgotten"


def test_holm_counts_only_what_could_have_noticed_the_model_before():
    before = evidence(0.6, then=1.32)
    before = replace(before, before=Reading(1.32, 0.2))
    assert word(before, *[evidence(0.53, then=0.53, memory=False)] * 9) == "forgotten"
    assert word(before, *[evidence(0.53, then=0.53)] * 9) == "not enough evidence"


def test_an_end_that_means_nothing_has_no_p_value():
    found = conclude([evidence(66.0, memory=False), evidence(-40.0, over=False)], with_oracle=True)
    assert [(f.p_remembers is None, f.p_over is None, f.p_before is None, f.says) for f in found.findings] == [
        (True, False, True, "as if never seen"), (False, True, False, "as if never seen"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [0.6, 66.0, -40.0, None])
def test_a_model_that_never_saw_the_target_is_exact_whatever_is_measured(value: float | None):
    subject = evidence(0.6, subject=None) if value is None else evidence(value)
    said, found = conclude([subject], with_oracle=True), conclude([subject], with_oracle=True, exact=True)
    assert said.word != "exact"
    assert found.word == "exact"
    assert str(found).startswith("exact (by construction): It began with fresh weights")
    assert found.findings == said.findings, "they are there to be read"
