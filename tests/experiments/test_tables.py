"""Tables in four forms, confidence intervals against hand-made cases, and the paper's numbers against its averages."""

from __future__ import annotations

import json
import math

import pytest

from fedforget.audit.student import student_distribution, student_quantile
from fedforget.experiments import paper_numbers
from fedforget.experiments.completeness import COMPLETENESS
from fedforget.experiments.tables import Entry, Table

AVERAGES = {
    "mnist": (80.91, {"retrain": (0.14, 96.63), "frr": (0.93, 90.63), "sga": (1.08, 69.35), "cdp": (69.19, 83.63),
                      "fedaf-c": (0.75, 40.00), "fedaf": (0.77, 92.12)}),
    "cifar10": (73.56, {"retrain": (0.54, 81.04), "frr": (1.67, 80.07), "sga": (1.04, 66.70), "cdp": (58.36, 72.95),
                        "fedaf-c": (1.73, 28.31), "fedaf": (1.60, 80.40)}),
    "celeba": (73.86, {"retrain": (0.76, 88.37), "frr": (2.03, 88.00), "sga": (0.00, 32.69), "cdp": (48.33, 86.58),
                       "fedaf-c": (1.85, 30.86), "fedaf": (1.92, 88.11)}),
}  # fmt: skip


@pytest.mark.parametrize("dataset", AVERAGES)
def test_the_paper_s_averages_come_out_of_its_numbers(dataset: str):
    before, methods = AVERAGES[dataset]
    classes = [label for name, label in paper_numbers.COMPLETE_BD if name == dataset]
    assert classes == [str(label) for label in range(4 if dataset == "celeba" else 10)]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    rows = {m: [paper_numbers.completeness(dataset, int(c), m) for c in classes] for m in methods}
    assert mean([row["bd_acc_before"] for row in rows["retrain"]]) == pytest.approx(before, abs=0.0051)  # type: ignore[index]
    for method, (bd, test) in methods.items():
        assert mean([row["bd_acc"] for row in rows[method]]) == pytest.approx(bd, abs=0.0051)  # type: ignore[index]
        assert mean([row["test_acc"] for row in rows[method]]) == pytest.approx(test, abs=0.0051)  # type: ignore[index]


def test_the_paper_s_other_tables():
    assert paper_numbers.running_time("cifar10", "frr") == {"seconds": 3554.32}
    assert paper_numbers.running_time("mnist", "fedaf-c") is None
    assert paper_numbers.completeness("digits", 0, "fedaf") is None
    assert paper_numbers.completeness("mnist", 0, "pgd") == {"bd_acc_before": 81.14, "test_acc_before": 98.30}
    assert len(paper_numbers.OVERLAP_NON_TARGET) == 24
    assert paper_numbers.OVERLAP_NON_TARGET["cifar10", "3"]["teacher"] == 91.0
    assert len(paper_numbers.SEQUENTIAL_BD) == len(paper_numbers.SEQUENTIAL_TEST) == 9
    assert paper_numbers.SEQUENTIAL_BD["celeba", "0,1,2"]["before"] == 77.76
    for dataset in AVERAGES:
        first = paper_numbers.SEQUENTIAL_BD[dataset, "0"]
        assert first == paper_numbers.COMPLETE_BD[dataset, "0"], "the first step is the single class"


def test_student_against_the_printed_table():
    for freedom, value in ((1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (29, 2.045), (120, 1.980)):
        assert student_quantile(0.975, freedom) == pytest.approx(value, abs=5e-4)
    assert student_distribution(0.0, 7) == 0.5


def test_student_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 5, 8, 29, 240, 1001):
        assert student_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_the_paired_interval_by_hand():
    """Differences 1, 2, 3, 6: mean 3, deviation sqrt(14/3), t of 3 degrees 3.182446."""
    result = Entry.of_differences([1.0, 2.0, 3.0, 6.0])
    half = 3.182446 * math.sqrt(14 / 3) / 2
    assert result.mean == 3.0
    assert result.interval == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert result.count == 4
    assert Entry.of_differences([1.0], 2.0) == Entry(1.0, None, 1, 2.0), "one alone says nothing of the spread"


def row(label: int, seed: int, method: str, bd: float | None, test: float | None, note: str | None = None) -> dict:
    paper = paper_numbers.completeness("mnist", label, method)
    return {
        "dataset": "mnist", "class": label, "seed": seed, "trial": seed, "method": method, "preset": "default",
        "setting": None, "bd_acc_before": 80.0, "test_acc_before": 98.0, "bd_acc": bd, "test_acc": test,
        "true_acc": 1.0, "retained_acc": 2.0, "target_class_test_acc": 3.0, "note": note, "paper": paper,
        "gradient_evaluations": 10.0, "quick": False,
    }  # fmt: skip


