"""What confused a new officer in the first half hour, each as it is now."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from console_visits import Of, Visit
from ledger_worlds import World, rung

from fedforget.console.rendering import deadline
from fedforget.ledger.papers import certificate_paper, code_of, for_people
from fedforget.ledger.states import Role
from fedforget.requests import ErasureRequest


def chosen(page: str, name: str) -> str:
    """The value that a select, a field or a group of radio buttons has when the page opens."""
    if found := re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL):
        picked = re.search(r'<option value="([^"]*)" selected', found[0]) or re.search(r'value="([^"]*)"', found[0])
        return "" if picked is None else picked[1]
    if found := re.search(rf'<textarea[^>]* name="{name}"[^>]*>(.*?)</textarea>', page, re.DOTALL):
        return found[1]
    fields = re.findall(rf'<input[^>]* name="{name}"[^>]*>', page)
    field = next((one for one in fields if " checked" in one), fields[0])
    found = re.search(r'value="([^"]*)"', field)
    assert found, name
    return found[1]


def form_behind(oscar: Visit, page: str, words: str) -> str:
    """The page behind the link with these words."""
    found = re.search(rf'<a href="([^"]*)"[^>]*>{words}</a>', page)
    assert found, words
    return oscar.get(unescape(found[1])).text


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (ErasureRequest.of_class(1, 2), "label", "2"),
        (ErasureRequest.of_samples(1, [3, 5]), "sample_ids", "3, 5"),
        (ErasureRequest.of_feature(1, 4), "feature", "4"),
        (ErasureRequest.of_client(1), "kind", "client"),
    ],
)
def test_what_is_asked_again_is_the_same_data(visit: Of, world: World, target: ErasureRequest, name: str, value: str):
    """The form came with the right client and the first class: another person's data."""
    request, oscar = world.ask(target), visit(Role.OFFICER)
    world.ledger.decisions.refuse(request.id, "Who asks could not be made sure of.", actor="oscar")
    form = form_behind(oscar, oscar.get(f"/requests/{request.id}").text, "new request")
    assert (chosen(form, "client"), chosen(form, "kind"), chosen(form, name)) == ("1", target.kind, value)
    assert chosen(form, "subject") == request.subject


def test_no_class_is_chosen_for_an_officer(visit: Of, world: World):
    oscar = visit(Role.OFFICER)
    assert chosen(oscar.get("/requests/new").text, "label") == ""
    ask = {"federation": "digits", "client": "0", "kind": "class", "label": "", "subject": "a", "ground": "objection"}
    answer = oscar.post("/requests", ask)
    assert (answer.status_code, "Choose the class that is to be forgotten." in answer.text) == (422, True)


def test_which_samples_stands_on_the_page_and_on_the_paper(visit: Of, world: World):
    few = world.served(target=ErasureRequest.of_samples(0, [7, 3, 5]))
    assert "3, 5, 7" in visit(Role.OFFICER).get(f"/requests/{few.id}").text
    signed = world.ledger.versions.certificate_of(few.id)
    assert signed is not None
    (asked, *_) = certificate_paper(signed.content).sections
    assert ("Samples", "3, 5, 7") in asked.lines


def test_days_are_counted_as_people_count_them():
    due, at = datetime(2026, 12, 20, 0, 6, tzinfo=UTC), lambda *day: datetime(2026, *day, tzinfo=UTC)
    assert deadline("queued", due, at(11, 20, 9)) == ("later", "due in 30 days")
    assert deadline("queued", due, at(12, 19, 23)) == ("soon", "due in 1 day")
    assert deadline("queued", due, at(12, 20, 0)) == ("soon", "due today")
    assert deadline("queued", due, at(12, 20, 23)) == ("overdue", "due today"), "by the clock; the day is not over"
    assert deadline("queued", due, at(12, 21, 0)) == ("overdue", "1 day overdue")


def test_somebody_says_that_the_data_is_still_recognised(visit: Of, world: World):
    """The page says why that can be, there is a letter, and the same can be asked again under a number of its own."""
    request, oscar = world.served(), visit(Role.OFFICER)
    page = oscar.get(f"/requests/{request.id}").text
    assert "a model that never saw it does so too" in page
    letter = unescape(oscar.get(f"/requests/{request.id}/letters").text)
    assert "You tell us that the model still recognises" in letter
    form = form_behind(oscar, page, "ask for it again")
    assert (chosen(form, "label"), chosen(form, "subject")) == ("1", f"{request.subject}-again")
    signed = world.ledger.versions.certificate_of(request.id)
    assert signed is not None
    told = [words for section in certificate_paper(signed.content).sections for _, words in section.lines]
    assert any("can still recognise data like it" in words for words in told)


