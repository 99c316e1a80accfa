"""A run with a ridge head: from training to a checked verdict, on a run folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.audit.evidence import read_evidence
from fedforget.audit.verdict import BY_CONSTRUCTION
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.models import build_model
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.head import RidgeHead
from fedforget.runs.record import MODEL, RESULT, Result
from fedforget.runs.repeat import repeat_run
from fedforget.runs.store import save_model, write_sealed
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)
CONFIG = RunConfig(
    clients=4, schedule=Schedule(rounds=1, seed=3, threads=1), head=RidgeHead(features=200),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 8),
)  # fmt: skip
ORIGIN = "We trained it on other people's digits."


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose client 0 withdrew its poisoned threes; tests that change it take copies."""
    folder = tmp_path_factory.mktemp("ridge") / "run"
    train_run(folder, CONFIG)
    forget_run(folder, [CLASS])
    return folder


def result_of(folder: Path) -> tuple[Path, Result]:
    place = next(folder.glob("forgotten/ladder-*"))
    return place, Result.read(place)


@pytest.mark.real
def test_the_untouched_model_is_caught_and_the_new_one_is_exact(forgotten: Path, tmp_path: Path):
    folder = Path(shutil.copytree(forgotten, tmp_path / "run"))
    audit = audit_run(folder, level="quick")
    before, after = audit.row("before"), audit.row("ladder:default")
    assert (before.verdict["word"], after.verdict["word"]) == ("not forgotten", "exact")
    assert after.verdict["reasons"][0] == BY_CONSTRUCTION
    assert [reason.partition(":")[0] for reason in after.verdict["reasons"][1:]] == ["Assumed", "Assumed"]
    assert before.now.bd_acc == 100.0
    assert after.now.bd_acc < 5.0
    assert (after.now, after.model) == (after.later, audit.row("retrain:default").model), "a further round is the same"
    says = {f["name"]: f["says"] for f in after.verdict["findings"]}
    assert set(says.values()) <= {"as if never seen", "missing"}, says
    assert says["accuracy on the target"] == says["membership by loss"] == "as if never seen"
    record = read_evidence(folder / after.evidence["file"])
    assert record["models"]["subject"]["assumed"] == list(result_of(folder)[1].assumed)


@pytest.mark.parametrize("spot", [False, True], ids=["whole", "spot"])
def test_the_training_without_the_target_is_repeated(forgotten: Path, spot: bool):
    (found,) = repeat_run(forgotten, spot=spot)
    place, result = result_of(forgotten)
    assert (found.holds, found.name, found.digest) == (True, "ladder:default", digest(result.load_model(place)))


@pytest.mark.parametrize("spot", [False, True], ids=["whole", "spot"])
def test_another_model_is_found_out(forgotten: Path, tmp_path: Path, spot: bool):
    """The model before in its place, with all checksums right."""
    folder = Path(shutil.copytree(forgotten, tmp_path / "run"))
    place, result = result_of(folder)
    sha256 = save_model(place / MODEL, Run(folder).load_model())
    replace(result, sha256=sha256).write(place)
    assert not repeat_run(folder, spot=spot)[0].holds


def test_an_ordinary_retraining_is_repeated_too(tmp_path: Path):
    config = RunConfig(clients=3, train_limit=120, schedule=Schedule(rounds=2, lr=0.05, batch_size=16, threads=1))
    train_run(tmp_path / "run", config)
    forget_run(tmp_path / "run", [ErasureRequest.of_class(1, 3)], "retrain")
    assert repeat_run(tmp_path / "run")[0].holds
    with pytest.raises(InputError, match="has no ridge head"):
        repeat_run(tmp_path / "run", spot=True)


def test_what_is_not_exact_is_not_repeated(tmp_path: Path):
    config = RunConfig(clients=3, train_limit=120, schedule=Schedule(rounds=1, lr=0.05, batch_size=16, threads=1))
    train_run(tmp_path / "run", config)
    forget_run(tmp_path / "run", [ErasureRequest.of_class(1, 3)], "not")
    with pytest.raises(InputError, match="no model that was retrained and is called exact"):
        repeat_run(tmp_path / "run")


def test_a_request_after_another(forgotten: Path, tmp_path: Path):
    folder = Path(shutil.copytree(forgotten, tmp_path / "run"))
    forget_run(folder, [CLASS], adopt=True)
    forget_run(folder, [ErasureRequest.of_client(2)], adopt=True)
    assert [one.holds for one in repeat_run(folder)] == [True, True]


