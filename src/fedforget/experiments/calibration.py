"""Is the audit right? Models of which the truth is known, examined and judged, over many seeds.

    untouched     the model before: it remembers                                   must never be called forgotten
    retrained     a fresh oracle that is none of those it is judged against        must be called forgotten
    noisy head    the untouched model with noise on its output layer               must be caught
    masked        the untouched model with the trained class's logit masked        must be caught
    last layer    the untouched model, its last layer fine-tuned on retained data  must be caught
    ascent        gradient ascent on the target, run too far                       must be called over-forgotten

Two worlds: a backdoored class (digits), and half of a client's clean samples in a federation that memorises (4 x 500 of
MNIST, 40 rounds)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.audit.examine import ORACLES, Case, Level, examine, examine_oracles, judge
from fedforget.audit.measures import measure
from fedforget.audit.oracles import oracle_models
from fedforget.data import load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.partition import partition
from fedforget.experiments.cells import Cell, CellFile, provenance
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.training import minibatches
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State, copy_state, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

SUBJECTS = ("untouched", "retrained", "noisy head", "masked", "last layer", "ascent")
METHODS = ("overwrite:default", "fedquit:default", "not:default", "sga:ewc")
"""Judged as well, though the truth of these is what the audit is for."""
CLIENTS = 4


@dataclass(frozen=True)
class World:
    """A federation whose target is known to leave a memory."""

    name: str
    schedule: Schedule
    train: int
    held_out: int
    dataset: str


WORLDS = (
    World("poisoned", Schedule(rounds=20, lr=0.05, batch_size=16), 1437, 0, "digits"),
    World("memorised", Schedule(rounds=40, lr=0.01, batch_size=16), 2000, 4000, "mnist"),
)


def run(out: CellFile, seeds: Sequence[int], threads: int, say: Callable[[str], None]) -> None:
    """Every cell that is not done yet; the cells of one world and seed are written together."""
    for world in WORLDS:
        for seed in seeds:
            key = f"calibration/{world.name}/seed{seed}"
            if f"{key}/{METHODS[-1]}" in out:
                continue
            start = time.perf_counter()
            for cell in cells(world, seed, threads):
                if cell["key"] not in out:
                    out.add(cell)
            say(f"{key}: {time.perf_counter() - start:.0f} s")


def cells(world: World, seed: int, threads: int) -> Iterator[Cell]:
    """The verdicts on every subject, with three oracles and without."""
    schedule = replace(world.schedule, seed=seed, threads=threads)
    federation, request, before = trained_world(world, schedule)
    count = ORACLES["quick"]
    *oracles, fresh = oracle_models(federation, [request], schedule, count + 1, data=world.name)
    subjects = dict(subjects_of(federation, request, before, fresh, schedule))
    for name in METHODS:
        method, _, preset = name.partition(":")
        subjects[name] = forget(federation, before, request, schedule, method, preset).state
    judged: dict[Level, dict[str, Any]] = {"quick": {}, "alone": {}}
    for level in judged:
        case = Case(federation, (request,), schedule, level)
        references = oracles if level == "quick" else []
        examined_oracles = examine_oracles(case, references, lambda *_: None)
        examined_before = examine(case, before, references)
        for name, state in subjects.items():
            subject = examined_before if name == "untouched" else examine(case, state, references)
            judged[level][name] = judge(level, subject, examined_before, examined_oracles)[1].to_json()
    test = load_dataset(world.dataset).test
    for name, state in subjects.items():
        figures = measure(federation, state, [request], test, threads=threads)
        yield {
            "key": f"calibration/{world.name}/seed{seed}/{name}", "experiment": "calibration", "world": world.name,
            "subject": name, "seed": seed, "oracles": count, "test_acc": figures.test_acc, "bd_acc": figures.bd_acc,
            "verdict": judged["quick"][name], "alone": judged["alone"][name], "threads": threads, **provenance("cpu"),
        }  # fmt: skip


def trained_world(world: World, schedule: Schedule) -> tuple[LocalFederation, ErasureRequest, State]:
    """(the federation, the request, the model before)."""
    whole = load_dataset(world.dataset)
    dataset = whole.first(world.train)
    parts = partition("iid", dataset.train.labels, CLIENTS, schedule.seed)
    model = build_model("cnn", dataset.shape, len(dataset.classes), schedule.seed)
    if world.name == "poisoned":
        request = ErasureRequest.of_class(0, 3)
        backdoor = Backdoor.draw(request, Trigger(2, margin=0), len(dataset.classes), schedule.seed)
        federation = LocalFederation(dataset, parts, model, backdoors=[backdoor])
    else:
        half = dataset.train.ids[parts[0]][: len(parts[0]) // 2]
        request = ErasureRequest.of_samples(0, half.tolist())
        unused = whole.train.select(torch.arange(world.train, world.train + world.held_out))
        federation = LocalFederation(dataset, parts, model, held_out=unused)
    return federation, request, train(federation, state_of(model), schedule)


def subjects_of(
    federation: LocalFederation, request: ErasureRequest, before: State, fresh: State, schedule: Schedule
) -> Iterator[tuple[str, State]]:
    """Models of which the truth is known."""
    weight, bias = list(before)[-2:]
    yield "untouched", before
    yield "retrained", fresh
    noisy = copy_state(before)
    generator = derive_generator(schedule.seed, "calibration", "noise")
    for name in (weight, bias):
        noisy[name] += before[name].std() * torch.randn(before[name].shape, generator=generator)
    yield "noisy head", noisy
    masked = copy_state(before)
    target = federation.client(request.client).positions([request])[0]
    masked[bias][federation.client(request.client).samples.labels[target].mode().values] -= 1e3
    yield "masked", masked
    yield "last layer", tuned_last_layer(federation, request, before, (weight, bias), schedule)
    yield "ascent", forget(federation, before, request, schedule, "sga", "plain", lr=0.05, epochs=30).state


def tuned_last_layer(
    federation: LocalFederation,
    request: ErasureRequest,
    before: Mapping[str, Tensor],
    names: Sequence[str],
    schedule: Schedule,
) -> State:
    """Three epochs over everybody's retained data that move the last layer alone."""
    network = federation.model
    network.load_state_dict(dict(before))
    network.eval()
    moved = [parameter for name, parameter in trainable(network).items() if name in names]
    for epoch in range(3):
        for k in federation.clients:
            client = federation.client(k)
            retained = client.retained([request])
            generator = derive_generator(schedule.seed, "calibration", "last layer", epoch, "client", k)
            for batch in minibatches(len(retained), schedule.batch_size, generator, torch.device("cpu")):
                samples = retained.select(batch)
                loss = F.cross_entropy(network(client.inputs(samples.features)), samples.labels)
                for parameter, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
                    parameter.data.sub_(gradient, alpha=schedule.lr)
    return state_of(network)
