"""Requests of a Flower federation: a SuperLink and SuperNodes, the ledger's worker beside them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flower_processes import Processes, processes
from flower_runs import flwr_run
from flwr.common.config import parse_config_args
from ledger_worlds import change_federation, weights
from typer.testing import CliRunner
from worker_worlds import Attended, Office, WorkerProcess

from fedforget.cli.app import app
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.flower import ClientError
from fedforget.flower.app.settings import DEFAULTS, AppSettings
from fedforget.flower.app.worker import serve_for_worker, telling_worker
from fedforget.ledger.book import Ledger
from fedforget.ledger.executor_flower import FlowerPlace, describe_flower, register_flower, run_words
from fedforget.methods import forget
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.folder import Run
from fedforget.runs.job import Job, Outcome, Reached, drop_failure, prepare, raise_failure
from fedforget.runs.store import read_sealed
from fedforget.runs.train import train_run

CONFIG: dict[str, Any] = {
    "clients": 2, "model": "mlp", "rounds": 2, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 120,
}  # fmt: skip
FEW: dict[str, Any] = {"memory": "uniform", "recovery_rounds": 0}
"""Few messages: each takes Flower seconds."""
FIRST, SECOND = ErasureRequest.of_class(0, 3), ErasureRequest.of_class(1, 5)


@dataclass
class Site:
    """A ledger beside a SuperLink with two nodes."""

    office: Office
    flower: Processes
    folder: Path

    def withdrawn(self, client: int) -> list[dict[str, Any]]:
        return read_sealed(self.folder / "nodes" / str(client) / "node.json")["withdrawn"]

    def runs(self) -> int:
        """How many runs the SuperLink has seen."""
        process = self.flower.start("list", "flwr", "list", "there", "--format", "json")
        assert process.wait(timeout=120) == 0
        return len(json.loads(self.flower.log("list").read_text())["runs"])


def write_place(file: Path, **more: Any) -> Path:
    values = {"connection": "there", "home": "flower/home", "run": "trained", **more}
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return file


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with processes(folder / "flower") as flower, Ledger.open(folder / "home", _url(folder)) as ledger:
        flower.start_supernodes(flower.start_superlink(), 2, folder / "nodes")
        flwr_run(flower, {**CONFIG, "out": str(folder / "trained")})
        office = Office(ledger, folder / "trained")
        place = write_place(folder / "place.toml")
        settings = {
            "method": "overwrite",
            "settings": FEW,
            "audit_level": "alone",
            "accuracy_limit": 100.0,
            "together": 2,
        }
        register_flower(ledger, "sites", place, actor="oscar", **settings)
        yield Site(office, flower, folder)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'home' / 'ledger.sqlite'}"


@pytest.mark.slow
def test_from_the_queue_to_the_certificate(site: Site):
    office, ledger = site.office, site.office.ledger
    id = office.queue(FIRST, "sites")
    began = time.monotonic()
    assert Attended(ledger, "beside", lease_seconds=5.0).run(once=True) == 1, site.flower.logs()
    print(f"A request on Flower took {time.monotonic() - began:.0f} s.")
    request = ledger.requests.get(id)
    assert (request.state, request.version) == ("done", 2), request.reason
    settings = AppSettings.read(CONFIG)
    federation = settings.run.build_federation(settings.run.load_dataset())
    before = Run(site.folder / "trained").load_model()
    expected = forget(federation, before, FIRST, settings.run.schedule, "overwrite", **FEW)
    version = ledger.versions.current("sites")
    assert digest(weights(ledger, version.sha256)) == digest(expected.state), "the same bits"
    assert site.withdrawn(0) == [FIRST.to_json()]
    assert ledger.work.progress([id])[id].fraction >= 0.2
    assert ledger.requests.report_of(id) is not None
    assert ledger.versions.certificate_of(id) is not None
    assert ledger.trail.check().problems == ()


@pytest.mark.slow
def test_a_worker_that_takes_over_goes_on_with_the_run(site: Site, tmp_path: Path):
    """kill -9 while Flower works: the next worker waits for the same run, and there is one new version."""
    office, ledger = site.office, site.office.ledger
    before, versions = site.runs(), len(ledger.versions.of("sites"))
    ids = [office.queue(SECOND, "sites"), office.queue(FIRST, "sites")]
    killed = WorkerProcess(ledger.home, ledger.database.url, "killed", "--lease", "2", log=tmp_path / "log")
    deadline = time.monotonic() + 120
    while not (office.workplace(federation="sites") / "flower.json").exists():
        assert time.monotonic() < deadline, killed.log.read_text()
        time.sleep(0.05)
    killed.kill()
    time.sleep(2.5)
    assert Attended(ledger, "heir", lease_seconds=5.0).run(once=True) == 2, site.flower.logs()
    assert office.states(ids) == ["done", "done"]
    assert len(ledger.versions.of("sites")) == versions + 1
    assert site.runs() == before + 1
    assert {"worker/killed", "worker/heir"} <= {event.actor for event in ledger.trail.events(request=ids[0], limit=100)}
    assert site.withdrawn(1) == [SECOND.to_json()]
    assert ledger.trail.check().problems == ()


@pytest.mark.slow
def test_what_goes_wrong_on_flower_is_told_in_its_own_words(site: Site):
    """One that no client can serve fails at once; a SuperLink that is not there is tried again."""
    office, ledger = site.office, site.office.ledger
    wrong = office.queue(ErasureRequest.of_samples(0, [1_000_000]), "sites")
    Attended(ledger, "beside").run(once=True)
    request = ledger.requests.get(wrong)
    assert request.state == "failed", site.flower.logs()
    assert "Sample 1000000 is not among client 0's data" in (request.reason or "")
    change_federation(
        ledger, "sites", place=str(write_place(site.folder / "nowhere.toml", connection="nowhere")), actor="oscar"
    )
    id = office.queue(ErasureRequest.of_client(1), "sites")
    Attended(ledger, "beside").run(once=True)
    request = ledger.requests.get(id)
    assert (request.state, request.failures) == ("queued", 1)
    assert "`flwr run` failed" in (request.reason or "")
    change_federation(ledger, "sites", place=str(site.folder / "place.toml"), actor="oscar")


def prepared(folder: Path, trained: Path, *requests: ErasureRequest) -> Job:
    """A job, in its folder, as a worker would leave it for the server app."""
    run = Run(trained)
    file = trained / run.trunk.model
    job = Job(run.config, 1, str(file), run.trunk.sha256, requests, (), "fedaf-c", "default", {}, "alone")
    prepare(folder, job)
    return job


def test_the_server_app_leaves_what_the_worker_looks_for(tmp_path: Path):
    """How far it is, the result, or what went wrong; and nothing in a folder that has become another job's."""
    config = AppSettings.read({**CONFIG, "rounds": 1}).run
    train_run(tmp_path / "trained", config)
    federation, folder = config.build_federation(config.load_dataset()), tmp_path / "job"
    job = prepared(folder, tmp_path / "trained", FIRST)
    outcome = Outcome.read(folder, job)
    assert outcome is None
    told = serve_for_worker(folder, federation)
    outcome, reached = Outcome.read(folder, job), Reached.read(folder, job)
    assert outcome is not None
    assert outcome.to_json() == told
    assert reached is not None
    assert reached.auditing
    assert serve_for_worker(folder, federation) == told, "a second run finds it done"

    other = prepared(folder, tmp_path / "trained", SECOND)
    assert Outcome.read(folder, other) is None, "another job's result is none"

    class Changing(LocalFederation):
        """The worker gives the folder to another job while this one is at work."""

        def ask(self, *words: Any, **more: Any) -> Any:
            prepared(folder, tmp_path / "trained", FIRST)
            return super().ask(*words, **more)

    federation.__class__ = Changing
    assert serve_for_worker(folder, federation) == {}
    assert Outcome.read(folder, job) is None
    assert not list(folder.glob("forgotten/*/result.json"))

    for error, kind in (
        (ClientError(1, "went away."), FedForgetError),
        (DivergedError("Train", "it is inf."), InputError),
        (InputError("No such class."), InputError),
    ):
        with pytest.raises(type(error)), telling_worker(folder):
            raise error
        with pytest.raises(kind, match=str(error)) as raised:
            raise_failure(folder, job)
        assert type(raised.value) is kind
    drop_failure(folder)
    raise_failure(folder, job)


