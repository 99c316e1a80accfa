"""The worker under guards, on real federations: each request begins with what the one before it left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from ledger_worlds import Ticking
from typer.testing import CliRunner
from worker_worlds import CONFIG, Meddling, Office, failing, samples_of

from fedforget.audit.evidence import read_evidence, verify_evidence
from fedforget.cli.app import app
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.guard import Guard
from fedforget.ledger.backup import backup, restore
from fedforget.ledger.book import Ledger
from fedforget.ledger.executor_flower import register_flower
from fedforget.ledger.schema import Version
from fedforget.methods import Forgetting, forget
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.job import Job, prepare
from fedforget.runs.store import guard_file, save_guard

CLASS = ErasureRequest.of_class(0, 3)
OTHER = ErasureRequest.of_class(1, 5)
HELD = {"held": 0.1}


@pytest.fixture
def office(ledger: Ledger, run: Path) -> Office:
    """A ledger whose federation `digits` holds a tenth of the weights."""
    office = Office(ledger, run)
    office.register(method="fedaf", settings=HELD)
    return office


def by_hand(ledger: Ledger, before: Version, target: ErasureRequest, *served: ErasureRequest) -> Forgetting:
    """What the method makes of a version, under its guard."""
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    model, guard = ledger.models.load(before.sha256), ledger.models.load_guard(before.guard)
    return forget(federation, model, target, CONFIG.schedule, "fedaf", served=served, guard=guard, **HELD)


def same(ledger: Ledger, version: Version, made: Forgetting) -> None:
    guard = ledger.models.load_guard(version.guard)
    assert guard is not None
    assert made.guard is not None
    assert digest(ledger.models.load(version.sha256)) == digest(made.state)
    assert digest(guard.to_state()) == digest(made.guard.to_state())


def held_weights(guard: Guard | None) -> set[tuple[str, int]]:
    assert guard is not None
    return {
        (name, place)
        for name, least in guard.lower.items()
        for place, held in enumerate((least.isfinite() | guard.upper[name].isfinite()).flatten().tolist())
        if held
    }


def test_a_request_leaves_its_guard_and_the_next_one_begins_with_it(office: Office, tmp_path: Path):
    ledger, ids = office.ledger, [office.queue(CLASS), office.queue(OTHER)]
    assert office.work() == 2
    office.served_once(ids)
    one, two, three = ledger.versions.of("digits")
    assert one.guard is None
    same(ledger, two, by_hand(ledger, one, CLASS))
    same(ledger, three, by_hand(ledger, two, OTHER, CLASS))
    unheld = by_hand(ledger, replace_guard(two), OTHER, CLASS)
    assert digest(unheld.state) != digest(ledger.models.load(three.sha256)), "the guard made a difference"
    assert held_weights(ledger.models.load_guard(two.guard)) < held_weights(ledger.models.load_guard(three.guard))
    said = [json.loads(e.body).get("guard") for e in ledger.trail.events(kinds=["version published"], after=0)]
    assert said == [None, two.guard, three.guard]

    text = ledger.requests.evidence_of(ids[1])
    assert text is not None
    file = tmp_path / "evidence.json"
    file.write_text(text)
    models = read_evidence(file)["models"]
    assert models["subject"]["guard"]["sha256"] == three.guard
    assert models["before"]["guard"]["sha256"] == two.guard
    words = ["verify", str(file), "--model", str(ledger.models.path(three.sha256)), "--guard"]
    assert three.guard is not None
    assert two.guard is not None
    said_of_it = CliRunner().invoke(app, [*words, str(ledger.models.path(three.guard))], catch_exceptions=False)
    assert "The model is the one that was examined" in said_of_it.stdout
    assert "The guard is the one that later rounds were held to" in said_of_it.stdout
    with pytest.raises(InputError, match="is not the guard under which"):
        verify_evidence(file, ledger.models.path(three.sha256), ledger.models.path(two.guard))
    with pytest.raises(InputError, match=r"is not there; name it with --guard\.$"):
        verify_evidence(file, ledger.models.path(three.sha256))
    assert ledger.trail.check().problems == ()


def replace_guard(version: Version) -> Version:
    """The same weights, held to nothing."""
    return Version(sha256=version.sha256, guard=None)


@pytest.mark.real
def test_the_guard_in_force_follows_the_weights(office: Office, clock: Ticking, tmp_path: Path):
    """Nothing left to forget, another method, a rollback, a backup, and the end of it."""
    ledger = office.ledger
    office.queue(CLASS)
    office.queue(CLASS, subject="another")
    assert office.work() == 2
    two, three = ledger.versions.of("digits")[1:]
    assert (three.method, three.guard, three.sha256) == ("none", two.guard, two.sha256)

    ledger.federations.change("digits", method="fedaf-c", actor="oscar")
    office.queue(OTHER)
    assert office.work() == 1
    four = ledger.versions.current("digits")
    assert four.guard not in (None, three.guard), "moved to where its model is"
    assert held_weights(ledger.models.load_guard(four.guard)) == held_weights(ledger.models.load_guard(three.guard))

    ledger.federations.change("digits", method="retrain", actor="oscar")
    office.queue(samples_of(2, 0))
    assert office.work() == 1
    assert ledger.versions.current("digits").guard is None, "it began afresh"

    ledger.federations.change("digits", method="fedaf", settings=HELD, actor="oscar")
    six = ledger.versions.roll_back("digits", 3, "broken", actor="oscar")
    assert six.guard == three.guard
    office.queue(samples_of(1, 0))
    assert office.work() == 1
    seven = ledger.versions.current("digits")
    same(ledger, seven, by_hand(ledger, six, samples_of(1, 0), CLASS))

    backup(ledger, tmp_path / "backup")
    with restore(tmp_path / "backup", tmp_path / "restored", clock=clock) as again:
        for version in ledger.versions.of("digits"):
            again.models.check_guard(version.guard)
        assert again.trail.check().problems == ()

    assert three.guard is not None
    assert seven.guard is not None
    clock.go_on(days=31)
    assert ledger.destruction.destroy_superseded() == [], "they are announced"
    clock.go_on(days=1)
    assert len(ledger.destruction.destroy_superseded()) == 6
    assert not ledger.models.path(three.guard).exists()
    assert ledger.models.path(seven.guard).exists()
    assert ledger.trail.check().problems == ()


@pytest.mark.real
@pytest.mark.parametrize("whole", [True, False])
def test_what_an_interrupted_worker_left_counts_if_its_guard_is_whole(office: Office, clock: Ticking, whole: bool):
    ledger = office.ledger
    office.queue(CLASS)
    office.work()
    office.queue(OTHER)
    assert office.work(executor=failing(FedForgetError("The disk is full."), times=1)) == 0
    (left,) = office.workplace().glob("forgotten/*/guard-*")
    if not whole:
        left.write_bytes(left.read_bytes()[:-1] + b"x")
    clock.go_on(minutes=10)
    heir = Meddling("", lambda: None)
    assert office.work("heir", heir) == 1
    assert any(what.startswith("fedaf") for what in heir.seen) == (not whole), heir.seen
    two, three = ledger.versions.of("digits")[1:]
    same(ledger, three, by_hand(ledger, two, OTHER, CLASS))
    assert ledger.trail.check().problems == ()


def test_a_damaged_guard_is_refused_before_the_work_begins(office: Office):
    ledger = office.ledger
    office.queue(CLASS)
    office.work()
    guard = ledger.versions.current("digits").guard
    assert guard is not None
    path = ledger.models.path(guard)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert ledger.trail.check().problems == (f"The guard file {path.name} was changed.",)
    watched = Meddling("", lambda: None)
    id = office.queue(OTHER)
    assert office.work(executor=watched) == 0
    request = ledger.requests.get(id)
    assert (request.state, request.reason) == (
        "failed", f"The guard file {path.name} was changed: its SHA-256 is another.",
    )  # fmt: skip
    assert watched.seen == []


@pytest.mark.real
def test_a_run_that_forgot_under_a_guard_is_registered_with_it(ledger: Ledger, run: Path, tmp_path: Path):
    own = tmp_path / "own"
    copytree(run, own)
    forget_run(own, [CLASS], "fedaf", adopt=True, **HELD)
    office = Office(ledger, own)
    office.register(method="fedaf", preset="guarded")
    (first,) = ledger.versions.of("digits")
    assert first.guard == Run(own).trunk.guard is not None
    office.queue(OTHER)
    assert office.work() == 1
    same(ledger, ledger.versions.current("digits"), by_hand(ledger, first, OTHER, CLASS))

    place = tmp_path / "place.toml"
    for name, clients in (("sites", ""), ("own-data", "[[clients]]\nsamples = 80\n" * CONFIG.clients)):
        place.write_text(f'connection = "there"\nrun = "own"\n{clients}')
        register_flower(ledger, name, place, actor="oscar")
        assert ledger.versions.current(name).guard == first.guard
    assert ledger.trail.check().problems == ()


def test_a_job_is_taken_up_again_and_one_with_another_guard_is_another_job(run: Path, tmp_path: Path):
    trained = Run(run)
    model = str(run / trained.trunk.model)
    plain = Job(CONFIG, 1, model, trained.trunk.sha256, (CLASS,), (), "fedaf", "guarded")
    assert "guard" not in json.dumps(list(plain.to_json())), "one that was begun before there were guards is the same"
    bounds = {name: tensor for name, tensor in trained.load_model().items() if tensor.is_floating_point()}
    guard = Guard(bounds, {name: tensor + 1 for name, tensor in bounds.items()})
    held = save_guard(tmp_path, guard)
    assert held is not None
    file = tmp_path / guard_file(held)
    job, folder = replace(plain, guard=str(file), guard_sha256=held), tmp_path / "job"
    prepare(folder, job)
    assert Job.read(folder) == job
    begun = Run(folder)
    assert begun.trunk.guard == held
    found = begun.load_guard(begun.trunk)
    assert found is not None
    assert digest(found.to_state()) == digest(guard.to_state())
    (folder / "half-done").touch()
    prepare(folder, job)
    assert (folder / "half-done").exists()
    prepare(folder, replace(job, guard_sha256="0" * 64))
    assert not (folder / "half-done").exists()
    (folder / "half-done").touch()
    prepare(folder, plain)
    assert not (folder / "half-done").exists()
    assert Run(folder).trunk.guard is None
    assert file.exists(), "only the link was cleared away"
