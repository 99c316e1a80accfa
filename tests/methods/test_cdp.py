"""CDP: scores and activities against plain loops, what is pruned, that it stays pruned, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget import LocalFederation, Schedule, build_model, load_dataset, train
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.tasks import Train, Withdraw
from fedforget.methods import forget, method_settings
from fedforget.methods.cdp import CDPSettings, MeasureActivity, activity_sums, channel_scores, choose_channels
from fedforget.models import ResNet, xavier_initialise
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

SCHEDULE = Schedule(rounds=2, lr=0.05, batch_size=16, threads=1)
CLASS = ErasureRequest.of_class(0, 3)


# Scores


def slow_scores(activity: list[list[float]], target: int, idf: str) -> list[float]:
    classes, channels = len(activity), len(activity[0])
    scores = []
    for j in range(channels):
        whole = sum(activity[target])
        tf = activity[target][j] / whole if whole else 0.0
        active = 0
        for u in range(classes):
            if idf == "paper":
                mean = sum(activity[u]) / channels
            else:
                mean = sum(activity[w][j] for w in range(classes)) / classes
            active += activity[u][j] >= mean
        scores.append(tf * math.log(((1 if idf == "paper" else 0) + classes) / (1 + active)))
    return scores


@pytest.mark.parametrize("idf", ["paper", "code"])
@pytest.mark.parametrize("seed", range(8))
def test_scores_equal_the_plain_loop(idf: Any, seed: int):
    generator = torch.Generator().manual_seed(seed)
    classes, channels = (int(torch.randint(2, 7, (), generator=generator)) for _ in range(2))
    activity = torch.rand(classes, channels, generator=generator, dtype=torch.float64)
    activity[:, 0] = 0.0 if seed % 2 else activity[:, 0]
    for target in range(classes):
        got = channel_scores(activity, target, idf)
        assert got.tolist() == pytest.approx(slow_scores(activity.tolist(), target, idf), abs=1e-12)


def test_scores_of_three_telling_channels():
    """Channel 0 fires for class 0 alone, channel 1 for all, channel 2 for none: only channel 0 tells class 0."""
    activity = torch.tensor([[6.0, 3.0, 0.0], [0.0, 3.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64)
    paper = channel_scores(activity, 0, "paper")
    assert paper.tolist() == pytest.approx([2 / 3 * math.log(4 / 2), 1 / 3 * math.log(4 / 4), 0.0])
    code = channel_scores(activity, 0, "code")
    assert code.tolist() == pytest.approx([2 / 3 * math.log(3 / 2), 1 / 3 * math.log(3 / 4), 0.0])
    assert channel_scores(torch.zeros(3, 2, dtype=torch.float64), 0, "paper").tolist() == [0.0, 0.0], "a dead layer"


def test_scores_do_not_depend_on_the_unit_of_activity():
    activity = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for idf in ("paper", "code"):
        assert torch.allclose(channel_scores(activity, 2, idf), channel_scores(1000 * activity, 2, idf))


# Activities


class Backwards(nn.Module):
    """Layers are registered in another order than they run in, and one normalisation follows no convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_b, self.norm_a = nn.GroupNorm(2, 4), nn.BatchNorm2d(3)
        self.conv_b, self.conv_a = nn.Conv2d(3, 4, 3), nn.Conv2d(1, 3, 3)
        self.norm_in, self.conv_c = nn.BatchNorm2d(1), nn.Conv2d(4, 2, 1)
        self.head = nn.Linear(2 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm_a(self.conv_a(self.norm_in(x))))
        x = F.relu(self.norm_b(self.conv_b(x)))
        return self.head(F.relu(self.conv_c(x)).flatten(1))


def digits(n: int = 24) -> tuple[Samples, Any]:
    dataset = load_dataset("digits").first(n, 5)
    return dataset.train, dataset.normalisation


