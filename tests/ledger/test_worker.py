"""The worker on real federations: from a queued request to a version, its evidence and its certificate."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from ledger_worlds import Ticking, change_federation, weights
from typer.testing import CliRunner
from worker_worlds import CONFIG, Attended, Meddling, Office, failing, samples_of

from fedforget.audit.case import Case
from fedforget.audit.evidence import read_evidence
from fedforget.audit.feature_sensitivity import measure_sensitivity
from fedforget.cli.app import app
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.ledger import intake
from fedforget.ledger.book import Ledger
from fedforget.ledger.certificate import read_certificate, read_keys, verify_certificate
from fedforget.ledger.clock import utc_now
from fedforget.ledger.executors import LocalExecutor
from fedforget.ledger.keeper import STAGES, Keeper
from fedforget.ledger.worker import Worker
from fedforget.methods import forget
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.job import Job, Outcome, rungs_tried
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)


@pytest.fixture(scope="session")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which class 3 of client 0 carries a trigger and a wrong label, so that a memory of it shows."""
    folder = tmp_path_factory.mktemp("worker") / "poisoned"
    schedule = replace(CONFIG.schedule, rounds=15)
    train_run(folder, replace(CONFIG, schedule=schedule, backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7)))
    return folder


@pytest.fixture
def office(ledger: Ledger, run: Path) -> Office:
    """A ledger whose federation `digits` serves a request in half a second."""
    office = Office(ledger, run)
    office.register()
    return office


def by_hand(office: Office, version: int, request: ErasureRequest, *served: ErasureRequest) -> str:
    """The digest of what the method makes of a version."""
    before = weights(office.ledger, office.ledger.versions.get("digits", version).sha256)
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    return digest(forget(federation, before, request, CONFIG.schedule, "fedaf-c", served=served).state)


@contextmanager
def at_work(worker: Worker) -> Iterator[threading.Thread]:
    """The worker in a thread, as the console runs it."""
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(timeout=60)


