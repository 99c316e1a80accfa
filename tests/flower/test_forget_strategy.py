"""The server's side of somebody's own Flower app: requests between the rounds of any strategy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedYogi,
    Strategy,
)
from in_process_grid import InProcessGrid
from own_flower_app import QUICK, TRAINING, convolutional, own_app, own_grid, same_in_one_process, site
from small_worlds import network
from torch import nn

from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.evaluation import Evaluation
from fedforget.federation.rounds import Schedule
from fedforget.federation.starts import network_of
from fedforget.federation.tasks import Measure
from fedforget.flower import ClientError
from fedforget.flower.messages import QUERY_TYPE, TASK_TYPE, read_reply, reply_content
from fedforget.flower.strategy import Forget
from fedforget.methods import METHODS, forget
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.params import State, copy_state, digest
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb

TWOS = ErasureRequest.of_class(0, 2)
ONE_TARGET = "Name one target, and whose it is: a label, sample_ids, a feature, or whole_node=True for all of the node."


def fedavg() -> FedAvg:
    return FedAvg(min_available_nodes=4)


def start(strategy: Strategy, grid: InProcessGrid, arrays: ArrayRecord, rounds: int = 1, **more: Any) -> Any:
    random.seed(0)
    return strategy.start(grid, arrays, num_rounds=rounds, timeout=0.05, **more)


def with_batch_norm() -> nn.Module:
    return network(normalised=True)


@pytest.fixture(scope="module")
def before() -> ArrayRecord:
    """What the app knows after six rounds of its own."""
    return start(fedavg(), own_grid(None, own_app(attached=False)), ArrayRecord(network().state_dict()), 6).arrays


def state_in(arrays: ArrayRecord) -> State:
    return dict(arrays.to_torch_state_dict())


def twos_known(arrays: ArrayRecord) -> float:
    """Accuracy on the class that only site 0 has, in percent."""
    federation = same_in_one_process()
    (reply,) = federation.ask(Measure(seed=0, threads=1, requests=(TWOS,)), state_in(arrays), [0])
    accuracy = Evaluation.from_numbers(reply.numbers, "target").accuracy
    assert accuracy is not None
    return accuracy


def served(strategy: Forget, grid: InProcessGrid, arrays: ArrayRecord, **request: Any) -> ArrayRecord:
    strategy.request(**({"partition": 0, "label": 2, "method": "overwrite"} | request))
    return strategy.serve(grid, arrays)


# What comes of a request


@pytest.mark.daily(4)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_bits_of_one_process(tmp_path: Path, before: ArrayRecord, method: str):
    model, grid = network, own_grid(tmp_path)
    if method == "cdp":
        model, grid = convolutional, own_grid(tmp_path, own_app(model=convolutional))
        before = ArrayRecord(convolutional().state_dict())
    strategy = Forget(fedavg(), model, **TRAINING)
    if method == "retrain":
        return  # it is the app's own training: see below
    if METHODS[method].needs_history:
        with pytest.raises(InputError, match="needs the clients' models of training, but none were kept"):
            served(strategy, grid, before, method=method)
        return
    arrays = served(strategy, grid, before, method=method)
    expected = forget(same_in_one_process(model), state_in(before), TWOS, Schedule(**TRAINING), method)
    assert digest(state_in(arrays)) == digest(expected.state)
    (result,) = strategy.served
    assert (result.method, result.requests) == (method, (TWOS,))
    assert result.cost.gradient_evaluations == expected.cost.gradient_evaluations > 0
    assert result.cost.bytes == expected.cost.bytes > 0
    assert strategy.waiting == []


class Own(nn.Sequential):
    """An app's own network, whose first weights no layer would draw."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
        for layer in (self[0], self[2]):
            nn.init.normal_(layer.weight, mean=0.1, std=0.02)  # type: ignore[arg-type]


