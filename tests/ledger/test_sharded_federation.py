"""A federation with shards in the ledger: from a registered run to exact versions and their certificates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_worlds import weights
from worker_worlds import CONFIG, Office

from fedforget.errors import InputError
from fedforget.federation.rounds import train
from fedforget.federation.shards import member_of
from fedforget.ledger.book import Ledger
from fedforget.ledger.certificate import read_keys, verify_certificate
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.train import train_run

SHARDED = replace(CONFIG, clients=4, shards=2)
CLASS, WHOLE = ErasureRequest.of_class(1, 3), ErasureRequest.of_client(3)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(tmp_path_factory.mktemp("ledger") / "sharded", SHARDED).folder


@pytest.fixture
def office(ledger: Ledger, sharded: Path) -> Office:
    office = Office(ledger, sharded)
    office.register(method="ladder")
    return office


def without(*requests: ErasureRequest) -> str:
    """The digest of the ensemble of a training in which the targets were never there."""
    federation = SHARDED.build_federation(SHARDED.load_dataset())
    return digest(train(federation, state_of(federation.model), SHARDED.schedule, exclude=requests))


@pytest.mark.real
def test_requests_one_after_another_end_as_if_the_targets_had_never_been_there(office: Office):
    """No officer must decide; the certificate says exact, which shards were trained again, and what that rests on."""
    ledger = office.ledger
    ids = [office.queue(CLASS), office.queue(WHOLE)]
    assert office.work(publish=False) == 2
    assert office.states(ids) == ["done", "done"]
    first, second, third = ledger.versions.of("digits")
    models = [weights(ledger, version.sha256) for version in (first, second, third)]
    assert (second.verdict, third.verdict) == ("exact", "exact")
    assert digest(models[1]) == without(CLASS)
    assert digest(models[2]) == without(CLASS, WHOLE)
    assert len({digest(member_of(model, 0)) for model in models}) == 1, "the other shard stays as it was"
    certificate = ledger.versions.certificate_of(ids[1])
    assert certificate is not None
    record = verify_certificate(certificate.content.encode(), read_keys([ledger.keys.folder]))
    assert "Trained again without the target: of 2 shards 1 (clients 1, 3)." in json.dumps(record)
    assert ledger.trail.check().problems == ()


def test_the_ledger_says_that_there_are_shards_and_refuses_what_they_have_no_use_for(office: Office):
    ledger = office.ledger
    assert ledger.federations.get("digits").description["serving"].startswith("has shards, so a request retrains")
    for change in ({"method": "fedaf-c"}, {"settings": {"at_most": "rebuild"}}):
        with pytest.raises(InputError, match=r"^This federation has shards, so a request retrains the shards"):
            office.register("other", **{"method": "ladder", **change})
        with pytest.raises(InputError, match=r"^This federation has shards"):
            ledger.federations.change("digits", "Let us see.", actor="oscar", **change)
    assert [row.name for row in ledger.federations.all()] == ["digits"]