def test_the_run_config_of_a_run_says_the_same_run():
    """Also a backdoor, a falling learning rate, and signs that mean something to TOML, JSON or Flower."""
    plain = AppSettings.read(CONFIG).run
    poisoned = replace(plain, backdoor=Backdoor(FIRST, Trigger(2, margin=0), 8))
    odd = replace(plain, dataset='/data/o\'neill = "x" \\ é.npz', schedule=replace(plain.schedule, decay=0.1))
    for config in (plain, poisoned, odd):
        given = parse_config_args([run_words(config, {"out": "/srv/job 1", "device": "cpu"})])
        settings = AppSettings.read({**DEFAULTS, **given})
        assert (settings.run, settings.out, settings.device) == (config, Path("/srv/job 1"), "cpu")


def test_a_place_is_checked_before_anything_is_begun(tmp_path: Path):
    train_run(tmp_path / "trained", AppSettings.read({**CONFIG, "rounds": 1}).run)
    file = tmp_path / "place.toml"
    for text, said in (
        ("connection = ", "cannot be read"),
        ('connection = "a"', "must name its 'run'"),
        ('connection = 1\nrun = "trained"', "'connection' is unknown or of the wrong kind"),
        ('connection = "a"\nrun = "trained"\nport = 1', "'port' is unknown"),
        ('connection = "a"\nrun = "trained"\nrun-config = {rounds = 1}', "run-config has 'rounds'"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            FlowerPlace.read(file)
    place = FlowerPlace.read(write_place(file))
    assert (place.run, place.home) == (tmp_path / "trained", tmp_path / "flower" / "home")
    description, model = describe_flower(file)
    assert [client["client"] for client in description["clients"]] == [0, 1]
    assert sum(client["samples"] for client in description["clients"]) == 120
    assert digest(model) == digest(Run(tmp_path / "trained").load_model())


def test_the_example_is_a_place():
    place = FlowerPlace.read(Path(__file__).parents[2] / "examples" / "deploy" / "federation.toml")
    assert place.connection == "federation"
    assert place.run == Path("/srv/federation/run")


def test_a_flower_federation_is_registered_from_the_terminal(tmp_path: Path):
    train_run(tmp_path / "trained", AppSettings.read({**CONFIG, "rounds": 1}).run)
    home, file = tmp_path / "home", write_place(tmp_path / "place.toml")
    with Ledger.open(home, _url(tmp_path)) as ledger:
        ledger.accounts.add("ann", "operator")
        words = ["ledger", "register", "sites", str(file), "--as", "ann", "--home", str(home), "--json"]
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0
        federation = ledger.federations.get("sites")
        assert json.loads(result.stdout) == federation.to_json()
        assert (federation.kind, federation.place) == ("flower", str(file))
        with pytest.raises(InputError, match="There is no file"):
            CliRunner().invoke(app, [*words[:3], "nowhere.toml", *words[4:]], catch_exceptions=False)


def test_sites_with_data_of_their_own_are_described_in_the_file(tmp_path: Path):
    train_run(tmp_path / "trained", AppSettings.read({**CONFIG, "rounds": 1}).run)
    file = write_place(tmp_path / "place.toml")
    file.write_text(
        file.read_text() + '[[clients]]\nname = "north"\nsamples = 70\n[[clients]]\ncounts = ' + str(list(range(10)))
    )
    description, _ = describe_flower(file)
    north, south = description["clients"]
    assert (north["samples"], south["samples"]) == (70, 45)
    assert north["name"] == "north"
    assert description["shape"] == [1, 8, 8]
    file.write_text(file.read_text() + "\n[[clients]]\nsamples = 1\n")
    with pytest.raises(InputError, match="must describe 2 clients"):
        describe_flower(file)
