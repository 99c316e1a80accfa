"""What goes wrong between server and nodes: named, nothing half-applied, and the request can be tried again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from flower_worlds import SCHEDULE, World
from flwr.app import Context, Message
from in_process_grid import InProcessGrid

from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.client import Client
from fedforget.federation.rounds import train
from fedforget.federation.tasks import CountSamples, Reply, Train, Withdraw
from fedforget.flower import ClientError
from fedforget.flower.messages import QUERY_TYPE, TASK_TYPE, read_reply, reply_content, task_content
from fedforget.flower.node_store import NodeStore
from fedforget.methods import forget
from fedforget.params import State, copy_state, digest
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 3)
ROUND = SCHEDULE.train_task(0)


def changing(whom: int, change: Callable[[Reply], Reply]) -> Callable[[int, Message], list[Message]]:
    """Tamper with what one client sends in answer to a task."""

    def tamper(number: int, message: Message) -> list[Message]:
        if number == whom and message.has_content() and message.metadata.message_type == TASK_TYPE:
            message.content = reply_content(change(read_reply(message.content, number)))
        return [message]

    return tamper


def spoil(reply: Reply) -> Reply:
    tensors = copy_state(reply.tensors)
    for tensor in tensors.values():
        tensor.view(-1)[-1] = math.nan
    return replace(reply, tensors=tensors)


def ask_all(world: World, grid: InProcessGrid, task: Train | CountSamples = ROUND) -> list[Reply]:
    return list(world.flower(grid).ask(task, {} if isinstance(task, CountSamples) else world.before))


# A round of training


@pytest.mark.parametrize(("fault", "said"), [
    ("dead", "Client 2 went away: its node no longer gives Flower a sign of life. The round went on without it."),
    ("silent", "Client 2 did not answer within 0.05 s. The round went on without it."),
    ("gone", "Client 2 is not connected. The round went on without it."),
])  # fmt: skip
def test_a_round_goes_on_without_a_client_that_is_away(
    world: World, fault: str, said: str, caplog: pytest.LogCaptureFixture
):
    grid = world.grid()
    federation = world.flower(grid)
    getattr(grid, fault).add(2)
    with caplog.at_level(logging.WARNING):
        replies = list(federation.ask(ROUND, world.before))
    assert [reply.client for reply in replies] == [0, 1, 3]
    assert [reply.notes for reply in replies] == [(said,), (), ()]
    assert said in caplog.text
    expected = list(world.local().ask(ROUND, world.before, [0, 1, 3]))
    assert [digest(r.tensors) for r in replies] == [digest(r.tensors) for r in expected]


def test_a_note_of_who_was_away_reaches_the_result(world: World, tmp_path: Path):
    grid = world.grid(tmp_path)
    federation = world.flower(grid)
    grid.dead.add(3)
    result = forget(federation, world.before, CLASS, SCHEDULE, "overwrite")
    assert sum("Client 3 went away" in note for note in result.notes) == 2, "reminder and recovery"


@pytest.mark.parametrize("fault", ["dead", "silent", "gone"])
def test_a_round_in_which_nobody_answers_is_an_error(world: World, fault: str):
    grid = world.grid()
    federation = world.flower(grid)
    getattr(grid, fault).update(range(4))
    with pytest.raises(FedForgetError, match=r"^Nobody answered, so there is nothing to go on with: Client 0 "):
        train(federation, world.before, SCHEDULE)


def test_a_crash_inside_the_app_is_an_error_of_that_client(world: World):
    def load(context: Context) -> Client:
        client = world.load_client(context)
        if client.index == 1:
            client.model = deepcopy(client.model)
            client.model.forward = None  # type: ignore[assignment]
        return client

    grid = world.grid(load=load)
    replies = ask_all(world, grid)
    assert [reply.client for reply in replies] == [0, 2, 3]
    (note,) = replies[0].notes
    assert note.startswith("Client 1 answered with an error (code 2): 'NoneType' object is not callable")


def test_training_that_diverges_at_a_client_is_raised_as_it_is_in_one_process(world: World):
    task = replace(ROUND, lr=1e9, epochs=4)
    sentences = []
    for federation in (world.local(), world.flower(world.grid())):
        with pytest.raises(DivergedError) as refusal:
            list(federation.ask(task, world.before))
        sentences.append(str(refusal.value))
    assert sentences[0] == sentences[1]


# Any other task


@pytest.mark.parametrize(("fault", "said"), [
    ("dead", r"^Client 2 went away: its node no longer gives Flower a sign of life\.$"),
    ("silent", r"^Client 2 did not answer within 0\.05 s\.$"),
    ("gone", r"^Client 2 is not connected\.$"),
])  # fmt: skip
def test_every_other_task_needs_everybody(world: World, fault: str, said: str):
    grid = world.grid()
    federation = world.flower(grid)
    getattr(grid, fault).add(2)
    with pytest.raises(ClientError, match=said) as refusal:
        list(federation.ask(CountSamples(seed=0, threads=1), {}))
    assert refusal.value.client == 2


@pytest.mark.real
@pytest.mark.parametrize("fault", ["dead", "silent", "gone"])
@pytest.mark.parametrize("method", ["overwrite", "rebuild", "sga", "fedquit"])
def test_without_the_target_the_request_fails_and_can_be_tried_again(
    world: World, tmp_path: Path, method: str, fault: str
):
    grid = world.grid(tmp_path)
    federation = world.flower(grid)
    given = copy_state(world.before)
    getattr(grid, fault).add(0)
    with pytest.raises(ClientError, match=r"^Client 0 "):
        forget(federation, given, CLASS, SCHEDULE, method)
    assert digest(given) == digest(world.before)
    getattr(grid, fault).clear()
    assert digest(forget(federation, given, CLASS, SCHEDULE, method).state) == digest(
        forget(world.local(), given, CLASS, SCHEDULE, method).state
    )


@pytest.mark.parametrize("method", ["overwrite", "rebuild", "sga", "fedquit", "retrain"])
def test_a_target_that_sends_what_is_not_finite_fails_the_request(world: World, tmp_path: Path, method: str):
    federation = world.flower(world.grid(tmp_path, changing(0, spoil)))
    given = copy_state(world.before)
    with pytest.raises(DivergedError, match=r" at client 0 diverged: its '.*' is not finite\.$"):
        forget(federation, given, CLASS, SCHEDULE, method)
    assert digest(given) == digest(world.before)


def test_a_number_that_is_not_finite_is_refused(world: World):
    grid = world.grid(change=changing(1, lambda reply: replace(reply, numbers={"samples": math.inf})))
    with pytest.raises(ClientError, match=r"^Client 1 sent a reply that cannot be accepted: A number is Infinity"):
        ask_all(world, grid, CountSamples(seed=0, threads=1))


def test_a_model_of_another_shape_is_refused(world: World):
    def cut(reply: Reply) -> Reply:
        name = next(iter(reply.tensors))
        return replace(reply, tensors={**reply.tensors, name: reply.tensors[name][1:]})

    with pytest.raises(ClientError, match=r"^Client 3 sent a model whose '0\.weight' is not that of ours\.$"):
        ask_all(world, world.grid(change=changing(3, cut)))


def test_a_reply_in_anothers_name_is_refused(world: World):
    grid = world.grid(change=changing(3, lambda reply: replace(reply, client=1)))
    with pytest.raises(ClientError, match=r"^Client 3 sent a reply that cannot be accepted: It answers as client 1\.$"):
        ask_all(world, grid)


# Too many replies


def test_a_doubled_reply_changes_nothing(world: World, tmp_path: Path):
    grid = world.grid(tmp_path, change=lambda _, reply: [reply, reply])
    result = forget(world.flower(grid), world.before, CLASS, SCHEDULE, "overwrite")
    assert digest(result.state) == digest(forget(world.local(), world.before, CLASS, SCHEDULE, "overwrite").state)


def test_replies_that_come_backwards_are_taken_in_the_clients_order(world: World):
    """A sum of floats depends on the order."""

    class Backwards(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return reversed(list(super().pull_messages(message_ids)))

    grid = world.grid()
    grid.__class__ = Backwards
    assert [reply.client for reply in ask_all(world, grid)] == [0, 1, 2, 3]


def test_sizes_are_asked_again_after_a_withdrawal(world: World, tmp_path: Path):
    fives = [ErasureRequest.of_class(0, 5)]
    federation = world.flower(world.grid(tmp_path))
    before, threes = federation.check(fives)[0], federation.check([CLASS])[0].target
    list(federation.ask(Withdraw(seed=0, threads=1, requests=(CLASS,)), {}, [0]))
    after = federation.check(fives)[0]
    assert (after.target, after.retained) == (before.target, before.retained - threes)


def test_a_late_reply_changes_nothing(world: World):
    late: list[Message] = []

    def delay(number: int, reply: Message) -> list[Message]:
        """Client 2's first training arrives with its second."""
        if number == 2 and reply.metadata.message_type == TASK_TYPE:
            late.append(reply)
            return [] if len(late) == 1 else late
        return [reply]

    federation = world.flower(world.grid(change=delay))
    assert [reply.client for reply in federation.ask(ROUND, world.before)] == [0, 1, 3]
    again = list(federation.ask(SCHEDULE.train_task(1), world.before))
    expected = list(world.local().ask(SCHEDULE.train_task(1), world.before))
    assert [digest(reply.tensors) for reply in again] == [digest(reply.tensors) for reply in expected]
    assert len(late) == 2