def test_a_retrain_is_the_apps_own_training_from_its_own_fresh_weights(tmp_path: Path):
    """Its strategy, its train function, its config: here the rounds of the app, by hand, without the twos."""
    before = ArrayRecord(Own().state_dict())
    strategy = Forget(FedAdam(eta=0.03, min_available_nodes=4), Own, **TRAINING)
    arrays = served(strategy, own_grid(tmp_path, own_app(model=Own)), before, method="retrain")
    fresh = fresh_start(network_of(Own), Schedule(**TRAINING), RetrainSettings())
    rounds = int(TRAINING["rounds"])
    by_hand = start(FedAdam(eta=0.03, min_available_nodes=4), own_grid(tmp_path, own_app(model=Own)),
                    ArrayRecord(fresh), rounds)  # fmt: skip
    assert [metrics["twos"] for metrics in by_hand.train_metrics_clientapp.values()] == [0] * rounds
    for name, array in by_hand.arrays.items():  # up to the order in which the strategy sums
        assert np.allclose(arrays[name].numpy(), array.numpy(), atol=1e-4)
    (result,) = strategy.served
    assert isinstance(result, Climb)
    assert ([(rung.name, rung.word) for rung in result.rungs], result.exact) == ([("retrain", "exact")], True)
    left = sum(len(site(number)[1]) for number in range(4)) - int((site(0)[1] == 2).sum())
    assert result.cost.gradient_evaluations == rounds * left


def test_a_retrain_from_arrays_that_are_given_is_not_exact(tmp_path: Path):
    pretrained = ArrayRecord({f"body.{name}": Array(t.numpy() + 1) for name, t in Own().state_dict().items()})
    strategy = Forget(fedavg(), Own, initial=pretrained, **TRAINING)
    grid = own_grid(tmp_path, own_app(model=Own))
    served(strategy, grid, ArrayRecord(Own().state_dict()), method="retrain")
    assert not strategy.served[0].exact
    first = next(m for _, m in grid.sent if m.metadata.message_type == "train")
    sent = first.content["arrays"]["0.bias"].numpy()
    assert np.allclose(sent, pretrained["body.0.bias"].numpy())


@pytest.mark.daily(4)
@pytest.mark.parametrize(
    "target", [{"label": 2}, {"label": None, "whole_node": True}, {"label": None, "sample_ids": [2, 5, 8]}]
)
@pytest.mark.parametrize("node", ["partition", "name", "node_id"])
def test_a_node_has_three_names_and_a_request_three_kinds(
    tmp_path: Path, before: ArrayRecord, target: dict[str, Any], node: str
):
    grid = own_grid(tmp_path)
    node_id = next(node for node, number in grid.numbers.items() if number == 0)
    who = {"partition": 0} if node == "partition" else {"partition": None, "name": "site 0"}
    who = {"partition": None, "node_id": node_id} if node == "node_id" else who
    arrays = served(Forget(fedavg(), network, **TRAINING), grid, before, method="fedquit", **who, **target)
    request = ErasureRequest.of_client(0) if "whole_node" in target else TWOS
    request = ErasureRequest.of_samples(0, target["sample_ids"]) if "sample_ids" in target else request
    expected = forget(same_in_one_process(), state_in(before), request, Schedule(**TRAINING), "fedquit")
    assert digest(state_in(arrays)) == digest(expected.state)


def test_presets_and_settings_reach_the_method(tmp_path: Path, before: ArrayRecord):
    strategy = Forget(fedavg(), network, **TRAINING)
    served(strategy, own_grid(tmp_path), before, method="pgd", preset="default", recovery_rounds=1)
    assert (strategy.served[0].preset, strategy.served[0].settings.recovery_rounds) == ("default", 1)


def test_names_and_types_are_those_of_the_app(tmp_path: Path):
    """Averaging makes floats of BatchNorm's counter, and an app may number its arrays or halve them."""
    own = with_batch_norm().state_dict()
    arrays = ArrayRecord({str(k): Array(np.asarray(t.double().numpy())) for k, t in enumerate(own.values())})
    arrays["0"] = Array(own["0.weight"].half().numpy())
    grid = own_grid(tmp_path, own_app(model=with_batch_norm))
    changed = served(Forget(fedavg(), with_batch_norm, **TRAINING), grid, arrays, method="not")
    assert list(changed) == list(arrays)
    assert [(a.dtype, a.shape) for a in changed.values()] == [(a.dtype, a.shape) for a in arrays.values()]
    assert changed["0"].numpy().tolist() != arrays["0"].numpy().tolist()


# The rounds