def test_pairs_are_those_of_one_class_and_seed():
    rows = [
        row(0, 0, "retrain", 0.0, 97.0), row(0, 1, "retrain", 1.0, 96.0), row(1, 0, "retrain", 2.0, 95.0),
        row(0, 0, "fedaf-c", 1.0, 96.0), row(0, 1, "fedaf-c", 3.0, 94.0),
        row(1, 0, "fedaf-c", None, None, "It diverged."), row(1, 1, "fedaf-c", 50.0, 50.0),
    ]  # fmt: skip
    averages, against = COMPLETENESS.tables(rows)[:2]
    assert against.rows[0][0] == "fedaf-c"
    bd, test = against.rows[0][1:3]
    assert isinstance(bd, Entry)
    assert isinstance(test, Entry)
    assert (bd.mean, test.mean, bd.count) == (1.5, -1.5, 2), "without the one that diverged and the one alone"
    half = 12.706205 * math.sqrt(0.5) / math.sqrt(2)
    assert bd.interval == pytest.approx((1.5 - half, 1.5 + half), abs=1e-5)
    assert bd.paper == pytest.approx(0.60 - 0.12)
    assert [r[0] for r in averages.rows] == ["before unlearning", "retrain", "fedaf-c"]
    assert averages.rows[2][3] == "3 of 4"


def test_classes_of_one_seed_are_no_draws_of_their_own():
    rows = [row(label, seed, "retrain", 0.0, 97.0) for label in (0, 1) for seed in (0, 1)]
    gaps = {(0, 0): 1.0, (1, 0): 3.0, (0, 1): 5.0, (1, 1): 7.0}
    rows += [row(label, seed, "fedaf-c", gap, 97.0) for (label, seed), gap in gaps.items()]
    bd = COMPLETENESS.tables(rows)[1].rows[0][1]
    assert isinstance(bd, Entry)
    assert (bd.mean, bd.count) == (4.0, 2)
    half = 12.706205 * math.sqrt(8) / math.sqrt(2)
    assert bd.interval == pytest.approx((4 - half, 4 + half), abs=1e-4), "of the seeds' means 2 and 6"
    one = [row_ for row_ in rows if row_["seed"] == 0]
    alone = COMPLETENESS.tables(one)[1].rows[0][1]
    assert isinstance(alone, Entry)
    assert (alone.mean, alone.interval) == (2.0, None), "one seed says nothing of the spread"


TABLE = Table(
    "A 50 % table",
    ("", "BD_Acc", "Test Acc"),
    [
        ["fedaf", Entry.of([1.0, 3.0], [0.77]), Entry(-1.0, None, 3, -4.5, (-2.0, 0.5))],
        ["toy", Entry(), Entry.of([9.0])],
    ],
    ("Mean ± deviation.",),
)


def test_a_table_in_five_forms():
    text = TABLE.to_text().split("\n")
    assert text[0] == "A 50 % table"
    assert "2.00 ± 1.41 (paper 0.77)" in text[3]
    assert "-1.00 [-2.00, +0.50] (paper -4.50)" in text[3]
    assert text[4].split() == ["toy", "–", "9.00"]
    assert text[-1] == "Mean ± deviation."
    markdown = TABLE.to_markdown()
    assert "| toy | – | 9.00 |" in markdown
    assert "| --- | ---: | ---: |" in markdown
    html = TABLE.to_html()
    assert html.startswith("<table><caption>A 50 % table</caption><tr><th></th><th>BD_Acc</th>")
    assert html.endswith("<td>9.00</td></tr></table><p>Mean ± deviation.</p>")
    latex = TABLE.to_latex()
    assert r"\caption{A 50 \% table. Mean $\pm$ deviation.}" in latex
    assert r" & BD\_Acc & Test Acc \\" in latex
    assert r"fedaf & 2.00 $\pm$ 1.41 (paper 0.77) & -1.00 [-2.00, +0.50] (paper -4.50) \\" in latex
    values = json.loads(json.dumps(TABLE.to_json(), allow_nan=False))
    assert values["rows"][0][1] == {"mean": 2.0, "deviation": pytest.approx(2**0.5), "count": 2, "paper": 0.77}
    assert values["rows"][0][2]["interval"] == [-2.0, 0.5]


def test_large_numbers_are_grouped_and_small_ones_kept():
    assert Entry.of([1234567.0], digits=0).text() == "1,234,567"
    assert Entry.of([None]).text() == "–"
    assert Entry.of([None], remark="no model").text() == "no model"
