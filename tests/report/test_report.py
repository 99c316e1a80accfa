"""The report: whole, self-contained, harmless, and honest about what the figures say."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from fedforget.audit.check import Check, Measured
from fedforget.data import Dataset, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.samples import Samples
from fedforget.federation.cost import Cost
from fedforget.report.comparison import Comparison
from fedforget.report.numbers import human_bytes, ratio
from fedforget.report.page import write_report
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Rung
from fedforget.runs.record import Audit
from fedforget.runs.told import ending

SECTIONS = ["summary", "request", "figures", "classes", "curves", "cost", "pictures", "meaning"]
HOSTILE = "<script>alert(1)</script>"
BACKDOOR = Backdoor(ErasureRequest.of_class(client=0, label=3), Trigger(size=2, margin=0), flipped_label=0)
Page = Callable[..., str]


def measured(
    method: str, preset: str | None, bd: float, later: float, test: float = 95.0, **more: Any
) -> dict[str, Any]:
    figures = {
        "test_acc": test, "bd_acc": bd, "bd_acc_test": None, "true_acc": 61.5, "target_loss": 0.25,
        "retained_acc": 99.0, "target_class_test_acc": 86.0, "per_class": [90.0] * 9 + [None],
    }  # fmt: skip
    cost = {
        "seconds": 2.0, "gradient_evaluations": 1000.0, "bytes": 4_652_800, "stored_bytes": 0, "peak_bytes": 151_552,
        "seconds_by_stage": {"training": 1.9, "server": 0.1},
    }  # fmt: skip
    rest = {
        "method": method, "preset": preset, "note": None, "curves": None, "model": "ab" * 32,
        "after_one_round": figures | {"bd_acc": later},
        "distance_to_retrain": {"weights": 1.0, "disagreement": 2.7, "divergence": 0.1},
    }  # fmt: skip
    return figures | cost | rest | more


def make_audit(bd: float = 0.0, later: float = 0.0) -> dict[str, Any]:
    """Before 96.7 %, Retrain 0 %, the default method as given, and one method that diverged."""
    costs = ("seconds", "seconds_by_stage", "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes")
    unpaid = dict.fromkeys(costs)
    curves = {"samples": [16.0, 14.0], "memory_loss": [3.0, 1.0], "target_loss": [0.1, 2.0], "target_hits": [0.95, 0.5]}
    stages = {"sketch": 0.03, "forgetting": 0.02, "recovery": 0.001}
    return {
        "target": "class 3 of client 0",
        "requests": [BACKDOOR.request.to_json()],
        "target_samples": 30,
        "backdoor": BACKDOOR.to_json(),
        "classes": [str(digit) for digit in range(10)],
        "rows": [
            measured("before", None, 96.7, 30.0, **unpaid),
            measured("retrain", "default", 0.0, 0.0, test=95.8),
            measured("fedaf", "recommended", bd, later, curves=curves, seconds=0.051, seconds_by_stage=stages),
            {"method": "fedaf", "preset": "paper", "note": "The forgetting step diverged.", "curves": None, **unpaid},
        ],
        "run": {
            "dataset": "digits", "clients": 4, "partition": "iid", "model": "cnn", "backdoor": BACKDOOR.to_json(),
            "schedule": {"rounds": 10, "epochs": 1, "lr": 0.05, "momentum": 0.9, "batch_size": 16, "seed": 0},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory, digits: Dataset) -> str:
    """The page of the usual audit, drawn once."""
    path = tmp_path_factory.mktemp("usual") / "report.html"
    write_report(path, Audit.from_json(make_audit()), digits, BACKDOOR)
    return path.read_text()


@pytest.fixture
def page(tmp_path: Path, digits: Dataset, usual: str) -> Page:
    def write(
        audit: dict[str, Any] | None = None, dataset: Dataset = digits, backdoor: Backdoor | None = BACKDOOR
    ) -> str:
        if audit is None and dataset is digits and backdoor is BACKDOOR:
            (tmp_path / "report.html").write_text(usual)
            return usual
        write_report(tmp_path / "report.html", Audit.from_json(audit or make_audit()), dataset, backdoor)
        return (tmp_path / "report.html").read_text()

    return write


def words(page: str, section: str) -> str:
    """The text of one section, as a reader sees it."""
    found = re.search(rf'<section id="{section}".*?</section>', page, re.DOTALL)
    assert found
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).replace(" :", ":").split())


def test_all_sections_stand_in_order(page: Page) -> None:
    assert re.findall(r'<section id="(\w+)"', page()) == SECTIONS


def test_nothing_is_loaded_and_nothing_runs(page: Page) -> None:
    assert_self_contained(page())


def assert_self_contained(text: str) -> None:
    assert not re.search(r"https?://|<script|<link|<iframe|@import|javascript:", text, re.IGNORECASE)
    assert not re.search(r"\son\w+=", text)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', text))
    assert all(address.startswith("#") for address in re.findall(r'href="([^"]*)"', text))
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", text))


def test_hostile_names_are_text(page: Page) -> None:
    audit = make_audit()
    audit["target"] = audit["rows"][3]["note"] = audit["run"]["dataset"] = audit["rows"][2]["method"] = HOSTILE
    audit["classes"] = [f'{HOSTILE}"{place}$x' for place in range(10)]
    text = page(audit)
    assert "<script" not in text
    assert html.escape(HOSTILE) in text
    assert_balanced(text)


def test_a_method_that_diverged_says_why_across_the_row(page: Page) -> None:
    assert re.search(r'<td class="wide" colspan="9"><div>The forgetting step diverged\.</div></td>', page())


def test_what_was_not_measured_is_a_dash(page: Page) -> None:
    text = page()
    retrain = re.search(r'<tr class="retrain"><th scope="row">Retrain</th>(.*?)</tr>', text, re.DOTALL)
    assert retrain
    cells = re.findall(r"<td>(.*?)</td>", retrain[1])
    assert cells == ["95.8", "0.0", "0.0", "–", "61.5", "99.0", "0.25", "86.0", "2.7"]
    assert re.search(r'<th scope="row">9</th>(<td>–</td>)+</tr>', text)
    assert re.search(r'<th scope="row">FedAF \(paper\)</th>(<td>–</td>){7}</tr>', text)


def test_an_audit_without_verdicts_speaks_of_none(page: Page) -> None:
    """As before there were any: the lead is the sentence with the figures, and the limits are those of figures."""
    text = page()
    assert (
        '<section id="summary" class="lead forgot" aria-label="Summary">\n<p><strong>FedAF is at Retrain’s level'
        in text
    )
    body = text[text.index("<body>") :]
    assert not re.search(r"oracle|verdict|fedforget verify|relearning|certified", body, re.IGNORECASE)
    limits = words(text, "meaning")
    assert "This audit mounts no such attack." in limits
    assert "These are the figures of a first audit" in limits
    assert "One Retrain is one draw" in limits


def test_same_audit_same_bytes(page: Page, usual: str) -> None:
    assert page(make_audit()) == usual


VOID = {"meta", "img", "br", "hr", "input", "link"}


class Balance(HTMLParser):
    """Every element that opens closes, in order, and no id stands twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag == "img":
            assert dict(attrs).get("alt")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def assert_balanced(text: str) -> None:
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))


