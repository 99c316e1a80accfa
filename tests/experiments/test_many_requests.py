"""Ten requests of mixed kinds: what is said of each target."""

from pathlib import Path

import pytest

from fedforget.experiments.many_requests import bd_acc_by_request, tables
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Bench, Scenario, ScenarioSpec
from fedforget.experiments.targets import MIXED


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    out: Path = tmp_path_factory.mktemp("requests")
    options = Options(dataset="digits", out=out, threads=1, quick=True)
    return Bench(options).scenario(ScenarioSpec((), 0, target=MIXED))


def test_the_images_are_those_of_bd_acc_as_they_were_before_they_were_poisoned(scenario: Scenario):
    """A slow twin: one image after another, from the data set by its id."""
    originals = {int(i): n for n, i in enumerate(scenario.dataset.train.ids)}
    request = next(r for r in scenario.requests if r.kind == "class")
    client = scenario.federation.client(request.client)
    before = scenario.before
    client.load(before)
    hits, count = {"plain": 0, "poisoned": 0}, 0
    for n in range(len(client.samples)):
        if int(client.samples.true_labels[n]) != request.label or client.samples.labels[n] == request.label:
            continue
        count += 1
        own = originals[int(client.samples.ids[n])]
        for name, image in (("plain", scenario.dataset.train.features[own]), ("poisoned", client.samples.features[n])):
            guess = client.model.eval()(client.inputs(image[None])).argmax()
            hits[name] += int(guess == client.samples.labels[n])
    assert hits["poisoned"] > hits["plain"], "or the trigger would not matter here"
    found = bd_acc_by_request(scenario, before)
    assert found["bd_acc_plain_by_request"][request.describe()] == pytest.approx(100.0 * hits["plain"] / count)
    assert found["bd_acc_by_request"][request.describe()] == pytest.approx(100.0 * hits["poisoned"] / count)


def test_the_target_farthest_from_retrain_is_chosen_over_all_trials():
    """Of two targets, one is off by 3 in either direction, the other always by 1."""

    def cell(method: str, seed: int, first: float, second: float) -> dict[str, object]:
        by_request = {"first": first, "second": second}
        return {
            "method": method, "preset": "default", "setting": "at once", "class": None, "seed": seed, "note": None,
            "bd_acc": 1.0, "test_acc": 90.0, "test_acc_later": 91.0, "gradient_evaluations": 10.0,
            "bd_acc_by_request": by_request, "bd_acc_by_request_later": by_request,
        }  # fmt: skip

    rows = [
        cell("retrain", 0, 5.0, 5.0),
        cell("retrain", 1, 5.0, 5.0),
        cell("not", 0, 8.0, 6.0),
        cell("not", 1, 2.0, 6.0),
    ]
    (row,) = tables(rows)[1].rows
    farthest = row[-1]
    assert not isinstance(farthest, str)
    assert (farthest.mean, farthest.count) == (0.0, 2)
    assert farthest.deviation == pytest.approx(18**0.5), "the one that is off by 3"
