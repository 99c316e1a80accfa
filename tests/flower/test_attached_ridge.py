"""A ridge head in somebody's own Flower app: solved from the nodes' sums, in the same lines as any network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ridge_flower_app as own
from flower_processes import processes
from flower_runs import flwr_run, make_app
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx, Krum, Strategy
from in_process_grid import InProcessGrid
from own_flower_app import load_data, own_app, own_grid, same_in_one_process
from small_worlds import network

from fedforget.data.partition import partition
from fedforget.errors import ClientError, FedForgetError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import Ridge, random_ridge
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.shards import Ensemble
from fedforget.flower.attach import attach
from fedforget.flower.messages import TASK_TYPE
from fedforget.flower.strategy import Forget
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.attached import AttachedRun
from fedforget.runs.climb import Climb
from fedforget.runs.ladder import forget as climb

SCHEDULE = Schedule(rounds=1, threads=1)
TARGETS: dict[str, tuple[dict[str, Any], ErasureRequest]] = {
    "class": ({"label": 2}, ErasureRequest.of_class(0, 2)),
    "samples": ({"sample_ids": [1, 4, 5]}, ErasureRequest.of_samples(0, [1, 4, 5])),
    "client": ({"whole_node": True}, ErasureRequest.of_client(0)),
    "feature": ({"feature": 4}, ErasureRequest.of_feature(0, 4)),
}


def ridge(masked: bool = False) -> Ridge:
    return random_ridge((6,), 3, 24, 0, masked=masked)


def fedavg() -> FedAvg:
    return FedAvg(min_available_nodes=4)


def grid_of(folder: Path, masked: bool = False) -> InProcessGrid:
    return own_grid(folder, own_app(model=partial(ridge, masked)))


def forgetting(strategy: Strategy | None = None, masked: bool = False, **more: Any) -> Forget:
    words = {"threads": 1, "timeout_s": 0.05, "join_timeout_s": 0.05, **more}
    return Forget(strategy or fedavg(), partial(ridge, masked), **words)


def state_in(arrays: ArrayRecord) -> State:
    return dict(arrays.to_torch_state_dict())


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("kind", TARGETS)
def test_the_app_has_the_bits_of_one_process(tmp_path: Path, kind: str, masked: bool):
    grid, forget = grid_of(tmp_path, masked), forgetting(masked=masked)
    untrained = ArrayRecord(ridge(masked).state_dict())
    before = forget.start(grid, untrained, num_rounds=1, timeout=0.05).arrays
    local = same_in_one_process(partial(ridge, masked))
    expected = train(local, state_of(local.model), SCHEDULE)
    assert digest(state_in(before)) == digest(expected)
    words, request = TARGETS[kind]
    forget.request(partition=0, **words)
    after = forget.start(grid, before, num_rounds=2, timeout=0.05)
    ours = climb(local, expected, request, SCHEDULE)
    assert digest(state_in(after.arrays)) == digest(ours.state) != digest(expected), "two further rounds are the same"
    (made,) = forget.served
    assert isinstance(made, Climb)
    assert ([rung.word for rung in made.rungs], made.exact, made.assumed) == (["exact"], True, ours.assumed)
    assert made.cost.gradient_evaluations == ours.cost.gradient_evaluations, "the others kept their sums"
    forget.check_served()
    assert "train" not in {message.metadata.message_type for _, message in grid.sent}, "the app's own is never called"
    assert set(after.evaluate_metrics_clientapp) == {1, 2}, "the strategy evaluates as ever"


def test_a_request_comes_in_by_the_folder(tmp_path: Path):
    folder, grid = tmp_path / "app", grid_of(tmp_path)
    first = forgetting(folder=folder)
    first.start(grid, ArrayRecord(ridge().state_dict()), num_rounds=1, timeout=0.05)
    before = first.serve(grid, first.arrays)
    forget, request = forgetting(folder=folder), TARGETS["class"][1]
    AttachedRun(folder).ask([request], "ladder", "default", {}, "job")
    arrays = forget.start(grid, before, num_rounds=1, timeout=0.05).arrays
    answer = AttachedRun(folder).answered([request])
    assert (answer["state"], answer["word"]) == ("served", "exact")
    local = same_in_one_process(ridge)
    assert digest(state_in(arrays)) == digest(climb(local, state_of(local.model), request, SCHEDULE).state)


def test_an_app_that_only_attaches_is_enough(tmp_path: Path):
    app = ClientApp()
    attach(app, ridge, load_data)
    forget, local = forgetting(FedAvg(min_available_nodes=4, fraction_evaluate=0.0)), same_in_one_process(ridge)
    untrained = ArrayRecord(ridge().state_dict())
    arrays = forget.start(own_grid(tmp_path, app), untrained, num_rounds=1, timeout=0.05).arrays
    assert digest(state_in(arrays)) == digest(train(local, state_of(local.model), SCHEDULE))


@pytest.mark.slow
@pytest.mark.real
def test_on_a_real_superlink_it_has_the_same_bits(tmp_path: Path):
    """An app of nothing but `attach` and `Forget`, at three SuperNodes."""
    data = own.digits()
    local = LocalFederation(data, partition("iid", data.train.labels, own.SITES, 0), own.head())
    before = train(local, state_of(local.model), SCHEDULE)
    after = climb(local, before, ErasureRequest.of_class(0, own.CLASS), SCHEDULE).state
    app, out = make_app(tmp_path / "app", "ridge_flower_app", "client_app", "server_app"), tmp_path / "out"
    out.mkdir()
    with processes(tmp_path / "flower") as flower:
        flower.start_supernodes(flower.start_superlink(), own.SITES, tmp_path / "nodes")
        told = flwr_run(flower, {"out": str(out)}, app=app)
        assert told == {"before": digest(before), "after": digest(after), "exact": True}, flower.logs()


def test_a_total_that_is_not_whole_is_no_round(tmp_path: Path):
    grid, forget = grid_of(tmp_path), forgetting()
    before = forget.start(grid, ArrayRecord(ridge().state_dict()), num_rounds=1, timeout=0.05).arrays
    grid.change = lambda number, reply: [] if number == 2 and reply.metadata.message_type == TASK_TYPE else [reply]
    with pytest.raises(ClientError, match="Client 2 did not answer"):
        forget.start(grid, before, num_rounds=1, timeout=0.05)


def test_it_waits_for_as_many_nodes_as_the_strategy(tmp_path: Path):
    grid, forget = grid_of(tmp_path), forgetting()
    grid.gone = {3}
    with pytest.raises(FedForgetError, match="3 of 4 clients joined"):
        forget.start(grid, ArrayRecord(ridge().state_dict()), num_rounds=1, timeout=0.05)


@pytest.mark.parametrize("strategy", [FedAdam(), Krum()], ids=["FedAdam", "Krum"])
def test_a_strategy_that_does_more_than_average_is_refused_at_once(strategy: Strategy):
    with pytest.raises(InputError, match=f"nothing that {type(strategy).__name__} does to their answers would be done"):
        forgetting(strategy)


def test_one_that_averages_is_taken():
    forgetting(FedProx())


def test_what_has_no_place_here_is_refused_at_once():
    with pytest.raises(InputError, match="solved in one round, but Forget was given 8; leave rounds out"):
        forgetting(rounds=8)
    with pytest.raises(InputError, match="so an Ensemble would know every client's data"):
        Forget(fedavg(), lambda: Ensemble(network, 2, seed=0))


def test_another_method_is_refused_before_any_work(tmp_path: Path):
    grid, forget = grid_of(tmp_path), forgetting()
    forget.request(partition=0, label=2, method="overwrite")
    with pytest.raises(InputError, match="has a ridge head, so a request has it solved again"):
        forget.serve(grid, ArrayRecord(ridge().state_dict()))