# What a node refuses


def deliver(world: World, grid: InProcessGrid, node_of: int, task: Train, client: int, state: State) -> Reply:
    """Send a task past the federation, to the node of one client."""
    node = next(node for node, number in grid.numbers.items() if number == node_of)
    message = Message(task_content(task, client, state), node, TASK_TYPE)
    (answer,) = grid.send_and_receive([message])
    return read_reply(answer.content, node_of)


def test_a_node_refuses_what_is_for_another(world: World):
    with pytest.raises(ClientError, match=r"^Client 1 refused: The task is for client 0, but this node is client 1\.$"):
        deliver(world, world.grid(), 1, ROUND, 0, world.before)


def test_a_node_refuses_a_model_of_another_shape(world: World):
    state = {**world.before, "0.bias": world.before["0.bias"][:3]}
    with pytest.raises(
        ClientError, match=r"refused: Tensor '0\.bias' is float32\[3\], but it must be float32\[16\]\.$"
    ):
        deliver(world, world.grid(), 1, ROUND, 1, state)
    state = {**world.before, "0.bias": world.before["0.bias"] / 0}
    with pytest.raises(ClientError, match=r"refused: Tensor '0\.bias' is not finite\.$"):
        deliver(world, world.grid(), 1, ROUND, 1, state)


