"""The report of an audit with verdicts: the word leads, the evidence stands behind it, and gaps are said in words."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_report import (
    BACKDOOR,
    HOSTILE,
    SECTIONS,
    assert_balanced,
    assert_self_contained,
    clean_audit,
    make_audit,
    seen_in_browser,
    words,
)

from fedforget.audit.evidence import evidence_record, read_evidence, write_evidence
from fedforget.audit.membership import BINS, GRID
from fedforget.audit.verdict import Evidence, Reading, conclude
from fedforget.data import load_dataset
from fedforget.report.evidence import in_words, scale_of
from fedforget.report.page import write_report
from fedforget.runs.record import Audit

FILE = "forgotten/fedaf-recommended-ab/evidence-quick.json"
Page = Callable[..., str]


def reading(name: str, value: float | None, before: float, oracles: list[float], **ends: Any) -> Evidence:
    error = 0.05 if "membership" in name else 4.0
    subject = None if value is None else Reading(value, error)
    return Evidence(name, "high", subject, Reading(before, error), tuple(Reading(o, error) for o in oracles), **ends)


def with_oracles(accuracy: float | None = 0.0) -> list[Evidence]:
    return [
        reading("accuracy on the target", accuracy, 96.7, [0.0, 3.3, 0.0]),
        reading("membership by calibrated margin", 0.93, 0.99, [0.9, 0.92, 0.94]),
        Evidence("loss on the target", "low", Reading(3.0, 2.0), Reading(0.1, 2.0), (Reading(3.1, 2), Reading(2.9, 2))),
    ]


def without_oracle(accuracy: float) -> list[Evidence]:
    return [
        reading("accuracy above unseen data", accuracy, 40.0, []),
        reading("membership by loss", 0.01, 0.4, []),
        reading("loss below unseen data one round later", -0.5, 2.5, []),
    ]


def model_pictures(known: float) -> dict[str, Any]:
    """A model that knows the target so well, from 0 to 1."""
    target, outside = [0.0] * BINS, [0.0] * BINS
    target[int(10 + 20 * known)], target[12], outside[11] = 25.0, 5.0, 40.0
    curve = [min(1.0, place / (GRID - 1) + 0.5 * known) for place in range(GRID)]
    return {
        "margin/target": target, "margin/outside": outside, "loss/roc": curve, "calibrated/roc": curve,
        "comes back": {
            "rounds": [0, 1, 3, 5], "bd_acc": [100 * known, 50.0, 40.0, 30.0], "true_acc": [1.0] * 4,
            "target_loss": [1.0] * 4, "memory_gap": [None, 1.0, 2.0, 20 * known],
            "auc": [None, 0.5, 0.5, 0.5 + known / 2],
        },
    }  # fmt: skip


def all_pictures(oracles: int = 3) -> dict[str, Any]:
    after, before = model_pictures(0.2), model_pictures(0.9)
    return {"subject": after, "before": before, "oracles": [model_pictures(0.02 * place) for place in range(oracles)]}


@pytest.fixture
def page(tmp_path: Path) -> Page:
    digits = load_dataset("digits")

    def write(
        evidence: list[Evidence] | None = None, pictures: dict[str, Any] | None = None, *, with_oracle: bool = True,
        audit: dict[str, Any] | None = None, notes: tuple[str, ...] = (),
        change: Callable[[dict[str, Any]], None] | None = None,
    ) -> str:  # fmt: skip
        audit = audit or make_audit()
        evidence = with_oracles() if evidence is None else evidence
        verdict = conclude(evidence, with_oracle=with_oracle)
        record = evidence_record(
            request={}, run={}, models={}, readings=evidence, verdict=verdict, level="quick", notes=notes,
            pictures=all_pictures() if pictures is None else pictures,
        ) | {"created": "2026-01-01T00:00:00Z"}  # fmt: skip
        (tmp_path / FILE).parent.mkdir(parents=True, exist_ok=True)
        row = audit["rows"][2]
        row["verdict"] = json.loads(json.dumps(verdict.to_json()))
        row["evidence"] = {"file": FILE, "sha256": write_evidence(tmp_path / FILE, record)}
        if change is not None:
            change(row)
        write_report(tmp_path / "report.html", Audit.from_json(audit), digits, BACKDOOR)
        return (tmp_path / "report.html").read_text()

    return write


def cells(text: str) -> list[list[str]]:
    """The table of findings, row by row."""
    table = re.search(r'aria-label="Findings on .*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert table
    plain = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)
    ]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)).replace("\xa0", " ") for cell in row] for row in plain]


def drawn(text: str) -> int:
    found = re.search(r'<section id="evidence".*?</section>', text, re.DOTALL)
    return found[0].count("<svg") if found else 0


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("evidence", "with_oracle", "tone", "lead"),
    [
        (with_oracles(), True, "forgot", "Forgotten (against 3 oracles): No measure tells it from an oracle, and"),
        (with_oracles(60.0), True, "kept", "Not forgotten (against 3 oracles): Accuracy on the target is 60, an"),
        (without_oracle(-60.0), False, "beyond", "Over-forgotten (without oracle): Accuracy above unseen data is -60"),
        (with_oracles(None), True, "unclear", "Not enough evidence (against 3 oracles): Missing: accuracy on the"),
    ],
)  # fmt: skip
def test_the_verdict_leads_and_the_figures_follow(
    page: Page, evidence: list[Evidence], with_oracle: bool, tone: str, lead: str
) -> None:
    text = page(evidence, with_oracle=with_oracle)
    assert f'<section id="summary" class="lead {tone}"' in text
    summary = words(text, "summary")
    assert summary.startswith(lead)
    old = "By the share still recognised alone, FedAF is at Retrain’s level on class 3 of client 0: 0.0 % of its 30"
    assert old in summary.replace("\xa0", " ")
    assert tone == "forgot" or "FedAF forgot" not in summary


@pytest.mark.real
def test_the_share_alone_claims_nothing_where_it_cannot(page: Page) -> None:
    summary = words(page(audit=clean_audit(90.0, start=90.5)), "summary")
    assert "The share still recognised alone cannot show whether FedAF forgot class 3 of client 0" in summary


@pytest.mark.real
def test_several_reasons_are_counted_in_the_lead_and_listed_below(page: Page) -> None:
    evidence = [reading(f"measure {place}", 90.0, 90.0, [0.0, 1.0, 2.0]) for place in range(3)]
    text = page(evidence)
    assert "2 more measures say so. See the evidence" in words(text, "summary")
    assert words(text, "evidence").count("an oracle's is below") == 3
    assert "1 more measure says so." in words(page(evidence[:2]), "summary")


def test_the_evidence_stands_behind_the_figures(page: Page, tmp_path: Path) -> None:
    text = page()
    order = SECTIONS.copy()
    order.insert(order.index("figures") + 1, "evidence")
    assert re.findall(r'<section id="(\w+)"', text) == order
    said = words(text, "evidence")
    assert "FedAF (recommended): forgotten , against 3 oracles" in said
    assert "What would change it: any of accuracy on the target, membership by calibrated margin" in said
    accuracy, area, loss = conclude(with_oracles(), with_oracle=True).findings
    assert max(accuracy.low or 0, loss.low or 0) < 0, "clipped"
    assert (area.high or 0) > 1, "clipped"
    assert cells(text) == [
        ["accuracy on the target", "0.0 %", "96.7 %", f"0.0 % to {accuracy.high:.1f} %", "as if never seen"],
        ["membership by calibrated margin (area)", "0.930", "0.990", f"{area.low:.3f} to 1.000", "as if never seen"],
        ["loss on the target (nats)", "3", "0.1", f"0 to {loss.high:.3g}", "as if never seen"],
    ]
    spared = scale_of("loss spared, beside unseen data", True)
    assert spared[1] == (-math.inf, math.inf), "it is a difference, even beside oracles"
    assert drawn(text) == 3
    assert "ROC of the calibrated attack, area after 0.930, before 0.990, oracles 0.920; 0.5 is guessing." in text
    shown = re.search(rf"<code>{FILE}</code>, SHA-256 <code>(\w+)</code>.*<code>fedforget verify {FILE}</code>", text)
    assert shown
    read_evidence(tmp_path / FILE)  # sound as far as the model, which these tests have none of
    assert_balanced(text)
    assert_self_contained(text)


@pytest.mark.real
def test_the_limits_name_the_attacks_that_were_made(page: Page) -> None:
    evidence = [*with_oracles(), reading("comes back", 0.0, 90.0, [0.0, 1.0, 2.0])]
    meaning = words(page(evidence), "meaning")
    assert "This audit mounts membership attacks and further rounds; it mounts none that" in meaning
    assert "This audit mounts no such attack" in words(page(evidence[:1]), "meaning")


def of_a_feature() -> list[Evidence]:
    def heard(name: str, value: float, before: float) -> Evidence:
        oracles = tuple(Reading(oracle, 0.001) for oracle in (0.020, 0.022, 0.021))
        return Evidence(name, "high", Reading(value, 0.001), Reading(before, 0.001), oracles)

    return [
        heard("sensitivity to the feature", 0.0215, 0.07),
        heard("sensitivity on unseen data", 0.0225, 0.08),
        heard("sensitivity comes back", 0.0205, 0.03),
        reading("unseen data without the feature", 95.0, 86.5, [96.0, 97.0, 96.5], memory=False, rest=True),
    ]


def test_of_a_feature_the_sensitivity_is_told_and_drawn(page: Page) -> None:
    text = page(of_a_feature(), {})
    table = {row[0]: row for row in cells(text) if row[0].startswith("sensitivity")}
    assert table["sensitivity to the feature"][1:3] == ["0.0215", "0.0700"]
    assert drawn(text) == 1
    assert "unseen data: before 0.0800, after 0.0225, oracles 0.0210" in text
    assert "mounts values of the feature from other samples and further rounds" in words(text, "meaning")
    assert "No ROC curve" not in text
    assert_balanced(text)
    assert_self_contained(text)


@pytest.mark.real
def test_a_sensitivity_that_was_not_measured_leaves_a_sentence(page: Page) -> None:
    missing = [replace(reading, subject=None, before=None, oracles=()) for reading in of_a_feature()]
    assert "No sensitivity to the feature: it could not be measured" in words(
        page(missing, {}, with_oracle=False), "evidence"
    )


@pytest.mark.real
def test_damage_beside_the_target_is_said_plainly(page: Page) -> None:
    rest = {"memory": False, "rest": True}
    told = words(
        page([*with_oracles(), reading("unseen data of all classes", 40.0, 97.0, [97.0, 96.0, 98.0], **rest)]),
        "summary",
    )
    assert told.startswith("Over-forgotten (against 3 oracles): The rest of the model was damaged: unseen data of all")
    text = page(
        [*without_oracle(0.0), reading("unseen data of all classes, against before", -50.0, 0.0, [], **rest)],
        with_oracle=False,
    )
    assert words(text, "summary").startswith("Over-forgotten (without oracle): The rest of the model was damaged: ")
    assert cells(text)[-1][1:] == ["−50.0", "+0.0", "−7.9 to +7.9", "worse than before"]


@pytest.mark.real
def test_limits_and_words_are_those_of_a_verdict(page: Page) -> None:
    meaning = words(page(), "meaning")
    for outdated in ("This audit mounts no such attack", "One Retrain is one draw", "figures of a first audit"):
        assert outdated not in meaning
    assert "statistical statement about the attacks made here" in meaning
    assert "It is not certified removal" in meaning
    assert "about 2.5 % of models that never saw the target" in meaning
    terms = re.findall(r"<dt>([^<]*)</dt>", page().partition('<section id="meaning">')[2])
    assert terms[-7:] == [
        "Oracle", "Forgotten", "Not forgotten", "Over-forgotten", "Not enough evidence", "Membership attack",
        "Comes back",
    ]  # fmt: skip


@pytest.mark.real
def test_without_oracle_differences_are_held_against_none(page: Page) -> None:
    pictures = all_pictures(oracles=0)
    for model in (pictures["subject"], pictures["before"]):
        del model["calibrated/roc"], model["comes back"]
    text = page(without_oracle(0.0), pictures, with_oracle=False)
    assert cells(text) == [
        ["accuracy above unseen data (points)", "+0.0", "+40.0", "−7.9 to +7.9", "as if never seen"],
        ["membership by loss (area above 0.5)", "+0.010", "+0.400", "−0.099 to +0.099", "as if never seen"],
        ["loss below unseen data one round later (nats)", "−0.5", "+2.5", "−7.89 to +7.89", "as if never seen"],
    ]
    said, meaning = words(text, "evidence"), words(text, "meaning")
    assert "no oracle was trained that would tell where they should lie" in said
    assert "No curve of further rounds: none could be run." in said
    assert "ROC of the loss attack, area after 0.510, before 0.900; 0.5 is guessing." in text
    assert drawn(text) == 2
    assert "This audit mounts membership attacks and further rounds; it mounts none that" in meaning
    assert "One Retrain is one draw" in meaning


@pytest.mark.real
def test_missing_pictures_are_said_in_words(page: Page) -> None:
    note = "Client 0 has 5 target samples and 9 held-out ones of the same kind; attacks need at least 20 of each."
    text = page(pictures={"subject": {}, "before": {}, "oracles": []}, notes=(note,))
    said = words(text, "evidence")
    for sentence in ("No distribution of margins", "No ROC curve", "No curve of further rounds: none could be", note):
        assert sentence in said
    assert drawn(text) == 0
    assert len(cells(text)) == 3
    only_after = {"subject": model_pictures(0.2), "before": {}, "oracles": [{}, {}]}
    assert drawn(page(pictures=only_after)) == 3


@pytest.mark.real
def test_what_comes_back_is_told_beside_unseen_data(page: Page) -> None:
    told = page()
    assert "Share as trained, now and after 5 further rounds: after 20.0\N{NO-BREAK SPACE}%, then 30.0" in told
    assert "(accuracy on it +4.0 points beside unseen data, attack by loss 0.600), before 90.0" in told
    pictures = all_pictures()
    for model in (pictures["subject"], pictures["before"], *pictures["oracles"]):
        model["comes back"] = {"rounds": [0, 1], "bd_acc": [1.0, 2.0]}  # as evidence was before there were gaps in it
    told = page(pictures=pictures)
    assert "now and after 1 further round: after 1.0\N{NO-BREAK SPACE}%, then 2.0\N{NO-BREAK SPACE}%, before" in told


@pytest.mark.real
def test_an_evidence_file_that_is_gone_or_changed_leaves_a_sentence(page: Page, tmp_path: Path) -> None:
    for spoil in ((tmp_path / FILE).unlink, lambda: (tmp_path / FILE).write_text("{}")):
        text = page(change=lambda _row, spoil=spoil: spoil())  # type: ignore[misc]
        assert "the evidence file is not beside this report as the audit wrote it" in words(text, "evidence")
        assert drawn(text) == 0
        assert len(cells(text)) == 3
    assert "fedforget verify" not in page(change=lambda row: row.pop("evidence"))


@pytest.mark.real
def test_the_model_before_and_a_method_that_stopped_have_no_part(page: Page) -> None:
    audit = make_audit()
    audit["rows"][0]["verdict"] = conclude(with_oracles(96.7), with_oracle=True).to_json()
    text = page(audit=audit)
    assert text.count('<article class="judged') == 1
    assert "Of the model from before the same measures say: not forgotten." in words(text, "evidence")


def test_hostile_words_are_text(page: Page) -> None:
    def spoil(row: dict[str, Any]) -> None:
        verdict = row["verdict"]
        row["method"] = verdict["word"] = verdict["would_change"] = verdict["findings"][0]["name"] = HOSTILE
        verdict["reasons"] = [HOSTILE] * 2
        verdict["findings"][1]["says"] = row["evidence"]["sha256"] = HOSTILE
        row["evidence"]["file"] = f"; rm -rf {HOSTILE}"

    text = page(change=spoil)
    assert "<script" not in text
    assert f"fedforget verify '; rm -rf {HOSTILE}'" in html.unescape(text)
    assert_balanced(text)
    text = page(notes=(HOSTILE,))
    assert "<script" not in text
    assert html.escape(HOSTILE) in text


@pytest.mark.real
def test_same_verdict_same_bytes(page: Page) -> None:
    assert page() == page()


def test_a_value_outside_its_interval_that_accuses_nobody_says_why() -> None:
    evidence = [reading(f"measure {place}", 0.0, 90.0, [0.0, 1.0, 2.0]) for place in range(9)]
    evidence.append(reading("by chance", 11.8, 90.0, [0.0, 1.0, 2.0]))
    evidence.append(reading("one end", -60.0, 90.0, [0.0, 1.0, 2.0], over=False))
    verdict = conclude(evidence, with_oracle=True).to_json()
    shown = [in_words(finding, verdict) for finding in verdict["findings"]]
    assert not any(finding.accuses for finding in shown)
    assert [finding.remark for finding in shown] == [""] * 9 + [
        "outside, as one of 11 measures may be by chance",
        "outside, at the end that does not count",
    ]


@pytest.mark.real
def test_oracles_that_could_not_be_measured_are_not_no_oracles(page: Page) -> None:
    evidence = [*with_oracles(), reading("comes back", 0.0, 90.0, [])]
    text = page(evidence)
    assert words(text, "summary").startswith("Not enough evidence (against 3 oracles): Missing: comes back.")
    assert cells(text)[-1] == ["comes back", "0.0 %", "90.0 %", "–", "missing"]


@pytest.mark.real
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_the_evidence_without_sideways_scrolling(page: Page, tmp_path: Path, width: int) -> None:
    page(with_oracles(60.0))
    assert seen_in_browser(tmp_path, width) == {
        "title": "Forgetting class 3 of client 0 – fedforget audit", "width": width,
        "charts": 7, "pictures": 16, "small": 0,
    }  # fmt: skip
