"""FedEraser: the calibrated update, the whole reconstruction by hand, who is calibrated when, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import slow_twins
import torch
from small_worlds import SCHEDULE, federation, trained

from fedforget.errors import InputError
from fedforget.federation.history import MemoryHistory
from fedforget.federation.rounds import train
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.federaser import FedEraserSettings, calibrate, calibration_task
from fedforget.params import State, state_bytes, state_of
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 1)
WHOLE = ErasureRequest.of_client(2)


def test_the_calibrated_update_has_the_old_length_and_the_new_direction():
    generator = torch.Generator().manual_seed(0)
    anchor, new, old = ({"a": a, "b": b} for a, b in zip(
        torch.randn(3, 4, 3, generator=generator), torch.randn(3, 5, generator=generator), strict=True
    ))  # fmt: skip
    lengths = {name: float(tensor.norm()) for name, tensor in old.items()}
    moved = calibrate(anchor, {name: anchor[name] + new[name] for name in anchor}, lengths)
    for name in anchor:
        update = (moved[name] - anchor[name]).flatten().tolist()
        expected = slow_twins.calibrated(old[name].flatten().tolist(), new[name].flatten().tolist())
        assert update == pytest.approx(expected, abs=1e-5)
        assert slow_twins.length(update) == pytest.approx(lengths[name], rel=1e-5)


def test_what_did_not_move_stays_and_what_has_no_length_is_as_trained():
    anchor, trained_to = {"w": torch.ones(3), "n": torch.tensor(4)}, {"w": torch.ones(3), "n": torch.tensor(9)}
    moved = calibrate(anchor, trained_to, {"w": 5.0})
    assert moved["w"].tolist() == [1.0, 1.0, 1.0]
    assert int(moved["n"]) == 9


@pytest.mark.parametrize(("epochs", "share", "expected"), [
    (1, 0.5, (1, 0.5)), (2, 0.5, (1, 1.0)), (3, 0.5, (2, 0.75)), (4, 1.0, (4, 1.0)), (5, 0.1, (1, 0.5)),
])  # fmt: skip
def test_a_calibration_takes_that_share_of_the_local_work(epochs: int, share: float, expected: tuple[int, float]):
    task = calibration_task(replace(SCHEDULE, epochs=epochs), FedEraserSettings(share), 4, [CLASS])
    assert (task.epochs, task.share) == expected
    assert task.epochs * task.share == pytest.approx(share * epochs)
    assert (task.round, task.exclude) == (4, (CLASS,))


def by_hand(request: ErasureRequest, history: MemoryHistory, retained: dict[int, int]) -> dict[str, list[float]]:
    """The docstring's algorithm with lists of numbers; local training itself is the federation's."""
    world = federation()
    m = {name: tensor.flatten().tolist() for name, tensor in history.sent(0).items()}
    shapes = {name: tensor.shape for name, tensor in history.sent(0).items()}
    for round in history.rounds:
        sent = {name: tensor.flatten().tolist() for name, tensor in history.sent(round).items()}
        total: dict[str, list[float]] = {name: [0.0] * len(values) for name, values in m.items()}
        for client, model in history.returned(round):
            if client not in retained:
                continue
            old = {name: [a - b for a, b in zip(model[name].flatten().tolist(), sent[name], strict=True)] for name in m}
            update = old
            if round > 0 or client == request.client:
                state: State = {name: torch.tensor(values).view(shapes[name]) for name, values in m.items()}
                task = replace(SCHEDULE.train_task(round, [request]), share=0.5, purpose="calibration")
                (reply,) = world.ask(task, state, [client])
                new = {
                    name: [a - b for a, b in zip(reply.tensors[name].flatten().tolist(), m[name], strict=True)]
                    for name in m
                }
                update = {name: slow_twins.calibrated(old[name], new[name]) for name in m}
            for name in m:
                total[name] = [t + retained[client] * u for t, u in zip(total[name], update[name], strict=True)]
        m = {name: [a + t / sum(retained.values()) for a, t in zip(m[name], total[name], strict=True)] for name in m}
    return m


@pytest.mark.parametrize(("request_", "retained"), [
    (CLASS, {0: 20, 1: 20, 2: 25, 3: 15}), (WHOLE, {0: 30, 1: 20, 3: 15}),
])  # fmt: skip
def test_the_whole_reconstruction_by_hand(request_: ErasureRequest, retained: dict[int, int]):
    world, before, history = trained()
    assert list(history.rounds) == [0, 2, 4]
    result = forget(world, before, request_, SCHEDULE, "federaser", history=history)
    expected = by_hand(request_, history, retained)
    for name, tensor in result.state.items():
        assert tensor.flatten().tolist() == pytest.approx(expected[name], abs=1e-5), name


def test_the_first_kept_round_is_calibrated_only_where_the_update_saw_the_target():
    world, before, history = trained()
    asked: dict[int, list[int]] = {}
    forget(world, before, CLASS, SCHEDULE, "federaser", history=history, served=[ErasureRequest.of_class(1, 2)])
    for task, _, reply in world.log:
        if isinstance(task, Train):
            asked.setdefault(task.round, []).append(reply.client)
    assert asked == {0: [0, 1], 2: [0, 1, 2, 3], 4: [0, 1, 2, 3]}


def test_after_one_kept_round_a_withdrawn_client_was_never_there():
    """Only round 0 is kept, and nobody in it knew the client: the others' average, without any training."""
    world, before, history = trained(interval=9)
    result = forget(world, before, WHOLE, SCHEDULE, "federaser", history=history)
    models = [model for client, model in history.returned(0) if client != 2]
    mean = slow_twins.federated_average(models, [30, 20, 15])
    for name, tensor in result.state.items():
        assert tensor.flatten().tolist() == pytest.approx(mean[name], abs=1e-6)
    assert result.cost.gradient_evaluations == 0


