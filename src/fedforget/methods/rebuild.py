"""Rebuild: break the weights where the memory of R sits, and train on without R for a short time (not in the paper).

Weights that lie near those that knew R find back to them in a few ordinary rounds, though R is never seen again. How
they are broken depends on the network.

**A normalisation follows the first kernel.** Then twice, with a short training without R after the first break and one
whose learning rate falls to almost nothing after the second:

    W     <- - W                              the first kernel, once only
    theta <- c theta + (1 - c) theta_0        all other weights; theta_0 a fresh initialisation

What the retained data supports is found again from what is left; a fine pattern over many weights, as the memory of
single samples is, is not. The first break is gentle and measures how much is needed: of the memory m_0 = (share of R
known) - (share of unseen data of its kind known) it leaves m_1, so a break by c leaves c^k of it,
k = log(m_1/m_0) / log c_1, and the second one is chosen to leave `left` in all (m_1 less its standard error: what may
be noise is no reason to break harder):

    c_2 = (left m_0 / m_1)^(1/k)              between `hardest` and c_1

**None follows it.** Such a network forgets only when less than a tenth of its weights is left. Then nothing is left
either: a fresh model, the ladder's scout, is trained on for a part of the training that there once was, at a rate that
begins higher and falls. That is a brief Retrain, and exact like it: the model never saw R.

    theta <- scout                            then `anew` of the training, `steps` of a client at the least

The last training is repeated while the other clients' held-out data is known worse than fewer data and chance explain,
and getting better.

The turned kernel is NoT's (Khalil et al., CVPR 2025, arXiv 2503.05657), the break shrink and perturb (Ash and Adams
2020, arXiv 1910.08475, there to let a trained model learn new data). Measured in docs/decisions/rebuilding.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.federation.beside import CountBeside, Left, Share, Sight, difference_error, look
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, train_part
from fedforget.methods.checks import check_numbers
from fedforget.methods.negation import first_kernel
from fedforget.methods.scout import MIN_SAMPLES, NEARLY_NOTHING, never_saw, train_scout
from fedforget.models import fresh_copy
from fedforget.params import State, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

NORMALISATIONS = (
    nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.LocalResponseNorm,
)  # fmt: skip


@dataclass(frozen=True)
class RebuildSettings:
    """Parts are of the length of the training that there once was."""

    first: float = 0.75
    """c_1."""
    hardest: float = 0.25
    """The smallest c_2."""
    left: float = 0.02
    """The part of the memory that the two breaks are to leave."""
    between: float = 0.03
    """How long it is trained between the breaks."""
    after: float = 0.10
    """How long it is trained after the second one."""
    anew: float = 0.18
    """How long a scout is trained on,"""
    steps: int = 115
    """for so many steps of a client at the least,"""
    most: float = 0.32
    """but no longer than this."""
    rate: float = 2.0
    """The learning rate there, as a part of the schedule's: at the beginning,"""
    last_rate: float = 0.5
    """and in the last round. A round at almost nothing would be one of few for nothing."""
    again: float = 0.05
    """How long each time that the last training is repeated,"""
    times: int = 3
    """at most so often in all."""
    within: float = 0.01
    """The accuracy is back when it is this near to what it was, less what fewer data cost (`Left.loss`)."""
    rising: float = 0.005
    """It still rises if it rose by more than this."""

    def __post_init__(self) -> None:
        check_numbers(
            "Rebuild",
            self,
            above_zero=[
                "first", "hardest", "left", "between", "after", "anew", "steps", "most", "rate", "last_rate", "again",
                "times",
            ],
        )  # fmt: skip
        for name in ("first", "hardest", "left"):
            if getattr(self, name) >= 1:
                raise InputError(f"Rebuild setting '{name}' is {getattr(self, name)}, but it must be below 1.")