def test_rounds_without_a_request_are_the_inner_strategys(tmp_path: Path, before: ArrayRecord):
    for make in (fedavg, lambda: FedMedian(min_available_nodes=4), lambda: FedAdam(min_available_nodes=4)):
        plain = start(make(), own_grid(tmp_path), before, 2)
        wrapped = start(Forget(make(), network), own_grid(tmp_path), before, 2)
        assert digest(state_in(plain.arrays)) == digest(state_in(wrapped.arrays))
        assert plain.train_metrics_clientapp == wrapped.train_metrics_clientapp
        assert plain.evaluate_metrics_clientapp == wrapped.evaluate_metrics_clientapp


@pytest.mark.real
def test_what_was_forgotten_stays_forgotten_in_rounds_and_runs_to_come(tmp_path: Path, before: ArrayRecord):
    assert twos_known(before) >= 80
    strategy = Forget(fedavg(), network, **TRAINING)
    arrays = served(strategy, own_grid(tmp_path), before)
    assert twos_known(arrays) < 20
    result = start(strategy, own_grid(tmp_path), arrays, 12)
    assert [metrics["twos"] for metrics in result.train_metrics_clientapp.values()] == [0] * 12
    assert twos_known(result.arrays) < 20
    relearnt = start(fedavg(), own_grid(None, own_app(attached=False)), arrays, 12)
    assert twos_known(relearnt.arrays) >= 50, "without `retained` it comes back"


def test_a_request_that_comes_in_a_round_is_served_before_the_next(tmp_path: Path, before: ArrayRecord):
    strategy, grid = Forget(fedavg(), network, **TRAINING), own_grid(tmp_path)
    twos = []

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        twos.append(twos_known(arrays) > 50)
        if round == 1:
            strategy.request(partition=0, label=2, method="overwrite")
        return None

    result = start(strategy, grid, before, 3, evaluate_fn=evaluate)
    assert twos == [True, True, False, False]
    assert len(strategy.served) == 1
    assert [metrics["twos"] > 0 for metrics in result.train_metrics_clientapp.values()] == [True, False, False]


def test_a_round_in_which_nobody_trains_does_not_undo_the_request(tmp_path: Path, before: ArrayRecord):
    grid = own_grid(tmp_path)
    strategy = Forget(fedavg(), network, **QUICK)
    strategy.request(partition=0, label=2, method="overwrite")
    grid.change = lambda _, reply: [] if reply.metadata.message_type == "train" else [reply]
    assert twos_known(start(strategy, grid, before).arrays) < 20


# What goes wrong


def spoil(number: int, message: Message) -> list[Message]:
    """NaN from the target, in answer to every task with tensors."""
    if number == 0 and message.metadata.message_type == TASK_TYPE:
        reply = read_reply(message.content, 0)
        tensors = copy_state(reply.tensors)
        for tensor in tensors.values():
            tensor.view(-1)[-1] = math.nan
        message.content = reply_content(replace(reply, tensors=tensors))
    return [message]


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [
        ("gone", ClientError, "Client 0 is not connected; there are the clients 1, 2, 3."),
        ("dead", ClientError, "Client 0 is not connected; there are the clients 1, 2, 3."),
        ("later", ClientError, "Client 0 went away: its node no longer gives Flower a sign of life."),
        ("NaN", DivergedError, "at client 0 diverged: its '"),
    ],
)
def test_a_request_that_fails_changes_nothing_and_can_be_tried_again(
    tmp_path: Path, before: ArrayRecord, fault: str, error: type[FedForgetError], sentence: str
):
    grid = own_grid(tmp_path)
    strategy = Forget(fedavg(), network, **QUICK)
    bits = digest(state_in(before))
    if fault == "NaN":
        grid.change = spoil
    elif fault == "later":
        grid.change = lambda number, reply: _dies(grid, number, reply)
    else:
        getattr(grid, fault).add(0)
    with pytest.raises(error) as refusal:
        served(strategy, grid, before)
    assert sentence in str(refusal.value)
    assert digest(state_in(before)) == bits
    assert (len(strategy.waiting), strategy.served) == (1, [])
    grid.change = lambda _, reply: [reply]
    grid.dead.clear()
    grid.gone.clear()
    assert twos_known(strategy.serve(grid, before)) < 20
    assert (strategy.waiting, len(strategy.served)) == ([], 1)


