"""A sketch made ahead: the same bits as without preparing, and nothing of the target in what is kept or used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, digest, forget, from_arrays, state_of
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Withdraw
from fedforget.flower.node_store import KeptInFiles
from fedforget.methods.fedaf.ahead import AHEAD_KEY, AheadSketch, sketch_ahead, sketch_made_ahead
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.settings import FedAFSettings
from fedforget.methods.fedaf.sketch import hash_signs, hash_uniforms, row_losses
from fedforget.params import trainable
from fedforget.seeds import derive_seed

SETTINGS = FedAFSettings(sketch_rows=7, sketch_samples=40, sketch_ahead=True).for_network(1)
CLASSES, SAMPLES, CLIENTS = 4, 120, 2
SCHEDULE = Schedule(rounds=1, batch_size=8, threads=1)
TARGETS = {
    "class": ErasureRequest.of_class(0, 2),
    "samples": ErasureRequest.of_samples(0, [0, 3, 17, 40]),
}


def federation(damaged: torch.Tensor | None = None) -> LocalFederation:
    """Two clients of 60 samples; the features of those `damaged` are no numbers."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 1, 6, 6, generator=generator)
    y = torch.arange(SAMPLES) % CLASSES
    data = from_arrays(x, y, x[:4], y[:4])
    parts = list(torch.arange(SAMPLES).chunk(CLIENTS))
    world = LocalFederation(data, parts, build_model("cnn", data.shape, CLASSES, seed=0))
    if damaged is not None:
        world.client(0).samples.features[damaged] = float("nan")
    return world


def kept_by(world: LocalFederation, client: int = 0) -> AheadSketch:
    return world.client(client).kept[AHEAD_KEY]


def prepare(world: LocalFederation) -> None:
    sketch_ahead(world, state_of(world.model), SCHEDULE, SETTINGS)


def task(request: ErasureRequest) -> Forget:
    return Forget(seed=0, threads=1, requests=(request,), settings=SETTINGS)


def slow_row(client: Client, ids: torch.Tensor) -> torch.Tensor:
    """Sample by sample: sum of sigma(i) times the gradient of its loss."""
    seed = derive_seed(0, "sketch")
    total = torch.zeros(sum(p.numel() for p in trainable(client.model).values()), dtype=torch.float64)
    for id in ids:
        place = int((client.samples.ids == id).nonzero())
        logits = client.model.eval()(client.inputs(client.samples.features[place : place + 1]))
        loss = row_losses(logits, client.samples.labels[place : place + 1], hash_uniforms(id[None], seed), "sampled")
        gradients = torch.autograd.grad(loss.sum(), list(trainable(client.model).values()))
        total += hash_signs(id[None], seed) * torch.cat([g.reshape(-1) for g in gradients]).double()
    return total


def test_each_row_is_the_signed_sum_over_its_piece_and_the_pieces_go_by_class():
    world = federation()
    prepare(world)
    client, kept = world.client(0), kept_by(world)
    pieces = kept.ids.split(list(kept.sizes))
    assert len(pieces) == len(kept.rows) == 7
    assert set(kept.sizes) == {5, 6}
    assert len(kept.ids.unique()) == 40
    for row, piece in zip(kept.rows, pieces, strict=True):
        torch.testing.assert_close(row.double(), slow_row(client, piece), rtol=1e-4, atol=1e-5)
    classes = kept.ids % CLASSES
    assert torch.equal(classes, classes.sort().values)


