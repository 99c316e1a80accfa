"""A run folder with shards: train, kill, resume, forget, audit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.shards import Ensemble, member_of
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.record import REPORT, Result
from fedforget.runs.repeat import repeat_run
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(1, 3)
CONFIG = RunConfig(
    clients=4,
    shards=2,
    schedule=Schedule(rounds=4, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=240,
)


class Stop(Exception):
    """An interruption of the test's own."""


def stop_at(what: str, done: int):
    def progress(now: str, so_far: int, total: int) -> None:
        if now.startswith(what) and so_far == done:
            raise Stop

    return progress


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tmp_path_factory.mktemp("shards") / "run", CONFIG)


def never() -> str:
    """The digest of the ensemble that the same training without the target comes to."""
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    state = train(federation, state_of(federation.model), CONFIG.schedule, exclude=[CLASS])
    return digest(state)


def test_the_configuration_says_how_many(run: Run):
    assert json.loads((run.folder / "run.json").read_text())["config"]["shards"] == 2
    assert RunConfig.from_json(CONFIG.to_json()) == CONFIG
    assert "shards" not in replace(CONFIG, shards=1).to_json(), "a configuration from before is the same bytes"
    assert isinstance(CONFIG.build_model(CONFIG.load_dataset()), Ensemble)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shards": 5}, "5 shards need at least as many clients, but there are 4."),
        ({"shards": 0}, "Run setting 'shards' is 0, but it must be a whole number, 1 or larger."),
        ({"history_interval": 2}, "A history is for methods that a federation with shards has no use for"),
    ],
)
def test_what_cannot_be_is_refused(change, sentence: str):
    with pytest.raises(InputError, match=sentence):
        replace(CONFIG, **change)


def test_a_killed_training_goes_on_with_the_same_bits(run: Run, tmp_path: Path):
    with pytest.raises(Stop):
        train_run(tmp_path / "again", CONFIG, progress=stop_at("training", 7))
    again = train_run(tmp_path / "again")
    assert digest(again.load_model()) == digest(run.load_model())


def test_a_killed_request_goes_on_with_the_same_bits(run: Run):
    steps: list[tuple[int, int]] = []
    with pytest.raises(Stop):
        forget_run(run.folder, [CLASS], "retrain", progress=stop_at("retrain", 5))
    folder = forget_run(run.folder, [CLASS], "retrain", progress=lambda _, done, total: steps.append((done, total)))
    assert folder is not None
    result = Result.read(folder)
    assert digest(result.load_model(folder)) == never()
    assert result.exact
    assert steps[-1] == (4, 8), "two rounds of two clients were done before, and the bar counts one shard's clients"


def test_a_request_during_training_ends_as_if_the_target_had_never_been_there(tmp_path: Path):
    with pytest.raises(Stop):
        train_run(tmp_path / "run", CONFIG, progress=stop_at("training", 8))
    forget_run(tmp_path / "run", [CLASS])
    run = train_run(tmp_path / "run")
    assert run.served == (CLASS,)
    assert digest(run.load_model()) == never()
    assert [one.holds for one in repeat_run(run.folder)] == [True], "the model of after two rounds"


def test_other_methods_are_refused_before_they_are_queued(run: Run):
    with pytest.raises(InputError, match="This federation has shards"):
        forget_run(run.folder, [CLASS], "overwrite")
    assert run.queued() == []


@pytest.mark.real
def test_an_audit_of_a_retrained_shard(run: Run):
    """Its verdict is exact; Retrain's row is the same model, and the oracles are other ensembles."""
    folder = forget_run(run.folder, [CLASS])
    assert folder is not None
    found = audit_run(run.folder, [CLASS], level="quick", oracles=2)
    ours, retrain, before = (found.row(name) for name in ("ladder:default", "retrain:default", "before"))
    assert ours.model == retrain.model == never()
    assert ours.verdict is not None
    assert retrain.verdict is not None
    assert ours.verdict["word"] == retrain.verdict["word"] == "exact"
    assert before.verdict is not None
    assert ours.distance_to_retrain is not None
    assert ours.distance_to_retrain["weights"] == 0.0
    evidence = json.loads((run.folder / ours.evidence["file"]).read_text())  # type: ignore[index]
    assert len({*evidence["models"]["oracles"], ours.model}) == 3
    assert evidence["run"]["config"]["shards"] == 2
    page = (run.folder / REPORT).read_text()
    assert "Trained again without the target: of 2 shards 1 (clients 1, 3)." in page


def test_the_next_request_starts_from_the_adopted_model(tmp_path: Path):
    run = train_run(tmp_path / "run", replace(CONFIG, backdoor=None))
    before = run.load_model()
    forget_run(run.folder, [CLASS], adopt=True)
    forget_run(run.folder, [ErasureRequest.of_class(3, 5)], adopt=True)
    assert digest(member_of(run.load_model(), 0)) == digest(member_of(before, 0))
    config = replace(CONFIG, backdoor=None)
    federation = config.build_federation(config.load_dataset())
    twin = train(federation, state_of(federation.model), config.schedule, exclude=run.served)
    assert len(run.served) == 2
    assert digest(run.load_model()) == digest(twin)
