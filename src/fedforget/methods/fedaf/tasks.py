"""The tasks that FedAF asks of clients."""

from __future__ import annotations

from fedforget.federation.tasks import Task
from fedforget.methods.features import ReadFeatures
from fedforget.methods.fedaf.extensions.masked_sketch import BuildMaskedSketch, OfferKey
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.sketching import BuildSketch

TASKS: tuple[type[Task], ...] = (Forget, BuildSketch, OfferKey, BuildMaskedSketch, ReadFeatures)