def _dies(grid: InProcessGrid, number: int, reply: Message) -> list[Message]:
    """The target says who it is, and is never heard of again."""
    if number == 0 and reply.metadata.message_type == QUERY_TYPE:
        grid.dead.add(0)
    return [reply]


def test_two_requests_are_served_together_or_not_at_all(tmp_path: Path, before: ArrayRecord):
    strategy, grid = Forget(fedavg(), network, **QUICK), own_grid(tmp_path)
    strategy.request(partition=0, label=2, method="overwrite")
    strategy.request(partition=1, label=1, method="overwrite")
    grid.gone.add(1)
    with pytest.raises(ClientError, match=r"^Client 1 is not connected"):
        strategy.serve(grid, before)
    assert (len(strategy.waiting), strategy.served) == (2, [])
    grid.gone.clear()
    arrays = strategy.serve(grid, before)
    first = forget(same_in_one_process(), state_in(before), TWOS, Schedule(**TRAINING), "overwrite")
    ones = ErasureRequest.of_class(1, 1)
    both = forget(same_in_one_process(), first.state, ones, Schedule(**TRAINING), "overwrite", served=[TWOS])
    assert digest(state_in(arrays)) == digest(both.state)
    assert [result.requests for result in strategy.served] == [(TWOS,), (ones,)]


def test_what_was_served_earlier_is_told_to_the_method(tmp_path: Path, before: ArrayRecord):
    """The nodes here have lost their memory, so only the server knows what no round may look at."""
    strategy = Forget(fedavg(), network, **QUICK)
    arrays = served(strategy, own_grid(tmp_path / "first"), before, method="not")
    arrays = served(strategy, own_grid(tmp_path / "second"), arrays, method="not", partition=1, label=1)
    first = forget(same_in_one_process(), state_in(before), TWOS, Schedule(**TRAINING), "not")
    ones = ErasureRequest.of_class(1, 1)
    second = forget(same_in_one_process(), first.state, ones, Schedule(**TRAINING), "not", served=[TWOS])
    assert digest(state_in(arrays)) == digest(second.state)


@pytest.mark.parametrize("fault", ["gone", "NaN", "broken"])
def test_a_request_that_fails_inside_start_costs_no_round_and_is_tried_again(
    tmp_path: Path, before: ArrayRecord, fault: str
):
    """The node is away, diverges, or its task ends in an exception; then, in the third round, all is well."""
    sentences = {"gone": "is not connected", "NaN": "diverged: its '", "broken": "a cosmic ray"}
    grid = own_grid(tmp_path)
    strategy = Forget(FedAvg(min_available_nodes=3), network, **QUICK)
    strategy.request(partition=0, label=2, method="overwrite")
    if fault == "gone":
        grid.gone.add(0)
    else:
        grid.change = spoil if fault == "NaN" else struck
    known, failures = [], []

    def evaluate(round: int, arrays: ArrayRecord) -> None:
        known.append(twos_known(arrays) > 50)
        failures.append(str(strategy.failure or ""))
        if round == 2:
            grid.gone.clear()
            grid.change = lambda _, reply: [reply]

    result = start(strategy, grid, before, 4, evaluate_fn=evaluate)
    assert len(result.train_metrics_clientapp) == 4, "every round took place"
    assert [sentences[fault] in failure for failure in failures] == [True, True, True, False, False]
    assert known == [True, True, True, False, False] if fault == "gone" else known[3:] == [False, False]
    assert (strategy.waiting, len(strategy.served), strategy.failure) == ([], 1, None)
    strategy.check_served()


def struck(number: int, message: Message) -> list[Message]:
    """An exception in the target's task, as Flower reports it."""
    if number == 0 and message.metadata.message_type == TASK_TYPE:
        error = Message(Error(2, "<class 'RuntimeError'>:<'a cosmic ray'>"), reply_to=message)
        error.metadata.__dict__["_reply_to_message_id"] = message.metadata.reply_to_message_id
        return [error]
    return [message]


def test_a_request_that_nobody_can_serve_costs_no_training_and_is_not_passed_over(tmp_path: Path, before: ArrayRecord):
    strategy = Forget(fedavg(), network, **QUICK)
    strategy.request(partition=7, label=0, method="overwrite")
    result = start(strategy, own_grid(tmp_path), before, 2)
    plain = start(fedavg(), own_grid(tmp_path), before, 2)
    assert digest(state_in(result.arrays)) == digest(state_in(plain.arrays))
    with pytest.raises(ClientError, match=r"^Client 7 is not connected; there are the clients 0, 1, 2, 3\.$"):
        strategy.check_served()
    strategy.waiting.clear()
    strategy.check_served()


