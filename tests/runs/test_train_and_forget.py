"""Train, forget and audit on a run folder: resuming, queues, branches, and rows that hold every figure."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import DivergedError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, run_round
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest, requests_id
from fedforget.runs import audit as auditing
from fedforget.runs import demo, record
from fedforget.runs import folder as run_folder
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.demo import demo_run, where_it_ended
from fedforget.runs.folder import Run, Trunk
from fedforget.runs.forget import branch_folder, forget_run
from fedforget.runs.ladder import forget
from fedforget.runs.record import Result
from fedforget.runs.store import load_model
from fedforget.runs.train import train_run

README = Path(__file__).parents[2] / "README.md"
CLASS = ErasureRequest.of_class(0, 3)
OTHER = ErasureRequest.of_class(1, 5)
CONFIG = RunConfig(
    clients=3,
    schedule=Schedule(rounds=4, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=150,
)
FIELDS = {
    "method", "preset", "test_acc", "bd_acc", "bd_acc_test", "true_acc", "retained_acc", "per_class", "seconds",
    "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes",
}  # fmt: skip
"""The names the issue promises for each row of an audit."""


class Stop(Exception):
    """An interruption of the test's own."""


def stop_at(what: str, done: int) -> Callable[[str, int, int], None]:
    """A progress callback that interrupts once `what` has come so far."""

    def progress(now: str, so_far: int, total: int) -> None:
        if now == what and so_far == done:
            raise Stop

    return progress


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, int]]:
    """Every task that reaches a client, with the client."""
    log: list[tuple[Task, int]] = []
    ask = LocalFederation.ask

    def recorded(
        self: LocalFederation, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None
    ) -> Iterator[Reply]:
        for reply in ask(self, task, state, to):
            log.append((task, reply.client))
            yield reply

    monkeypatch.setattr(LocalFederation, "ask", recorded)
    return log


def ordinary_rounds(asked: list[tuple[Task, int]]) -> Counter[int]:
    """How many clients trained in each ordinary round."""
    return Counter(task.round for task, _ in asked if isinstance(task, Train) and task.purpose == "train")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run; tests take copies."""
    return train_run(tmp_path_factory.mktemp("finished") / "run", CONFIG).folder


@pytest.fixture(scope="module")
def reference(finished: Path) -> str:
    """The digest of an uninterrupted run."""
    return digest(Run(finished).load_model())


@pytest.fixture
def trained(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest; tests/report/test_report.py looks at the page."""
    monkeypatch.setattr(auditing, "write_report", lambda *_: None)


def interrupted(folder: Path, after_replies: int, config: RunConfig = CONFIG) -> Path:
    with pytest.raises(Stop):
        train_run(folder, config, progress=stop_at("training", after_replies))
    return folder


# Training.


def test_training_leaves_everything_behind(trained: Path, reference: str):
    run = Run(trained)
    assert run.finished
    assert digest(run.load_model()) == reference
    assert [line["round"] for line in run.metrics()] == [1, 2, 3, 4]
    assert all(0 <= line["test_acc"] <= 100 and line["test_loss"] > 0 for line in run.metrics())
    names = [f"round-{k:03d}.safetensors" for k in range(5)]
    assert sorted(p.name for p in (trained / "checkpoints").iterdir()) == names