@pytest.mark.parametrize("batch_size", [1, 7, 24])
def test_activities_are_sums_of_pooled_rectified_outputs_over_each_class(batch_size: int):
    samples, inputs = digits()
    samples = replace(samples, labels=torch.zeros_like(samples.labels))  # poisoned labels do not count
    model = xavier_initialise(Backwards(), 0).eval()
    sums, _ = activity_sums(model, samples, inputs, 10, batch_size)
    expected = {name: torch.zeros(10, c).double() for name, c in (("conv_a", 3), ("conv_b", 4), ("conv_c", 2))}
    with torch.no_grad():
        for i in range(len(samples)):
            x = inputs(samples.features[i : i + 1])
            a = model.conv_a(model.norm_in(x))
            b = model.conv_b(F.relu(model.norm_a(a)))
            c = model.conv_c(F.relu(model.norm_b(b)))
            for name, output in (("conv_a", a), ("conv_b", b), ("conv_c", c)):
                for channel in range(output.shape[1]):
                    value = sum(max(0.0, v) for v in output[0, channel].flatten().tolist())
                    expected[name][int(samples.true_labels[i]), channel] += value / output[0, channel].numel()
    assert set(sums) == set(expected)
    for name in expected:
        assert torch.allclose(sums[name], expected[name], atol=1e-5)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_the_normalisation_behind_a_convolution_is_found_where_it_runs():
    samples, inputs = digits(4)
    model = Backwards()
    _, behind = activity_sums(model, samples, inputs, 10, 4)
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d | nn.GroupNorm)]
    convs = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    found = {conv: norms[i] if i >= 0 else None for conv, i in zip(convs, behind.tolist(), strict=True)}
    assert found == {"conv_a": "norm_a", "conv_b": "norm_b", "conv_c": None}


def test_what_leaves_the_client_is_sums_and_counts():
    federation, before = small_world("cnn")
    client = federation.client(0)
    served = (ErasureRequest.of_class(0, 5),)
    reply = MeasureActivity(seed=0, threads=1, requests=(), served=served).run(before, client)
    left = client.samples.true_labels[client.samples.true_labels != 5]
    assert reply.tensors["count"].tolist() == [int((left == u).sum()) for u in range(10)]
    shapes = {name: tuple(tensor.shape) for name, tensor in reply.tensors.items()}
    assert shapes == {"sum:0": (10, 16), "sum:2": (10, 32), "count": (10,), "behind": (2,)}
    assert not bool(reply.tensors["sum:0"][5].any())
    assert reply.gradient_evaluations == pytest.approx(0.4 * len(left))


# Choosing


SCORES = {"a": torch.tensor([0.5, 0.1, 0.4]), "b": torch.tensor([0.45, 0.0])}
NONE = {"a": torch.zeros(3, dtype=torch.bool), "b": torch.zeros(2, dtype=torch.bool)}


def chosen(masks: dict[str, Tensor]) -> set[str]:
    return {f"{name}{channel}" for name, mask in masks.items() for channel in mask.nonzero().flatten().tolist()}


def test_the_threshold_is_one_for_all_layers_and_has_two_directions():
    assert chosen(choose_channels(SCORES, NONE, 2, "most")) == {"a0", "b0"}
    assert chosen(choose_channels(SCORES, NONE, 2, "least")) == {"b1", "a1"}
    assert chosen(NONE) == set(), "the masks given are not changed"


@pytest.mark.parametrize("direction", ["most", "least"])
def test_no_layer_loses_its_last_channel(direction: Any):
    masks = choose_channels(SCORES, NONE, 99, direction)
    assert chosen(masks) == ({"a0", "a2", "b0"} if direction == "most" else {"a1", "a2", "b1"})


def test_what_is_pruned_already_is_not_chosen_again():
    first = choose_channels(SCORES, NONE, 1, "least")
    assert chosen(first) == {"b1"}
    assert chosen(choose_channels(SCORES, first, 1, "least")) == {"b1", "a1"}


# The method


def small_world(kind: str) -> tuple[LocalFederation, State]:
    dataset = load_dataset("digits").first(120, 20)
    if kind in ("batch", "group"):
        model: nn.Module = xavier_initialise(ResNet(dataset.shape, 10, norm=kind, width=4), 0)
    elif kind == "backwards":
        model = xavier_initialise(Backwards(), 0)
    else:
        model = build_model(kind, dataset.shape, 10, 0)
    federation = LocalFederation(dataset, partition("iid", dataset.train.labels, 3, 0), model)
    return federation, train(federation, state_of(model), SCHEDULE)


def channels(kind: str, state: State) -> tuple[dict[str, Tensor], dict[str, str]]:
    """({convolution: which of its channels are all zero}, {convolution: the normalisation behind it}), read off the
    names."""
    convs = [n.removesuffix(".weight") for n, t in state.items() if t.dim() == 4]
    pairs = {"stem.0": "stem.1", "conv1": "norm1", "conv2": "norm2", "shortcut.0": "shortcut.1"}
    pairs |= {"conv_a": "norm_a", "conv_b": "norm_b"}
    behind = {c: c.removesuffix(end) + norm for c in convs for end, norm in pairs.items() if c.endswith(end)}
    return {c: (state[f"{c}.weight"].flatten(1) == 0).all(dim=1) for c in convs}, behind