def wait_until_done(office: Office, ids: list[str]) -> None:
    deadline = time.monotonic() + 60
    while {*office.states(ids)} != {"done"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def evidence_of(office: Office, id: str, tmp_path: Path) -> dict:
    text = office.ledger.requests.evidence_of(id)
    assert text is not None
    path = tmp_path / f"{id}.json"
    path.write_text(text)
    return read_evidence(path)


def test_from_the_queue_to_evidence_and_certificate(office: Office, tmp_path: Path):
    ledger, id = office.ledger, office.queue(CLASS)
    assert office.work() == 1
    request, version = ledger.requests.get(id), ledger.versions.current("digits")
    assert (request.state, request.version, request.worker) == ("done", 2, "first")
    assert version.verdict == "not enough evidence"
    assert (version.number, version.parent, version.method, version.preset) == (2, 1, "fedaf-c", "default")
    assert digest(weights(ledger, version.sha256)) == by_hand(office, 1, CLASS)
    assert version.accuracy_before is not None
    assert version.accuracy_after is not None
    assert version.cost["gradient_evaluations"] > 0

    evidence = evidence_of(office, id, tmp_path)
    assert evidence["models"]["subject"]["sha256"] == version.sha256
    assert evidence["models"]["before"]["sha256"] == ledger.versions.get("digits", 1).sha256
    assert evidence["request"]["requests"] == [CLASS.to_json()]
    assert evidence["verdict"]["word"] == version.verdict
    assert evidence["level"] == "alone"
    report = ledger.requests.report_of(id)
    assert report is not None
    assert "class 3 of client 0" in report

    certificate = ledger.versions.certificate_of(id)
    assert certificate is not None
    record = verify_certificate(certificate.content.encode(), read_keys([ledger.keys.folder]))
    assert record["after"] == {"version": 2, "sha256": version.sha256}
    assert record["measured"]["verdict"]["further_rounds"] == 1
    way = ["received", "accepted", "queued", "forgetting", "auditing", "deciding", "done", "certified"]
    assert office.kinds(id) == way, "no such small model is forgotten for certain"
    assert [event.actor for event in ledger.trail.events(request=id, kinds=["auditing"])] == ["worker/first"]
    assert ledger.work.progress([id])[id].fraction >= 0.2  # forgetting is behind it, however quick the audit was
    assert ledger.trail.check().problems == ()
    assert sorted(path.name for path in office.workplace().iterdir()) == [".worker"]
    assert office.work() == 0


def rungs_of(office: Office, id: str) -> list[dict]:
    """What the trail tells of a request's climb, oldest first."""
    return [json.loads(event.body) for event in office.ledger.trail.events(request=id, kinds=["rung"], after=0)]


def test_a_federation_climbs_and_what_is_not_shown_is_retrained_when_a_person_says_so(office: Office):
    """Two requests that wait together climb together, and one Retrain serves both: exact, so nobody must decide."""
    ledger = office.ledger
    office.register("climbs", method="ladder", settings={"exact_below": 0}, together=2)
    ids = [office.queue(samples_of(client, 0), "climbs") for client in (0, 1)]
    assert office.work(publish=False) == 2
    assert office.states(ids) == ["deciding"] * 2
    one, other = (rungs_of(office, id) for id in ids)
    assert one == other
    assert (one[-1]["word"], one[-1]["version"]) == ("not enough evidence", 1), "three samples tell nothing"
    reason = ledger.requests.get(ids[0]).reason or ""
    assert reason.startswith(f"The ladder ended at {one[-1]['name']}: not enough evidence. {one[-1]['reason']}")
    (held,) = ledger.trail.events(request=ids[0], kinds=["deciding"])
    assert json.loads(held.body)["retrain"]["seconds"] > 0

    ledger.decisions.again(ids[0], actor="oscar")
    assert office.work(publish=False) == 2
    assert [(ledger.requests.get(id).state, ledger.requests.get(id).version) for id in ids] == [("done", 2)] * 2
    assert (ledger.versions.current("climbs").verdict, ledger.versions.current("climbs").method) == ("exact", "ladder")
    assert [(rung["name"], rung["word"]) for rung in rungs_of(office, ids[1])][-1] == ("retrain", "exact")
    assert ledger.trail.check().problems == ()


def test_below_its_limit_a_federation_is_simply_retrained(office: Office):
    office.register("exact", method="ladder")
    id = office.queue(CLASS, "exact")
    assert office.work(publish=False) == 1
    (rung,) = rungs_of(office, id)
    assert (rung["name"], rung["word"], rung["reason"]) == (
        "retrain", "exact", "It was trained afresh without the target.",
    )  # fmt: skip
    certificate = office.ledger.versions.certificate_of(id)
    assert certificate is not None
    record = read_certificate(certificate.content)
    assert record["method"]["settings"]["exact_below"] == 60.0
    assert [{"version": 1, **tried} for tried in record["method"]["rungs"]] == [rung]
    assert (record["measured"]["verdict"]["word"], record["evidence"]["level"]) == ("exact", "alone")


def test_beyond_its_allowance_a_climb_ends_below_retrain(office: Office):
    ledger = office.ledger
    office.register("bounded", method="ladder", settings={"exact_below": 0}, allowance=1)
    ids = [office.queue(samples_of(0, first), "bounded") for first in (0, 3)]
    first = ledger.work.claim("first")
    assert first is not None
    ledger.work.tell_rungs(first, [{"name": name, "word": "x"} for name in ("rebuild", "retrain")])
    ledger.work.fail(first, "It is a test.", retry=False)
    assert office.work(publish=False) == 1
    assert office.states(ids) == ["failed", "deciding"]
    ledger.versions.decide(ids[1], True, "It is a test.", actor="oscar")
    assert ledger.versions.current("bounded").settings["at_most"] == "rebuild"


class StopsAfterARung(LocalExecutor):
    """Is told to stop as soon as one rung of a climb is behind it."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop, self.seen = stop, list[dict]()

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        check = keeper.check

        def stop_after_a_rung() -> None:
            self.seen = self.seen or rungs_tried(folder)
            if self.seen:
                self._stop.set()
            check()

        keeper.check = stop_after_a_rung  # type: ignore[method-assign]
        return super().execute(place, folder, job, keeper)


@pytest.mark.real
def test_a_climb_that_is_interrupted_goes_on_at_its_rung(ledger: Ledger, tmp_path: Path):
    schedule, backdoor = replace(CONFIG.schedule, rounds=15), Backdoor(CLASS, Trigger(2, margin=0), 7)
    train_run(tmp_path / "run", replace(CONFIG, model="vit", schedule=schedule, backdoor=backdoor))
    office, stop = Office(ledger, tmp_path / "run"), threading.Event()
    # No accuracy may go, so rebuilding is not enough.
    office.register(method="ladder", settings={"exact_below": 0, "lowest": "rebuild", "limit": 0.0})
    id, executor = office.queue(CLASS), StopsAfterARung(stop)
    assert Worker(ledger, "first", executor).run(stop) == 0
    assert office.states([id]) == ["queued"]
    assert [rung["name"] for rung in executor.seen] == ["rebuild"]
    assert office.work("second", publish=False) == 1
    rebuilt, retrained = rungs_of(office, id)
    assert rebuilt["cost"] == executor.seen[0]["cost"], "it was not done again"
    assert (retrained["name"], retrained["word"]) == ("retrain", "exact")
    office.served_once([id])


@pytest.mark.real
def test_requests_follow_each_other_and_know_what_went_before(office: Office, tmp_path: Path):
    first, second, third = CLASS, samples_of(1, 0), ErasureRequest.of_client(2)
    ids = [office.queue(target) for target in (first, second, third)]
    assert office.work() == 3
    office.served_once(ids)
    ledger = office.ledger
    assert [ledger.requests.get(id).version for id in ids] == [2, 3, 4], "in the order they came"
    assert evidence_of(office, ids[2], tmp_path)["request"]["served"] == [first.to_json(), second.to_json()]
    made = digest(weights(ledger, ledger.versions.current("digits").sha256))
    assert made == by_hand(office, 3, third, first, second)


@pytest.mark.real
def test_what_the_run_forgot_before_it_was_registered_is_known(ledger: Ledger, run: Path, tmp_path: Path):
    own = tmp_path / "own"
    copytree(run, own)
    forget_run(own, [CLASS], "fedaf-c", adopt=True)
    office = Office(ledger, own)
    office.register()
    id = office.queue(samples_of(1, 0))
    office.work()
    assert evidence_of(office, id, tmp_path)["request"]["served"] == [CLASS.to_json()]


@pytest.mark.real
@pytest.mark.parametrize("level", ["alone", "quick"])
def test_retrain_is_exact_and_publishes_itself(office: Office, level: str, tmp_path: Path):
    """Its model never saw the target: no officer is needed, whatever the audit of such a small model would say."""
    office.register("afresh", method="retrain", audit_level=level)
    ids = [office.queue(CLASS, "afresh"), office.queue(samples_of(1, 0), "afresh")]
    ids.append(office.queue(CLASS, "afresh", subject="ben-3"))
    assert office.work(publish=False) == 3
    office.served_once(ids, "afresh")
    versions = office.ledger.versions.of("afresh")
    assert [version.method for version in versions] == [None, "retrain", "retrain", "none"]
    assert [version.verdict for version in versions] == [None, "exact", "exact", "exact"]
    assert evidence_of(office, ids[1], tmp_path)["models"]["subject"]["exact"] is True
    certificate = office.ledger.versions.certificate_of(ids[2])
    assert certificate is not None
    measured = read_certificate(certificate.content)["measured"]["verdict"]
    assert measured["word"] == "exact"
    assert "began with fresh weights and was trained without the target" in measured["reasons"][0]
    report = office.ledger.requests.report_of(ids[0]) or ""
    assert '<section id="summary" class="lead forgot"' in report
    assert '<strong class="word">Exact</strong> (by construction): It began with fresh weights' in report
    assert "No method has been asked" not in report


@pytest.mark.real
@pytest.mark.parametrize("level", ["alone", "quick"])
def test_the_same_target_for_two_subjects(office: Office, level: str, tmp_path: Path):
    """The second one meets a model that has forgotten it: it is examined again, and has its own certificate."""
    change_federation(office.ledger, "digits", audit_level=level, actor="oscar")
    ids = [office.queue(CLASS, subject="ann-17"), office.queue(CLASS, subject="ben-3")]
    assert office.work() == 2
    office.served_once(ids)
    two, three = office.ledger.versions.of("digits")[1:]
    assert three.sha256 == two.sha256
    assert (three.method, three.preset) == ("none", "forgotten before")
    evidence = evidence_of(office, ids[1], tmp_path)
    assert evidence["request"]["requests"] == [CLASS.to_json()]
    assert evidence["request"]["served"] == []
    assert evidence["request"]["samples"] > 0, "the target was looked at"
    assert "none (forgotten before)" in (office.ledger.requests.report_of(ids[1]) or "")


@pytest.mark.real
def test_a_part_of_what_was_forgotten_before(office: Office, tmp_path: Path):
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    threes = federation.client(0).samples
    some = ErasureRequest.of_samples(0, threes.ids[threes.true_labels == 3][:2].tolist())
    ids = [office.queue(target) for target in (CLASS, samples_of(1, 0), some)]
    assert office.work() == 3
    office.served_once(ids)
    request = evidence_of(office, ids[2], tmp_path)["request"]
    assert request["requests"] == [CLASS.to_json()], "it is examined with the request that took it along"
    assert request["served"] == [samples_of(1, 0).to_json()]


@pytest.mark.real
@pytest.mark.parametrize("again", [CLASS, ErasureRequest.of_feature(0, [2, 2, 4, 4])])
def test_what_was_forgotten_before_and_then_again_with_more(office: Office, again: ErasureRequest, tmp_path: Path):
    """It is examined with all that took it: an oracle without the whole client has nothing left to leave out."""
    everything = ErasureRequest.of_client(0)
    office.register("twice", method="frr", audit_level="quick")
    ids = [office.queue(target, "twice") for target in (again, everything, again)]
    assert office.work() == 3
    assert office.states(ids) == ["done"] * 3
    assert office.ledger.versions.current("twice").method == "none"
    request = evidence_of(office, ids[2], tmp_path)["request"]
    taken_by = [again, everything] if again == CLASS else [everything]
    assert request["requests"] == [target.to_json() for target in taken_by]


@pytest.mark.real
def test_together(office: Office, tmp_path: Path):
    """One new version for all, also where one of them is forgotten already and two want the same."""
    office.register("many", together=4)
    first = office.queue(CLASS, "many")
    assert office.work() == 1
    ids = [
        office.queue(target, "many")
        for target in (CLASS, samples_of(1, 0), samples_of(1, 0), ErasureRequest.of_client(2))
    ]
    assert office.work() == 4
    ledger = office.ledger
    assert [ledger.requests.get(id).version for id in (first, *ids)] == [2, 3, 3, 3, 3]
    assert len({ledger.requests.get(id).evidence for id in ids}) == 1
    assert len({ledger.versions.certificate_of(id).sha256 for id in ids}) == 4  # type: ignore[union-attr]
    request = evidence_of(office, ids[0], tmp_path)["request"]
    assert request["served"] == []
    assert len(request["requests"]) == 3
    before = weights(ledger, ledger.versions.get("many", 2).sha256)
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    fresh = (samples_of(1, 0), ErasureRequest.of_client(2))
    made = forget(federation, before, fresh, CONFIG.schedule, "fedaf-c", served=[CLASS])
    assert digest(weights(ledger, ledger.versions.get("many", 3).sha256)) == digest(made.state)
    assert ledger.trail.check().problems == ()


PATCH = ErasureRequest.of_feature(0, [2, 2, 4, 4])


@pytest.mark.real
def test_a_feature_from_the_queue_to_evidence_and_certificate(office: Office, tmp_path: Path):
    """The evidence, the report and the certificate say how sensitive the model is to it; the samples stay."""
    ledger = office.ledger
    office.register("patches", method="overwrite", audit_level="quick")
    id = office.queue(PATCH, "patches")
    assert office.work() == 1
    version = ledger.versions.current("patches")
    before = weights(ledger, ledger.versions.get("patches", 1).sha256)
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    expected = forget(federation, before, PATCH, CONFIG.schedule, "overwrite")
    result = ledger.requests.get(id)
    assert result.evidence is not None
    record = evidence_of(office, id, tmp_path)
    readings = {reading["name"]: reading for reading in record["readings"]}
    names = ["sensitivity to the feature", "sensitivity on unseen data", "sensitivity comes back"]
    assert [*readings] == [*names, "unseen data without the feature"]
    assert all(len(readings[name]["oracles"]) == 3 for name in names)
    heard = measure_sensitivity(Case(federation, (PATCH,), CONFIG.schedule), expected.state)
    assert heard.target is not None
    assert readings[names[0]]["subject"]["value"] == pytest.approx(heard.target.value)
    report = ledger.requests.report_of(id) or ""
    assert "sensitivity to the 4x4 patch at 2,2 of client 0" in report
    assert "Sensitivity to the withdrawn feature: asking clients: before" in report
    assert "membership attack" not in report
    if result.state == "deciding":  # a model this small may be too sensitive still; an officer decides then
        ledger.versions.decide(id, True, "It is a test.", actor="oscar")
        version = ledger.versions.current("patches")
    assert digest(weights(ledger, version.sha256)) == digest(expected.state)
    certificate = ledger.versions.certificate_of(id)
    assert certificate is not None
    told = verify_certificate(certificate.content.encode(), read_keys([ledger.keys.folder]))
    assert told["request"]["describes"] == "the 4x4 patch at 2,2 of client 0"
    assert told["request"]["target"] == PATCH.to_json()
    heard_by_certificate = told["measured"]["verdict"]["sensitivity"]
    assert {*heard_by_certificate} == {*names}
    assert heard_by_certificate[names[0]]["value"] == readings[names[0]]["subject"]["value"]
    assert heard_by_certificate[names[0]]["before"] == readings[names[0]]["before"]["value"]
    paper = tmp_path / "certificate.json"
    paper.write_text(certificate.content)
    said = CliRunner().invoke(app, ["verify", str(paper), "--key", str(ledger.keys.folder)], catch_exceptions=False)
    assert f"The sensitivity to the feature: before {readings[names[0]]['before']['value']:.4f}, now" in said.stdout


@pytest.mark.real
def test_after_a_feature_the_samples_are_there_to_be_forgotten(office: Office, tmp_path: Path):
    """A feature names all samples and takes none: a class comes after it as ever, and after everything no feature."""
    ledger = office.ledger
    office.register("patches", method="frr")
    targets = (PATCH, PATCH, CLASS, ErasureRequest.of_client(0), ErasureRequest.of_feature(0, [0, 0, 2, 2]))
    ids = [office.queue(target, "patches") for target in targets]
    assert office.work() == 5
    models = [version.sha256 for version in ledger.versions.of("patches")]
    methods = [version.method for version in ledger.versions.of("patches")]
    assert methods == [None, "frr", "none", "frr", "frr", "none"]
    assert models[2] == models[1]
    assert models[5] == models[4]
    assert evidence_of(office, ids[2], tmp_path)["request"]["served"] == [PATCH.to_json()]
    assert evidence_of(office, ids[1], tmp_path)["request"]["requests"] == [PATCH.to_json()]
    last = evidence_of(office, ids[4], tmp_path)["request"]["requests"]
    assert last == [CLASS.to_json(), ErasureRequest.of_client(0).to_json()], "what took its samples away"


@pytest.mark.real
def test_a_feature_whose_samples_went_before_does_not_cost_another_its_evidence(office: Office, tmp_path: Path):
    """No measure judges features and samples together; nothing is left at client 0 that a measure of features sees."""
    ledger, everything = office.ledger, ErasureRequest.of_client(0)
    office.register("patches", method="frr", audit_level="quick", together=2)
    office.queue(everything, "patches")
    assert office.work() == 1
    other = ErasureRequest.of_feature(1, [2, 2, 4, 4])
    for targets in ((PATCH, other), (other, PATCH)):  # the second time, both were forgotten before
        ids = [office.queue(target, "patches") for target in targets]
        assert office.work() == 2
        record = evidence_of(office, ids[0], tmp_path)
        assert record["request"]["requests"] == [other.to_json()]
        served = record["request"]["served"]
        assert everything.to_json() in served
        assert other.to_json() not in served
        assert all(reading["subject"] is not None for reading in record["readings"])
        assert "Missing" not in " ".join(record["verdict"]["reasons"])
        note = (
            "All samples of the 4x4 patch at 2,2 of client 0 had been withdrawn before, so nothing of it is left to "
            "measure; the evidence is about the rest."
        )
        assert note in record["notes"]
        assert note in (ledger.requests.report_of(ids[0]) or "")
        for id in ids:
            certificate = ledger.versions.certificate_of(id)
            assert certificate is not None
            signed = verify_certificate(certificate.content.encode(), read_keys([ledger.keys.folder]))
            assert note in signed["measured"]["verdict"]["notes"], "whose own feature had no samples left"
        assert ledger.requests.get(ids[0]).evidence == ledger.requests.get(ids[1]).evidence
    methods = [version.method for version in ledger.versions.of("patches")]
    assert methods == [None, "frr", "frr", "none"]


@pytest.mark.real
def test_a_patch_within_what_was_withdrawn_is_examined_with_it(office: Office, tmp_path: Path):
    """It has one value in every sample already: there is nothing to forget, and by itself nothing to measure."""
    office.register("patches", method="frr", audit_level="quick")
    left, right = (ErasureRequest.of_feature(0, patch) for patch in ([2, 2, 4, 2], [2, 4, 4, 2]))
    elsewhere, within = (ErasureRequest.of_feature(0, patch) for patch in ([0, 0, 1, 1], [3, 3, 2, 2]))
    ids = [office.queue(target, "patches") for target in (left, right, elsewhere, within, left)]
    assert office.work() == 5
    assert [version.method for version in office.ledger.versions.of("patches")][1:] == ["frr"] * 3 + ["none"] * 2
    record = evidence_of(office, ids[3], tmp_path)
    assert record["request"]["requests"] == [left.to_json(), right.to_json()]
    assert record["request"]["served"] == [elsewhere.to_json()]
    assert all(reading["subject"] is not None for reading in record["readings"])
    again = evidence_of(office, ids[4], tmp_path)["request"]["requests"]
    assert again == [left.to_json(), within.to_json()]


@pytest.mark.real
def test_the_gate_holds_what_is_not_forgotten(ledger: Ledger, poisoned: Path):
    """A method that does nothing. An officer rejects it, and publishes it when it is tried again."""
    office = Office(ledger, poisoned)
    office.register(method="sga", settings={"lr": 1e-12}, audit_level="quick")
    id = office.queue(CLASS)
    assert office.work(publish=False) == 1
    request = ledger.requests.get(id)
    assert (request.state, request.version, request.reason) == ("deciding", None, "The audit says: not forgotten.")
    assert [version.number for version in ledger.versions.of("digits")] == [1]
    assert ledger.requests.report_of(id) is not None
    assert ledger.versions.certificate_of(id) is None
    assert office.work() == 0, "nobody serves what waits for an officer"

    assert ledger.versions.decide(id, False, "This forgot nothing.", actor="oscar").version is None
    assert ledger.requests.get(id).state == "failed"
    ledger.requests.retry(id, actor="oscar")
    assert office.work(publish=False) == 1
    assert ledger.requests.get(id).state == "deciding"
    finished = ledger.versions.decide(id, True, "The client agrees.", actor="oscar")
    assert finished.version is not None
    assert finished.version.number == 2
    office.served_once([id])

    ledger.versions.roll_back("digits", 1, "It forgot nothing.", actor="oscar")
    change_federation(ledger, "digits", method="retrain", actor="oscar")
    ledger.requests.retry(id, actor="oscar")
    assert office.work(publish=False) == 1
    assert (ledger.requests.get(id).state, ledger.requests.get(id).version) == ("done", 4)
    assert ledger.versions.current("digits").verdict == "exact"
    assert ledger.trail.check().problems == ()


def test_the_gate_holds_a_model_that_was_damaged(office: Office):
    office.register("strict", method="sga", preset="plain", settings={"lr": 0.5}, audit_level="quick")
    id = office.queue(CLASS, "strict")
    office.work(publish=False)
    request = office.ledger.requests.get(id)
    assert (request.state, request.reason) == ("deciding", "The audit says: over-forgotten.")
    version = office.ledger.versions.decide(id, True, "It is a test.", actor="oscar").version
    assert version is not None
    assert version.accuracy_before - version.accuracy_after > 5


@pytest.mark.real
def test_what_goes_wrong_is_tried_again_later_each_time(office: Office, clock: Ticking):
    ledger, id = office.ledger, office.queue(CLASS)
    away = failing(FedForgetError("Client 2 went away: its node no longer gives Flower a sign of life."))
    for failures, wait in ((1, 30), (2, 60)):
        assert office.work(executor=away) == 0
        request = ledger.requests.get(id)
        assert (request.state, request.failures, request.attempts) == ("queued", failures, failures)
        assert (request.reason or "").startswith("Client 2 went away")
        assert 0 < (request.not_before - clock()).total_seconds() <= wait
        assert office.work(executor=away) == 0
        assert ledger.requests.get(id).attempts == failures, "not before its time"
        clock.go_on(seconds=wait + 1)
    office.work(executor=away)
    request = ledger.requests.get(id)
    assert (request.state, request.failures) == ("failed", 3)
    clock.go_on(days=1)
    assert office.work() == 0, "a person must look first"
    ledger.requests.retry(id, actor="oscar")
    assert office.work() == 1
    office.served_once([id])


def test_an_unexpected_error_is_a_sentence(office: Office, caplog: pytest.LogCaptureFixture):
    id = office.queue(CLASS)
    office.work(executor=failing(RuntimeError("tensors\nof \x1b[31mred")))
    request = office.ledger.requests.get(id)
    assert request.state == "queued"
    assert request.reason == (
        "Something unexpected went wrong (RuntimeError: tensors of [31mred); the worker's log says where."
    )
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    "error", [InputError("The disk is full; free some."), DivergedError("Method 'x'", "it is inf.")]
)
def test_what_cannot_work_fails_at_once(office: Office, error: FedForgetError):
    id = office.queue(CLASS)
    office.work(executor=failing(error))
    request = office.ledger.requests.get(id)
    assert (request.state, request.reason, request.attempts) == ("failed", str(error), 1)


def test_a_method_that_diverges(office: Office):
    office.register("wild", method="sga", preset="plain", settings={"lr": 1e30})
    id = office.queue(CLASS, "wild")
    office.work()
    request = office.ledger.requests.get(id)
    assert request.state == "failed"
    assert "diverged" in (request.reason or "")


def test_a_run_folder_that_is_gone(office: Office, tmp_path: Path):
    change_federation(office.ledger, "digits", place=str(tmp_path / "gone"), actor="oscar")
    id = office.queue(CLASS)
    office.work()
    request = office.ledger.requests.get(id)
    assert request.state == "failed"
    assert "is not a run folder" in (request.reason or "")


@pytest.mark.real
def test_one_wrong_request_does_not_spoil_the_others(office: Office, clock: Ticking, monkeypatch: pytest.MonkeyPatch):
    """Served together they fail, since one names a sample that is not there; then each goes alone. Intake could not
    look, as where a federation's data are elsewhere."""
    monkeypatch.setattr(intake, "check_held", lambda *_: None)
    office.register("many", together=3)
    wrong = ErasureRequest.of_samples(0, [1_000_000])
    ids = [office.queue(target, "many") for target in (CLASS, wrong, samples_of(1, 0))]
    assert office.work() == 0
    assert office.states(ids) == ["queued"] * 3
    clock.go_on(seconds=31)
    assert office.work() == 2
    assert office.states(ids) == ["done", "failed", "done"]
    assert "Sample 1000000 is not among client 0's data" in (office.ledger.requests.get(ids[1]).reason or "")


@pytest.mark.real
@pytest.mark.parametrize("stage", ["fedaf-c", "auditing", "retrain", "oracles", "examining oracles", "examining"])
def test_stopped_at_any_stage_it_goes_on_there(office: Office, stage: str):
    """It is given back at once, nothing is counted against it, and what was trained is not trained again."""
    ledger, stop = office.ledger, threading.Event()
    office.register("beside", audit_level="quick")
    id = office.queue(CLASS, "beside")
    assert Worker(ledger, "stopped", Meddling(stage, stop.set)).run(stop) == 0
    request = ledger.requests.get(id)
    assert (request.state, request.failures) == ("queued", 0)
    trained: list[str] = []
    watcher = Meddling("", lambda: None, seen=trained)
    assert Attended(ledger, "second", watcher).run(once=True) == 1
    assert ledger.requests.get(id).state == "done"
    assert digest(weights(ledger, ledger.versions.current("beside").sha256)) == by_hand(office, 1, CLASS)
    assert ("fedaf-c" in trained) == (stage == "fedaf-c"), "once forgotten, it is not forgotten again"
    assert {*trained[trained.index("auditing") + 1 :]} <= STAGES.keys(), "each step has a part of the whole"
    if stage.startswith("examining"):
        assert trained.count("oracles") <= 1, "only to say that all are there"


@pytest.mark.real
def test_a_worker_that_was_taken_for_dead_throws_its_work_away(office: Office, clock: Ticking):
    """While it works, its lease ends, and another one serves the request, in a folder of its own."""
    ledger, id = office.ledger, office.queue(CLASS)

    def meanwhile() -> None:
        clock.go_on(hours=1)
        claim = ledger.work.claim("second")
        assert claim is not None
        assert claim.requests[0].attempts == 2, "taken over"
        assert Attended(ledger, "second").serve(claim) is not None

    assert Attended(ledger, "first", Meddling("examining", meanwhile)).run(once=True) == 0
    office.served_once([id])
    assert ledger.requests.get(id).worker == "second"
    assert [path.name for path in sorted(office.workplace().parent.iterdir())] == ["0", "1"]
    assert office.work() == 0
    ledger.versions.roll_back("digits", 1, "To see that folders of old versions are cleared.", actor="oscar")
    Attended(ledger, "third").run(once=True)
    assert [sorted(path.name for path in office.workplace(n).iterdir()) for n in (0, 1)] == [[".worker"]] * 2


@pytest.mark.real
def test_the_lease_is_renewed_while_it_works(url: str, run: Path, tmp_path: Path):
    """With a real clock: a request that takes longer than the lease stays its worker's."""
    with Ledger.open(tmp_path / "home", url) as ledger:
        office = Office(ledger, run)
        office.register()
        id, seen = office.queue(CLASS), []

        def look() -> None:
            first = ledger.federations.get("digits").lease_until
            assert first is not None
            while utc_now() <= first:
                time.sleep(0.05)
            seen.append(ledger.work.claim("thief"))

        worker = Attended(ledger, "first", Meddling("auditing", look), lease_seconds=3.0)
        assert worker.run(once=True) == 1
        assert seen == [None]
        office.served_once([id])


@pytest.mark.real
def test_oracles_serve_again_and_are_destroyed_with_the_version_before(ledger: Ledger, run: Path, clock: Ticking):
    inside = ledger.home / "runs" / "a"
    copytree(run, inside)
    office = Office(ledger, inside)
    office.register(audit_level="quick", keep_days=7)
    id = office.queue(CLASS)
    office.work()
    first = ledger.versions.get("digits", 1)
    oracles = sorted((office.workplace() / "oracles").iterdir())
    times = [path.stat().st_mtime_ns for path in oracles]
    assert len(oracles) == 2 * 2, "two beside Retrain, each with a note"
    ledger.versions.roll_back("digits", 1, "Once more.", actor="oscar")
    ledger.requests.retry(id, actor="oscar")
    office.work()
    assert [path.stat().st_mtime_ns for path in oracles] == times, "not trained again"
    for days in (7, 1):  # announced, and gone a day later
        clock.go_on(days=days)
        office.work()
    assert not any(path.exists() for path in oracles)
    assert not list(inside.rglob("*.safetensors")), "the run's own checkpoints held the target too"
    assert not ledger.models.path(first.sha256).exists()
    said = [json.loads(event.body) for event in ledger.trail.events(kinds=["destroyed"])]
    kinds = {item["kind"] for body in said for item in body["remains"]}
    assert kinds == {"oracle", "checkpoint"}
    assert all(len(item["sha256"]) == 64 for body in said for item in body["remains"])
    second = office.queue(samples_of(1, 0))
    office.work()
    assert ledger.requests.get(second).state == "done", "the run's configuration is all that is needed of it"


def test_a_worker_needs_a_key(ledger: Ledger, tmp_path: Path):
    with pytest.raises(InputError, match="no key to sign with"):
        Worker(ledger, "first").run(once=True)


@pytest.mark.real
def test_a_key_that_goes_away_stops_the_worker_and_no_request(
    office: Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """It begins nothing that it could not certify, says why, and goes on when the key is back."""
    monkeypatch.setattr("fedforget.ledger.worker.AFTER_TROUBLE_S", 0.05)

    def wait_for_complaints(more: int) -> None:
        """Each is one turn of the worker that came to nothing."""
        already = caplog.text.count("is not there")
        deadline = time.monotonic() + 60
        while caplog.text.count("is not there") < already + more:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    ledger = office.ledger
    (private,) = (path for path in ledger.keys.folder.glob("*.pem") if ".public" not in path.name)
    with at_work(Attended(ledger, "first", poll_seconds=0.05)):
        ids = [office.queue(CLASS)]
        wait_until_done(office, ids)
        private.rename(private.with_suffix(".away"))
        wait_for_complaints(1)
        ids.append(office.queue(samples_of(1, 0)))
        wait_for_complaints(2)
        assert ledger.requests.get(ids[1]).attempts == 0
        private.with_suffix(".away").rename(private)
        wait_until_done(office, ids)
    office.served_once(ids)


@pytest.mark.real
def test_one_federation_alone(office: Office):
    office.register("other")
    ids = [office.queue(CLASS), office.queue(CLASS, "other")]
    assert office.work(federation="other") == 1
    assert office.states(ids) == ["queued", "done"]


@pytest.mark.real
def test_two_workers_on_one_ledger_wait_for_each_other(url: str, run: Path, tmp_path: Path):
    """Each with its own connection, as two processes have; on SQLite they write in turns."""
    home = tmp_path / "home"
    with Ledger.open(home, url) as ledger, Ledger.open(home, url) as another:
        office = Office(ledger, run)
        names = ["a", "b", "c"]
        for name in names:
            office.register(name)
        ids = {name: [office.queue(samples_of(0, 3 * n), name) for n in range(2)] for name in names}
        stop, workers = threading.Event(), [Attended(ledger, "first"), Attended(another, "second")]
        served: list[int] = []
        threads = [threading.Thread(target=lambda w=w: served.append(w.run(stop, once=True))) for w in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert sum(served) == 6
        for name in names:
            office.served_once(ids[name], name)


@pytest.mark.real
def test_a_worker_in_a_thread_serves_what_comes_and_ends_when_told(office: Office):
    with at_work(Attended(office.ledger, "thread", poll_seconds=0.05)) as thread:
        ids = [office.queue(CLASS)]
        wait_until_done(office, ids)
    assert not thread.is_alive()
    office.served_once(ids)


@pytest.mark.real
def test_history_of_the_run_is_used_where_it_is(ledger: Ledger, tmp_path: Path):
    folder = tmp_path / "kept"
    train_run(folder, replace(CONFIG, history_interval=1))
    assert Run(folder).history is not None
    office = Office(ledger, folder)
    office.register(method="federaser")
    id = office.queue(CLASS)
    office.work()
    assert ledger.requests.get(id).state == "done", ledger.requests.get(id).reason