def test_the_progress_counts_to_its_total(tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    train_run(tmp_path / "run", CONFIG, progress=lambda *step: seen.append(step))
    assert seen == [("training", done, 12) for done in range(13)]


@pytest.mark.real
@pytest.mark.parametrize("after", [0, 1, 3, 5, 11, 12])
def test_interrupted_and_resumed_ends_with_the_same_bits(tmp_path: Path, reference: str, after: int):
    folder = interrupted(tmp_path / "run", after)
    assert Run(folder).rounds_done == max(0, (after - 1) // 3), "a round counts once it is written down"
    run = train_run(folder)
    assert digest(run.load_model()) == reference
    assert [line["round"] for line in run.metrics()] == [1, 2, 3, 4]


def test_interrupted_again_and_again(tmp_path: Path, reference: str):
    folder = interrupted(tmp_path / "run", 2)
    for after in (5, 5, 8):
        with pytest.raises(Stop):
            train_run(folder, progress=stop_at("training", after))
    assert digest(train_run(folder).load_model()) == reference


def test_a_kill_before_the_first_state_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str):
    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_round", stop)
        with pytest.raises(Stop):
            train_run(tmp_path / "run", CONFIG)
    assert (tmp_path / "run" / "run.json").exists()
    assert digest(train_run(tmp_path / "run").load_model()) == reference


def test_a_finished_run_is_not_trained_again(trained: Path, asked: list[tuple[Task, int]]):
    before = files(trained)
    train_run(trained)
    assert asked == []
    assert files(trained) == before


def test_a_second_trainer_is_refused(tmp_path: Path):
    folder = tmp_path / "run"
    refusals: list[str] = []

    def progress(what: str, done: int, total: int) -> None:
        if done == 4:
            with pytest.raises(InputError) as refusal:
                train_run(folder)
            refusals.append(str(refusal.value))

    train_run(folder, CONFIG, progress=progress)
    assert refusals == [f"Another process is training {folder}; wait for it, or stop it first."]


def test_a_full_disk_stops_training_and_freeing_some_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
):
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 8:
            raise OSError(28, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"^There is no space left on the disk; free some and run the same"):
            train_run(tmp_path / "run", CONFIG)
    assert 0 < Run(tmp_path / "run").rounds_done < 4
    assert digest(train_run(tmp_path / "run").load_model()) == reference


# Requests while training runs.


def test_a_request_during_training_waits_for_the_next_round(tmp_path: Path, asked: list[tuple[Task, int]]):
    """Queued while round 2 runs, served before round 3, and from then on without its data."""
    folder, answers = tmp_path / "run", []

    def progress(what: str, done: int, total: int) -> None:
        if done == 4 and not answers:
            answers.append(forget_run(folder, [CLASS], "overwrite", lr=0.02))
            assert [p.name for p in Run(folder).queued()] == [f"{requests_id([CLASS])}.json"]

    run = train_run(folder, CONFIG, progress=progress)
    assert answers == [None]
    assert run.served == (CLASS,)
    assert run.queued() == []
    excluded = {t.round: t.exclude for t, _ in asked if isinstance(t, Train) and t.purpose == "train"}
    assert excluded == {0: (), 1: (), 2: (CLASS,), 3: (CLASS,)}
    result = json.loads((branch_folder(run, [CLASS], "overwrite", "default") / "result.json").read_text())
    assert result["settings"]["lr"] == 0.02, "single settings wait in the queue too"

    # By hand: two rounds, forget, two rounds without the target.
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    state, schedule = state_of(federation.model), CONFIG.schedule
    for round in (0, 1):
        state = run_round(federation, state, schedule.train_task(round))
    state = forget(federation, state, CLASS, schedule, "overwrite", lr=0.02).state
    for round in (2, 3):
        state = run_round(federation, state, schedule.train_task(round, [CLASS]))
    assert digest(run.load_model()) == digest(state)


@pytest.mark.real
def test_a_request_during_the_last_round_is_served_after_it(tmp_path: Path, finished: Path, reference: str):
    folder, answers = tmp_path / "run", []

    def progress(what: str, done: int, total: int) -> None:
        if what == "training" and done == 11:
            answers.append(forget_run(folder, [CLASS]))

    run = train_run(folder, CONFIG, progress=progress)
    assert answers == [None]
    assert run.queued() == []
    assert run.served == ()
    assert digest(run.load_model()) == reference, "after training a request branches, the trunk stays"
    branch = branch_folder(run, [CLASS], "ladder", "default")
    direct = forget_run(Path(shutil.copytree(finished, tmp_path / "other")), [CLASS])
    assert direct is not None
    for name in ("sha256", "settings", "requests"):
        assert json.loads((branch / "result.json").read_text())[name] == json.loads(
            (direct / "result.json").read_text()
        )[name]  # fmt: skip


def test_a_request_on_an_interrupted_run_is_served_at_once(tmp_path: Path, asked: list[tuple[Task, int]]):
    folder = interrupted(tmp_path / "run", 5)
    branch = forget_run(folder, [CLASS], "fedaf-c", memory="uniform")
    assert branch == branch_folder(Run(folder), [CLASS], "fedaf-c", "default")
    result = json.loads((branch / "result.json").read_text())
    assert result["settings"]["memory"] == "uniform"
    run = Run(folder)
    assert (run.rounds_done, run.served, run.queued()) == (1, (CLASS,), [])
    assert digest(run.load_model()) == digest(load_model(branch / "model.safetensors", result["sha256"]))
    asked.clear()
    train_run(folder)
    assert {t.exclude for t, _ in asked if isinstance(t, Train)} == {(CLASS,)}
    assert run.served == (CLASS,)