@pytest.mark.daily(2)
@pytest.mark.parametrize("preset", ["paper", "code"])
@pytest.mark.parametrize("kind", ["cnn", "batch", "group", "backwards"])
def test_pruned_channels_are_zero_and_stay_zero_through_fine_tuning(kind: str, preset: str):
    federation, before = small_world(kind)
    untouched, _ = channels(kind, before)
    total = sum(len(mask) for mask in untouched.values())
    assert not any(mask.any() for mask in untouched.values())
    for rounds in (0, 2):
        after = forget(federation, before, CLASS, SCHEDULE, "cdp", preset, ratio=0.2, rounds=rounds).state
        pruned, behind = channels(kind, after)
        assert sum(int(mask.sum()) for mask in pruned.values()) == round(0.2 * total)
        assert bool(behind) == (kind != "cnn")
        for conv, mask in pruned.items():
            assert not mask.all()
            for name in (conv, behind.get(conv)):
                for part in ("weight", "bias"):
                    if name and f"{name}.{part}" in after:
                        assert not after[f"{name}.{part}"][mask].any(), f"{name}.{part}, {rounds} rounds"
        if rounds == 0:
            same = {name for name in before if torch.equal(before[name], after[name])}
            assert {n for n, t in before.items() if t.dim() == 2} <= same, "linear layers are as before"
            kept = pruned[next(iter(pruned))].logical_not()
            first = f"{next(iter(pruned))}.weight"
            assert torch.equal(before[first][kept], after[first][kept])