def test_a_start_that_is_still_to_come_is_not_a_request_served():
    strategy = Forget(fedavg(), network, **TRAINING)
    strategy.check_served()
    strategy.request(partition=0, label=2, method="overwrite")
    with pytest.raises(InputError, match=r"^A request is still waiting; serve it, or start another round\.$"):
        strategy.check_served()


# What a strategy remembers


def clipping(inner: Strategy) -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 5.0, 4)


def adapting(inner: Strategy) -> Strategy:
    return DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.0, 4, 5.0, clipped_count_stddev=0.0)


REMEMBERING = {
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9, min_available_nodes=4),
    "FedAdagrad": lambda: FedAdagrad(eta=0.05, min_available_nodes=4),
    "FedAdam": lambda: FedAdam(eta=0.03, min_available_nodes=4),
    "FedYogi": lambda: FedYogi(eta=0.03, min_available_nodes=4),
    "clipping": lambda: clipping(FedAvgM(server_momentum=0.9, min_available_nodes=4)),
    "adapting": lambda: adapting(FedAvgM(server_momentum=0.9, min_available_nodes=4)),
}


@pytest.mark.parametrize("kind", REMEMBERING)
def test_after_a_retraining_a_strategy_goes_on_as_one_that_trained_so(tmp_path: Path, before: ArrayRecord, kind: str):
    """What it remembers then is of the new model: to drop that would lengthen FedAdagrad's steps again."""
    used, by_hand = REMEMBERING[kind](), REMEMBERING[kind]()
    strategy = Forget(used, network, **TRAINING)
    arrays = served(strategy, own_grid(tmp_path), before, method="retrain")
    later = start(strategy, own_grid(tmp_path), arrays, 2).arrays
    fresh = ArrayRecord(fresh_start(network_of(network), Schedule(**TRAINING), RetrainSettings()))
    expected = start(by_hand, own_grid(tmp_path), fresh, int(TRAINING["rounds"])).arrays
    expected = start(by_hand, own_grid(tmp_path), expected, 2).arrays
    for name, array in expected.items():  # up to the order in which the strategy sums
        assert np.allclose(later[name].numpy(), array.numpy(), atol=1e-3)


