"""FedAF, federated active forgetting (the paper's Algorithm 1), seen from the server.

    for each client k with a request:
        teacher <- theta* after amnesia and a reminder                                       not in the paper
        theta_k <- client k trains on new memories of R under the knowledge preserver        lines 1-7, `Forget`
        theta   <- aggregate theta_k                                                         line 8, `aggregate`
    recover: one round over a small share of everybody's retained data                       not in the paper
    or rebuild: break the weights where the memory sits, then a few ordinary rounds          not in the paper
    a feature goes by a way of its own: `features.py`                                        not in the paper

What other clients' data supports comes back in the recovery round; what nothing supports does not. In many later rounds
it would all the same, if the weights still lay near those that knew R: `lasting` and `thorough` rebuild them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedforget.federation.aggregation import WeightedMean, average, scaled_towards, without_return
from fedforget.federation.cost import Meter
from fedforget.federation.guard import Guard
from fedforget.federation.masking import check_masking
from fedforget.federation.rounds import Schedule, drawn, participants, run_short_round
from fedforget.federation.seam import TargetSize
from fedforget.federation.tasks import CountSamples, Reply, Train
from fedforget.methods.fedaf.features import check_preset, forget_features
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.methods.fedaf.masked_sketch import masked_sketch
from fedforget.methods.fedaf.planning import fit_sketch, only_from, plan_sketch
from fedforget.methods.fedaf.rebuilding import rebuild
from fedforget.methods.fedaf.settings import FedAFSettings
from fedforget.methods.fedaf.sketching import SKETCH_KEY, BuildSketch
from fedforget.params import State, trainable
from fedforget.requests import ErasureRequest

HELD = "Every later round must be held to this model's guard, as it was where it was measured what comes back."
NO_GUARD = "Later rounds are not held to what was forgotten of a feature: its samples stay, blanked."


def check_requests(settings: FedAFSettings, requests: Sequence[ErasureRequest]) -> None:
    """Refuse settings that cannot serve these."""
    check_preset(settings, requests)


def forget_with_fedaf(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: FedAFSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the global model without the target, the curves of the forgetting)."""
    settings, gave_way = fit_sketch(federation.model, settings, federation.device)
    current = dict(state)
    exclude = (*served, *requests)
    sizes = federation.check(exclude)
    features = tuple(request for request in requests if request.kind == "feature")
    if features:  # by another way, after the rest
        requests, served = [request for request in requests if request not in features], (*served, *features)
    if requests and settings.preserver in ("sketch", "pca"):
        with only_from(federation.model, settings.first_moved):
            plan_sketch(federation.model, int(settings.sketch_rows), settings.planned_dtype, federation.device)
        federation.notes += [gave_way] if gave_way else []
    if settings.sketch_masked and any(_takes_everybodys(settings, request.client, sizes) for request in requests):
        emptied = {client for client, size in sizes.items() if size.retained == 0}
        check_masking(len(set(participants(federation, (*served, *requests))) - emptied))
    curves: dict[str, list[float]] = {}
    for client in sorted({request.client for request in requests}):
        message = dict(current)
        if settings.preserver == "sketch" and _takes_everybodys(settings, client, sizes):
            with federation.stage("sketch"):
                message |= federation_sketch(federation, current, requests, served, settings, schedule)
        task = Forget(
            seed=schedule.seed, threads=schedule.threads, requests=tuple(r for r in requests if r.client == client),
            served=tuple(r for r in served if r.client == client), settings=settings,
        )  # fmt: skip
        if settings.memory == "reminded":
            with federation.stage("memory"):
                message |= reminded_teacher(federation, message, task, schedule, exclude)
        with federation.stage("forgetting"):
            (reply,) = federation.ask(task, message, [client])
        for name, values in reply.curves.items():
            curves.setdefault(name, []).extend(values)
        with federation.stage("aggregation"):
            current = aggregate(federation, current, reply, settings, schedule, exclude)
    if requests:
        hold(federation, state, current, settings)
        with federation.stage("recovery"):
            current = recover(federation, state, current, settings, schedule, exclude)
    if requests and settings.rebuilding:
        with federation.stage("rebuilding"):
            current = rebuild(federation, current, settings, schedule, exclude)
    if features:
        current = forget_features(federation, current, features, settings, schedule, exclude)
        federation.notes += [NO_GUARD] if settings.held else []
    return current, curves


def hold(federation: Meter, original: Mapping[str, Tensor], forgotten: State, settings: FedAFSettings) -> None:
    """From here on rounds are held to what was forgotten, now and before."""
    if federation.guard is not None:
        federation.guard = federation.guard.including(forgotten)
    if settings.held:
        own = Guard.of(original, forgotten, trainable(federation.model), settings.held)
        federation.guard = own if federation.guard is None else federation.guard.then(own)
        federation.notes.append(HELD)


def recover(
    federation: Meter,
    original: Mapping[str, Tensor],
    forgotten: State,
    settings: FedAFSettings,
    schedule: Schedule,
    exclude: Sequence[ErasureRequest],
) -> State:
    """Rounds over a small share of everybody's retained data, none of which leads back to the original model."""
    current = forgotten
    for round in range(settings.recovery_rounds):
        task = recovery_task(schedule, settings, "recovery", round, exclude)
        current = short_round(federation, current, task, settings)
        if settings.recovery_guard:
            current = without_return(original, forgotten, current, trainable(federation.model))
        if federation.guard is not None:
            current = federation.guard.hold(current)
    return current


