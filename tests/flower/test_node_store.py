"""What a node keeps survives a restart, and what it has withdrawn never trains again there."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flower_worlds import SCHEDULE, World
from flwr.app import Context

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.rounds import train
from fedforget.federation.tasks import CountSamples
from fedforget.flower.client_app import client_number
from fedforget.flower.node_store import NodeStore
from fedforget.methods import forget
from fedforget.methods.fedaf.extensions.principal import PrincipalRows
from fedforget.methods.fedaf.sketch import Sketch
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.store import write_sealed

CLASS = ErasureRequest.of_class(0, 3)
SAMPLES = ErasureRequest.of_samples(0, [4, 2])


def test_withdrawals_are_there_after_a_restart(tmp_path: Path):
    assert NodeStore(tmp_path / "a" / "b", 0).withdrawn == ()
    NodeStore(tmp_path / "a" / "b", 0).withdraw([CLASS])
    NodeStore(tmp_path / "a" / "b", 0).withdraw([CLASS, SAMPLES, ErasureRequest.of_client(0)])
    assert NodeStore(tmp_path / "a" / "b", 0).withdrawn == (CLASS, SAMPLES, ErasureRequest.of_client(0))


def test_two_runs_at_once_lose_nothing(tmp_path: Path):
    requests = [ErasureRequest.of_class(0, label) for label in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda request: NodeStore(tmp_path, 0).withdraw([request]), requests))
    assert sorted(r.label or 0 for r in NodeStore(tmp_path, 0).withdrawn) == list(range(40))


def test_the_folder_of_another_client_is_refused(tmp_path: Path):
    NodeStore(tmp_path, 0).withdraw([CLASS])
    with pytest.raises(InputError, match=r"holds the state of client 0, but this node is client 1; give every node"):
        NodeStore(tmp_path, 1)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"version": 1, "client": 0, "withdrawn": []}', None])
def test_a_damaged_record_of_withdrawals_stops_the_node(tmp_path: Path, damage: str | None):
    NodeStore(tmp_path, 0).withdraw([CLASS])
    path = tmp_path / "node.json"
    if damage is None:
        values = json.loads(path.read_text())
        values["withdrawn"][0]["label"] = 4
        damage = json.dumps(values)
    path.write_text(damage)
    with pytest.raises(InputError, match=r"node\.json is damaged"):
        NodeStore(tmp_path, 0)


def test_a_record_of_another_version_stops_the_node(tmp_path: Path):
    write_sealed(tmp_path / "node.json", {"version": 2, "client": 0, "withdrawn": []})
    with pytest.raises(InputError, match=r"node\.json is of version 2, but this fedforget reads 1\.$"):
        NodeStore(tmp_path, 0)


KNOWN = ("abc", (CLASS,), (), ("sketch", 75, "sampled", "retained", None, "float32"), 3)


@pytest.mark.parametrize(
    "sketch",
    [
        Sketch(torch.randn(3, 5), 9),
        Sketch(torch.randn(3, 5).bfloat16(), 9),
        PrincipalRows(torch.randn(2, 4), 7, total=0.1 + 0.2, passes=1.5),
    ],
)
def test_a_sketch_is_there_after_a_restart(tmp_path: Path, sketch: Sketch):
    NodeStore(tmp_path, 0).kept["a sketch"] = (KNOWN, sketch)
    kept = NodeStore(tmp_path, 0).kept
    assert list(kept) == ["a sketch"]
    known, again = kept.pop("a sketch", (None, None))
    assert known == KNOWN
    assert type(again) is type(sketch)
    assert digest({"rows": again.rows}) == digest({"rows": sketch.rows})
    assert {k: v for k, v in vars(again).items() if k != "rows"} == {
        k: v for k, v in vars(sketch).items() if k != "rows"
    }
    assert not list(NodeStore(tmp_path, 0).kept)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_what_is_kept_can_be_replaced(tmp_path: Path):
    kept = NodeStore(tmp_path, 0).kept
    for count in range(3):
        kept["a sketch"] = Sketch(torch.full((2, 2), float(count)), count)
    assert (kept["a sketch"].count, float(kept["a sketch"].rows[0, 0])) == (2, 2.0)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_sketch_is_as_if_there_were_none(tmp_path: Path, suffix: str, damage: str):
    NodeStore(tmp_path, 0).kept["a sketch"] = Sketch(torch.ones(2, 2), 9)
    (path,) = tmp_path.glob(f"*{suffix}")
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-9] if damage == "cut" else data.replace(data[-9:], b"123456789"))
    kept = NodeStore(tmp_path, 0).kept
    assert kept.pop("a sketch", None) is None
    kept["a sketch"] = Sketch(torch.ones(2, 2), 3)
    assert kept["a sketch"].count == 3


@pytest.mark.real
def test_the_sketch_of_the_amnesia_is_found_by_the_forgetting(world: World, tmp_path: Path):
    """On a deployment every task runs in a process of its own."""
    with_files = forget(world.flower(world.grid(tmp_path)), world.before, CLASS, SCHEDULE, "overwrite")
    without = forget(world.flower(world.grid()), world.before, CLASS, SCHEDULE, "overwrite")
    assert digest(with_files.state) == digest(without.state)
    assert with_files.cost.gradient_evaluations < without.cost.gradient_evaluations
    assert with_files.notes == ()
    assert without.notes == ("Client 0 has no state-dir, so it will not remember what it withdrew.",)


# Never again


@pytest.mark.real
def test_what_was_withdrawn_never_trains_again_on_that_node(world: World, tmp_path: Path):
    """Another run, another server that knows nothing of the request, nodes that were restarted."""
    forget(world.flower(world.grid(tmp_path)), world.before, CLASS, SCHEDULE, "overwrite")
    start = state_of(world.network())
    again = train(world.flower(world.grid(tmp_path)), start, SCHEDULE)
    assert digest(again) == digest(train(world.local(), start, SCHEDULE, exclude=[CLASS]))
    assert digest(again) == digest(train(world.local(erased=[CLASS]), start, SCHEDULE))
    assert digest(again) != digest(world.before)


@pytest.mark.real
def test_not_one_bit_depends_on_what_was_withdrawn(world: World, tmp_path: Path):
    forget(world.flower(world.grid(tmp_path)), world.before, CLASS, SCHEDULE, "overwrite")

    def load(context: Context) -> Client:
        client = world.local().client(client_number(context))
        if client.index != 0:
            return client
        samples, gone = client.samples, CLASS.matches(client.samples)
        features, labels = samples.features.clone(), samples.labels.clone()
        features[gone], labels[gone] = 255 - features[gone], 9 - labels[gone]
        return replace(client, samples=Samples(features, labels, samples.true_labels, samples.ids))

    start = state_of(world.network())
    states = [train(world.flower(world.grid(tmp_path, load=kind)), start, SCHEDULE) for kind in (None, load)]
    assert digest(states[0]) == digest(states[1])


def test_a_request_that_failed_was_withdrawn_all_the_same(world: World, tmp_path: Path):
    """The client took its data back; that the server could not finish does not give them to it again."""
    grid = world.grid(tmp_path)
    federation = world.flower(grid)
    grid.dead.update((1, 2, 3))
    with pytest.raises(Exception, match="Client 1 went away"):
        forget(federation, world.before, CLASS, SCHEDULE, "pgd")
    assert NodeStore(tmp_path / "site-0", 0).withdrawn == (CLASS,)


def test_a_request_that_is_refused_is_not_withdrawn(world: World, tmp_path: Path):
    for request in (ErasureRequest.of_class(0, 12), ErasureRequest.of_client(0)):
        with pytest.raises(InputError, match=r"Class 12 does not exist|names no class"):
            forget(world.flower(world.grid(tmp_path)), world.before, request, SCHEDULE, "cdp")
    assert NodeStore(tmp_path / "site-0", 0).withdrawn == ()


def test_in_one_process_a_request_leaves_no_trace(world: World):
    federation = world.local()
    count = CountSamples(seed=0, threads=1)
    before = [reply.numbers for reply in federation.ask(count, {})]
    forget(federation, world.before, CLASS, SCHEDULE, "overwrite")
    assert [reply.numbers for reply in federation.ask(count, {})] == before
    assert all(federation.client(k).erased == () for k in federation.clients)


def test_erased_data_is_no_retained_data_but_still_a_target(world: World):
    client = world.local(erased=[CLASS]).client(0)
    target, retained = client.positions([CLASS])
    assert len(target) == int(CLASS.matches(client.samples).sum()) > 0
    assert len(retained) == len(client.samples) - len(target)
    assert len(client.positions([])[1]) == len(retained)
    assert len(client.positions([], being_forgotten=[CLASS])[1]) == len(client.samples)
    assert len(client.positions([ErasureRequest.of_client(0)])[1]) == 0
    other = world.local(erased=[CLASS]).client(1)
    assert len(other.positions([])[1]) == len(other.samples), "class 3 of client 0 is not class 3 of client 1"
