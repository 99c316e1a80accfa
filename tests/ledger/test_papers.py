"""Papers for people: one page that says what the certificate says, a register that is no formula, letters to copy."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from ledger_commands import Command
from ledger_worlds import World, rung
from signed_again import signed_again

from fedforget.errors import InputError
from fedforget.ledger.errors import MissingError
from fedforget.ledger.letters import draft, letters_for
from fedforget.ledger.papers import Paper, certificate_paper
from fedforget.ledger.printing import paper_html, paper_pdf
from fedforget.ledger.schema import Certificate, Request
from fedforget.requests import ErasureRequest

YEAR = (date(2026, 1, 1), date(2026, 12, 31))
LONG = "The loss is known; <b>Zoë</b> agreed & signed. " * 20


def certificate_of(world: World, id: str) -> Certificate:
    found = world.ledger.versions.certificate_of(id)
    assert found is not None
    return found


@pytest.fixture
def decided(world: World) -> Request:
    """Two rungs, a long reason, an extension."""
    request = world.queued()
    world.ledger.requests.extend(request.id, 1, "=cmd|' /C calc'!A0", actor="oscar")
    rungs = [rung("overwrite", "not forgotten"), rung("rebuild", "exact", 6.0)]
    world.serve(rungs=rungs, says="exact", fell=9.0)
    world.ledger.versions.decide(request.id, True, LONG[:900], actor="oscar")
    return world.ledger.requests.get(request.id)


def said(paper: Paper) -> dict[str, str]:
    return {what: words for section in paper.sections for what, words in section.lines if what}


def test_the_page_says_what_the_certificate_says(world: World, decided: Request):
    signed = certificate_of(world, decided.id)
    paper = certificate_paper(signed.content)
    told = said(paper)
    assert (paper.verdict, paper.good, paper.fingerprint) == ("exact", True, signed.sha256)
    assert told["To forget"] == "class 1 of client 0, of the federation digits"
    assert told["Received"] == "31 January 2026; due 31 March 2026"
    assert told["Done"] == "On 31 January 2026, version 2 of the model replaced version 1."
    assert told["Method"] == "ladder, default; tried: overwrite (not forgotten), then rebuild (exact)"
    assert told["Looked"] == "at once (audit level quick)", "this evidence has no measure of what comes back"
    assert told["Accuracy"] == "on the data that stays: 90.0 % before, 81.0 % after"
    assert told["Decided"].startswith("oscar published it: The loss is known")
    assert told["Thresholds"].startswith("written down before the first attempt (event ")
    (not_proved,) = (s for s in paper.sections if s.heading == "What this does not prove")
    assert not_proved.lines[0] == ("", "It is no proof that nothing of the data is left.")
    assert not_proved.lines[1][1].startswith("Nobody looked at it after later training.")
    assert paper.code == "-".join(re.findall("....", signed.sha256[:20])) == told["Code"]
    for kind in ("html", "pdf"):
        make = paper_html if kind == "html" else paper_pdf
        assert make(paper) == make(paper), "the same paper, the same bytes"


def test_it_says_for_how_many_further_rounds_was_looked(world: World, decided: Request):
    signed = certificate_of(world, decided.id).content.encode()
    for rounds, told in ((1, "at once and after 1 further round of"), (5, "at once and after 5 further rounds of")):
        other = signed_again(world, signed, set_rounds(rounds))
        paper = certificate_paper(other.decode())
        assert said(paper)["Looked"] == f"{told} training (audit level quick)"
        beyond = "Nobody looked further than one round of" if rounds == 1 else "Nobody looked further than 5 rounds of"
        assert any(beyond in words for section in paper.sections for _, words in section.lines)


def set_rounds(rounds: int) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["measured"]["verdict"].update(further_rounds=rounds)


def test_an_old_certificate_has_a_page_too():
    old = Path(__file__).parents[1] / "reference" / "old_certificate" / "certificate-1.json"
    paper = certificate_paper(old.read_text())
    assert (paper.verdict, "Thresholds" in said(paper)) == ("exact", False)


def test_a_withdrawn_one_says_so_first(world: World):
    request = world.served()
    world.ledger.withdrawals.withdraw(request.id, "It still knows them.", actor="oscar")
    signed = certificate_of(world, request.id)
    paper = certificate_paper(signed.content, world.ledger.withdrawals.withdrawn(signed))
    assert not paper.good
    assert paper.warning == ("Withdrawn on 31 January 2026. It holds no more. It still knows them.")


def test_the_code_finds_the_certificate(world: World):
    signed = certificate_of(world, world.served().id)
    code = certificate_paper(signed.content).code
    for typed in (code, code.upper(), f" {code.replace('-', ' ')} ", signed.sha256):
        assert world.ledger.withdrawals.find_code(typed).sha256 == signed.sha256
    with pytest.raises(MissingError, match="No certificate of this ledger has this code"):
        world.ledger.withdrawals.find_code("0123-4567-89ab-cdef-0123")
    for typed in ("", "0123", "0123-4567-89ab-cdef-012x", "%" * 20):
        with pytest.raises(InputError, match="A code has 20 digits"):
            world.ledger.withdrawals.find_code(typed)


def test_the_html_escapes_what_people_wrote_and_loads_nothing(world: World, decided: Request):
    text = paper_html(certificate_paper(certificate_of(world, decided.id).content))
    assert "<b>Zoë</b>" not in text
    assert "<b>Zoë</b>" in unescape(text)
    assert not re.search(r"<script|<link|<img|src=|url\(", text)


@pytest.mark.real
def test_it_prints_on_one_page(world: World, decided: Request, tmp_path: Path):
    """The HTML by Chromium and the PDF itself, with the longest reason that there can be; read back by poppler."""
    missing = [name for name in ("chromium", "pdfinfo", "pdftotext") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    paper = certificate_paper(certificate_of(world, decided.id).content)
    (tmp_path / "paper.html").write_text(paper_html(paper))
    (tmp_path / "own.pdf").write_bytes(paper_pdf(paper))
    printing = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run(
        [*printing, f"--user-data-dir={tmp_path / 'profile'}", "--print-to-pdf=printed.pdf", "paper.html"],
        cwd=tmp_path, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    for name in ("own.pdf", "printed.pdf"):
        about = subprocess.run(["pdfinfo", name], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert re.search(r"Pages: +1\n", about), name
        assert "(A4)" in about
        words = subprocess.run(["pdftotext", name, "-"], cwd=tmp_path, capture_output=True, text=True, check=True)
        for words_on_it in (paper.code, "What this does not prove", "Zoë", "withdrawals.json"):
            assert words_on_it in words.stdout, name


def test_the_register_of_a_period(world: World, decided: Request):
    refused = world.ask(ErasureRequest.of_samples(1, [4]), subject="case/refused")
    world.ledger.requests.refuse(refused.id, '@SUM(A1) "not ours"', actor="oscar")
    world.clock.go_on(days=1)
    world.ask(ErasureRequest.of_class(2, 0))
    rows = list(csv.DictReader(io.StringIO(world.ledger.register.csv(*YEAR).decode("utf-8-sig"))))
    assert [row["state"] for row in rows] == ["done", "refused", "received"]
    one, two, three = rows
    assert (one["due"], one["months extended"], one["why extended"]) == ("2026-03-31", "1", "'=cmd|' /C calc'!A0")
    assert (one["verdict"], one["closed"]) == ("exact", "2026-01-31")
    assert one["certificate"] == certificate_paper(certificate_of(world, decided.id).content).code
    assert (two["reason"], two["reference"]) == ('\'@SUM(A1) "not ours"', "case/refused")
    assert (three["received"], three["closed"], three["certificate"]) == ("2026-02-01", "", "")
    only = world.ledger.register.rows(date(2026, 2, 1), date(2026, 2, 1))
    assert [row[0] for row in only] == ["2026-02-01"], "both days count"
    assert world.ledger.register.pdf(*YEAR).startswith(b"%PDF-")
    world.ledger.requests.refuse(world.ask(subject="long").id, "x" * 1000, actor="oscar")
    assert world.ledger.register.pdf(*YEAR).startswith(b"%PDF-"), "a word that is as long as a reason may be"
    with pytest.raises(InputError, match="name the earlier day first"):
        world.ledger.register.rows(date(2026, 2, 2), date(2026, 2, 1))


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\tx", "\rx", "＝1"])
def test_no_cell_begins_a_formula(world: World, text: str):
    request = world.ask()
    with world.ledger.database.writing() as session:  # a reason never begins so by itself: whitespace is taken away
        session.connection().exec_driver_sql("UPDATE requests SET state = 'refused', reason = ?" if
                                             world.ledger.database.is_sqlite else
                                             "UPDATE requests SET state = 'refused', reason = %s", (text,))  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(world.ledger.register.csv(*YEAR).decode("utf-8-sig"), newline=""))
    assert row["reason"] == f"'{text}"
    assert world.ledger.requests.get(request.id).reason == text


def test_the_letters_that_make_sense_now(world: World, decided: Request):
    def letters(request: Request) -> dict[str, str]:
        signed, verdict = world.ledger.versions.certificate_of(request.id), "exact"
        return {kind: draft(request, kind, signed, verdict, world.clock()) for kind in letters_for(request)}

    done = letters(decided)
    assert list(done) == ["done", "complaint", "extended", "received"]
    assert "The result is: exact." in done["done"]
    assert certificate_paper(certificate_of(world, decided.id).content).code in done["done"]
    assert "This is no proof that nothing of your data is left" in done["done"]
    assert "extended by one month, to 31 March 2026" in done["extended"]
    assert "by 28 February 2026 what was done" in done["received"], "the first month, whatever came later"
    refused = world.ledger.requests.refuse(world.ask().id, "It is not ours.", actor="oscar")
    text = letters(refused)["refused"]
    assert "The reason: It is not ours." in text
    assert "lodge a complaint with a supervisory authority" in text
    assert "judicial remedy" in text
    waits = world.queued()
    world.serve(says="not enough evidence")
    waiting = world.ledger.requests.get(waits.id)
    assert "a person here decides" in letters(waiting)["waiting"]
    with pytest.raises(InputError, match="There is no letter 'done' for a request that is deciding"):
        draft(waiting, "done", None, None, world.clock())


def test_from_the_command_line(fedforget: Command, tmp_path: Path):
    request = fedforget.world.served()
    html, pdf, sheet = (tmp_path / name for name in ("a.html", "a.pdf", "a.csv"))
    code = fedforget.json("request", "print", request.id, "--html", html, "--pdf", pdf)["code"]
    assert code in html.read_text()
    assert pdf.read_bytes().startswith(b"%PDF-")
    fedforget("request", "show", request.id, "--certificate", tmp_path / "c.json")
    assert f"Its code, as on the printed page: {code}" in fedforget("verify", tmp_path / "c.json")
    assert "is for people" in fedforget.refused("verify", pdf, "--key", tmp_path / "any.pem")
    assert code in fedforget("request", "letter", request.id)
    assert "by 31 January 2999" not in fedforget("request", "letter", request.id, "--kind", "received")
    rows = fedforget.json("request", "register", "--from", "2999-01-01", "--to", "2999-12-31", "--csv", sheet)
    assert [row["state"] for row in rows] == ["done"]
    assert sheet.read_text(encoding="utf-8-sig").count("\n") == 2
    assert "has no certificate yet" in fedforget.refused("request", "print", fedforget.world.ask().id)