def test_a_pruned_channel_gives_nothing_whatever_the_input():
    """Also behind a batch normalisation, whose shift alone would let a constant through."""
    federation, before = small_world("batch")
    after = forget(federation, before, CLASS, SCHEDULE, "cdp", ratio=0.3, rounds=1).state
    model = federation.client(0).load(after).eval()
    pruned, behind = channels("batch", after)
    seen = {}
    modules = dict(model.named_modules())
    hooks = [modules[norm].register_forward_hook(lambda m, a, out, c=conv: seen.__setitem__(c, out))
             for conv, norm in behind.items()]  # fmt: skip
    with torch.no_grad():
        model(torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    for hook in hooks:
        hook.remove()
    assert any(mask.any() for mask in pruned.values())
    for conv, mask in pruned.items():
        assert not seen[conv][:, mask].any()
        assert seen[conv][:, ~mask].any()


def test_the_directions_prune_the_opposite_ends():
    """Scored by hand from everybody's samples, the target's too."""
    federation, before = small_world("cnn")
    held = [vars(federation.client(k).samples).values() for k in federation.clients]
    everything = Samples(*map(torch.cat, zip(*held, strict=True)))
    model = federation.client(0).load(before)
    sums, _ = activity_sums(model, everything, federation.normalisation, 10, 64)
    counts = torch.bincount(everything.true_labels, minlength=10)
    for direction in ("most", "least"):
        for idf in ("paper", "code"):
            scores = {name: channel_scores(s / counts[:, None], 3, idf) for name, s in sums.items()}
            together = torch.cat(list(scores.values()))
            limit = together.sort(descending=direction == "most").values[4]
            expected = together >= limit if direction == "most" else together <= limit
            if int(expected.sum()) != 5:
                continue  # a tie at the threshold
            after = forget(
                federation, before, CLASS, SCHEDULE, "cdp", direction=direction, idf=idf, ratio=0.1, rounds=0
            )
            assert torch.equal(torch.cat(list(channels("cnn", after.state)[0].values())), expected)


@pytest.mark.real
def test_the_paper_prunes_what_knows_the_class_and_the_code_what_knows_the_others():
    """Over all ten classes, pruned hard. The class goes for everybody, and comes back where others still have it."""
    dataset = load_dataset("digits").first(600, 300)
    model = build_model("cnn", dataset.shape, 10, 0)
    federation = LocalFederation(dataset, partition("iid", dataset.train.labels, 3, 0), model)
    before = train(federation, state_of(model), replace(SCHEDULE, rounds=6))

    def accuracies(label: int, **settings: Any) -> Tensor:
        """On the test images of (the class, the others)."""
        request = ErasureRequest.of_class(0, label)
        state = forget(federation, before, request, SCHEDULE, "cdp", ratio=0.4, **settings).state
        with torch.no_grad():
            logits = federation.client(0).load(state).eval()(dataset.normalisation(dataset.test.features))
        right, own = (logits.argmax(1) == dataset.test.labels).float(), dataset.test.labels == label
        return torch.stack([right[own].mean(), right[~own].mean()])

    of_class, of_others = torch.stack([accuracies(u, rounds=0) for u in range(10)]).mean(dim=0).tolist()
    assert of_class < of_others - 0.1
    of_class, of_others = torch.stack([accuracies(u, rounds=0, direction="least") for u in range(10)]).mean(dim=0)
    assert of_class > of_others + 0.1
    assert accuracies(0, rounds=0)[0] < 0.5 < 0.9 < accuracies(0, rounds=3)[0]


def test_several_classes_are_pruned_one_after_another_and_fine_tuned_once():
    federation, before = small_world("cnn")
    requests = [CLASS, ErasureRequest.of_class(1, 5), ErasureRequest.of_class(2, 3)]
    asked = []
    ask = federation.ask
    federation.ask = lambda task, *more: (asked.append(task), ask(task, *more))[1]  # type: ignore[method-assign]
    both = forget(federation, before, requests, SCHEDULE, "cdp", ratio=0.1)
    kinds = [type(task) for task in asked]
    assert kinds == [*[Withdraw] * 3, MeasureActivity, MeasureActivity, Train, Train], "3 is scored once"
    assert sum(int(mask.sum()) for mask in channels("cnn", both.state)[0].values()) == 2 * 5


def test_the_learning_rate_of_fine_tuning_is_the_federations_unless_set():
    federation, before = small_world("cnn")
    own = forget(federation, before, CLASS, SCHEDULE, "cdp").state
    assert torch.equal(
        forget(federation, before, CLASS, SCHEDULE, "cdp", lr=SCHEDULE.lr).state["0.weight"], own["0.weight"]
    )
    assert not torch.equal(
        forget(federation, before, CLASS, SCHEDULE, "cdp", lr=0.01).state["0.weight"], own["0.weight"]
    )


# Refusals


class Untouched(LocalFederation):
    """Nothing may be asked of it."""

    def ask(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("work began")


def refusing(kind: str) -> tuple[Untouched, State]:
    dataset = load_dataset("digits").first(60, 10)
    if kind == "one channel":
        model: nn.Module = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(36, 10))
    else:
        model = build_model(kind, dataset.shape, 10, 0)
    return Untouched(dataset, list(torch.arange(60).split(30)), model), state_of(model)


@pytest.mark.parametrize("kind", ["mlp", "one channel"])
def test_models_without_channels_are_refused_before_any_work(kind: str):
    federation, before = refusing(kind)
    with pytest.raises(InputError, match=r"no Conv2d layer with more than one channel; use a convolutional model"):
        forget(federation, before, ErasureRequest.of_class(0, 5), SCHEDULE, "cdp")


@pytest.mark.parametrize("other", [ErasureRequest.of_client(1), ErasureRequest.of_samples(0, [0, 1])])
def test_targets_without_a_class_are_refused_before_any_work(other: ErasureRequest):
    federation, before = refusing("cnn")
    for requests in ([other], [ErasureRequest.of_class(0, 5), other]):
        with pytest.raises(InputError) as refusal:
            forget(federation, before, requests, SCHEDULE, "cdp")
        assert str(refusal.value) == (
            f"CDP prunes the channels of a class, and '{other.describe()}' names no class; "
            "request a class, or use another method."
        )


def test_a_class_that_was_withdrawn_before_is_refused_and_one_that_nobody_holds_is_left_out():
    federation, before = small_world("cnn")
    with pytest.raises(InputError, match="Client 0 withdrew all of that before"):
        forget(federation, before, CLASS, SCHEDULE, "cdp", served=[CLASS])
    others = [ErasureRequest.of_class(k, 4) for k in range(3)]
    result = forget(federation, before, CLASS, SCHEDULE, "cdp", served=others)
    assert all(tensor.isfinite().all() for tensor in result.state.values())


@pytest.mark.parametrize(
    "overrides", [{"ratio": 0.0}, {"ratio": 1.0}, {"lr": 0.0}, {"batch_size": 0}], ids=lambda o: str(o)
)
def test_settings_are_checked(overrides: dict[str, Any]):
    with pytest.raises(InputError, match=f"^CDP setting '{next(iter(overrides))}' is .*, but it must be .*above 0"):
        method_settings("cdp", **overrides)


@pytest.mark.parametrize("overrides", [{"direction": "some"}, {"idf": "web"}, {"rounds": -1}, {"lr": math.nan}])
def test_settings_are_checked_also_without_the_table(overrides: dict[str, Any]):
    with pytest.raises(InputError, match=f"^CDP setting '{next(iter(overrides))}' is "):
        CDPSettings(**overrides)