def test_a_client_that_keeps_nothing_is_left_out():
    world, before, history = trained()
    served = [ErasureRequest.of_class(0, 0), ErasureRequest.of_class(0, 2)]
    forget(world, before, CLASS, SCHEDULE, "federaser", history=history, served=served)
    assert all(reply.client != 0 for task, _, reply in world.log if isinstance(task, Train))


def test_running_statistics_are_those_of_the_calibration():
    world, before, history = trained(normalised=True)
    result = forget(world, before, CLASS, SCHEDULE, "federaser", history=history)
    last = [reply for task, _, reply in world.log if isinstance(task, Train) and task.round == 4]
    expected = sum(n * r.tensors["1.running_var"] for n, r in zip([20, 20, 25, 15], last, strict=True)) / 80
    assert torch.allclose(result.state["1.running_var"], expected, atol=1e-6)
    assert result.state["1.num_batches_tracked"] == max(reply.tensors["1.num_batches_tracked"] for reply in last)


def test_the_bill_has_the_history_in_it():
    world, before, history = trained()
    result = forget(world, before, CLASS, SCHEDULE, "federaser", history=history)
    assert result.cost.stored_bytes == history.bytes == 3 * (1 + 4) * state_bytes(before)
    assert result.cost.gradient_evaluations == 10 + 2 * (10 + 10 + 13 + 8), "half of the samples, rounded up"


def test_it_forgets_less_than_nothing_and_keeps_more_than_the_start():
    """Nearer to the trained model than the untrained one is: going through training again leads somewhere."""
    world, before, history = trained(interval=1)
    result = forget(world, before, WHOLE, SCHEDULE, "federaser", history=history)
    start = history.sent(0)
    far = sum((before[n] - start[n]).square().sum() for n in before)
    near = sum((before[n] - result.state[n]).square().sum() for n in before)
    assert near < 0.3 * far


def test_another_models_history_is_refused_before_any_work():
    world, before, _ = trained()
    other, history = federation(normalised=True), MemoryHistory()
    train(other, state_of(other.model), replace(SCHEDULE, rounds=1), history=history)
    with pytest.raises(InputError, match=r"^The history is of another model than the one to forget from; use the one"):
        forget(world, before, CLASS, SCHEDULE, "federaser", history=history)
    assert world.log == []


@pytest.mark.parametrize(("value", "sentence"), [
    (0.0, "FedEraser setting 'calibration' is 0.0, but it must be a finite number above 0."),
    (1.5, "FedEraser setting 'calibration' is 1.5, but it must be at most 1."),
])  # fmt: skip
def test_settings_that_make_no_sense(value: float, sentence: str):
    with pytest.raises(InputError) as refusal:
        FedEraserSettings(value)
    assert str(refusal.value) == sentence