def test_html_is_well_formed(page: Page) -> None:
    assert_balanced(page())


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("bd", "later", "says"),
    [
        (0.0, 0.0, ["FedAF is at Retrain’s level on class 3 of client 0: 0.0 % of its 30 samples are still recognised "
                    "as trained (Retrain 0.0 %, before 96.7 %), test accuracy 95.0 % (Retrain 95.8 %), at 1/39 of "
                    "Retrain’s time.",
                    "this share stays at 0.0 % (Retrain 0.0 %)."]),
        (3.3, 0.0, ["FedAF is at Retrain’s level on class 3 of client 0: 3.3 %", "falls to 0.0 %"]),
        (0.0, 3.3, ["FedAF is at Retrain’s level on class 3",
                    "rises to 3.3 % (Retrain 0.0 %), which so few samples cannot tell from Retrain’s."]),
        (0.0, 23.3, ["FedAF was at Retrain’s level on class 3 of client 0 at first, but the memory came back",
                     "rises to 23.3 % (Retrain 0.0 %): the memory came back there."]),
        (93.3, 43.3, ["FedAF did not forget class 3 of client 0: 93.3 %", "falls to 43.3 %"]),
        (20.0, 23.3, ["FedAF forgot class 3 of client 0 only in part: 20.0 %", "the memory came back there"]),
    ],
)  # fmt: skip
def test_summary_says_what_happened(page: Page, bd: float, later: float, says: list[str]) -> None:
    summary = words(page(make_audit(bd, later)), "summary")
    for sentence in says:
        assert sentence in summary
    assert "certified" not in summary


