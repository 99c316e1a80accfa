"""What people do with requests: ask, accept, refuse, extend, decide, retry; and watch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from console_visits import Of, Program, Visit, on_both
from fastapi import FastAPI
from ledger_worlds import Ticking, World, change_federation

from fedforget.console.rendering import deadline
from fedforget.ledger.errors import NotHeldError
from fedforget.ledger.federations import describe
from fedforget.ledger.results import CheckedResult
from fedforget.ledger.statements import read_statement
from fedforget.ledger.states import Role
from fedforget.requests import ErasureRequest

ASK = {"federation": "digits", "client": "0", "kind": "class", "label": "1", "subject": "case-1", "ground": "objection"}


def options(page: str, name: str) -> list[str]:
    """What a select offers."""
    found = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert found
    return [re.sub(r"\s+", " ", text) for text in re.findall(r"<option[^>]*>(.*?)</option>", found[0])]


def test_the_form_offers_what_exists(visit: Of):
    oscar = visit(Role.OFFICER)
    page = oscar.get("/requests/new").text
    assert options(page, "federation") == ["digits"]
    assert options(page, "client") == ["client 0 – 10 samples", "client 1 – 16 samples", "client 2 – 3 samples"]
    assert options(page, "label") == ["choose one", "zero – 5 samples", "one – 5 samples"], "client 0 has no twos"
    assert options(oscar.get("/requests/new?federation=digits&client=1").text, "label")[3] == "two – 9 samples"
    offers = json.loads(re.search(r'id="offers">(.*?)</script>', page)[1])  # type: ignore[index]
    assert offers["digits"]["clients"][1]["counts"] == [3, 4, 9]
    assert "Accept it right away" in page


def test_who_asks_sees_names_and_no_numbers(visit: Of, program: Program, world: World):
    """What the clients hold of each class is for staff. Odd numbers, so that each would be found."""
    odd = describe(["zero", "one"], {0: [7411, 7433], 1: [0, 7451]})
    change_federation(world.ledger, "digits", description=odd, actor="oscar")
    numbers = re.compile(r"\b(7,?4(11|33|51)|14,?844|22,?295)\b")
    paths = ("/requests/new", "/requests/new?federation=digits&client=1", "/federations", "/federations/digits",
             "/api/v1/federations", "/api/v1/federations/digits")  # fmt: skip
    for path in paths:
        found = {role: (program if path.startswith("/api/") else visit)(role).get(path) for role in Role}
        readers = {role for role, answer in found.items() if answer.status_code == 200}
        assert {Role.REQUESTER, Role.OFFICER} < readers
        assert {role for role in readers if numbers.search(found[role].text)} == readers - {Role.REQUESTER}, path
    page = visit(Role.REQUESTER).get("/requests/new?client=1").text
    assert options(page, "client") == ["client 0", "client 1"]
    assert options(page, "label") == ["choose one", "zero", "one"], "nor whether there are any"
    assert "Accept it right away" not in page, "that is an officer's"
    (told,) = program(Role.REQUESTER).get("/api/v1/federations").json()
    assert told["clients"][1] == {"client": 1, "name": "client 1", "samples": None, "counts": []}
    ask = {"federation": "digits", "client": 0, "target": {"kind": "samples", "sample_ids": list(range(14845))},
           "subject": "case-1", "ground": "objection"}  # fmt: skip
    refused = program(Role.REQUESTER).post("/api/v1/requests", json=ask)
    assert refused.json()["detail"] == "Not all of these samples are client 0's; look at their numbers."


@pytest.mark.parametrize(
    ("change", "describes"),
    [
        ({}, "class 1 (one) of client 0"),
        ({"kind": "client"}, "everything of client 0"),
        ({"kind": "samples", "sample_ids": "3, 1\n 2;3"}, "3 samples of client 0"),
        ({"kind": "feature", "feature": " 5"}, "column 5 of client 0"),
    ],
)
def test_a_request_is_submitted(visit: Of, world: World, change: dict[str, str], describes: str):
    ann = visit(Role.REQUESTER)
    answer = ann.post("/requests", ASK | change)
    assert answer.status_code == 303
    page = ann.get(answer.headers["location"]).text
    assert f"<h1>Forget {describes}</h1>" in page
    (row,) = world.ledger.requests.page().requests
    assert (row.state, row.asked_by, row.subject) == ("received", "ann", "case-1")
    again = ann.post("/requests", ASK | change)
    assert again.headers["location"] == answer.headers["location"] + "?known=1"
    assert "on file already" in ann.get(again.headers["location"]).text


@pytest.mark.parametrize(
    ("change", "words", "status"),
    [
        ({"subject": "Jane Doe"}, "is no subject reference", 422),
        ({"subject": "jane@example.org"}, "is no subject reference", 422),
        ({"ground": "because"}, "legal ground", 422),
        ({"label": "2"}, "has no samples of class 2", 422),
        ({"client": "9"}, "Client 9 does not exist", 422),
        ({"client": "x"}, "is no client; give a whole number.", 422),
        ({"label": "x"}, "is no class; give a whole number.", 422),
        ({"kind": "samples", "sample_ids": "one two"}, "is no sample id; give a whole number.", 422),
        ({"client": ""}, "Name one target, and whose it is: a class, samples, a feature, or everything", 422),
        ({"label": ""}, "Choose the class that is to be forgotten.", 422),
        ({"kind": "samples", "sample_ids": ""}, "at least one sample id", 422),
        ({"kind": "samples", "sample_ids": " ".join(map(str, range(11)))}, "Not all of these samples are client", 422),
        ({"kind": "feature", "feature": ""}, "give the number of a column, or a patch as top,left,height,width", 422),
        ({"kind": "feature", "feature": "worst radius"}, "is no feature; give the number of a column", 422),
        ({"kind": "feature", "feature": "6"}, "Column 6 does not exist; the table has columns 0 to 5.", 422),
        ({"kind": "feature", "feature": "1,1,2,2"}, "are no images; name a column by its number", 422),
        ({"federation": "nowhere"}, "no such federation", 404),
    ],
)
def test_what_is_wrong_is_said_and_nothing_typed_is_lost(
    visit: Of, world: World, change: dict[str, str], words: str, status: int
):
    answer = visit(Role.REQUESTER).post("/requests", ASK | change)
    assert answer.status_code == status
    assert words in answer.text
    assert f'value="{(ASK | change)["subject"]}"' in answer.text
    assert not world.ledger.requests.page().requests


def test_the_form_says_which_features_there_are(visit: Of, world: World):
    page = visit(Role.REQUESTER).get("/requests/new").text
    assert '<span id="there">There are columns 0 to 5.</span>' in page
    offers = json.loads(re.search(r'id="offers">(.*?)</script>', page)[1])  # type: ignore[index]
    assert offers["digits"]["features"] == "There are columns 0 to 5.", "the script shows these words, and has none"
    again = visit(Role.REQUESTER).post("/requests", ASK | {"kind": "feature", "feature": "6"}).text
    assert 'value="6"' in again
    assert re.search(r'value="feature" checked', again)


def test_a_feature_that_the_method_cannot_forget_is_refused_on_the_page(visit: Of, world: World):
    change_federation(world.ledger, "digits", method="sga", actor="oscar")
    answer = visit(Role.REQUESTER).post("/requests", ASK | {"kind": "feature", "feature": "5"})
    assert answer.status_code == 422
    assert "cannot forget column 5 of client 0" in answer.text
    assert not world.ledger.requests.page().requests


def test_the_same_request_of_somebody_else(visit: Of, world: World):
    """One request; but who may not see it is not shown whose it is."""
    world.ledger.accounts.add("bob", "requester")
    theirs = world.ledger.requests.submit(
        "digits", world.ask().erasure, subject="b-1", ground="other", asked_by="bob"
    ).request
    answer = visit(Role.REQUESTER).post("/requests", ASK | {"subject": "b-1"})
    assert answer.status_code == 409
    assert "on file already" in answer.text
    assert theirs.id not in answer.text
    assert not re.search(r"\bbob\b", answer.text)
    assert visit(Role.OPERATOR).post("/requests", ASK | {"subject": "b-1"}).headers["location"].endswith("?known=1")


def test_only_staff_learn_which_samples_a_client_holds(visit: Of, world: World, monkeypatch: pytest.MonkeyPatch):
    def strange(folder: Path, request: ErasureRequest) -> None:
        raise NotHeldError(1, "1 of the 3 samples are not client 1's: 5. Use numbers such as 17.")

    monkeypatch.setattr("fedforget.ledger.intake.check_held", strange)
    asked = ASK | {"kind": "samples", "sample_ids": "3 4 5"}
    for role, told in ((Role.OFFICER, True), (Role.REQUESTER, False)):
        answer = visit(role).post("/requests", asked)
        assert answer.status_code == 422
        assert "client 1" in answer.text
        assert ("1 of the 3 samples" in answer.text) == ("such as 17" in answer.text) == told
        many = visit(role).post("/requests", asked | {"sample_ids": " ".join(map(str, range(10_000)))})
        assert ("samples, more than client" in many.text) == told, "nor how many they are, by asking again and again"


def test_an_officer_accepts_at_once(visit: Of, world: World):
    visit(Role.OFFICER).post("/requests", ASK | {"accept": "yes"})
    visit(Role.OPERATOR).post("/requests", ASK | {"accept": "yes", "subject": "case-2"})
    states = {row.subject: row.state for row in world.ledger.requests.page().requests}
    assert states == {"case-1": "queued", "case-2": "received"}, "an operator may not accept"


def act(visitor: Visit, id: str, what: str, **fields: str) -> int:
    return visitor.post(f"/requests/{id}/{what}", fields).status_code


def test_accept_refuse_extend(visit: Of, world: World):
    oscar, request = visit(Role.OFFICER), world.ask()
    page = oscar.get(f"/requests/{request.id}").text
    assert 'id="accept"' in page
    assert 'id="refuse-reason"' in page
    assert act(oscar, request.id, "extend", months="1", reason="It is complex.") == 303
    assert act(oscar, request.id, "extend", months="2", reason="Still.") == 409
    assert act(oscar, request.id, "extend", months="x", reason="Still.") == 409
    assert act(oscar, request.id, "accept") == 303
    assert act(oscar, request.id, "accept") == 409
    assert act(oscar, request.id, "refuse", reason="") == 422
    assert act(oscar, request.id, "refuse", reason="Not the subject's data.") == 303
    page = oscar.get(f"/requests/{request.id}").text
    assert "It was refused." in page
    assert "Not the subject&#39;s data." in page
    assert "extended by 1 month" in page
    assert "What you can do" not in page
    kinds = [event.kind for event in world.ledger.trail.events(request=request.id, after=0)]
    assert kinds == ["received", "extended", "accepted", "queued", "refused"]


def test_an_accepted_request_that_was_not_queued_can_still_be(visit: Of, world: World):
    request = world.ask()
    world.ledger.requests.accept(request.id, actor="oscar")
    assert act(visit(Role.OFFICER), request.id, "accept") == 303
    assert world.ledger.requests.get(request.id).state == "queued"


@pytest.mark.parametrize(("publish", "state"), [("yes", "done"), ("no", "failed")])
def test_decide_and_retry(visit: Of, world: World, publish: str, state: str):
    request = world.queued()
    world.serve(says="not forgotten")
    oscar = visit(Role.OFFICER)
    page = oscar.get(f"/requests/{request.id}").text
    assert "It waits for an officer." in page
    assert "Not forgotten" in page
    assert act(oscar, request.id, "decide", reason="So be it.") == 422
    assert act(oscar, request.id, "decide", publish=publish, reason="So be it.") == 303
    assert world.ledger.requests.get(request.id).state == state
    assert act(oscar, request.id, "decide", publish=publish, reason="So be it.") == 409
    if state == "failed":
        assert act(visit(Role.OPERATOR), request.id, "retry") == 303
        assert world.ledger.requests.get(request.id).state == "queued"


def test_have_it_retrained(visit: Of, world: World):
    request = world.queued()
    world.serve(says="not forgotten")
    assert "Have it retrained" not in visit(Role.OPERATOR).get(f"/requests/{request.id}").text
    oscar = visit(Role.OFFICER)
    assert "Have it retrained" in oscar.get(f"/requests/{request.id}").text
    assert act(oscar, request.id, "again", effort="moon") == 422
    assert act(oscar, request.id, "again", effort="retrain") == 303
    assert world.ledger.requests.get(request.id).effort == "retrain"
    assert "Have it retrained" not in oscar.get(f"/requests/{request.id}").text


def test_what_waits_for_an_officer_never_looks_done(visit: Of, world: World):
    """Nor does what an officer published in spite of the verdict; the reason stands beside it."""
    request = world.queued()
    world.serve(says="over-forgotten")
    oscar = visit(Role.OFFICER)
    queue, page = (oscar.get(path).text for path in ("/", f"/requests/{request.id}"))
    state = '<span class="badge decide">deciding</span> <span class="said bad">over-forgotten</span>'
    assert state in queue
    assert state in page
    assert "<title>Forget class 1 (one) of client 0: over-forgotten" in page
    assert 'badge good">done' not in queue + page
    assert act(oscar, request.id, "decide", publish="yes", reason="The client knows <all>.") == 303
    queue, page = (oscar.get(path).text for path in ("/?view=done", f"/requests/{request.id}"))
    state = '<span class="badge decide">done</span> <span class="said bad">over-forgotten</span>'
    assert state in queue
    assert state in page
    assert "<strong>oscar decided to publish it.</strong> The client knows &lt;all&gt;." in page
    assert "The audit says: over-forgotten." in page
    assert "Forgotten by" not in page
    assert "<dt>Published as</dt><dd>version 2</dd>" in page
    kept = world.ledger.versions.certificate_of(request.id)
    assert kept is not None
    verified = oscar.post("/verify", {"certificate": kept.content}).text
    assert "published by decision of oscar: The client knows &lt;all&gt;." in verified


def test_what_an_older_gate_let_through_is_shown_as_it_is(visit: Of, world: World, monkeypatch: pytest.MonkeyPatch):
    """It published all but `not forgotten`: its ledger is whole, and its page claims no more than the audit."""
    request = world.queued()
    with monkeypatch.context() as patch:
        patch.setattr(CheckedResult, "reason_to_hold", lambda *_: None)
        world.serve(says="not enough evidence")
    assert world.ledger.trail.check().intact
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    assert '<span class="badge decide">done</span> <span class="said unclear">not enough evidence</span>' in page
    assert "Forgotten by" not in page
    assert "decided to publish" not in page


@pytest.mark.parametrize("says", ["forgotten", "exact"])
def test_forgotten_by_is_said_where_the_target_is_gone(visit: Of, world: World, says: str):
    request = world.queued()
    world.serve(says=says)
    oscar = visit(Role.OFFICER)
    queue, page = (oscar.get(path).text for path in ("/?view=done", f"/requests/{request.id}"))
    assert f'<span class="badge good">done</span> <span class="said good">{says}</span>' in queue
    assert f"<title>Forget class 1 (one) of client 0: {says}" in page
    assert "<dt>Forgotten by</dt><dd>version 2</dd>" in page
    assert "decided to publish" not in page


def test_a_done_request_has_its_papers(visit: Of, world: World):
    request = world.served()
    ann = visit(Role.REQUESTER)
    page = ann.get(f"/requests/{request.id}").text
    assert '<strong id="verdict">Forgotten</strong>' in page
    certificate = ann.get(f"/requests/{request.id}/certificate.json")
    assert certificate.headers["content-disposition"] == f'attachment; filename="certificate-{request.id[:12]}.json"'
    kept = world.ledger.versions.certificate_of(request.id)
    assert kept is not None
    assert certificate.text == kept.content
    assert ann.get(f"/requests/{request.id}/evidence.json").text == world.ledger.requests.evidence_of(request.id)
    assert ann.get(f"/requests/{request.id}/report").status_code == 404, "this worker wrote none"
    assert ann.get(f"/requests/{world.ask().id}/certificate.json").status_code == 404


def test_an_officer_withdraws_a_certificate(visit: Of, program: Program, world: World):
    request = world.served()
    kept = world.ledger.versions.certificate_of(request.id)
    assert kept is not None
    oscar, ann = visit(Role.OFFICER), visit(Role.REQUESTER)
    assert "It has not been withdrawn." in ann.post("/verify", {"certificate": kept.content}).text
    assert "Withdraw the certificate" in oscar.get(f"/requests/{request.id}").text
    assert "Withdraw the certificate" not in ann.get(f"/requests/{request.id}").text
    answer = oscar.post(f"/requests/{request.id}/withdraw", {"reason": "It still knows them."})
    assert answer.status_code == 303
    assert "It still knows them." in oscar.get(f"/requests/{request.id}").text
    assert "<strong>But it was withdrawn</strong>" in ann.post("/verify", {"certificate": kept.content}).text
    listed = read_statement(ann.get("/withdrawals.json").content, "it")[0]
    assert [row["certificate"] for row in listed.predicate["withdrawn"]] == [kept.sha256]
    again = program(Role.OFFICER).post(f"/api/v1/requests/{request.id}/withdraw", json={"reason": "Again."})
    assert again.status_code == 409


def test_a_withdrawn_certificate_says_so(visit: Of, world: World):
    request = world.served()
    otto = visit(Role.OPERATOR)
    page = otto.get("/federations/digits/rollback?to=1").text
    assert "1 request was served since then" in page
    assert otto.post("/federations/digits/rollback", {"to": "1", "reason": "Wrong."}).status_code == 422, (
        "not confirmed"
    )
    answer = otto.post("/federations/digits/rollback", {"to": "1", "reason": "Wrong.", "confirm": "yes"})
    assert answer.status_code == 303
    assert "rolled back to version 1" in otto.get("/federations/digits").text
    page = otto.get(f"/requests/{request.id}").text
    assert "The certificate was withdrawn" in page
    assert "It failed." in page
    assert otto.get("/federations/digits/rollback?to=7").status_code == 404
    assert otto.post("/federations/nowhere/rollback", {"to": "1", "reason": "x", "confirm": "yes"}).status_code == 404
    answer = otto.post("/federations/digits/rollback", {"to": "3", "reason": "x", "confirm": "yes"})
    assert answer.status_code == 409, "it is the current one"


def test_what_is_due_stands_out(visit: Of, world: World, clock: Ticking, app: FastAPI):
    late = world.ask(subject="late")
    clock.go_on(days=25)
    world.ask(subject="fresh")
    clock.go_on(days=1)
    page = visit(Role.OFFICER).get("/").text
    assert page.index("late</td>") < page.index("fresh</td>"), "what is due first stands first"
    assert '<tr class="soon">' in page
    clock.go_on(days=3)
    app.state.console.glance.forget()  # a second has not passed for it
    page = visit(Role.OFFICER).get("/").text
    assert '<span class="due overdue">1 day overdue</span>' in page
    assert re.search(r'<li class="overdue"><span class="figure">1</span> overdue', page)
    assert act(visit(Role.OFFICER), late.id, "extend", months="1", reason="x") == 409, "it can be extended only before"
    assert deadline("queued", late.due, late.due)[0] == "soon"


def test_a_queue_that_nobody_serves_is_noticed(visit: Of, world: World, clock: Ticking, app: FastAPI):
    world.queued()
    clock.go_on(minutes=10)
    assert "waiting for 10 minutes" in visit(Role.OPERATOR).get("/").text
    assert "waiting for" not in visit(Role.REQUESTER).get("/").text
    world.claim()
    app.state.console.glance.forget()
    assert "waiting for" not in visit(Role.OPERATOR).get("/").text


@on_both
def test_the_queue_in_pages_and_views(visit: Of, world: World):
    for number in range(32):
        world.ask(subject=f"case-{number:02}")
    world.served(subject="finished")
    ann = visit(Role.REQUESTER)
    page = ann.get("/").text
    assert page.count("<tr class=") == 30
    following = re.search(r'rel="next" href="([^"]+)"', page)
    assert following
    assert ann.get(following[1].replace("&amp;", "&")).text.count("<tr class=") == 2
    assert "finished" in ann.get("/?view=done").text
    assert "finished" not in page
    assert ann.get("/?text=case-07").text.count("<tr class=") == 1
    assert "No request here" in ann.get("/?federation=other").text
    assert ann.get("/?after=nonsense").status_code == 422
    assert ann.get("/?view=nonsense").status_code == 200


@on_both
def test_progress_is_told_as_it_comes(visit: Of, world: World):
    request = world.queued()

    def told() -> tuple[object, ...]:
        said = visit(Role.REQUESTER).get(f"/requests/{request.id}/progress").json()
        return tuple(said[name] for name in ("state", "stage", "fraction", "settled"))

    assert told() == ("queued", None, None, False)
    claim = world.claim()
    assert told() == ("forgetting", None, None, False)
    world.ledger.work.set_progress(claim, "measuring", 0.25)
    assert told() == ("forgetting", "measuring", 0.25, False)
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim))
    assert told() == ("done", None, None, True)


def test_the_month_runs_from_the_day_of_receipt(visit: Of, world: World):
    oscar = visit(Role.OFFICER)
    page = oscar.get("/requests/new").text
    assert 'max="2026-01-31"' in page
    assert oscar.post("/requests", ASK | {"received": "2026-01-10", "channel": "e-mail"}).status_code == 303
    (request,) = world.ledger.requests.page().requests
    assert (request.due.isoformat()[:10], request.channel) == ("2026-02-10", "e-mail")
    for day, words in (("2026-03-10", "lies in the future"), ("2006-01-10", "look at the year"), ("x", "is no day")):
        answer = oscar.post("/requests", ASK | {"subject": "case-2", "received": day})
        assert answer.status_code == 422
        assert words in answer.text


def test_said_of_one_request_on_the_form_and_later(visit: Of, world: World):
    oscar = visit(Role.OFFICER)
    wrong = oscar.post("/requests", ASK | {"effort": "at most rebuild", "method": "retrain"})
    assert wrong.status_code == 422
    assert "A highest rung is about the ladder" in wrong.text
    assert not world.ledger.requests.page().requests, "nothing was written"
    oscar.post("/requests", ASK | {"effort": "at most overwrite", "accuracy_limit": "3,5", "accept": "yes"})
    (request,) = world.ledger.requests.page().requests
    assert (request.at_most, request.accuracy_limit, request.state) == ("overwrite", 3.5, "queued")
    assert "Highest rung" in oscar.get(f"/requests/{request.id}").text
    assert act(oscar, request.id, "choose", effort="rebuild", keep_days="2") == 303
    request = world.ledger.requests.get(request.id)
    assert (request.effort, request.at_most, request.accuracy_limit, request.keep_days) == ("rebuild", None, None, 2)
    assert act(oscar, request.id, "choose", keep_days="many") == 422
    visit(Role.REQUESTER).post("/requests", ASK | {"subject": "case-9", "effort": "retrain"})
    assert world.ledger.requests.page(subject="case-9").requests[0].effort is None, "that is an officer's to say"


def test_identity_on_the_page(visit: Of, world: World):
    request = world.ask()
    page = visit(Role.OPERATOR).get(f"/requests/{request.id}").text
    assert "nobody noted a check" in page
    assert act(visit(Role.OPERATOR), request.id, "identity", how="Known from the <contract>.") == 303
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    assert "checked by otto" in page
    assert "Known from the &lt;contract&gt;." in page


def test_what_can_be_done_next_stands_on_the_page(visit: Of, world: World):
    request = world.queued()
    world.serve(says="not forgotten")
    page = visit(Role.OFFICER).get(f"/requests/{request.id}").text
    assert "What can be done next" in page
    for words in ("Try the rung overwrite", "Have it retrained", "Publish it all the same", "Refuse the request"):
        assert f"<h3>{words}</h3>" in page
    assert page.count("what it costs here is not known") == 2, "there is no history"
    assert "What can be done next" not in visit(Role.OPERATOR).get(f"/requests/{request.id}").text
    assert act(visit(Role.OFFICER), request.id, "refuse", reason="Kept by law.") == 303
    assert world.ledger.requests.get(request.id).state == "refused"
    early = world.ask()
    world.ledger.requests.refuse(early.id, "Kept by law.", actor="oscar")
    page = visit(Role.OFFICER).get(f"/requests/{early.id}").text
    steps = re.findall(r'<li class="(?:now|past|ahead)"[^>]*>(\w+)</li>', page)
    assert steps == ["received", "refused"], "no step that never came"
    assert "It may be asked again" in page


def test_accept_what_is_ticked(visit: Of, world: World):
    oscar, ids = visit(Role.OFFICER), [world.ask().id for _ in range(3)]
    page = oscar.get("/?view=new").text
    assert all(f'name="id-{id}"' in page for id in ids)
    world.ledger.requests.refuse(ids[2], "no", actor="oscar")
    page = oscar.post("/requests/accept", {f"id-{id}": "yes" for id in ids[1:]}).text
    assert "1 of 2 requests were accepted" in page
    assert "The request is refused" in page
    assert [world.ledger.requests.get(id).state for id in ids] == ["received", "queued", "refused"]
    assert "Tick the requests" in oscar.post("/requests/accept").text
    assert 'name="id-' not in visit(Role.AUDITOR).get("/?view=new").text


def test_find_by_part_of_a_word(visit: Of, world: World):
    one, two = world.ask(subject="Dsr-100"), world.ask(subject="dsr_7")
    world.ledger.requests.refuse(two.id, "no", actor="oscar")
    oscar = visit(Role.OFFICER)

    def found(query: str) -> set[str]:
        page = oscar.get(f"/?view=all&{query}").text
        return {id for id in (one.id, two.id) if f"/requests/{id}" in page}

    assert found("text=sr-1") == {one.id}
    assert found("text=DSR") == found("text=client+0") == found("since=2026-01-31&until=2026-01-31") == {one.id, two.id}
    assert found("text=r_7") == {two.id}
    assert found("text=%25") == found("verdict=exact") == found("until=2026-01-30") == set()
    page = oscar.get("/?text=x&since=yesterday").text
    assert "is no day" in page
    assert "<details open><summary>More to find by" in page


def test_a_federation_is_changed_on_its_page(visit: Of, world: World):
    oscar = visit(Role.OFFICER)
    page = oscar.get("/federations/digits").text
    assert "Serve requests in another way" in page
    assert "Serve requests in another way" not in visit(Role.OPERATOR).get("/federations/digits").text
    said = {"method": "ladder", "at_most": "rebuild", "exact_below": "0", "audit_level": "quick", "accuracy_limit": "4",
            "keep_days": "9", "allowance": "3", "four_eyes": "yes", "reason": "We want to climb."}  # fmt: skip
    wrong = oscar.post("/federations/digits/change", said | {"keep_days": "x"})
    assert wrong.status_code == 422
    assert "must be a whole number" in wrong.text
    assert "We want to climb." in wrong.text, "nothing typed is lost"
    assert oscar.post("/federations/digits/change", said | {"reason": ""}).status_code == 422
    assert oscar.post("/federations/digits/change", said).status_code == 303
    row = world.ledger.federations.get("digits")
    assert row.settings == {"exact_below": 0.0, "at_most": "rebuild"}
    assert (row.accuracy_limit, row.keep_days, row.four_eyes, row.together) == (4.0, 9, True, 1)
    assert oscar.post("/federations/digits/change", said).status_code == 409
    assert oscar.post("/federations/digits/change", said | {"method": "retrain"}).status_code == 303
    assert world.ledger.federations.get("digits").settings == {}


def test_a_class_is_called_by_its_name(visit: Of, world: World):
    request = world.ask()
    for path in ("/", f"/requests/{request.id}"):
        assert "class 1 (one) of client 0" in visit(Role.OFFICER).get(path).text