def reminded_teacher(
    federation: Meter, message: State, task: Forget, schedule: Schedule, exclude: Sequence[ErasureRequest]
) -> State:
    """The teacher whose predictions on R are the new memories: theta* loses R abruptly (amnesia, at the client), then
    one round over a small share of everybody's retained data reminds it of what the others know.

    What it then says of R ought to be what the federation supports without R: no poisoned label, and an honest one as
    for unseen data. How near it comes is measured in docs/method.md. The anchor theta* learns these memories under the
    preserver, so it need not go through the amnesia itself."""
    settings = task.settings
    (amnesiac,) = federation.ask(
        replace(task, settings=settings.amnesia, amnesia=True), message, [task.requests[0].client]
    )
    reminder = recovery_task(schedule, settings, "reminder", task.requests[0].client, exclude)
    teacher = short_round(federation, amnesiac.tensors, reminder, settings)
    if settings.reminder_guard:
        teacher = without_return(message, amnesiac.tensors, teacher, trainable(federation.model))
    return {f"{TEACHER_KEY}{name}": tensor for name, tensor in teacher.items()}


def aggregate(
    federation: Meter,
    anchor: State,
    reply: Reply,
    settings: FedAFSettings,
    schedule: Schedule,
    exclude: Sequence[ErasureRequest],
) -> State:
    """How the unlearned client's model becomes the global one (line 8; the paper does not say what the peers send).

    replace           it is the global model: nothing is diluted
    scaled            it sends theta* + (theta_k - theta*)/w_k and the idle peers theta*: the same model, and it works
                      under secure aggregation, where the server sees the sum only
    average-idle      FedAvg with peers that send theta* unchanged: the model moves w_k of the way
    average-training  FedAvg with peers that train an ordinary round meanwhile"""
    if settings.aggregation == "replace":
        return reply.tensors
    peers = [k for k in participants(federation, exclude) if k != reply.client]
    if settings.aggregation == "average-training":
        ordinary = schedule.train_task(schedule.rounds, exclude)
        training = [k for k in drawn(federation.clients, ordinary) if k != reply.client]
        trained = federation.ask(ordinary, anchor, training)
        return average(itertools.chain([reply], trained))
    count = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=tuple(exclude))
    others = sum(peer.numbers["samples"] for peer in federation.ask(count, {}, peers))
    samples = reply.numbers["samples"]
    sent = reply.tensors
    if settings.aggregation == "scaled":
        sent = scaled_towards(anchor, sent, (samples + others) / samples)
    mean = WeightedMean()
    mean.add(sent, samples)
    if others:
        mean.add(anchor, others)
    return mean.result()


def federation_sketch(
    federation: Meter,
    state: State,
    requests: Sequence[ErasureRequest],
    served: Sequence[ErasureRequest],
    settings: FedAFSettings,
    schedule: Schedule,
) -> State:
    """Everybody's sketch of the retained data: what must travel to the target client beside the model.

    Rows and samples are the whole federation's budget: each client sketches its part of the samples into its part of
    the rows. With more clients than rows several share a row, where their signed gradients add up."""
    if settings.sketch_masked:
        return masked_sketch(federation, state, requests, served, settings, schedule)
    clients = participants(federation, (*served, *requests))
    rows, samples = int(settings.sketch_rows), settings.sketch_samples
    part = replace(
        settings,
        sketch_rows=max(1, rows // len(clients)),
        sketch_samples=None if samples is None else max(1, int(samples) // len(clients)),
    )
    task = BuildSketch(
        seed=schedule.seed, threads=schedule.threads, requests=tuple(requests), served=tuple(served), settings=part
    )
    merged, count = torch.zeros(0), 0
    for position, reply in enumerate(federation.ask(task, state, clients)):
        if reply.numbers["count"]:
            block = reply.tensors[SKETCH_KEY]
            if not count:
                merged = block.new_zeros(rows, block.shape[1])
            merged[(position * int(part.sketch_rows)) % rows :][: len(block)] += block
            count += int(reply.numbers["count"])
    return {SKETCH_KEY: merged, f"{SKETCH_KEY}.count": torch.tensor(count)}


def _takes_everybodys(settings: FedAFSettings, client: int, sizes: Mapping[int, TargetSize]) -> bool:
    if settings.sketch_scope == "auto":
        return sizes[client].retained == 0
    return settings.sketch_scope == "federation"


def short_round(federation: Meter, state: State, task: Train, settings: FedAFSettings) -> State:
    """A recovery (or reminder) round; in a large federation over some of the clients."""
    samples = settings.recovery_clients * settings.recovery_min_samples
    return run_short_round(federation, state, task, clients=settings.recovery_clients, samples=samples)


def recovery_task(
    schedule: Schedule, settings: FedAFSettings, purpose: str, round: int, exclude: Sequence[ErasureRequest]
) -> Train:
    """A round over `recovery_share` of the retained data."""
    return replace(
        schedule.train_task(round, exclude), epochs=1, share=float(settings.recovery_share),
        min_samples=settings.recovery_min_samples, lr=float(settings.recovery_lr),
        momentum=settings.recovery_momentum, batch_size=settings.recovery_batch_size, purpose=purpose,
    )  # fmt: skip
