"""The masked sketch over Flower: the bits of one process, keys in the nodes' files, and nodes that go away."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flower_worlds import SCHEDULE, World
from flwr.app import Message

from fedforget.errors import ClientError, FedForgetError, InputError, RefusedError
from fedforget.flower.messages import TENSORS, check_task, read_task
from fedforget.flower.node_store import KeptInFiles
from fedforget.methods import forget
from fedforget.methods.fedaf.extensions.masked_sketch import PUBLIC_KEY, SECRET_KEY, BuildMaskedSketch, OfferKey
from fedforget.methods.fedaf.settings import OVERWRITE
from fedforget.methods.fedaf.sketching import SKETCH_KEY
from fedforget.params import digest
from fedforget.requests import ErasureRequest

pytestmark = pytest.mark.real

CLASS = ErasureRequest.of_class(0, 3)
MASKED = {"sketch_scope": "federation", "sketch_masked": True}


def test_the_same_bits_and_the_same_bill_as_in_one_process(world: World, tmp_path: Path):
    expected = forget(world.local(), world.before, CLASS, SCHEDULE, "overwrite", **MASKED)
    seen: list[str] = []

    def watch(_: int, reply: Message) -> list[Message]:
        arrays = reply.content.array_records.get(TENSORS, {})
        seen.extend(array.dtype for name, array in arrays.items() if name == SKETCH_KEY)
        return [reply]

    result = forget(
        world.flower(world.grid(tmp_path, change=watch)), world.before, CLASS, SCHEDULE, "overwrite", **MASKED
    )
    assert digest(result.state) == digest(expected.state)
    assert (result.cost.bytes, result.cost.stored_bytes) == (expected.cost.bytes, expected.cost.stored_bytes)
    assert result.cost.gradient_evaluations == expected.cost.gradient_evaluations
    assert seen == ["int64"] * 4, "nothing else of a sketch came over the wire"
    for folder in (tmp_path / f"site-{k}" for k in range(4)):
        assert SECRET_KEY not in KeptInFiles(folder), "the secret key is gone with the request"


def test_a_secret_key_is_kept_from_one_message_to_the_next_and_no_longer(world: World, tmp_path: Path):
    federation = world.flower(world.grid(tmp_path))
    offer = OfferKey(seed=0, threads=1, requests=(CLASS,), settings=OVERWRITE.opened().for_network(1000))
    for reply in federation.ask(offer, {}):
        kept = KeptInFiles(tmp_path / f"site-{reply.client}")
        assert len(bytes.fromhex(kept[SECRET_KEY])) == 32
        assert bytes.fromhex(kept[SECRET_KEY]) != bytes(reply.tensors[PUBLIC_KEY].tolist())


def test_nodes_that_keep_nothing_are_told_what_they_need(world: World):
    with pytest.raises(InputError, match=r"Client 0 does not have the secret key .* needs a state-dir"):
        forget(world.flower(world.grid()), world.before, CLASS, SCHEDULE, "overwrite", **MASKED)


@pytest.mark.parametrize("how", ["dead", "silent", "gone"])
def test_a_node_that_goes_away_between_the_two_messages(world: World, tmp_path: Path, how: str):
    grid = world.grid(tmp_path)
    untouched = digest(world.before)

    def leave(number: int, reply: Message) -> list[Message]:
        offered = reply.has_content() and PUBLIC_KEY in reply.content.array_records.get(TENSORS, ())
        if number == 2 and offered:
            getattr(grid, how).add(2)
        return [reply]

    grid.change = leave
    with pytest.raises(FedForgetError) as told:
        forget(world.flower(grid), world.before, CLASS, SCHEDULE, "overwrite", **MASKED)
    assert isinstance(told.value, ClientError)
    assert told.value.client == 2
    assert digest(world.before) == untouched
    back = world.flower(world.grid(tmp_path))
    expected = forget(world.local(), world.before, CLASS, SCHEDULE, "overwrite", **MASKED)
    assert digest(forget(back, world.before, CLASS, SCHEDULE, "overwrite", **MASKED).state) == digest(expected.state)


def test_a_node_takes_public_keys_of_the_right_size_and_nothing_else(world: World, tmp_path: Path):
    grid = world.grid(tmp_path)
    forget(world.flower(grid), world.before, CLASS, SCHEDULE, "overwrite", **MASKED)
    tasks = [read_task(message.content) for _, message in grid.sent if "fedforget" in message.content]
    task, number, state = next(sent for sent in tasks if isinstance(sent[0], BuildMaskedSketch))
    client = world.local().client(number)
    check_task(task, number, state, client)
    for name, tensor in (
        (f"{PUBLIC_KEY}1", torch.zeros(31, dtype=torch.uint8)),
        (f"{PUBLIC_KEY}1", torch.zeros(32)),
        (f"{PUBLIC_KEY}x", torch.zeros(32, dtype=torch.uint8)),
        (f"{PUBLIC_KEY}-1", torch.zeros(32, dtype=torch.uint8)),
        ("other", torch.zeros(32, dtype=torch.uint8)),
    ):
        with pytest.raises(RefusedError, match=name):
            check_task(task, number, {**state, name: tensor}, client)