@pytest.mark.parametrize("fails", [False, True])
def test_a_retraining_begins_with_the_clipping_norm_of_the_beginning(tmp_path: Path, fails: bool):
    """The norm follows the updates down; a fresh model could hardly learn under that of a trained one."""
    used, grid = adapting(fedavg()), own_grid(tmp_path)
    strategy = Forget(used, network, **TRAINING)
    before = start(strategy, grid, ArrayRecord(network().state_dict()), 3).arrays
    adapted = used.clipping_norm
    strategy.request(partition=0, label=2, method="retrain")
    if fails:
        grid.change = lambda number, reply: [] if reply.metadata.message_type == "train" else [reply]
        with pytest.raises(FedForgetError, match=r"^The app's own training failed in round 1 of its retraining: float"):
            strategy.serve(grid, before)
        assert used.clipping_norm == adapted, "the training goes on as it was"
        return
    arrays = strategy.serve(grid, before)
    by_hand = adapting(fedavg())
    fresh = ArrayRecord(fresh_start(network_of(network), Schedule(**TRAINING), RetrainSettings()))
    expected = start(by_hand, own_grid(tmp_path), fresh, int(TRAINING["rounds"])).arrays
    assert used.clipping_norm == by_hand.clipping_norm != adapted
    for name, array in expected.items():  # up to the order in which the strategy sums
        assert np.allclose(arrays[name].numpy(), array.numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", REMEMBERING)
def test_after_a_request_a_strategy_goes_on_as_one_that_never_met_the_target(
    tmp_path: Path, before: ArrayRecord, kind: str
):
    """Momentum and moments are old updates, and a remembered model is the old one."""
    used = REMEMBERING[kind]()
    arrays = start(used, own_grid(tmp_path), before, 3).arrays
    strategy = Forget(used, network, **TRAINING)
    arrays = served(strategy, own_grid(tmp_path), arrays)
    norm = getattr(used, "clipping_norm", None)
    later = start(strategy, own_grid(tmp_path), arrays, 2).arrays
    fresh = REMEMBERING[kind]()
    if kind == "adapting":
        fresh.clipping_norm = norm
    expected = start(fresh, own_grid(tmp_path), arrays, 2).arrays
    assert digest(state_in(later)) == digest(state_in(expected))


def test_a_request_in_a_later_round_renews_the_memory_too(tmp_path: Path, before: ArrayRecord):
    momentum = FedAvgM(server_momentum=0.9, min_available_nodes=4)
    strategy = Forget(momentum, network, **QUICK)

    def evaluate(round: int, arrays: ArrayRecord) -> None:
        if round == 2:
            assert momentum.momentum_vector is not None
            strategy.request(partition=0, label=2, method="overwrite")

    later = start(strategy, own_grid(tmp_path), before, 3, evaluate_fn=evaluate).arrays
    fresh = FedAvgM(server_momentum=0.9, min_available_nodes=4)
    expected = start(fresh, own_grid(tmp_path), ArrayRecord(strategy.served[0].state)).arrays
    assert digest(state_in(later)) == digest(state_in(expected))


class Averaging(FedAvg):
    """A strategy of somebody's own, with a running average of the model."""

    def __init__(self) -> None:
        super().__init__(min_available_nodes=4)
        self.best = 0.0
        self.losses = [0.5]
        self.average: list[Any] | None = None

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        self.average = arrays.to_numpy_ndarrays()
        return arrays, metrics


def test_a_memory_that_nobody_knows_is_refused_by_name(tmp_path: Path, before: ArrayRecord):
    inner = Averaging()
    strategy = Forget(clipping(inner), network, **TRAINING)
    start(strategy, own_grid(tmp_path), before)
    with pytest.raises(InputError, match=r"^The strategy Averaging remembers arrays in its 'average', which could"):
        served(strategy, own_grid(tmp_path), before)
    inner.average = None
    strategy.serve(own_grid(tmp_path), before)


@pytest.mark.parametrize("around", [clipping, adapting])
def test_a_strategy_around_forget_would_clip_against_the_old_model(
    tmp_path: Path, before: ArrayRecord, around: Callable[[Strategy], Strategy]
):
    """So nothing is served in its rounds, which lose nothing; and between two of its starts everything is."""
    strategy = Forget(fedavg(), network, **TRAINING)
    strategy.request(partition=0, label=2, method="overwrite")
    result = start(around(strategy), own_grid(tmp_path), before, 2)
    plain = start(around(fedavg()), own_grid(tmp_path), before, 2)
    assert digest(state_in(result.arrays)) == digest(state_in(plain.arrays))
    with pytest.raises(InputError, match=r"^A strategy around Forget, .* put Forget outermost, or call its serve"):
        strategy.check_served()
    arrays = strategy.serve(own_grid(tmp_path), result.arrays)
    strategy.check_served()
    assert twos_known(arrays) < 20
    assert twos_known(start(around(strategy), own_grid(tmp_path), arrays, 2).arrays) < 20


# Refusals


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({}, "Name the node of the request by one of partition, name and node_id."),
        ({"partition": 0, "name": "site 0"}, "Name the node of the request by one of partition, name and node_id."),
        ({"partition": 0}, ONE_TARGET),
        (
            {"partition": 0, "label": None},
            ONE_TARGET,
        ),
        (
            {"partition": 0, "label": 1, "whole_node": True},
            ONE_TARGET,
        ),
        (
            {"partition": 0, "label": 1, "sample_ids": [1]},
            ONE_TARGET,
        ),
        (
            {"partition": 0, "label": 1, "feature": 2},
            ONE_TARGET,
        ),
        ({"partition": 0, "feature": (1, 2)}, "'1,2' is no feature; give the number of a column, or a patch as"),
        ({"partition": 0, "feature": 2, "method": "sga"}, "Method 'sga' cannot forget column 2 of client 0: it takes"),
        (
            {"partition": 0, "feature": 2, "method": "fedaf"},
            "Method 'fedaf' cannot forget column 2 of client 0: it is the paper's, which says nothing of features;",
        ),
        (
            {"name": "site 1", "feature": 2, "method": "sga"},
            "Method 'sga' cannot forget column 2 of client 0: it takes",
        ),
        (
            {"partition": 0, "label": 2, "method": "magic"},
            "Method 'magic' is unknown; choose one of ladder, overwrite, rebuild, retrain, fedaf,",
        ),
        (
            {"partition": 0, "label": 2},
            "A request may end at a retraining, through the app's own rounds; say how many the app trains: "
            "Forget(..., rounds=8).",
        ),
        (
            {"partition": 0, "label": 2, "method": "overwrite", "preset": "best"},
            "Method 'overwrite' has no preset 'best'; choose one of default.",
        ),
        (
            {"partition": 0, "label": 2, "method": "fedaf", "preset": "best"},
            "Method 'fedaf' has no preset 'best'; choose one of paper, literal.",
        ),
        (
            {"partition": 0, "label": 2, "method": "overwrite", "speed": 3},
            "Method 'overwrite' has no setting 'speed'; it has ",
        ),
    ],
)
def test_a_request_that_means_nothing_is_refused_at_once(request_: dict[str, Any], sentence: str):
    strategy = Forget(fedavg(), network)
    with pytest.raises(InputError) as refusal:
        strategy.request(**request_)
    assert str(refusal.value).startswith(sentence)
    assert strategy.waiting == []


