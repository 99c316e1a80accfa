"""FedAF, federated active forgetting (the paper's Algorithm 1), seen from the server.

    for each client k with a request:
        theta_k <- client k trains on new memories of R under the knowledge preserver        lines 1-7, `Forget`
        theta   <- aggregate theta_k                                                         line 8, `aggregate`

What the paper has not lies in `extensions/`, and each is called in one line:

    `planned`             a sketch that fits into memory
    `everybodys_sketch`   for a client that keeps no data of its own to sketch
    `reminded_teacher`    memories from theta* after amnesia and a reminder
    `guarded_recovery`    one round over a small share of everybody's retained data

With the paper's settings this is the method `fedaf`, with ours `overwrite`, the first rung of the ladder. In later
rounds what was overwritten may come back, since the weights still lie near those that knew R: the next rung, `rebuild`,
breaks them. A feature goes by a way of its own: `methods/features.py`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from fedforget.federation.aggregation import average, scaled_towards
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, drawn, participants
from fedforget.federation.tasks import CountSamples, Reply
from fedforget.methods.checks import own
from fedforget.methods.features import forget_features
from fedforget.methods.fedaf.extensions.federation_sketch import check_masks, everybodys_sketch
from fedforget.methods.fedaf.extensions.planning import Plan, planned
from fedforget.methods.fedaf.extensions.recovery import guarded_recovery, reminded_teacher
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.settings import OverwriteSettings
from fedforget.params import State
from fedforget.requests import ErasureRequest

Curves = dict[str, list[float]]


def forget_with_fedaf(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: OverwriteSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, Curves]:
    """(the global model without the target, the curves of the forgetting). Features go after the rest."""
    features = tuple(request for request in requests if request.kind == "feature")
    others = tuple(request for request in requests if request.kind != "feature")
    chosen = planned(federation, settings.opened(), others)
    current, curves = dict(state), Curves()
    if others:
        current, curves = forget_samples(Plan(federation, others, (*served, *features), chosen, schedule), current)
    if features:
        current = forget_features(Plan(federation, features, (*served, *others), chosen, schedule), current)
    return current, curves


def forget_samples(plan: Plan, state: State) -> tuple[State, Curves]:
    """Algorithm 1, and what lies around it."""
    check_masks(plan)
    current, curves = state, Curves()
    for client in sorted({request.client for request in plan.requests}):
        asked, served = own(plan.requests, client), own(plan.served, client)
        task = plan.schedule.about(Forget, asked, served, settings=plan.settings)
        message = anchored(plan, current, client)
        message |= everybodys_sketch(plan, current, client)
        message |= reminded_teacher(plan, message, task)
        with plan.federation.stage("forgetting"):
            (reply,) = plan.federation.ask(task, message, [client])
        with plan.federation.stage("aggregation"):
            current = aggregate(plan, current, reply)
        for name, values in reply.curves.items():
            curves.setdefault(name, []).extend(values)
    return guarded_recovery(plan, state, current), curves


def anchored(plan: Plan, state: State, client: int) -> State:
    """theta*, where the forgetting starts and the penalty is centred: see the setting `anchor`."""
    if plan.settings.anchor == "global":
        return dict(state)
    ordinary = replace(plan.schedule.train_task(plan.schedule.rounds, plan.served), purpose="anchor")
    with plan.federation.stage("anchor"):
        (reply,) = plan.federation.ask(ordinary, state, [client])
    return dict(reply.tensors)


def aggregate(plan: Plan, anchor: State, reply: Reply) -> State:
    """How the unlearned client's model becomes the global one (line 8; the paper does not say what the peers send).

    replace           it is the global model: nothing is diluted
    scaled            it sends theta* + (theta_k - theta*)/w_k and the idle peers theta*: the same model, and it works
                      under secure aggregation, where the server sees the sum only
    average-idle      FedAvg with peers that send theta* unchanged: the model moves w_k of the way
    average-training  FedAvg with peers that train an ordinary round meanwhile"""
    federation, schedule, aggregation = plan.federation, plan.schedule, plan.settings.aggregation
    if aggregation == "replace":
        return reply.tensors
    if aggregation == "average-training":
        ordinary = schedule.train_task(schedule.rounds, plan.exclude)
        training = [k for k in drawn(federation.clients, ordinary) if k != reply.client]
        return average(itertools.chain([reply], federation.ask(ordinary, anchor, training)))
    count = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=plan.exclude)
    peers = [k for k in participants(federation, plan.exclude) if k != reply.client]
    others = sum(peer.numbers["samples"] for peer in federation.ask(count, {}, peers))
    samples = reply.numbers["samples"]
    sent = reply.tensors
    if aggregation == "scaled":
        sent = scaled_towards(anchor, sent, (samples + others) / samples)
    idle = Reply(-1, tensors=anchor, numbers={"samples": others})
    return average([replace(reply, tensors=sent), idle])