def test_a_target_that_training_forgot_already_is_refused(tmp_path: Path):
    folder = interrupted(tmp_path / "run", 5)
    forget_run(folder, [CLASS], "fedaf-c")
    before = files(folder)
    for requests in ([CLASS], [OTHER, CLASS]):
        with pytest.raises(InputError) as refusal:
            forget_run(folder, requests)
        assert str(refusal.value) == (
            "The model has forgotten class 3 of client 0 already; there is nothing left to forget."
        )
    assert files(folder) == before


def test_two_requests_on_an_interrupted_run_add_up(tmp_path: Path, asked: list[tuple[Task, int]]):
    folder = interrupted(tmp_path / "run", 8)
    for request in (CLASS, OTHER):
        forget_run(folder, [request], "fedaf-c")
    asked.clear()
    run = train_run(folder)
    assert run.served == (CLASS, OTHER)
    assert {t.exclude for t, _ in asked if isinstance(t, Train)} == {(CLASS, OTHER)}


@pytest.mark.real
def test_the_second_request_starts_from_the_model_that_was_adopted(trained: Path, no_report: None):
    """And an audit of either compares with the model before it, and with Retrain without all that was gone by then."""
    first = forget_run(trained, [CLASS], adopt=True)
    assert first is not None
    run = Run(trained)
    assert run.served == (CLASS,)
    adopted = run.load_model()
    assert digest(adopted) == digest(load_model(first / "model.safetensors", _result(first)["sha256"]))

    second = forget_run(trained, [OTHER])
    assert second is not None
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    by_hand = forget(federation, adopted, OTHER, CONFIG.schedule, served=[CLASS])
    model = load_model(second / "model.safetensors", _result(second)["sha256"])
    assert digest(model) == digest(by_hand.state)
    assert digest(run.load_model()) == digest(adopted), "what is not adopted leaves the run as it is"

    rows = audit_run(trained, [OTHER]).to_json()["rows"]
    without_both = forget(federation, adopted, OTHER, CONFIG.schedule, "retrain", served=[CLASS])
    assert [row["model"] for row in rows] == [digest(s) for s in (adopted, without_both.state, by_hand.state)]
    rows = audit_run(trained, [CLASS]).to_json()["rows"]
    assert rows[0]["model"] == digest(Run(trained).load_trunk(Trunk.from_json(_result(first)["before"])))
    assert rows[2]["model"] == digest(adopted)


@pytest.mark.real
def test_an_unfinished_retrain_of_another_trunk_is_not_gone_on_with(trained: Path, no_report: None):
    """It trained on what has been forgotten since."""
    with pytest.raises(Stop):
        forget_run(trained, [OTHER], "retrain", progress=stop_at("retrain", 7))
    forget_run(trained, [CLASS], adopt=True)
    folder = forget_run(trained, [OTHER], "retrain")
    assert folder is not None
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    fresh = forget(federation, state_of(federation.model), OTHER, CONFIG.schedule, "retrain", served=[CLASS])
    assert digest(load_model(folder / "model.safetensors", _result(folder)["sha256"])) == digest(fresh.state)


def test_what_was_adopted_is_not_forgotten_twice(trained: Path):
    forget_run(trained, [CLASS], "fedaf-c", adopt=True)
    before = files(trained)
    with pytest.raises(InputError, match=r"^The model has forgotten class 3 of client 0 already"):
        forget_run(trained, [CLASS])
    assert files(trained) == before


def _result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