def test_a_node_refuses_a_task_it_does_not_know(world: World):
    grid = world.grid()
    node = next(iter(grid.get_node_ids()))
    content = task_content(ROUND, grid.numbers[node], world.before)
    content["fedforget"]["json"] = content["fedforget"]["json"].replace('"Train"', '"Steal"')
    (answer,) = grid.send_and_receive([Message(content, node, TASK_TYPE)])
    with pytest.raises(ClientError, match="refused: 'Steal' is unknown here; both sides must run the same fedforget"):
        read_reply(answer.content, grid.numbers[node])


def test_a_request_that_names_another_client_is_not_withdrawn(world: World, tmp_path: Path):
    federation = world.flower(world.grid(tmp_path))
    count = CountSamples(seed=0, threads=1)
    list(federation.ask(Withdraw(seed=0, threads=1, requests=(CLASS,)), {}, [1]))
    with pytest.raises(ClientError, match=r"^Client 1 refused: The requests are other clients', but this node is"):
        list(federation.ask(count, {}))
    list(federation.ask(Withdraw(seed=0, threads=1, requests=(ErasureRequest.of_class(1, 3), CLASS)), {}, [1]))
    with pytest.raises(InputError, match=r"^Client 1 cannot withdraw class 3 of client 0; that is not its own\.$"):
        list(federation.ask(count, {}))
    assert not (tmp_path / "site-1" / "node.json").exists()


# Who is who