def test_result_and_configuration_come_back_as_they_were(forgotten: Path):
    place, result = result_of(forgotten)
    assert len(result.assumed) == 2
    assert Result.from_json(json.loads((place / RESULT).read_text())) == result
    assert RunConfig.from_json(Run(forgotten).config.to_json()) == CONFIG
    assert "head" not in RunConfig().to_json()


def backbone_file(folder: Path, classes: int = 5) -> Path:
    """Weights of the paper's network for other classes than the run has."""
    file = folder / "backbone.safetensors"
    save_model(file, state_of(build_model("cnn", (1, 8, 8), classes, 11)))
    return file


def test_a_backbone_from_a_file_is_recorded_with_its_origin(tmp_path: Path):
    head = RidgeHead.on_file(backbone_file(tmp_path), origin=ORIGIN)
    config = replace(CONFIG, head=head, backdoor=None)
    run = train_run(tmp_path / "runs" / "run", config)
    place = forget_run(run.folder, [CLASS])
    assert place is not None
    result = Result.read(place)
    backbone = {name.removeprefix("backbone."): t for name, t in run.load_model().items() if "backbone" in name}
    assert digest(backbone)[:16] in result.assumed[0]
    assert ORIGIN in result.assumed[0]
    assert repeat_run(run.folder)[0].holds
    Path(head.backbone).write_bytes(b"another")
    with pytest.raises(InputError, match="is damaged"):
        forget_run(run.folder, [ErasureRequest.of_client(1)])


def test_a_backbone_of_this_federation_is_refused(tmp_path: Path):
    first = RunConfig(clients=3, train_limit=120, schedule=Schedule(rounds=1, lr=0.05, batch_size=16, threads=1))
    run = train_run(tmp_path / "first", first)
    own = run.folder / run.trunk.model
    copied = Path(shutil.copy(own, tmp_path / "copied.safetensors"))
    elsewhere = tmp_path / "elsewhere" / "run"
    for file, out in ((own, tmp_path / "second"), (own, elsewhere), (copied, tmp_path / "second")):
        config = replace(CONFIG, head=RidgeHead.on_file(file, origin=ORIGIN), backdoor=None)
        with pytest.raises(InputError, match=r"The backbone is a model of the run .*first, which was trained"):
            train_run(out, config)
        assert not out.exists()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"backbone": "weights.safetensors"}, "needs an origin"),
        ({"features": 2.5}, "'features' is 2.5, but it must be a int"),
        ({"masked": 1}, "'masked' is 1, but it must be a bool"),
        ({"colour": "red"}, "unknown setting 'colour'"),
        ({"regularisation": 0.0}, "regularisation is 0.0, but it must be a finite number above 0"),
        ({"features": 0}, "0 random features were asked for"),
    ],
)
def test_a_head_that_cannot_be_is_refused(values: dict[str, object], says: str):
    def build() -> None:
        config = RunConfig.from_json({"head": values, "schedule": {"rounds": 1}})
        config.build_model(config.load_dataset())

    with pytest.raises(InputError, match=says):
        build()


@pytest.mark.parametrize("schedule", [Schedule(rounds=2), Schedule(rounds=1, participation=0.5)])
def test_a_head_is_solved_once_from_everybody(schedule: Schedule):
    with pytest.raises(InputError, match="it takes 1 round, everybody, and no shards"):
        RunConfig(head=RidgeHead(), schedule=schedule)


def test_evidence_whose_assumptions_were_taken_away_is_refused(forgotten: Path, tmp_path: Path):
    folder = Path(shutil.copytree(forgotten, tmp_path / "run"))
    audit_run(folder, level="alone")
    (file,) = folder.glob("forgotten/ladder-*/evidence-alone.json")
    record = read_evidence(file)
    del record["models"]["subject"]["assumed"]
    write_sealed(file, record)
    with pytest.raises(InputError):
        read_evidence(file)


def test_tables_take_a_ridge_head(tmp_path: Path):
    config = replace(CONFIG, dataset="breast_cancer", backdoor=None, head=RidgeHead(features=64, masked=True))
    run = train_run(tmp_path / "run", config)
    assert run.metrics()[-1]["test_acc"] > 90
    forget_run(run.folder, [ErasureRequest.of_feature(0, 3)])
    assert repeat_run(run.folder)[0].holds
