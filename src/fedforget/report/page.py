"""The audit as one self-contained page: what was asked, what each method did against Retrain, and what it cost.

The words are in templates/report.html.j2. The page loads nothing, runs no script, and shows public test images only,
never a client's data."""

from __future__ import annotations

import base64
import io
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedforget.audit.verdict import LEVEL, compared_with
from fedforget.data.backdoor import Backdoor
from fedforget.data.files import write_text
from fedforget.data.samples import Dataset
from fedforget.report.charts import STAGES, draw_class_bars, draw_curves, draw_seconds, used_stages
from fedforget.report.comparison import NAMES, Comparison, climbs, row_name
from fedforget.report.evidence import TONES, judged_methods, mounted, sentence
from fedforget.report.numbers import amount, human_bytes, loss, percent, points, ratio, seconds, sensed
from fedforget.runs.record import Audit
from fedforget.runs.told import end_sentence, share_of

if TYPE_CHECKING:  # loaded only when a report is written: a machine without them still imports `runs`
    from jinja2 import Template


def write_report(path: Path, found: Audit, dataset: Dataset, backdoor: Backdoor | None) -> None:
    """Write an audit as one HTML file. The same audit gives the same bytes."""
    audit = found.to_json()
    comparison = Comparison(audit)
    methods = [row for row in audit["rows"] if row["method"] not in ("before", "retrain")]
    measured = [row for row in methods if row.get("per_class")]
    curved = [row for row in methods if (row.get("curves") or {}).get("target_hits")]
    page = page_template().render(
        audit=audit,
        run=audit["run"],
        against=comparison,
        measured=measured,
        bars=[draw_class_bars(comparison, row, f"bars{place}") for place, row in enumerate(measured)],
        curves=[draw_curves(row, f"curve{place}") for place, row in enumerate(curved)],
        times=draw_seconds(audit["rows"]),
        stages=used_stages(audit["rows"]),
        pictures=sample_pictures(audit, dataset, backdoor),
        row_name=row_name,
        climbs=climbs(methods),
        share_of=share_of,
        end_sentence=end_sentence,
        ratio=ratio,
        memory_colour=STAGES["memory"],
        names=NAMES,
        judged=judged_methods(path.parent, audit["rows"]),
        tones=TONES,
        level=LEVEL,
        mounted=mounted,
        compared_with=compared_with,
        sentence=sentence,
    )
    write_text(path, page)


@cache
def page_template() -> Template:
    """The template; a process that writes many reports compiles it once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("fedforget.report"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    formats = (points, percent, loss, amount, seconds, human_bytes, sensed)
    environment.filters |= {function.__name__: function for function in formats}
    return environment.get_template("report.html.j2")


def sample_pictures(audit: dict[str, Any], dataset: Dataset, backdoor: Backdoor | None) -> list[dict[str, str]]:
    """Eight public test images of the target's class (of any class, if it has none), with and without the trigger."""
    if len(dataset.shape) != 3 or dataset.shape[0] not in (1, 3):
        return []
    plain = dataset.test
    labels = [request["label"] for request in audit["requests"] if request["kind"] == "class"]
    if labels:
        plain = plain.select(torch.isin(plain.true_labels, torch.tensor(labels)))
    triggered = None
    if backdoor is not None and audit["backdoor"] is not None:  # the run may have planted it in another target
        triggered = backdoor.triggered_test(dataset.test)
        plain = dataset.test.select(torch.isin(dataset.test.ids, triggered.ids))
    pictures = []
    for place in range(min(8, len(plain))):
        true = dataset.classes[int(plain.true_labels[place])]
        pictures.append({"true": true, "plain": png_uri(plain.features, place)})
        if triggered is not None:
            pictures[-1]["triggered"] = png_uri(triggered.features, place)
    return pictures


def png_uri(images: torch.Tensor, place: int) -> str:
    """One of the images, pixel for pixel; floats are stretched over the range of all of them."""
    from PIL import Image

    pixels = images[place]
    if images.dtype != torch.uint8:
        low, high = float(images.min()), float(images.max())
        pixels = ((pixels - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).contiguous().numpy()).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
