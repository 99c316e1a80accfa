"""A paper as HTML that prints on one A4 page, and as PDF; a table as PDF. The same paper gives the same bytes.

The letters are DejaVu's, which matplotlib brings along; other scripts than it has are shown as boxes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

from fpdf import FPDF
from fpdf.fonts import FontFace
from jinja2 import Environment, PackageLoader, StrictUndefined

from fedforget.ledger.papers import Paper

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of each table of a font
GREY, INK, GOOD, WARN, BAD = (75, 88, 100), (22, 32, 42), (29, 107, 63), (138, 90, 0), (161, 29, 29)
SIZES = (10.0, 9.5, 9.0, 8.5, 8.0, 7.5, 7.0, 6.5, 6.0)
LABELS_MM = 27.0
PADDING_MM = 0.8
LONGEST_WORD = 64
"""Letters of a word, such as an address, that a column of a table is made wide for; a longer one is broken."""


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fedforget.ledger"), autoescape=True, undefined=StrictUndefined, auto_reload=False,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def paper_html(paper: Paper) -> str:
    """One file that loads nothing. Where much is said, the letters are smaller, so that it stays one page."""
    letters = sum(len(said) for section in paper.sections for _, said in section.lines)
    size = 10.0 if letters < 1800 else 9.0 if letters < 2600 else 8.0 if letters < 3600 else 7.0
    return _environment().get_template("paper.html").render(paper=paper, size=size)


def paper_pdf(paper: Paper) -> bytes:
    """One page of A4, in the largest letters that leave it one."""
    for size in SIZES:
        pdf = _drawn(paper, size)
        if pdf.pages_count == 1:
            break
    return bytes(pdf.output())


def _drawn(paper: Paper, size: float) -> FPDF:
    pdf, line = _begun("portrait", paper.title, paper.made), size * 0.5
    pdf.set_font("DejaVu", "B", size * 1.6)
    pdf.cell(0, line * 1.6, paper.title, new_x="LEFT")
    pdf.set_font("DejaVu", "", size)
    pdf.set_text_color(*GREY)
    pdf.cell(0, line * 1.6, paper.about, align="R", new_x="LMARGIN", new_y="NEXT")
    pdf.set_draw_color(*INK)
    pdf.line(pdf.l_margin, pdf.get_y(), pdf.w - pdf.r_margin, pdf.get_y())
    pdf.ln(line * 0.6)
    if paper.warning is not None:
        _boxed(pdf, paper.warning, BAD, size, line)
    tone = GOOD if paper.good else WARN
    _boxed(pdf, f"{paper.verdict.capitalize()}. {paper.meaning}", tone, size * 1.1, line * 1.1)
    for section in paper.sections:
        pdf.ln(line * 0.5)
        pdf.set_font("DejaVu", "B", size * 1.08)
        pdf.set_text_color(*INK)
        pdf.cell(0, line * 1.25, section.heading, new_x="LMARGIN", new_y="NEXT")
        for what, said in section.lines:
            pdf.set_font("DejaVu", "", size)
            pdf.set_text_color(*GREY)
            pdf.cell(LABELS_MM if what else 4.0, line, what or "•", new_x="RIGHT")
            pdf.set_text_color(*INK)
            if what == "Code":
                pdf.set_font("DejaVu", "B", size * 1.2)
            pdf.multi_cell(0, line, said, new_x="LMARGIN", new_y="NEXT", align="L")
    return pdf


def _boxed(pdf: FPDF, text: str, tone: tuple[int, int, int], size: float, line: float) -> None:
    pdf.set_font("DejaVu", "B", size)
    pdf.set_draw_color(*tone)
    pdf.set_text_color(*tone)
    pdf.multi_cell(0, line * 1.2, text, border=1, padding=2, new_x="LMARGIN", new_y="NEXT", align="L")
    pdf.ln(line * 0.4)


def table_pdf(title: str, about: str, header: Sequence[str], rows: Sequence[Sequence[str]], made: datetime) -> bytes:
    """A table over as many pages of A4 across as it takes."""
    pdf = _begun("landscape", title, made, numbered=True)
    pdf.set_font("DejaVu", "B", 14)
    pdf.cell(0, 8, title, new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("DejaVu", "", 8)
    pdf.cell(0, 6, about, new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("DejaVu", "", 6)
    columns = list(zip(header, *rows, strict=True))
    widths = _widths(pdf, columns)
    style = FontFace(emphasis="BOLD", fill_color=(232, 236, 240))
    with pdf.table(
        col_widths=widths, headings_style=style, line_height=3.4, text_align="LEFT", padding=PADDING_MM
    ) as table:
        for cells in (header, *rows):
            row = table.row()
            for cell in cells:
                row.cell(cell)
    return bytes(pdf.output())


def _widths(pdf: FPDF, columns: Sequence[Sequence[str]]) -> list[float]:
    """Of each column, in mm: its longest word has room, so that a day or a code is not broken; what is left goes where
    the longest sentences are."""
    words = [max((word for cell in column for word in cell.split()), key=len, default="") for column in columns]
    pdf.set_font("DejaVu", "B", 6)
    least = [pdf.get_string_width(word[:LONGEST_WORD]) + 2 * PADDING_MM + 1 for word in words]
    pdf.set_font("DejaVu", "", 6)
    more = [
        1 + max(min(max(map(len, column)), LONGEST_WORD) - len(word), 0)
        for column, word in zip(columns, words, strict=True)
    ]
    left = max(pdf.epw - sum(least), 0.0)
    return [width + left * want / sum(more) for width, want in zip(least, more, strict=True)]


class _Numbered(FPDF):
    def footer(self) -> None:
        self.set_y(-10)
        self.set_font("DejaVu", "", 7)
        self.set_text_color(*GREY)
        self.cell(0, 5, f"page {self.page_no()}", align="C")


def _begun(orientation: str, title: str, made: datetime, *, numbered: bool = False) -> FPDF:
    import matplotlib  # for its fonts alone; it takes a while

    kind = _Numbered if numbered else FPDF
    pdf = kind(orientation=orientation, unit="mm", format="A4")
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    pdf.add_font("DejaVu", "", fonts / "DejaVuSans.ttf")
    pdf.add_font("DejaVu", "B", fonts / "DejaVuSans-Bold.ttf")
    pdf.set_title(title)
    pdf.set_lang("en")
    pdf.set_creation_date(made)
    pdf.set_margins(*((10, 10, 10) if numbered else (16, 14, 16)))
    pdf.set_auto_page_break(True, margin=12)
    pdf.add_page()
    return pdf
