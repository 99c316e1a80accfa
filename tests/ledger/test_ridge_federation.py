"""A federation with a ridge head in the ledger: from the queue to a certificate that says what `exact` assumes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_worlds import weights
from worker_worlds import Office

from fedforget.audit.verdict import BY_CONSTRUCTION
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule, train
from fedforget.ledger.book import Ledger
from fedforget.ledger.certificate import read_keys, verify_certificate
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.head import RidgeHead
from fedforget.runs.train import train_run

CLASS, OTHER = ErasureRequest.of_class(0, 3), ErasureRequest.of_client(1)
CONFIG = RunConfig(
    clients=4, schedule=Schedule(rounds=1, threads=1), head=RidgeHead(features=100), train_limit=600,
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
)  # fmt: skip


@pytest.fixture(scope="module")
def ridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ridge") / "run"
    train_run(folder, CONFIG)
    return folder


@pytest.fixture
def office(ledger: Ledger, ridge: Path) -> Office:
    return Office(ledger, ridge)


def test_requests_end_exact_and_the_certificate_says_why(office: Office):
    ledger = office.ledger
    ledger.federations.register_run("digits", office.run)
    ids = [office.queue(CLASS), office.queue(OTHER)]
    assert office.work(publish=False) == 2, "nobody has to decide"
    office.served_once(ids)
    for id, version in zip(ids, ledger.versions.of("digits")[1:], strict=True):
        assert version.verdict == "exact"
        certificate = ledger.versions.certificate_of(id)
        assert certificate is not None
        record = verify_certificate(certificate.content.encode(), read_keys([ledger.keys.folder]))
        reasons = record["measured"]["verdict"]["reasons"]
        assert reasons[0] == BY_CONSTRUCTION
        assert reasons[1] == "Assumed: The backbone is a draw from the run's seed, and no data went into it."
        assert reasons[2].startswith("Assumed: Every client sent the true sums")
    never = CONFIG.build_federation(CONFIG.load_dataset(), erased=[CLASS, OTHER])
    expected = train(never, state_of(never.model), CONFIG.schedule)
    assert digest(weights(ledger, ledger.versions.current("digits").sha256)) == digest(expected)


def test_several_requests_go_together_if_they_are_to(office: Office):
    """So that the difference of two totals is never one person's: accepted now, queued together later."""
    office.ledger.federations.register_run("digits", office.run, together=2)
    ids = [office.queue(CLASS), office.queue(OTHER)]
    office.work(publish=False)
    assert office.states(ids) == ["done", "done"]
    assert len(office.ledger.versions.of("digits")) == 2, "one piece of work"


def test_a_method_of_trained_networks_is_refused(office: Office):
    with pytest.raises(InputError, match="This federation has a ridge head"):
        office.ledger.federations.register_run("digits", office.run, method="fedaf-c")


def test_a_backbone_that_is_a_version_here_is_refused(office: Office, tmp_path: Path):
    """In a folder of its own, where no run lies beside it."""
    network = RunConfig(clients=3, train_limit=120, schedule=Schedule(rounds=1, lr=0.05, batch_size=16, threads=1))
    run = train_run(tmp_path / "network" / "run", network)
    file = Path(shutil.copy(run.folder / run.trunk.model, tmp_path / "weights.safetensors"))
    head = RidgeHead.on_file(file, origin="a friend")
    solved = train_run(tmp_path / "solved" / "run", replace(CONFIG, head=head, backdoor=None))
    office.ledger.federations.register_run("first", run.folder)
    with pytest.raises(InputError, match="The run's backbone is version 1 of the federation 'first'"):
        office.ledger.federations.register_run("second", solved.folder)