@pytest.mark.real
@pytest.mark.parametrize("place", ["before the result", "before the state", "before the queue is emptied"])
def test_an_interruption_while_a_queued_request_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str):
    """Whatever was written so far, going on ends as if nothing had happened."""
    undisturbed = interrupted(tmp_path / "undisturbed", 5)
    forget_run(undisturbed, [CLASS], "fedaf-c")
    expected = digest(train_run(undisturbed).load_model())

    folder = interrupted(tmp_path / "run", 5)

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        if place == "before the result":
            patch.setattr(record, "write_sealed", stop)
        elif place == "before the state":
            patch.setattr(run_folder, "write_sealed", stop)
        else:
            patch.setattr(Path, "unlink", stop)
        with pytest.raises(Stop):
            forget_run(folder, [CLASS], "fedaf-c")
    assert Run(folder).load_model(), "the run is whole"
    assert len(Run(folder).queued()) == 1
    run = train_run(folder)
    assert run.served == (CLASS,)
    assert run.queued() == []
    assert digest(run.load_model()) == expected


def test_a_climb_that_is_killed_between_two_rounds_goes_on_at_its_rung(
    tmp_path: Path, asked: list[tuple[Task, int]], monkeypatch: pytest.MonkeyPatch
):
    def purposes() -> set[str]:
        return {task.purpose for task, _ in asked if isinstance(task, Train)}

    folder = interrupted(tmp_path / "run", 5)
    ask = LocalFederation.ask

    def killed(self: LocalFederation, task: Task, state: Mapping[str, Tensor], to: Any = None) -> Iterator[Reply]:
        if isinstance(task, Train) and task.purpose == "rebuilding 0":
            raise Stop
        return ask(self, task, state, to)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFederation, "ask", killed)
        with pytest.raises(Stop):
            forget_run(folder, [CLASS], lowest="rebuild", at_most="rebuild")
    assert "scout" in purposes()
    asked.clear()
    run = train_run(folder)
    assert run.served == (CLASS,)
    assert "scout" not in purposes()
    branch = branch_folder(run, [CLASS], "ladder", "default")
    assert Result.read(branch).retrain["seconds"] > 0
    assert not (branch / "rungs").exists()


def test_a_queued_request_that_fails_does_not_block_training(tmp_path: Path, reference: str):
    folder = interrupted(tmp_path / "run", 5)
    with pytest.raises(InputError, match=r"^A sketch of 1000000000 rows"):
        forget_run(folder, [CLASS], "overwrite", sketch_rows=1_000_000_000)
    assert Run(folder).queued() == []
    assert digest(train_run(folder).load_model()) == reference


def test_a_queued_request_that_diverges_is_written_down(tmp_path: Path, reference: str):
    folder = interrupted(tmp_path / "run", 5)
    with pytest.raises(DivergedError, match="diverged"):
        forget_run(folder, [CLASS], "fedaf", "paper", lr=1e30, epochs=5)
    run = Run(folder)
    assert (run.queued(), run.served) == ([], ())
    result = json.loads((branch_folder(run, [CLASS], "fedaf", "paper") / "result.json").read_text())
    assert "diverged" in result["diverged"]
    assert digest(train_run(folder).load_model()) == reference


def test_a_damaged_queue_is_one_sentence(tmp_path: Path):
    folder = interrupted(tmp_path / "run", 5)
    (folder / "queue").mkdir()
    for content in ("{", "[]", '{"requests": [{"client": 0}]}', "{}"):
        (folder / "queue" / "x.json").write_text(content)
        with pytest.raises(InputError, match=r"^The queued request .*x\.json is damaged; delete it and ask again\.$"):
            train_run(folder)


# Forgetting on a finished run.


@pytest.mark.real
def test_every_method_branches_from_the_trained_model(trained: Path, reference: str):
    for method in ("overwrite", "fedaf", "fedaf-c", "retrain"):
        branch = forget_run(trained, [CLASS], method)
        assert branch is not None
        result = json.loads((branch / "result.json").read_text())
        assert result["target"] == "class 3 of client 0"
        state = load_model(branch / "model.safetensors", result["sha256"])
        federation = CONFIG.build_federation(CONFIG.load_dataset())
        assert digest(state) == digest(
            forget(federation, Run(trained).load_model(), CLASS, CONFIG.schedule, method).state
        )
        assert not list(branch.glob("unfinished*"))
        assert sorted(p.name for p in branch.iterdir()) == ["model.safetensors", "result.json"]
    assert digest(Run(trained).load_model()) == reference


