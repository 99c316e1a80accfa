"""CDP, class-discriminative pruning (Wang et al., WWW 2022): remove the channels that know the class, then fine-tune.

Every client reports, for each convolution l, channel j and class u, the mean activity A[u, j] of its images,

    A_l = AvgPool(ReLU(O_l)),  O_l the output of the convolution

and the server, with the mean over all of them, scores the channels for the class u' that must go as a search engine
scores words for a page:

    TF_j  = A[u', j] / sum_i A[u', i]
    IDF_j = log( (1 + |U|) / (1 + |{u : A[u, j] >= mean_i A[u, i]}|) )      idf = paper
          = log( |U| / (1 + |{u : A[u, j] >= mean_w A[w, j]}|) )            idf = code: the mean over classes
    score = TF * IDF

Over all layers together, the share `ratio` of the channels with the highest scores is pruned: direction = most, the
paper. Every public copy of the code prunes the lowest instead: direction = least. A pruned channel's weights and bias
are zero, and so are the scale and shift of the normalisation right behind it. No layer loses its last channel.
Then come ordinary rounds on the retained data; what was pruned is zeroed again after each.

It removes a class, of everybody: asked to forget the class of one client, it removes too much by design. A request
that names no class is refused. Several classes are pruned one after another, each scored on the model so far, and
fine-tuned once. Classes are what a sample really belongs to, as in requests. U leaves out classes that nobody holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.rounds import Schedule, run_round
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.methods.checks import check_settings, finite
from fedforget.params import State
from fedforget.requests import ErasureRequest


def channel_scores(activity: Tensor, target: int, idf: Literal["paper", "code"]) -> Tensor:
    """TF * IDF of each channel, for the mean activities [classes, channels] of one layer."""
    classes = len(activity)
    frequency = activity[target] / activity[target].sum().clamp(min=torch.finfo(activity.dtype).tiny)
    if idf == "paper":
        active = (activity >= activity.mean(dim=1, keepdim=True)).to(activity).sum(dim=0)
        return frequency * torch.log((1 + classes) / (1 + active))
    active = (activity >= activity.mean(dim=0, keepdim=True)).to(activity).sum(dim=0)
    return frequency * torch.log(classes / (1 + active))


@dataclass(frozen=True)
class CDPSettings:
    """CDP's knobs. The defaults are the preset `paper`."""

    ratio: float = 0.05
    """The share of all channels that one class costs, at least one channel. The code's for ten classes."""
    direction: Literal["most", "least"] = "most"
    idf: Literal["paper", "code"] = "paper"
    rounds: int = 2
    """Of fine-tuning. The paper goes on until the accuracy is back."""
    lr: float | None = None
    """Of fine-tuning; None is the federation's own."""
    batch_size: int = 256
    """Of the pass for the activities."""

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise InputError(f"CDP setting 'ratio' is {self.ratio}, but it must be above 0 and below 1.")
        check_settings("CDP", self, above_zero=["lr", "batch_size"])


PAPER = CDPSettings()
CODE = replace(PAPER, direction="least", idf="code")


def prune_and_tune(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: CDPSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the model without the channels of the requests' classes, no curves)."""
    labels = classes_of(requests)
    layers = prunable_layers(federation.model)
    current = dict(state)
    pruned = {name: torch.zeros(layer.out_channels, dtype=torch.bool) for name, layer in layers.items()}
    count = max(1, round(settings.ratio * sum(len(mask) for mask in pruned.values())))
    zeros: Zeros = {}
    for label in labels:
        with federation.stage("activity"):
            task = schedule.about(MeasureActivity, requests, served, batch_size=settings.batch_size)
            activity, target, behind = mean_activity(federation, task, current, label)
        with federation.stage("pruning"):
            scores = {name: channel_scores(values, target, settings.idf) for name, values in activity.items()}
            pruned = choose_channels(scores, pruned, count, settings.direction)
            zeros = what_to_zero(current, pruned, behind)
            current = zeroed(current, zeros)
    with federation.stage("fine-tuning"):
        for number in range(settings.rounds):
            ordinary = schedule.train_task(number, (*served, *requests))
            tune = replace(ordinary, lr=settings.lr or schedule.lr, purpose="cdp")
            current = zeroed(run_round(federation, current, tune), zeros)
    return current, {}


def classes_of(requests: Sequence[ErasureRequest]) -> list[int]:
    """The classes that must go, or a refusal."""
    other = next((request for request in requests if request.kind != "class"), None)
    if other is not None:
        raise InputError(
            f"CDP prunes the channels of a class, and '{other.describe()}' names no class; "
            "request a class, or use another method."
        )
    return sorted({request.label for request in requests if request.label is not None})


def prunable_layers(model: nn.Module) -> dict[str, nn.Conv2d]:
    """The convolutions whose channels can be zeroed, or a refusal."""
    plain = dict(model.named_parameters())
    layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d) and f"{n}.weight" in plain}
    if all(layer.out_channels == 1 for layer in layers.values()):
        raise InputError(
            "CDP prunes channels of convolutions, but the model has no Conv2d layer with more than one channel; "
            "use a convolutional model such as cnn, or another method."
        )
    return layers


