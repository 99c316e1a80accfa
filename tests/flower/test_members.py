"""Who takes part: a refusal ends the wait at once and in its own words, and nobody waits for who is not needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flower_worlds import SCHEDULE, World
from flwr.app import ArrayRecord, Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import FedAvg
from in_process_grid import InProcessGrid
from own_flower_app import TRAINING, load_data, own_app, own_grid
from small_worlds import SIZES, network
from torch import nn

from fedforget.data.samples import Normalisation
from fedforget.errors import ClientError, FedForgetError, InputError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.flower import FlowerFederation, Forget, attach
from fedforget.flower.app import apps
from fedforget.flower.app.settings import AppSettings
from fedforget.flower.client_app import client_number
from fedforget.flower.messages import QUERY_TYPE
from fedforget.flower.node_store import NodeStore
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 3)
LONG: dict[str, Any] = {"join_timeout_s": 30.0, "timeout_s": 30.0}


@contextmanager
def at_once() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 10


def attached(model: Callable[[], nn.Module] = network, load: Any = load_data, **more: Any) -> InProcessGrid:
    app = ClientApp(**more)
    attach(app, model, load)
    return own_grid(None, app)


def integers(context: Context) -> Any:
    return [(x.long(), int(y)) for x, y in load_data(context).dataset]


def missing(context: Context) -> Any:
    raise FileNotFoundError("no such file: /data/site.npz\n" + "with much to tell, " * 30 + "the end")


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        (
            lambda: attached(lambda: nn.Linear(6, 3)),
            r"'weight' of float32\[3, 6\], where the server's has '0\.weig",
        ),
        (
            lambda: attached(lambda: network().double()),
            r"The model cannot take samples of .*: mat1 and mat2 must have the same dtype, but got Float",
        ),
        (
            lambda: attached(lambda: nn.Linear(6, 1)),
            r"The model has a single output for a sample; forgetting needs",
        ),
        (lambda: attached(load=integers), r"A sample's features are whole numbers \(torch\.int64\), such as token ids"),
        (lambda: attached(mods=[fixedclipping_mod]), r"answered with an error \(code 6\): .*"),
        (lambda: attached(load=missing), r"code 2\): no such file: /data/site\.npz with much .*the end\."),
    ],
    ids=["shape", "dtype", "single logit", "integers", "mods", "no file"],
)
def test_what_a_node_cannot_do_ends_the_wait_with_its_reason(grid: Callable[[], InProcessGrid], reason: str):
    forgetful = Forget(FedAvg(), network, clients=4, **LONG, **TRAINING)
    forgetful.request(partition=0, label=2)
    with at_once(), pytest.raises(InputError, match=reason) as refusal:
        forgetful.serve(grid(), ArrayRecord(network().state_dict()))
    assert str(refusal.value).startswith("0 of 4 clients can take part. ")
    assert "start the other SuperNodes" not in str(refusal.value)


def broken_at(world: World, *numbers: int) -> Callable[[Context], Client]:
    def load(context: Context) -> Client:
        client = world.load_client(context)
        if client.index in numbers:
            raise InputError(f"The data of client {client.index} are not there.")
        return client

    return load


def test_one_node_that_cannot_take_part_is_named_where_all_are_needed(world: World):
    def other(context: Context) -> Client:
        client = world.load_client(context)
        return replace(client, model=build_model("mlp", world.dataset.shape, 10, 0)) if client.index == 2 else client

    grid = world.grid(load=other)
    sentence = r"^3 of 4 clients can take part\. Client 2 \(node \d+\) takes no part: it has another model"
    with at_once(), pytest.raises(InputError, match=sentence):
        world.flower(grid, **LONG)
    assert list(world.flower(grid, clients=3).clients) == [0, 1, 3]


def test_too_few_nodes_are_waited_for(world: World):
    grid = world.grid()
    grid.gone.add(3)
    sentence = r"^3 of 4 clients joined within 0\.05 s; start the other SuperNodes, or ask for fewer clients\. Here"
    with pytest.raises(FedForgetError, match=sentence):
        world.flower(grid)


def test_a_node_that_is_silent_is_named(world: World):
    grid = world.grid()
    grid.silent.add(3)
    sentence = r"^3 of 4 clients joined within 0\.05 s; connected, but silent so far: node \d+\. Here"
    with pytest.raises(FedForgetError, match=sentence):
        world.flower(grid)


def test_a_request_does_not_wait_for_who_is_away(world: World, tmp_path: Path):
    """A note tells who was there; a needed client is waited for."""
    grid = world.grid(tmp_path)
    grid.gone.add(3)
    result = forget(world.flower(grid, needed=[0]), world.before, CLASS, SCHEDULE, "overwrite")
    assert "3 of 4 clients were there (0, 1, 2); it went on without the others." in result.notes
    grid.gone = {0}
    with pytest.raises(FedForgetError, match=r"^Client 0 did not join within 0\.05 s; start its SuperNode\."):
        world.flower(grid, needed=[0])


def test_who_comes_back_during_a_retraining_still_leaves_out_what_was_served(world: World):
    """Its node remembers nothing, so the server has to say it."""
    there, served = world.grid(), ErasureRequest.of_class(3, 2)
    there.gone.add(3)
    federation, left_out = world.flower(there, needed=[0]), list[tuple[int, bool]]()
    ask = federation.ask

    def asking(task: Task, state: State, to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in ask(task, state, to):
            if isinstance(task, Train):
                there.gone.clear()
                left_out.append((reply.client, served in task.exclude))
            yield reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federation, "ask", asking)
        forget(federation, world.before, CLASS, SCHEDULE, "retrain", served=[served])
    assert (3, True) in left_out
    assert all(leaves for _, leaves in left_out)


def test_a_request_does_not_wait_for_who_cannot_take_part(world: World, tmp_path: Path):
    with at_once():
        federation = world.flower(world.grid(tmp_path, load=broken_at(world, 1)), needed=[0], **LONG)
        assert list(federation.clients) == [0, 2, 3]
        with pytest.raises(InputError, match=r"^Client 1 \(node \d+\) takes no part: The data of client 1 are"):
            federation.check([ErasureRequest.of_class(1, 3)])
    with (
        at_once(),
        pytest.raises(InputError, match=r"^Client 0 \(node \d+\) takes no part: The data of client 0"),
    ):
        world.flower(world.grid(load=broken_at(world, 0)), needed=[0], **LONG)


def test_our_own_app_serves_a_request_while_others_are_away(tmp_path: Path):
    config: dict[str, Any] = {
        "clients": 3, "rounds": 1, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 120, "model": "mlp",
        "method": "not", "join-timeout-s": 0.3, "out": str(tmp_path / "out"),
    }  # fmt: skip
    grid = InProcessGrid(apps.client_app, 3, tmp_path / "nodes", config)
    apps.serve(grid, AppSettings.read(config))
    grid.gone.add(2)
    told = apps.serve(grid, AppSettings.read({**config, "request-client": 1, "request-class": 3}))
    notes = told["forgotten"]["not:default"]["notes"]
    assert "2 of 3 clients were there (0, 1); it went on without the others." in notes
    grid.gone = {1}
    again = apps.serve(grid, AppSettings.read({**config, "request-client": 0, "request-class": 3}))
    assert again["forgotten"], "nor does it matter that a client is away whose request was served before"


def test_a_shard_that_is_retrained_waits_for_its_own_clients(tmp_path: Path):
    """Without one of them it would not be the shard that was promised, and the verdict says exact."""
    config: dict[str, Any] = {
        "clients": 4, "shards": 2, "rounds": 1, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 120,
        "model": "mlp", "join-timeout-s": 0.3, "out": str(tmp_path / "out"),
    }  # fmt: skip
    grid = InProcessGrid(apps.client_app, 4, tmp_path / "nodes", config)
    apps.serve(grid, AppSettings.read(config))
    asked = AppSettings.read({**config, "request-client": 1, "request-class": 3})
    grid.gone = {3}
    with pytest.raises(FedForgetError, match=r"^Client 3 did not join"):
        apps.serve(grid, asked)
    grid.gone = {2}
    assert apps.serve(grid, asked)["forgotten"], "of another shard"


def test_an_answer_that_was_lost_is_asked_for_again(world: World):
    lost: list[int] = []

    def lose(number: int, reply: Message) -> list[Message]:
        if reply.metadata.message_type == QUERY_TYPE and number == 2 and not lost:
            lost.append(number)
            error = Message(Error(3, "Message Unavailable"), reply_to=reply)
            error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
            return [error]
        return [reply]

    assert list(world.flower(world.grid(change=lose), **LONG).clients) == [0, 1, 2, 3]
    assert lost == [2]


def context_of(node_id: int, **config: Any) -> Context:
    return Context(7, node_id, config, None, {})  # type: ignore[arg-type]


def test_a_node_without_a_number_keeps_its_identity(tmp_path: Path):
    """Its node id; and where it remembers, the one it had first, though Flower gives it another when it restarts."""
    assert client_number(context_of(5, **{"partition-id": 2})) == 2
    assert client_number(context_of(1 << 62)) == 1 << 62
    NodeStore(tmp_path, 77).claim()
    assert client_number(context_of(5, **{"state-dir": str(tmp_path)})) == 77
    for odd in ("0", -1, True, 1.0):
        with pytest.raises(InputError, match=r"^The partition-id in the node's config must be a number from 0"):
            client_number(context_of(5, **{"partition-id": odd}))


class Nameless(InProcessGrid):
    """Nodes that have a name and a state-dir, and no number."""

    named = "site {}"

    def context(self, node: int) -> Context:
        context = super().context(node)
        number = context.node_config.pop("partition-id")
        context.node_config["name"] = self.named.format(number)
        return context


def load_own(context: Context) -> Any:
    """What each site holds, whatever its node id."""
    number = int(str(context.node_config["state-dir"]).rpartition("-")[2])
    return load_data(Context(context.run_id, context.node_id, {"partition-id": number}, context.state, {}))


def nameless(folder: Path) -> Nameless:
    app = ClientApp()
    attach(app, network, load_own)
    return Nameless(app, len(SIZES), folder)


def test_a_request_names_a_node_without_a_number(tmp_path: Path):
    arrays = ArrayRecord(network().state_dict())
    for new_ids, more in ((0, {"name": "site 0"}), (1000, {"name": "site 0"}), (0, {"node_id": 13})):
        grid = nameless(tmp_path)
        grid.numbers = {node + new_ids: number for node, number in grid.numbers.items()}
        forgetful = Forget(FedAvg(), network, clients=4, join_timeout_s=0.05, timeout_s=5, **TRAINING)
        forgetful.request(label=2, method="overwrite", **more)
        forgetful.serve(grid, arrays)
        (result,) = forgetful.served
        assert result.requests[0].client == 13, "the node id that its folder saw first"
    assert NodeStore(tmp_path / "site-0", 13).withdrawn == (ErasureRequest.of_class(13, 2),)


def test_two_nodes_of_one_name_are_not_guessed_between(tmp_path: Path):
    grid = nameless(tmp_path)
    grid.named = "a site"
    federation = FlowerFederation(
        grid, network(), 3, Normalisation(), clients=4, join_timeout_s=0.05, timeout_s=0.05, poll_s=0.001
    )
    with pytest.raises(InputError, match=r"^Clients .* are all named 'a site'; name one by its partition or"):
        federation.find(name="a site")


def test_forget_says_why_its_node_takes_no_part(tmp_path: Path):
    """The others are there, so nothing is waited for; but the request's own node cannot take part."""

    def load(context: Context) -> Any:
        return integers(context) if client_number(context) == 0 else load_data(context)

    forgetful = Forget(FedAvg(), network, **LONG, **TRAINING)
    forgetful.request(partition=0, label=2)
    with (
        at_once(),
        pytest.raises(InputError, match=r"^Client 0 \(node \d+\) takes no part: A sample's features"),
    ):
        forgetful.serve(own_grid(tmp_path, own_app(load)), ArrayRecord(network().state_dict()))
    forgetful.waiting.clear()
    forgetful.request(partition=9, label=2)
    with at_once(), pytest.raises(ClientError, match=r"^Client 9 is not connected; there are the clients 1, 2, 3\.$"):
        forgetful.serve(own_grid(tmp_path, own_app(load)), ArrayRecord(network().state_dict()))
