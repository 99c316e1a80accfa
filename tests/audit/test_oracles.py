"""The oracle ensemble: which models it is made of."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import small_worlds
import torch
from oracle_worlds import CLASS, EARLIER, SCHEDULE, digests, oracles, world
from torch.nn import functional as F

from fedforget.audit.oracles import oracle_models, oracle_schedule
from fedforget.data.own import from_arrays
from fedforget.errors import InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Train
from fedforget.federation.training import minibatches
from fedforget.methods import forget
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.models import fresh_copy
from fedforget.params import State, digest, distance, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed


def by_hand(federation: LocalFederation, schedule: Schedule, exclude: Sequence[ErasureRequest]) -> State:
    """Retraining without any of our own training: SGD with momentum and FedAvg, as one would write them down."""
    current = state_of(fresh_copy(federation.model, derive_seed(schedule.seed, "retrain", 0)))
    for round in range(schedule.rounds):
        sums, weight = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in current.items()}, 0
        for k in federation.clients:
            samples = federation.client(k).samples
            gone = torch.zeros(len(samples), dtype=torch.bool)
            for request in exclude:
                gone |= (samples.labels == request.label) & (request.client == k)
            x, y = samples.features[~gone], samples.labels[~gone]
            model = copy.deepcopy(federation.model)
            model.load_state_dict(current)
            model.train()
            velocity = [torch.zeros_like(p) for p in model.parameters()]
            order = derive_generator(schedule.seed, "train", round, "client", k, "order")
            for batch in minibatches(len(y), schedule.batch_size, order, x.device):
                gradients = torch.autograd.grad(F.cross_entropy(model(x[batch]), y[batch]), list(model.parameters()))
                with torch.no_grad():
                    for p, v, g in zip(model.parameters(), velocity, gradients, strict=True):
                        v.mul_(schedule.momentum).add_(g)
                        p.add_(v, alpha=-schedule.lr)
            for name, tensor in model.state_dict().items():
                sums[name] = torch.maximum(sums[name], tensor.double()) if "num" in name else (
                    sums[name] + tensor.double() * len(y)
                )  # fmt: skip
            weight += len(y)
        current = {n: (s if "num" in n else s / weight).to(current[n].dtype) for n, s in sums.items()}
    return current


# Which models they are


def test_oracle_0_is_the_method_retrain_bit_for_bit():
    federation = world()
    retrained = forget(federation, state_of(federation.model), CLASS, SCHEDULE, "retrain").state
    assert digest(oracles(federation, 1)[0]) == digest(retrained)
    assert oracle_schedule(SCHEDULE, 0) == SCHEDULE


def test_another_oracle_has_a_start_and_an_order_of_its_own():
    federation = world()
    other = oracle_schedule(SCHEDULE, 1)
    assert replace(other, seed=7) == SCHEDULE
    assert other.seed != 7
    begin = [fresh_start(federation.model, schedule, RetrainSettings()) for schedule in (SCHEDULE, other)]
    assert distance(begin[0], begin[1]) > 0.1
    one_round = [train(federation, begin[0], replace(s, rounds=1), exclude=[CLASS]) for s in (SCHEDULE, other)]
    assert digest(one_round[0]) != digest(one_round[1]), "the same start, another order"
    models = oracles(federation, 4)
    assert len(set(digests(models))) == 4
    assert digest(models[1]) == digest(train(federation, begin[1], other, exclude=[CLASS]))
    assert len({oracle_schedule(replace(SCHEDULE, seed=s), n).seed for s in (7, 8) for n in range(9)}) == 18
    with pytest.raises(InputError, match="numbered from 0"):
        oracle_schedule(SCHEDULE, -1)
    with pytest.raises(InputError, match="it must be 1 or larger"):
        oracles(federation, 0)


@pytest.mark.parametrize("served", [(), (EARLIER,)])
def test_the_targets_are_excluded_really(served: tuple[ErasureRequest, ...]):
    federation = world()
    models = oracles(federation, 2, served=served)
    for number, model in enumerate(models):
        assert digest(model) == digest(by_hand(federation, oracle_schedule(SCHEDULE, number), (CLASS, *served)))
    other = oracles(federation, 2, served=() if served else (EARLIER,))
    assert not set(digests(models)) & set(digests(other))


def test_what_the_target_holds_does_not_matter():
    """The targets' features become nonsense, and not a bit of any oracle changes; of what is retained, it does."""

    def spoilt(*targets: tuple[int, int]) -> LocalFederation:
        clean = world()
        samples = [clean.client(k).samples for k in clean.clients]
        features, labels = torch.cat([s.features for s in samples]), torch.cat([s.labels for s in samples])
        parts = list(torch.arange(len(labels)).split(list(small_worlds.SIZES)))
        for client, label in targets:
            features[parts[client][labels[parts[client]] == label]] = 1e4
        return LocalFederation(from_arrays(features, labels, features[:9], labels[:9]), parts, clean.model)

    reference = digests(oracles(spoilt(), 3, served=[EARLIER]))
    assert digests(oracles(spoilt((0, 1), (1, 2)), 3, served=[EARLIER])) == reference
    assert not set(digests(oracles(spoilt((0, 2)), 3, served=[EARLIER]))) & set(reference)


def test_a_withdrawn_client_is_not_even_asked():
    federation = world()
    oracle_models(federation, [ErasureRequest.of_client(2)], SCHEDULE, 2, data="points")
    assert {reply.client for task, _, reply in federation.log if isinstance(task, Train)} == {0, 1, 3}


def test_everything_is_checked_before_any_work():
    federation = world()
    with pytest.raises(InputError, match="does not exist"):
        oracle_models(federation, [CLASS], SCHEDULE, 2, served=[ErasureRequest.of_class(1, 9)], data="points")
    assert not federation.log