def test_forgetting_twice_overwrites_the_branch(trained: Path):
    first = forget_run(trained, [CLASS], "overwrite", lr=0.01)
    assert first is not None
    before = json.loads((first / "result.json").read_text())
    second = forget_run(trained, [CLASS], "overwrite", lr=0.03)
    assert second == first
    after = json.loads((first / "result.json").read_text())
    assert (before["settings"]["lr"], after["settings"]["lr"]) == (0.01, 0.03)
    assert before["sha256"] != after["sha256"]
    load_model(first / "model.safetensors", after["sha256"])
    assert len(list((trained / "forgotten").iterdir())) == 1


@pytest.mark.real
def test_an_interruption_while_a_branch_is_overwritten_leaves_no_false_result(
    trained: Path, monkeypatch: pytest.MonkeyPatch
):
    branch = forget_run(trained, [CLASS], "overwrite", lr=0.01)
    assert branch is not None

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(record, "write_sealed", stop)
        with pytest.raises(Stop):
            forget_run(trained, [CLASS], "overwrite", lr=0.03)
    assert not (branch / "result.json").exists(), "a new model must not stand beside the old result"
    with pytest.raises(InputError, match=r"^Nothing has been forgotten in"):
        audit_run(trained)
    assert forget_run(trained, [CLASS], "overwrite", lr=0.03) == branch


@pytest.mark.usefixtures("no_report")
def test_divergence_is_written_down_and_the_old_model_stays(trained: Path, reference: str):
    branch = forget_run(trained, [CLASS], "fedaf", "paper")
    assert branch is not None
    with pytest.raises(DivergedError, match="diverged"):
        forget_run(trained, [CLASS], "fedaf", "paper", lr=1e30, epochs=5)
    assert sorted(p.name for p in branch.iterdir()) == ["result.json"], "the model of before is not this result's"
    assert "diverged" in json.loads((branch / "result.json").read_text())
    assert digest(Run(trained).load_model()) == reference
    rows = audit_run(trained).to_json()["rows"]
    (row,) = [row for row in rows if row["method"] == "fedaf"]
    assert row.keys() >= FIELDS
    assert row["test_acc"] is None
    assert "diverged" in row["note"]


@pytest.mark.parametrize(
    "requests",
    [[ErasureRequest.of_class(0, 11)], [ErasureRequest.of_client(8)], [ErasureRequest.of_samples(0, [10**6])], []],
)
def test_what_cannot_be_served_leaves_no_trace(tmp_path: Path, trained: Path, requests: list[ErasureRequest]):
    unfinished = interrupted(tmp_path / "unfinished", 5)
    for folder in (trained, unfinished):
        before = files(folder)
        with pytest.raises(InputError, match=r"does not exist|not among|No erasure request"):
            forget_run(folder, requests)
        assert files(folder) == before


# The audit.


def test_the_rows_hold_every_figure(trained: Path):
    for method in ("fedaf", "fedaf-c"):
        forget_run(trained, [CLASS], method)
    audit = audit_run(trained).to_json()
    assert audit == json.loads((trained / "audit.json").read_text())
    assert [(row["method"], row["preset"]) for row in audit["rows"]] == [
        ("before", None), ("retrain", "default"), ("fedaf", "paper"), ("fedaf-c", "default"),
    ]  # fmt: skip
    assert audit["target_samples"] == CONFIG.build_federation(CONFIG.load_dataset()).check([CLASS])[0].target
    for row in audit["rows"]:
        assert row.keys() >= FIELDS
        percentages = [
            row[name] for name in ("test_acc", "bd_acc", "bd_acc_test", "bd_acc_plain", "true_acc", "retained_acc")
        ]
        assert all(0 <= value <= 100 for value in percentages)
        assert len(row["per_class"]) == 10
        assert row["after_one_round"].keys() >= {"test_acc", "bd_acc"}
        paid = [row[name] for name in ("seconds", "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes")]
        if row["method"] == "before":
            assert paid == [None] * 5
        else:
            assert all(value > 0 for value in paid[:3])
            assert paid[0] == pytest.approx(sum(row["seconds_by_stage"].values()))
    by_method = {row["method"]: row for row in audit["rows"]}
    assert by_method["retrain"]["distance_to_retrain"] == {"weights": 0.0, "disagreement": 0.0, "divergence": 0.0}
    assert by_method["before"]["distance_to_retrain"]["weights"] > 0
    page = (trained / "report.html").read_text()
    assert "class 3 of client 0" in page
    assert page.rstrip().endswith("</html>")