def clean_audit(now: float, start: float = 100.0, goal: float = 90.0) -> dict[str, Any]:
    audit = make_audit(now, now)
    audit["backdoor"], audit["target_samples"] = None, 1500
    audit["rows"][0]["bd_acc"] = start
    audit["rows"][1]["bd_acc"] = audit["rows"][1]["after_one_round"]["bd_acc"] = goal
    return audit


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("audit", "standing"),
    [
        (clean_audit(90.5), "forgot"),
        (clean_audit(0.0), "beyond"),  # forgetting to zero is not what Retrain does
        (clean_audit(99.0), "kept"),
        (clean_audit(90.0, start=90.5), "unclear"),  # an untouched model would pass as well
    ],
)
def test_a_clean_target_is_held_against_retrain_not_against_zero(
    page: Page, audit: dict[str, Any], standing: str
) -> None:
    assert Comparison(audit).standing(audit["rows"][2]) == standing
    text = page(audit)
    assert "with a mean loss of 0.25" in words(text, "summary")
    assert "The same image with the trigger" not in text  # the run's backdoor is in another target


def test_the_summary_is_about_the_default_where_others_were_run_too() -> None:
    audit = make_audit()
    audit["rows"].append(measured("ladder", "default", 1.0, 2.0))
    assert Comparison(audit).default == audit["rows"][4]


def climbed() -> dict[str, Any]:
    """The usual audit, where the ladder was climbed to rebuilding, and that left a doubt."""
    audit = make_audit()

    def rung(name: str, evaluations: float, word: str, reason: str) -> dict[str, Any]:
        cost = Cost({"training": 0.5}, evaluations)
        gap = Measured("gap", 0.09, 0.011, 0.093, "unclear")
        return Rung(
            name, 0.15, cost, word, reason, Check("harmful", reason, ("gap",), (gap,)), model="ab" * 32
        ).to_json()

    audit["rows"][2] |= {
        "method": "ladder", "preset": "default", "gradient_evaluations": 700.0, "retrain_forecast": 1000.0,
        "rungs": [rung("overwrite", 120.0, "harmful", "Three points are lost."),
                  rung("rebuild", 380.0, "not forgotten", "Gap is 9.0 points.")],
        "notes": ["Gap is 9.0 points. Retrain is sure, and takes about 2.0 s here: --effort retrain."],
    }  # fmt: skip
    return audit


def test_every_rung_stands_in_the_report_with_the_words_of_the_terminal(page: Page) -> None:
    text = page(climbed())
    assert re.findall(r'<section id="(\w+)"', text) == [*SECTIONS[:2], "ladder", *SECTIONS[2:]]
    said = words(text, "ladder")
    assert "overwrite 15 % of Retrain 12 % of Retrain 0.50 s harmful Three points are lost." in said
    assert "rebuild 15 % of Retrain 38 % of Retrain 0.50 s not forgotten Gap is 9.0 points." in said
    assert "rebuild gap (sees) 9.0 1.1 9.3 unclear" in said
    assert "Weights of rebuild abababababababab" in said
    (row,) = [row for row in climbed()["rows"] if row["method"] == "ladder"]
    rungs = [Rung.from_json(rung) for rung in row["rungs"]]
    lines = ending(rungs, row["notes"], Cost.from_json(row), row["retrain_forecast"])
    assert lines[0].startswith("Tried: overwrite (harmful, 12 % of Retrain), then rebuild (not forgotten, 38 %")
    assert lines[0].endswith("The checks: 20 % of Retrain.")
    assert lines[-1] == "Retrain is sure, and takes about 2.0 s here: --effort retrain."
    for line in lines:
        assert line in said
    assert_balanced(text)


def test_a_default_method_that_diverged_is_the_headline(page: Page) -> None:
    audit = make_audit()
    del audit["rows"][2]
    summary = words(page(audit), "summary")
    assert "FedAF did not forget class 3 of client 0: it stopped without a new model" in summary
    assert "The forgetting step diverged." in summary


def test_without_retrain_nothing_is_claimed(page: Page) -> None:
    audit = make_audit()
    del audit["rows"][1]
    summary = words(page(audit), "summary")
    assert "There is no Retrain" in summary
    assert "forgot" not in summary