def test_a_withdrawn_certificate_is_told_to_whom_it_was_sent(visit: Of, world: World):
    request, oscar = world.served(), visit(Role.OFFICER)
    signed = world.ledger.versions.certificate_of(request.id)
    assert signed is not None
    world.ledger.withdrawals.withdraw(request.id, "A later look found it.", actor="oscar")
    page = unescape(oscar.get(f"/requests/{request.id}").text)
    assert "Its certificate was withdrawn: A later look found it." in page, "why it failed"
    assert "was withdrawn on 31 Jan 2026, 12:00 UTC. A later look found it." in re.sub("<[^>]*>", "", page)
    assert "the attempt whose certificate was withdrawn" in page
    letters = unescape(oscar.get(f"/requests/{request.id}/letters").text)
    first = letters[letters.index("<h2>") :]
    assert first.startswith("<h2>Withdrawn</h2>")
    assert f"Its code is {code_of(signed.sha256)}." in first
    assert "The reason: A later look found it." in first
    assert "what was found is not enough to end it" not in letters, "that was not so"


def test_after_an_exact_result_nothing_weaker_is_the_first_choice(visit: Of, world: World):
    request = world.queued()
    world.serve(rungs=[rung("retrain", "exact")], says="exact")
    world.ledger.withdrawals.withdraw(request.id, "The wrong data was left out.", actor="oscar")
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    assert re.findall(r'<button class="main" id="again-(\w+)"', page) == ["retrain"]


def test_a_step_that_is_still_to_come_has_no_tick(visit: Of, world: World):
    request = world.served()
    world.ledger.withdrawals.withdraw(request.id, "A later look found it.", actor="oscar")
    world.ledger.requests.retry(request.id, actor="oscar")
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    ways = {name: how for how, name in re.findall(r'<li class="(past|now|ahead)"[^>]*>(\w+)</li>', page)}
    assert (ways["accepted"], ways["queued"], ways["auditing"], ways["done"]) == ("past", "now", "ahead", "ahead")


def test_what_was_typed_under_verify_stays_and_the_keys_can_be_kept(visit: Of, world: World):
    request, ann = world.served(), visit(Role.REQUESTER)
    page = ann.post("/verify", {"code": "0123-4567-89ab-cdef-0123"}).text
    assert chosen(page, "code") == "0123-4567-89ab-cdef-0123", "to look for the digit that was misread"
    signed = world.ledger.versions.certificate_of(request.id)
    assert signed is not None
    said = ann.post("/verify", {"code": code_of(signed.sha256)}).text
    assert "unchanged since 31 Jan 2026, 12:00 UTC." in said
    assert f'href="/keys/{signed.key}.public.pem"' in said
    kept = ann.get(f"/keys/{signed.key}.public.pem")
    assert kept.headers["content-disposition"] == f'attachment; filename="{signed.key}.public.pem"'
    assert kept.text.startswith("-----BEGIN PUBLIC KEY-----")
    assert ann.get("/keys/0123456789abcdef.public.pem").status_code == 404
    shown = ann.get(f"/requests/{request.id}").text
    assert f"verify certificate-{request.id[:12]}.json --key {signed.key}.public.pem" in shown, "as it works"


def test_the_paper_for_people_is_the_first_one(visit: Of, world: World):
    request = world.served()
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    papers = page[page.index("<h2>Papers</h2>") :]
    main = re.search(r'<a class="button main" href="([^"]*)"', papers)
    assert main
    assert main[1] == f"/requests/{request.id}/certificate.html"


def test_nothing_on_a_page_is_a_command_of_the_ladder():
    assert for_people("Retrain is sure, and takes about 9.6 s here: --effort retrain. So is B: --effort rebuild.") == (
        "Retrain is sure, and takes about 9.6 s here. So is B."
    )


def test_an_account_that_could_not_be_added_stays_in_the_form(visit: Of, world: World):
    ada = visit(Role.ADMIN)
    page = ada.post("/accounts", {"name": "Maria Lopez", "role": "officer"}).text
    assert 'value="Maria Lopez"' in page
    add = page[page.index("Add an account") :]
    assert "<option selected>officer</option>" in add, "and does not become a requester's"


def test_what_was_done_is_said(visit: Of, world: World):
    oscar, request = visit(Role.OFFICER), world.served()
    words = "four words of mine here"
    answer = oscar.post("/account/password", {"new_password": words, "again": words})
    assert answer.headers["location"] == "/account?saved=1"
    assert "Your password is set." in visit(Role.OFFICER).get("/account?saved=1").text
    answer = visit(Role.OFFICER).post(f"/requests/{request.id}/lineage/destroy", {})  # a new session
    assert "Nothing is due" in visit(Role.OFFICER).get(answer.headers["location"]).text