@pytest.mark.parametrize(
    ("request_", "error", "sentence"),
    [
        (
            {"partition": 4, "whole_node": True},
            ClientError,
            "Client 4 is not connected; there are the clients 0, 1, 2, 3.",
        ),
        (
            {"name": "site 9", "label": 2},
            InputError,
            "No client named 'site 9' is connected; there are site 0, site 1, site 2,",
        ),
        ({"node_id": 5, "label": 2}, InputError, "No client on node 5 is connected; there are site 0,"),
        ({"partition": 1, "label": 2}, InputError, "Client 1 holds no sample of class 2; it holds classes 0, 1."),
        ({"partition": 1, "label": 3}, InputError, "Class 3 does not exist; the data has classes 0 to 2."),
        ({"partition": 1, "sample_ids": [20]}, InputError, "Sample 20 is not among client 1's data;"),
        ({"partition": 1, "feature": 6}, InputError, "Column 6 does not exist; the table has columns 0 to 5."),
    ],
)
def test_a_request_for_what_is_not_there_is_refused(
    tmp_path: Path, before: ArrayRecord, request_: dict[str, Any], error: type[FedForgetError], sentence: str
):
    strategy = Forget(fedavg(), network, **QUICK)
    strategy.request(**request_)
    with pytest.raises(error) as refusal:
        strategy.serve(own_grid(tmp_path), before)
    assert str(refusal.value).startswith(sentence)


def test_another_model_is_refused(tmp_path: Path, before: ArrayRecord):
    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    strategy = Forget(fedavg(), wide, **QUICK)
    with pytest.raises(InputError, match=r"that Forget was given: its '0\.weight' has no array of that shape\.$"):
        served(strategy, own_grid(tmp_path), before)
    with pytest.raises(
        FedForgetError,
        match=r"^0 of 1 clients can take part\. .*: it has another model",
    ):
        strategy.serve(own_grid(tmp_path), ArrayRecord(wide().state_dict()))
    more = ArrayRecord({**before, "odd": Array(np.zeros(2))})
    with pytest.raises(InputError, match=r"that Forget was given: there are more arrays than that\.$"):
        served(Forget(fedavg(), network, **QUICK), own_grid(tmp_path), more)


def test_a_damaged_model_is_refused(tmp_path: Path, before: ArrayRecord):
    arrays = ArrayRecord({**before, "0.bias": Array(np.full(10, np.nan, dtype=np.float32))})
    with pytest.raises(InputError, match=r"^The model to forget from is damaged: its '0\.bias' is not finite\.$"):
        served(Forget(fedavg(), network, **QUICK), own_grid(tmp_path), arrays)


def test_a_node_without_a_memory_takes_no_request(before: ArrayRecord):
    """Its own training could not leave out what it withdrew."""
    with pytest.raises(InputError, match=r"^Client 0 has no state-dir, so it cannot know what it has withdrawn; name"):
        served(Forget(fedavg(), network, **QUICK), own_grid(None), before)