@dataclass(frozen=True, kw_only=True)
class MeasureActivity(TargetTask):
    """The activity of every channel, summed over the client's samples of each class, and how many there are.

    A forward pass over all that the client still has, the target too: its class is what the scores are about."""

    returns = "tensors"

    batch_size: int = 256

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        samples = client.retained(self.served, self.requests)
        counts = F.one_hot(samples.true_labels, client.classes).sum(dim=0)
        if len(samples) == 0:
            return Reply(client.index, numbers={"samples": 0.0})
        model = client.load(state)
        sums, behind = activity_sums(model, samples, client.inputs, client.classes, self.batch_size)
        return Reply(
            client.index,
            tensors={**{f"sum:{name}": values for name, values in sums.items()}, "count": counts, "behind": behind},
            numbers={"samples": float(len(samples))},
            gradient_evaluations=FORWARD_COST * len(samples),
        )


@torch.no_grad()
def activity_sums(
    model: nn.Module, samples: Samples, inputs: Callable[[Tensor], Tensor], classes: int, batch_size: int
) -> tuple[State, Tensor]:
    """({layer: sums over samples of A, [classes, channels]}, for each layer the number of the normalisation that takes
    its output as it is, or -1)."""
    layers, norms = prunable_layers(model), list(_normalisations(model).values())
    outputs: dict[str, Tensor] = {}
    behind = torch.full((len(layers),), -1)

    def note(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, args, output: outputs.__setitem__(name, output)

    def look_back(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        for position, name in enumerate(layers):
            if args and outputs.get(name) is args[0]:
                behind[position] = next(number for number, norm in enumerate(norms) if norm is module)

    hooks = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    hooks += [norm.register_forward_pre_hook(look_back) for norm in norms]
    try:
        model.eval()
        sums: State = {}
        for batch in torch.arange(len(samples)).split(batch_size):
            outputs.clear()
            model(inputs(samples.features[batch.to(samples.features.device)]))
            member = F.one_hot(samples.true_labels[batch], classes)
            for name, output in outputs.items():
                part = member.T.to(output.device, torch.float64) @ output.relu().mean(dim=(2, 3)).double()
                sums[name] = sums[name] + part if name in sums else part
    finally:
        for hook in hooks:
            hook.remove()
    return sums, behind


def mean_activity(
    federation: Meter, task: MeasureActivity, state: State, label: int
) -> tuple[dict[str, Tensor], int, dict[str, str]]:
    """(A of each layer over everybody's samples, the row of `label` in it, {layer: normalisation behind it})."""
    totals: State = {}
    for reply in federation.ask(task, state):
        for name, values in finite(reply, "The activity of channels").items():
            totals[name] = values if name == "behind" or name not in totals else totals[name] + values
    counts, behind = totals.pop("count"), totals.pop("behind")
    held = counts.nonzero().squeeze(1)
    means = {name.removeprefix("sum:"): (values.cpu()[held] / counts[held, None]) for name, values in totals.items()}
    norms = list(_normalisations(federation.model))
    layers = prunable_layers(federation.model)
    pairs = {name: norms[number] for name, number in zip(layers, behind.tolist(), strict=True) if number >= 0}
    return means, held.tolist().index(label), pairs


def choose_channels(
    scores: Mapping[str, Tensor], pruned: Mapping[str, Tensor], count: int, direction: Literal["most", "least"]
) -> dict[str, Tensor]:
    """`pruned` with `count` more channels, the ones with the highest (lowest) scores of all layers together."""
    chosen = {name: mask.clone() for name, mask in pruned.items()}
    places = [(name, channel) for name, values in scores.items() for channel in range(len(values))]
    ranked = torch.cat(list(scores.values())).sort(descending=direction == "most", stable=True).indices
    for name, channel in (places[position] for position in ranked.tolist()):
        if count == 0:
            break
        if not chosen[name][channel] and int((~chosen[name]).sum()) > 1:
            chosen[name][channel] = True
            count -= 1
    return chosen


Zeros = dict[str, Tensor]
"""By parameter: which of its first entries are kept at zero."""


def what_to_zero(state: State, pruned: Mapping[str, Tensor], behind: Mapping[str, str]) -> Zeros:
    """Weight and bias of the pruned channels, and of the normalisation behind them."""
    modules = [(name, mask) for layer, mask in pruned.items() for name in (layer, behind.get(layer)) if name]
    wanted = [(f"{name}.{part}", mask) for name, mask in modules for part in ("weight", "bias")]
    return {name: mask for name, mask in wanted if name in state}


def zeroed(state: State, zeros: Zeros) -> State:
    """A copy in which `zeros` are zero."""
    result = dict(state)
    for name, mask in zeros.items():
        result[name] = state[name].clone()
        result[name][mask.to(state[name].device)] = 0
    return result


def _normalisations(model: nn.Module) -> dict[str, nn.Module]:
    kinds = (nn.modules.batchnorm._NormBase, nn.GroupNorm)
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