@pytest.mark.parametrize("name", TARGETS)
def test_preparing_changes_when_and_never_what(name: str):
    request, prepared, plain = TARGETS[name], federation(), federation()
    state = state_of(plain.model)
    prepare(prepared)
    settings = {"sketch_ahead": True, "sketch_rows": 7, "sketch_samples": 40}
    a = forget(prepared, state, request, SCHEDULE, **settings)
    b = forget(plain, state, request, SCHEDULE, **settings)
    assert digest(a.state) == digest(b.state)
    assert a.cost.gradient_evaluations < b.cost.gradient_evaluations - 15
    assert AHEAD_KEY not in prepared.client(0).kept, "it serves one request"
    assert AHEAD_KEY in prepared.client(1).kept


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_of_the_target_is_left_from_the_moment_it_is_withdrawn(name: str):
    request, world = TARGETS[name], federation()
    prepare(world)
    before, client = kept_by(world), world.client(0)
    gone = client.samples.ids[request.matches(client.samples)]
    list(world.ask(Withdraw(seed=0, threads=1, requests=(request,)), {}, [0]))
    after = kept_by(world)
    for old, new, piece in zip(before.rows, after.rows, before.ids.split(list(before.sizes)), strict=True):
        touched = bool(torch.isin(piece, gone).any())
        assert torch.equal(new, torch.zeros_like(new) if touched else old)
        assert old.any()


@pytest.mark.parametrize("prepared", [False, True])
def test_the_targets_features_are_never_looked_at(prepared: bool):
    """They are no numbers, and one gradient of them would make a row none."""
    request = TARGETS["samples"]
    world = federation(damaged=torch.tensor(request.sample_ids))
    if prepared:
        prepare(world)
        assert not kept_by(world).rows.isfinite().all()
    client = world.client(0)
    sketch, _ = sketch_made_ahead(client, task(request), digest(trainable(client.model)))  # type: ignore[misc]
    assert sketch.rows.isfinite().all()
    retained = ~request.matches(client.samples)
    assert sketch.count <= int(retained.sum())


def test_a_class_takes_its_rows_along():
    world = federation()
    client = world.client(0)
    sketch, evaluations = sketch_made_ahead(client, task(TARGETS["class"]), "")  # type: ignore[misc]
    assert len(sketch.rows) in (5, 6)
    assert evaluations == sketch.count


def test_what_was_made_at_other_weights_or_otherwise_is_not_used():
    world = federation()
    prepare(world)
    client = world.client(0)
    kept = replace(kept_by(world), rows=torch.full_like(kept_by(world).rows, 99.0))
    right = digest(trainable(client.model))
    fresh = sketch_made_ahead(replace(client, kept={}), task(TARGETS["class"]), right)
    for wrong in (replace(kept, weights="other"), replace(kept, seed=5), replace(kept, ids=kept.ids.flip(0))):
        found = sketch_made_ahead(replace(client, kept={AHEAD_KEY: wrong}), task(TARGETS["class"]), right)
        assert found is not None
        assert fresh is not None
        assert torch.equal(found[0].rows, fresh[0].rows)
    used = sketch_made_ahead(replace(client, kept={AHEAD_KEY: kept}), task(TARGETS["class"]), right)
    assert used is not None
    assert (used[0].rows == 99.0).any(), "or this test would show nothing"


def test_a_target_that_leaves_little_is_sketched_as_ever():
    world = federation()
    most = ErasureRequest.of_samples(0, range(50))
    assert sketch_made_ahead(world.client(0), task(most), "") is None
    result = forget(world, state_of(world.model), most, SCHEDULE, sketch_ahead=True, sketch_rows=7, sketch_samples=40)
    assert result.cost.stored_bytes > 0


def test_a_node_keeps_it_in_files(tmp_path: Path):
    world = federation()
    prepare(world)
    files = KeptInFiles(tmp_path)
    files[AHEAD_KEY] = kept_by(world)
    client = replace(world.client(0), kept=KeptInFiles(tmp_path))
    client.withdraw([TARGETS["class"]])
    again = KeptInFiles(tmp_path)[AHEAD_KEY]
    assert torch.equal(again.ids, kept_by(world).ids)
    gone = client.samples.ids[TARGETS["class"].matches(client.samples)]
    assert torch.equal(again.rows, kept_by(world).without(gone).rows)
    assert F.mse_loss(again.rows, kept_by(world).rows) > 0


def test_it_is_refused_where_it_cannot_be():
    with pytest.raises(InputError, match="'sketch_ahead' needs the preserver 'sketch' and the sketch_data"):
        FedAFSettings(sketch_ahead=True, sketch_data="all")
