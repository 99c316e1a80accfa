"""The sensitivity to a feature: a slow twin, what leaves the client, and what a verdict makes of it."""

from __future__ import annotations

import pytest
import torch
from small_worlds import SCHEDULE, SIZES, federation, trained
from torch import nn

from fedforget.audit.examine import Case, examine, examine_oracles, judge
from fedforget.audit.feature_sensitivity import (
    MeasureSensitivity,
    Sums,
    measure_sensitivity,
    sensitivity_sums,
    shuffled,
)
from fedforget.audit.measures import measure
from fedforget.audit.oracles import oracle_models
from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.data.samples import Normalisation, Samples
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest, feature_mask
from fedforget.seeds import derive_generator

CPU = torch.device("cpu")
COLUMNS = tuple(ErasureRequest.of_feature(client, 2) for client in range(4))


def test_the_twin_that_goes_sample_by_sample():
    world, _, _ = trained()
    samples = world.client(0).samples
    mask = feature_mask((2,), (6,))
    sums = sensitivity_sums(world.model, samples, mask, world.normalisation, CPU, seed=3)
    other = shuffled(samples.features, mask, derive_generator(3, "sensitivity"))
    changed, moved = [], []
    world.model.eval()
    for x, y in zip(samples.features, other, strict=True):
        p, q = (world.model(one[None]).softmax(1)[0] for one in (x, y))
        changed.append(float((p - q).detach().norm()))
        moved.append(abs(float(x[2] - y[2])))
    assert sums.reading is not None
    assert sums.reading.value == pytest.approx(sum(changed) / sum(moved), rel=1e-5)
    s = sums.reading.value
    spread = sum((a - s * b) ** 2 for a, b in zip(changed, moved, strict=True)) ** 0.5
    assert sums.reading.error == pytest.approx(spread / sum(moved), rel=1e-3)


def test_a_model_that_does_not_read_the_feature_has_none_and_a_feature_that_does_not_vary_neither():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[:, 1] = 0.0
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    samples = Samples.of(features, torch.zeros(40, dtype=torch.int64))
    reading = sensitivity_sums(model, samples, feature_mask((1,), (3,)), Normalisation(), CPU, 0).reading
    assert reading is not None
    assert reading.value == pytest.approx(0.0, abs=1e-7)
    still = samples.with_features(features.clone().index_fill_(1, torch.tensor([1]), 5.0))
    assert sensitivity_sums(model, still, feature_mask((1,), (3,)), Normalisation(), CPU, 0).reading is None
    assert Sums().reading is None


def test_of_one_sample_there_is_no_sensitivity():
    """Its error would be 0, and any difference from an oracle certain."""
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    samples = Samples.of(features, torch.zeros(6, dtype=torch.int64))
    model = nn.Linear(3, 2)
    for count, is_read in ((1, False), (2, False), (6, True)):
        few = samples.select(torch.arange(count))
        sums = sensitivity_sums(model, few, feature_mask((1,), (3,)), Normalisation(), CPU, 0)
        assert (sums.reading is not None) == is_read
    alone = Sums(0.5, 1.0, 0.25, 0.5, 1.0, 1.0)
    assert alone.reading is None


def test_in_closed_form_a_small_change_of_a_logistic_model():
    """f = (p, 1 - p) with p = sigmoid(w x): ||f(x) - f(x')|| / |x - x'| is about sqrt(2) p (1 - p) w near 0."""
    model = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.6], [0.0]]))
    features = 1e-2 * torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    samples = Samples.of(features, torch.zeros(500, dtype=torch.int64))
    reading = sensitivity_sums(model, samples, torch.ones(1, dtype=torch.bool), Normalisation(), CPU, 0).reading
    assert reading is not None
    assert reading.value == pytest.approx(2**0.5 * 0.25 * 0.6, rel=1e-3)


def test_the_asking_clients_are_asked_each_for_its_own():
    world, before, _ = trained()
    one = measure_sensitivity(Case(world, COLUMNS[:1], SCHEDULE), before)
    assert [reply.client for task, _, reply in world.log if isinstance(task, MeasureSensitivity)] == [0]
    everybody = measure_sensitivity(Case(world, COLUMNS, SCHEDULE), before)
    replies = [reply for task, _, reply in world.log if isinstance(task, MeasureSensitivity)][1:]
    assert everybody.target is not None
    expected = sum(r.numbers["target/a"] for r in replies) / sum(r.numbers["target/b"] for r in replies)
    assert everybody.target.value == pytest.approx(expected)
    assert one.count == everybody.count == 9, "the held-out samples are the same ones"
    assert one.unseen is not None
    assert everybody.unseen is not None
    assert everybody.unseen.error == pytest.approx(one.unseen.error, rel=1e-6)
    assert all(not reply.tensors for reply in replies)


def test_the_accuracies_of_samples_that_stay_are_no_memory():
    world, before, _ = trained()
    figures = measure(world, before, COLUMNS[:1], world.client(0).held_out)
    assert (figures.bd_acc, figures.true_acc, figures.target_loss) == (None, None, None)
    assert figures.test_acc is not None
    assert figures.retained_acc is not None


@pytest.mark.real
def test_on_the_table_a_retrained_model_and_fedafs_are_forgotten_and_the_one_before_is_not():
    data = load_dataset("breast_cancer")
    world = LocalFederation(data, partition("iid", data.train.labels, 4, 0), build_model("mlp", data.shape, 2, 0))
    schedule = Schedule(rounds=20, lr=0.05, batch_size=16, threads=1)
    requests = tuple(ErasureRequest.of_feature(client, 20) for client in range(4))
    before = train(world, state_of(world.model), schedule)
    oracles = oracle_models(world, requests, schedule, 5, data="")
    case = Case(world, requests, schedule, "quick")
    examined = examine_oracles(case, oracles, lambda *_: None)
    untouched = examine(case, before)

    def word(state: State) -> str:
        evidence, verdict = judge(examine(case, state), untouched, examined)
        assert all(e.subject is not None and len(e.oracles) == 5 for e in evidence)
        assert any(e.rest for e in evidence), "the rest of the model is looked at too"
        return verdict.word

    assert word(before) == "not forgotten"
    assert word(forget(world, before, requests, schedule, "retrain", oracle=77).state) == "forgotten"
    assert word(forget(world, before, requests, schedule, "overwrite").state) == "forgotten"


def test_without_an_oracle_nothing_is_claimed():
    world, before, _ = trained()
    examined = examine(Case(world, COLUMNS, SCHEDULE, "alone"), before)
    assert "sensitivity to the feature" in examined.readings
    _, verdict = judge(examined, examined, [])
    assert (verdict.word, verdict.oracles) == ("not enough evidence", 0)


def test_features_and_samples_together_are_not_judged():
    world, before, _ = trained()
    case = Case(world, (COLUMNS[0], ErasureRequest.of_class(1, 1)), SCHEDULE, "quick")
    examined = examine(case, before)
    assert examined.readings == {}
    assert "cannot be judged together" in examined.notes[0]
    _, verdict = judge(examined, examined, [examined, examined])
    assert verdict.word == "not enough evidence"


def test_the_federation_is_as_large_as_it_was():
    assert federation().check(COLUMNS) == {k: (SIZES[k], SIZES[k]) for k in range(4)}