def test_clients_are_known_by_their_own_number(world: World):
    grid = world.grid()
    federation = world.flower(grid)
    assert list(federation.clients) == [0, 1, 2, 3]
    assert [grid.numbers[node] for node in sorted(grid.numbers)] != [0, 1, 2, 3], "the ids are in another order"
    assert federation.find(name="site 2") == 2
    node = next(node for node, number in grid.numbers.items() if number == 3)
    assert federation.find(node_id=node) == 3
    with pytest.raises(InputError, match=r"^No client named 'site 9' is connected; there are site 0, site 1, site 2"):
        federation.find(name="site 9")
    with pytest.raises(InputError, match=r"^Client 4 does not exist; this federation has clients 0 to 3\.$"):
        list(federation.ask(ROUND, world.before, [4]))


def test_two_nodes_for_one_client_are_an_error(world: World):
    grid = world.grid()
    grid.numbers[5000] = 2
    with pytest.raises(FedForgetError, match=r"^Two nodes say they are client 2; give each its own partition-id and"):
        world.flower(grid)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_node_that_comes_back_under_a_new_id_takes_its_place(world: World, noticed: bool):
    grid = world.grid()
    federation = world.flower(grid)
    old = next(node for node, number in grid.numbers.items() if number == 2)
    grid.numbers[5000] = 2
    if noticed:
        del grid.numbers[old]
    assert len(list(federation.ask(ROUND, world.before))) == 4
    assert [message.metadata.dst_node_id for number, message in grid.sent if number == 2][-1] == 5000


def test_flower_waits_longer_for_an_answer_than_we_do(world: World):
    """Else a client that is too slow is reported as a message which Flower cannot find."""
    grid = world.grid()
    federation = world.flower(grid)
    list(federation.ask(ROUND, world.before))
    assert {message.metadata.message_type for _, message in grid.sent} == {QUERY_TYPE, TASK_TYPE}
    slack = {QUERY_TYPE: federation.join_timeout_s, TASK_TYPE: federation.timeout_s}
    assert all(message.metadata.ttl >= slack[message.metadata.message_type] + 30 for _, message in grid.sent)


def test_everybody_gets_one_message_for_a_task(world: World, tmp_path: Path):
    """Few, fat messages: each costs seconds on a real deployment. Five steps: who is there, with the check; the
    amnesia, with the withdrawal; the reminder; the forgetting; the recovery."""
    grid = world.grid(tmp_path)
    federation = world.flower(grid, questions=[(CLASS,)])
    result = forget(federation, world.before, CLASS, SCHEDULE, "overwrite")
    assert sorted(number for number, _ in grid.sent[:4]) == [0, 1, 2, 3]
    assert [number for number, _ in grid.sent[4:]] == [0, 0, 1, 2, 3, 0, 0, 1, 2, 3]
    assert NodeStore(tmp_path / "site-0", 0).withdrawn == (CLASS,)
    assert digest(result.state) == digest(forget(world.local(), world.before, CLASS, SCHEDULE, "overwrite").state)


def test_what_was_asked_along_is_refused_in_the_same_words(world: World, tmp_path: Path):
    for request in (
        ErasureRequest.of_class(0, 12),
        ErasureRequest.of_samples(1, [10**6]),
        ErasureRequest.of_class(7, 3),
    ):
        sentences = []
        for federation in (world.local(), world.flower(world.grid(tmp_path), questions=[(request,)])):
            with pytest.raises(InputError) as refusal:
                federation.check([request])
            sentences.append(str(refusal.value))
        assert sentences[0] == sentences[1]


def test_a_withdrawal_reaches_a_client_that_the_first_task_leaves_out(world: World, tmp_path: Path):
    grid = world.grid(tmp_path)
    federation = world.flower(grid)
    count = CountSamples(seed=0, threads=1)
    list(federation.ask(Withdraw(seed=0, threads=1, requests=(CLASS,)), {}, [0]))
    assert [reply.client for reply in federation.ask(count, {}, [1, 2])] == [1, 2]
    assert NodeStore(tmp_path / "site-0", 0).withdrawn == (CLASS,)
    list(federation.ask(Withdraw(seed=0, threads=1, requests=(ErasureRequest.of_class(1, 5),)), {}, [1]))
    grid.gone.add(2)
    with pytest.raises(ClientError, match=r"^Client 2 is not connected\.$"):
        list(federation.ask(count, {}, [1, 2]))
    assert NodeStore(tmp_path / "site-1", 1).withdrawn == (ErasureRequest.of_class(1, 5),)