@pytest.mark.real
@pytest.mark.usefixtures("no_report")
def test_an_interrupted_audit_goes_on_with_the_rounds_it_has(trained: Path, asked: list[tuple[Task, int]]):
    forget_run(trained, [CLASS], "fedaf-c")
    whole = forget_run(Path(shutil.copytree(trained, trained.parent / "other")), [CLASS], "retrain")
    assert whole is not None
    asked.clear()
    with pytest.raises(Stop):
        audit_run(trained, progress=stop_at("retrain", 8))
    assert ordinary_rounds(asked) == {0: 3, 1: 3, 2: 2}
    branch = branch_folder(Run(trained), [CLASS], "retrain", "default")
    assert not (branch / "result.json").exists()

    asked.clear()
    audit_run(trained)
    assert ordinary_rounds(asked) == {2: 3, 3: 3}
    uninterrupted, resumed = (json.loads((f / "result.json").read_text()) for f in (whole, branch))
    assert resumed["sha256"] == uninterrupted["sha256"]
    for name in ("gradient_evaluations", "bytes"):
        assert resumed["cost"][name] == uninterrupted["cost"][name], "what was spent before stays on the bill"
    assert sorted(p.name for p in branch.iterdir()) == ["model.safetensors", "result.json"]

    asked.clear()
    audit_run(trained)
    assert ordinary_rounds(asked) == {}, "Retrain is not trained twice"


def test_an_interrupted_retrain_with_other_settings_is_not_gone_on_with(trained: Path):
    """Two oracles begin from different weights: the rounds of one are not the other's."""
    expected = forget_run(Path(shutil.copytree(trained, trained.parent / "other")), [CLASS], "retrain", oracle=1)
    with pytest.raises(Stop):
        forget_run(trained, [CLASS], "retrain", progress=stop_at("retrain", 8))
    branch = forget_run(trained, [CLASS], "retrain", oracle=1)
    assert expected is not None
    assert branch is not None
    both = [json.loads((folder / "result.json").read_text())["sha256"] for folder in (expected, branch)]
    assert both[0] == both[1]


@pytest.mark.real
@pytest.mark.usefixtures("no_report")
def test_two_requests_are_audited_apart(trained: Path):
    both = [CLASS, OTHER]
    for requests in ([CLASS], [OTHER], both):
        forget_run(trained, requests, "fedaf-c")
    targets = {}
    for requests in ([CLASS], [OTHER], both[::-1]):
        audit = audit_run(trained, requests).to_json()
        assert [row["method"] for row in audit["rows"]] == ["before", "retrain", "fedaf-c"]
        targets[audit["target"]] = audit["rows"][2]["model"]
        assert (audit["backdoor"] is not None) == (CLASS in requests)
    assert list(targets) == [
        "class 3 of client 0",
        "class 5 of client 1",
        "class 5 of client 1 and class 3 of client 0",
    ]
    assert len(set(targets.values())) == 3
    assert len(list((trained / "forgotten").glob("retrain-*"))) == 3
    forget_run(trained, [OTHER], "fedaf")
    assert audit_run(trained).to_json()["target"] == "class 5 of client 1", "the newest, where none is named"


def test_nothing_to_audit(trained: Path):
    before = files(trained)
    with pytest.raises(InputError) as refusal:
        audit_run(trained)
    assert str(refusal.value) == (
        f"Nothing has been forgotten in {trained} yet; run `fedforget forget {trained}` first."
    )
    assert files(trained) == before
    forget_run(trained, [CLASS], "fedaf-c")
    with pytest.raises(InputError) as refusal:
        audit_run(trained, [OTHER])
    assert str(refusal.value).startswith("No method has forgotten class 5 of client 1 in ")


