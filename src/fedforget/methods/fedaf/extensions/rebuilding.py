"""Forgetting that lasts: break the weights where the memory of R sits, and rebuild them without R (not in the paper).

Weights that lie near those that knew R find back to them in a few ordinary rounds, though R is never seen again. So

    W     <- - W                              W the first kernel: what later layers were tuned to no longer arrives
    theta <- c theta + (1 - c) theta_0        all others; c = `shrink`, theta_0 a fresh initialisation

and then ordinary rounds over parts of everybody's retained data, `rebuilding` of the training's whole length together.
The first line is NoT's (Khalil et al., CVPR 2025, arXiv 2503.05657), the second shrink and perturb (Ash and Adams 2020,
arXiv 1910.08475, there to let a trained model learn new data). We take a memory of single samples for a fine pattern
across the layers, which either line breaks; what the retained data supports is found again from what is left, in a
small part of the time that it once took. Which does how much, and at what price: docs/decisions/lasting.md."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, train_part
from fedforget.methods.fedaf.settings import PaperSettings
from fedforget.methods.negation import first_kernel
from fedforget.models import fresh_copy
from fedforget.params import State, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed


def rebuild(
    federation: Meter,
    forgotten: State,
    settings: PaperSettings,
    schedule: Schedule,
    exclude: Sequence[ErasureRequest],
) -> State:
    """The model that forgot, broken and rebuilt without what is excluded; as it is, where the settings do not ask."""
    if not settings.rebuilding:
        return forgotten
    fresh = state_of(fresh_copy(federation.model, derive_seed(schedule.seed, "fedaf", "fresh")))
    kernel, moved, c = first_kernel(federation.model), trainable(federation.model), settings.shrink
    current = {
        name: -tensor
        if name == kernel
        else c * tensor + (1.0 - c) * fresh[name].to(tensor)
        if name in moved
        else tensor
        for name, tensor in forgotten.items()
    }
    with federation.stage("rebuilding"):
        return train_part(
            federation, current, schedule, settings.rebuilding, exclude, "rebuilding",
            min_samples=settings.recovery_min_samples,
        )  # fmt: skip
