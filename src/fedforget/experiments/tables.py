"""One table, shown five ways: as plain text, Markdown, HTML, LaTeX and JSON. (The command line shows it with Rich.)"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from fedforget.audit.student import student_quantile
from fedforget.experiments.cells import mean_and_deviation

DASH = "–"


@dataclass(frozen=True)
class Entry:
    """Mean and standard deviation over `count` values, and the paper's mean. None where there is nothing."""

    mean: float | None = None
    deviation: float | None = None
    count: int = 0
    paper: float | None = None
    interval: tuple[float, float] | None = None
    """The 95 % confidence interval of the mean, where that is shown instead of the deviation."""
    digits: int = 2
    remark: str | None = None
    """Words in the place of a number, such as 'diverged'."""

    @classmethod
    def of(
        cls, values: Iterable[float | None], paper: Iterable[float | None] = (), *, digits: int = 2,
        remark: str | None = None,
    ) -> Entry:  # fmt: skip
        """Over the values that are there, beside the mean of the paper's that are there."""
        ours, printed = ([v for v in numbers if v is not None] for numbers in (values, paper))
        theirs = mean_and_deviation(printed)[0] if printed else None
        if not ours:
            return cls(paper=theirs, digits=digits, remark=remark)
        mean, deviation = mean_and_deviation(ours)
        return cls(mean, deviation if len(ours) > 1 else None, len(ours), theirs, digits=digits)

    @classmethod
    def of_differences(cls, differences: Sequence[float], paper: float | None = None) -> Entry:
        """The mean of paired differences, with Student's 95 % interval mean +- t_{n-1} s / sqrt(n) where there are
        several."""
        n, (mean, deviation) = len(differences), mean_and_deviation(differences)
        half = student_quantile(0.975, n - 1) * deviation / math.sqrt(n) if n > 1 else None
        return cls(mean, None, n, paper, None if half is None else (mean - half, mean + half))

    def text(self) -> str:
        """`97.81 ± 0.12 (paper 96.63)`, or, of a difference, `-1.00 [-2.00, +0.50] (paper -4.50)`."""
        sign = "" if self.interval is None else "+"

        def number(value: float) -> str:
            return f"{value:{sign},.{self.digits}f}"

        ours = (self.remark or DASH) if self.mean is None else number(self.mean)
        if self.interval is not None:
            ours += f" [{', '.join(map(number, self.interval))}]"
        elif self.deviation is not None:
            ours += f" ± {number(self.deviation)}"
        return ours if self.paper is None else f"{ours} (paper {number(self.paper)})"

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {"mean": self.mean, "deviation": self.deviation, "count": self.count}
        values |= {} if self.interval is None else {"interval": list(self.interval)}
        values |= {} if self.remark is None else {"remark": self.remark}
        return values | {"paper": self.paper}


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and rows whose first element is the row's name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Entry]]
    notes: Sequence[str] = field(default_factory=tuple)
    wide: bool = False
    """Too wide for a terminal: on pages only."""

    def cells(self) -> list[list[str]]:
        return [[item if isinstance(item, str) else item.text() for item in row] for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        rows = [[item if isinstance(item, str) else item.to_json() for item in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "notes": list(self.notes)}

    def to_text(self) -> str:
        """Aligned columns for a terminal."""
        lines = [list(self.columns), *self.cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        shown = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([self.title, shown[0], "-" * len(shown[0]), *shown[1:], *self.notes])

    def to_markdown(self) -> str:
        head = [f"| {' | '.join(self.columns)} |", "| --- |" + " ---: |" * (len(self.columns) - 1)]
        body = [f"| {' | '.join(row)} |" for row in self.cells()]
        return "\n\n".join([f"**{self.title}**", "\n".join([*head, *body]), *self.notes])

    def to_html(self) -> str:
        def line(words: Iterable[str], kind: str) -> str:
            return f"<tr>{''.join(f'<{kind}>{escape(word)}</{kind}>' for word in words)}</tr>"

        body = [line(self.columns, "th"), *(line(row, "td") for row in self.cells())]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><caption>{escape(self.title)}</caption>{''.join(body)}</table>{notes}"

    def to_latex(self) -> str:
        """A `table` with booktabs rules; the notes go into its caption."""

        def line(words: Iterable[str]) -> str:
            return " & ".join(words) + r" \\"

        body = [line(map(_escape, row)) for row in self.cells()]
        caption = " ".join(_escape(text.removesuffix(".") + ".") for text in (self.title, *self.notes))
        return "\n".join(
            [
                r"\begin{table}[t]", r"\centering", rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule",
                line(map(_escape, self.columns)), r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}",
            ]
        )  # fmt: skip


_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "×": r"$\times$", "−": "$-$", "≤": r"$\leq$",
          **{c: "\\" + c for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text.replace("`", ""))