def test_a_damaged_result_is_refused(trained: Path):
    branch = forget_run(trained, [CLASS], "fedaf-c")
    assert branch is not None
    good = (branch / "result.json").read_text()
    for bad in ("{", "[]", good.replace('"lr": 0.001', '"lr": 0.002')):
        assert bad != good
        (branch / "result.json").write_text(bad)
        with pytest.raises(InputError, match=r"result\.json is damaged"):
            audit_run(trained)
    (branch / "result.json").write_text(good)
    model = bytearray((branch / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (branch / "model.safetensors").write_bytes(model)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged \(its checksum"):
        audit_run(trained)
    (branch / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors is missing"):
        audit_run(trained)


@pytest.mark.real
@pytest.mark.usefixtures("no_report")
def test_a_whole_client_and_samples_end_to_end(trained: Path):
    ids = CONFIG.build_federation(CONFIG.load_dataset()).client(2).samples.ids[:12].tolist()
    for request in (ErasureRequest.of_client(1), ErasureRequest.of_samples(2, ids)):
        forget_run(trained, [request])
        audit = audit_run(trained, [request]).to_json()
        assert [row["method"] for row in audit["rows"]] == ["before", "retrain", "ladder"]
        assert audit["rows"][0]["bd_acc_test"] is None, "no trigger belongs to this request"
        assert audit["rows"][0]["bd_acc_plain"] is None
        assert audit["rows"][2]["bd_acc"] is not None


# The demo.


@pytest.mark.real
def test_the_demo_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def short(**values: Any) -> Schedule:
        return replace(Schedule(**values), rounds=3, threads=1)

    monkeypatch.setattr(demo, "Schedule", short)
    lines: list[str] = []
    with pytest.raises(Stop):
        demo_run(tmp_path / "demo", progress=stop_at("training", 6), say=lines.append)
    audits = demo_run(tmp_path / "demo", say=lines.append)
    steps = [line for line in lines if not line.startswith(" ")]
    assert steps[0].startswith("1  Training: 4 clients, 1,437 digits. Client 0's threes carry a trigger")
    assert steps[1] == f"1  Going on with the federation in {tmp_path / 'demo'}."
    assert [step[0] for step in steps] == ["1", "1", "2", "3", "4"]
    for audit, report in zip(audits, ("poisoned.html", "honest.html"), strict=True):
        assert [row.name for row in audit.rows][:3] == ["before", "retrain:default", "ladder:default"]
        assert (tmp_path / "demo" / report).stat().st_size > 10_000
    assert audits[0].backdoor is not None
    assert audits[1].backdoor is None


def but_for_seconds(text: str) -> str:
    return re.sub(r"[\d.]+ s\b", "so many seconds", " ".join(text.split()))


@pytest.mark.real
def test_the_demo_shows_the_ladder_and_where_each_request_ended(tmp_path: Path):
    """As a newcomer sees it: what is said is what the README prints."""
    lines: list[str] = []
    poisoned, honest = demo_run(tmp_path / "demo", say=lines.append)
    assert [line.split(":")[0].strip() for line in lines if "of a retraining" in line] == ["rebuild", "rebuild"]
    assert any(line.startswith("   Overwriting is not tried: it would cost not much less here") for line in lines)
    assert sum(line.startswith("   rebuild: exact. ") for line in lines) == 2
    assert [row.method for row in poisoned.rows] == ["before", "retrain", "ladder", "overwrite"]
    alone = poisoned.row("overwrite:default")
    assert alone.now is not None
    assert alone.now.bd_acc == 0.0, "our FedAF, by itself"
    ended = where_it_ended(tmp_path / "demo", poisoned)
    assert ended[0].startswith("class 3 of client 0: Ended at rebuild: exact. ")
    assert ended[1] == "   0.0 % of it is recognised as trained; Retrain, which never saw it, is at 0.0 %."
    assert ended[2].startswith("   The audit says: exact. ")
    assert len(ended) == 3, "nothing is left to ask for"
    ended = where_it_ended(tmp_path / "demo", honest)
    assert ended[0].startswith("class 7 of client 1: Ended at rebuild: exact. ")
    shown = README.read_text().split("<!-- demo-output -->")[1].split("<!-- /demo-output -->")[0]
    for line in (*lines, *where_it_ended(tmp_path / "demo", poisoned), *ended):
        assert but_for_seconds(line.replace(str(tmp_path / "demo"), "demo")) in but_for_seconds(shown)


def test_the_demo_leaves_another_run_alone(tmp_path: Path):
    lines: list[str] = []
    train_run(tmp_path / "else", CONFIG)
    with pytest.raises(InputError, match=r"exists already"):
        demo_run(tmp_path / "else", say=lines.append)
