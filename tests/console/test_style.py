"""The look: contrast by WCAG AA in light and dark, nothing from elsewhere, nothing inline, labels on every field."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

FOLDER = Path(str(files("fedforget.console")))
STYLE = (FOLDER / "static" / "console.css").read_text()
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
TEXT = [
    ("ink", "paper"), ("ink", "card"), ("ink", "field"), ("soft", "paper"), ("soft", "card"), ("link", "paper"),
    ("link", "card"), ("on-accent", "accent"), ("good", "good-bg"), ("bad", "bad-bg"), ("warn", "warn-bg"),
    ("work", "work-bg"), ("wait", "wait-bg"), ("new", "new-bg"), ("ink", "good-bg"), ("ink", "bad-bg"),
    ("ink", "warn-bg"), ("ink", "work-bg"), ("ink", "wait-bg"), ("good", "card"), ("bad", "card"), ("wait", "card"),
    ("link", "good-bg"), ("link", "work-bg"), ("link", "bad-bg"), ("link", "warn-bg"), ("soft", "wait-bg"),
]  # fmt: skip
SHAPES = [("edge", "card"), ("edge", "field"), ("focus", "paper"), ("focus", "card"), ("accent", "card"),
          ("after", "card"), ("retrain", "card"), ("before", "card"), ("accent", "wait-bg")]  # fmt: skip


def colours() -> dict[str, dict[str, str]]:
    light, dark = (
        re.search(pattern, STYLE, re.DOTALL)
        for pattern in (r"^:root \{(.*?)^\}", r"scheme: dark\) \{\s+:root \{(.*?)\}")
    )
    if light is None:
        light = re.search(r":root \{(.*?)\n\}", STYLE, re.DOTALL)
    assert light
    assert dark
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", found[1]))
        for name, found in (("light", light), ("dark", dark))
    }


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (SHAPES, 3.0)], ids=["text", "shapes"])
def test_contrast(scheme: str, pairs: list[tuple[str, str]], least: float):
    known = colours()[scheme]
    found = {pair: round(contrast(known[pair[0]], known[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < least} == {}


def test_black_on_white_is_21():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("path", [*TEMPLATES, *sorted((FOLDER / "static").iterdir())], ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_nothing_is_inline(path: Path):
    text = path.read_text()
    known = ("http://www.w3.org/2000/svg", "https://login.example.org")
    assert [found for found in re.findall(r"https?://[^\s\"'<]+", text) if found not in known] == []
    assert "url(" not in text
    assert "@import" not in text
    if path.suffix == ".html":
        assert " style=" not in text
        assert not re.search(r"\son\w+=", text)
        assert not re.search(r"<script(?! src| type=\"application/json\")", text)
        assert "|safe" not in text


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_field_has_a_label_and_every_form_a_token(path: Path):
    text = path.read_text()
    for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
        if 'type="hidden"' in field:
            continue
        id = re.search(r'id="([\w-]+)"', field)
        labelled = bool(id) and f'for="{id[1]}"' in text  # type: ignore[index]
        wrapped = re.search(rf"<label[^>]*>[^/]*{re.escape(field)}", text)
        assert labelled or wrapped or "aria-label=" in field, field
    for form in re.findall(r'<form method="post".*?</form>', text, re.DOTALL):
        assert "csrf(visitor)" in form, form