def rebuild(
    federation: Meter,
    state: State,
    requests: Sequence[ErasureRequest],
    settings: RebuildSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
    scout: State | None = None,
) -> tuple[State, dict[str, list[float]]]:
    """(the model without the target, what was seen on the way: before, between the breaks, and after each training).

    `stays` is the part of the weights that the break before it left. `scout` is the one that the ladder has trained."""
    exclude = (*served, *requests)
    left = Left.count(federation, requests, served, schedule)

    def steered(model: State) -> Sight:
        task = CountBeside(
            seed=schedule.seed, threads=schedule.threads, requests=tuple(requests), served=tuple(served), half="steer"
        )
        with federation.stage("looking"):
            return look(federation, model, task, schedule)

    def trained(model: State, part: float, purpose: str, rate: float, last_rate: float) -> State:
        with federation.stage("rebuilding"):
            return train_part(
                federation, model, schedule, part, exclude, purpose,
                min_samples=MIN_SAMPLES, rate=rate, last_rate=last_rate,
            )  # fmt: skip

    turned = kernel_to_turn(federation.model)
    before = steered(state)
    seen, stays = [before], [1.0]
    if turned is None:
        federation.exact = never_saw(federation, schedule)
        current = scout or train_scout(federation, schedule, left, exclude)
        stays.append(0.0)
    else:
        current = broken(federation.model, state, settings.first, turned, schedule.seed, 0)
        current = trained(current, settings.between, "between", 1.0, last_rate=1.0)
        halfway = steered(current)
        remembered = None if halfway.gap is None else halfway.gap - halfway.gap_error
        second = second_break(before.gap, remembered, settings)
        current = broken(federation.model, current, second, None, schedule.seed, 1)
        seen.append(halfway)
        stays += [settings.first, second]
    first, within = len(seen), settings.within + left.loss(before.accuracy)
    for time in range(settings.times):
        part = settings.again if time else last_part(federation.model, schedule, left, settings)
        begins, ends = (1.0, NEARLY_NOTHING) if time or turned is not None else (settings.rate, settings.last_rate)
        current = trained(current, part, f"rebuilding {time}", begins, ends)
        seen.append(steered(current))
        if not needs_more([sight.accuracy for sight in seen[first:]], before.accuracy, within, settings.rising):
            break
    curves = {"stays": [*stays, *[1.0] * (len(seen) - len(stays))]}
    if before.gap is not None:
        curves["memory"] = [sight.gap for sight in seen if sight.gap is not None]
    if before.accuracy.count:
        curves["accuracy"] = [sight.accuracy.value for sight in seen]
    return current, curves


def last_part(model: nn.Module, schedule: Schedule, left: Left, settings: RebuildSettings) -> float:
    """How long the last training is, as a part of the training that there once was, where it is not repeated."""
    if kernel_to_turn(model) is not None:
        return settings.after
    return min(settings.most, max(settings.anew, settings.steps / left.steps(schedule)))


def broken(model: nn.Module, state: State, c: float, turned: str | None, seed: int, number: int) -> State:
    """The weights after one break: the kernel `turned` around, if one is named, and the others taken apart."""
    fresh = state_of(fresh_copy(model, derive_seed(seed, "rebuild", number)))
    moved = trainable(model)

    def after(name: str, tensor: Tensor) -> Tensor:
        if name == turned:
            return -tensor
        return c * tensor + (1.0 - c) * fresh[name].to(tensor) if name in moved else tensor

    return {name: after(name, tensor) for name, tensor in state.items()}


def second_break(before: float | None, halfway: float | None, settings: RebuildSettings) -> float:
    """c_2 of the equation above; c_1 again where nothing was to be seen, or nothing is left to be seen.

    >>> round(second_break(0.60, 0.15, RebuildSettings()), 2)
    0.59
    """
    first = settings.first
    if before is None or halfway is None or before <= 0 or halfway <= settings.left * before:
        return first
    if halfway >= before:
        return settings.hardest
    k = math.log(halfway / before) / math.log(first)
    return float(min(first, max(settings.hardest, (settings.left * before / halfway) ** (1 / k))))


def needs_more(accuracies: Sequence[Share], before: Share, within: float, rising: float) -> bool:
    """Whether the accuracy is not back yet, by more than its standard error, and still rises."""
    latest = accuracies[-1]
    if not before.count or latest.count != before.count:
        return False
    if latest.value >= before.value - within - difference_error(before, latest):
        return False
    return len(accuracies) == 1 or latest.value > accuracies[-2].value + rising


def kernel_to_turn(model: nn.Module) -> str | None:
    """The first kernel, where the next layer that has weights or statistics is a normalisation; else None. Without one
    the sign of every later value turns, and what was known is lost, not only what was remembered."""
    try:
        kernel = first_kernel(model)
    except InputError:
        return None
    layers = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    names = [name for name, _ in layers]
    place = names.index(kernel.removesuffix("weight").removesuffix("."))
    for _, module in layers[place + 1 :]:
        if isinstance(module, NORMALISATIONS):
            return kernel
        if list(module.parameters(recurse=False)):
            return None
    return None