def test_lost_accuracy_is_not_kept_quiet(page: Page) -> None:
    audit = make_audit()
    audit["rows"][2]["test_acc"] = 60.0
    assert "test accuracy fell to 60.0 % (Retrain 95.8 %)" in words(page(audit), "summary")


def test_pictures_come_from_the_test_set_only(page: Page, digits: Dataset) -> None:
    """With no training image left to read, the page is the same."""
    emptied = Dataset(digits.name, digits.train.select(torch.arange(0)), digits.test, digits.classes)
    text = page()
    assert page(dataset=emptied) == text
    assert text.count('alt="Test image of class 3"') == text.count('alt="The same image with the trigger"') == 8


@pytest.mark.real
def test_whole_client_requests_and_data_without_images(page: Page) -> None:
    audit = make_audit()
    audit["requests"], audit["target"] = [ErasureRequest.of_client(2).to_json()], "everything of client 2"
    assert "of its samples with a flipped label are" in words(page(audit), "summary")
    audit["backdoor"] = None
    samples = Samples.of(torch.rand(20, 5), torch.arange(20) % 10)
    text = page(audit, Dataset("table", samples, samples, tuple(audit["classes"])), None)
    assert "There is no test image to show" in words(text, "pictures")


@pytest.mark.real
def test_float_and_colour_images_are_drawn(page: Page) -> None:
    samples = Samples.of(torch.rand(20, 3, 6, 6), torch.arange(20) % 10)
    assert page(dataset=Dataset("colour", samples, samples, tuple("0123456789"))).count("data:image/png") == 4


@pytest.mark.real
def test_many_classes_keep_their_width_and_scroll(page: Page) -> None:
    audit = make_audit()
    audit["classes"] = [f"class number {place}" for place in range(60)]
    for row in audit["rows"][:3]:
        row["per_class"] = [50.0] * 60
    assert 'style="min-width: 1296px"' in page(audit)


@pytest.mark.parametrize(
    ("value", "to", "text"),
    [
        (1.0, 38.9, "1/38"),
        (1.0, 7.25, "1/7.2"),
        (2.0, 1.0, "2.0 times"),
        (1.0, 1.0, "1.0 times"),
        (None, 1.0, "–"),
        (0.0, 1.0, "–"),
    ],
)
def test_ratio_to_retrain_never_flatters(value: float | None, to: float, text: str) -> None:
    assert ratio(value, to) == text


def test_bytes_in_human_units() -> None:
    values = [None, 0, 999, 1000, 151_552, 999_600, 4_652_800, 5e12]
    assert [human_bytes(value) for value in values] == [
        "–",
        "0 B",
        "999 B",
        "1 kB",
        "152 kB",
        "1 MB",
        "4.65 MB",
        "5 TB",
    ]


PROBE = """<!doctype html><iframe id=r src="report.html" style="border:0;width:%dpx;height:900px"></iframe>
<pre id=o></pre>
<script>onload = () => { const d = r.contentDocument; o.textContent = JSON.stringify({
  title: d.title, width: d.documentElement.scrollWidth, charts: d.querySelectorAll('svg').length,
  pictures: [...d.images].filter(i => i.naturalWidth > 0).length, small: [...d.querySelectorAll('svg')].filter(
    s => s.getBoundingClientRect().width < 200).length }); }</script>"""


def seen_in_browser(folder: Path, width: int) -> dict[str, Any]:
    """What a real browser makes of report.html in `folder`, in a frame so wide."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no browser is installed; as root: apt-get install chromium")
    (folder / "probe.html").write_text(PROBE % width)
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    profile, address = f"--user-data-dir={folder / 'profile'}", (folder / "probe.html").as_uri()
    bare = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    command = [browser, *bare, *quiet, profile, f"--window-size={max(width, 500) + 40},1000", "--dump-dom", address]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="o">(.*?)</pre>', seen.stdout)
    assert found, seen.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.real
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_sideways_scrolling(page: Page, tmp_path: Path, width: int) -> None:
    page()
    assert seen_in_browser(tmp_path, width) == {
        "title": "Forgetting class 3 of client 0 – fedforget audit", "width": width,
        "charts": 4, "pictures": 16, "small": 0,
    }  # fmt: skip
