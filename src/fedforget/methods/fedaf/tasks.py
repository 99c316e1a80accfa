"""The tasks that FedAF asks of clients."""

from __future__ import annotations

from fedforget.federation.tasks import Task
from fedforget.methods.fedaf.ahead import PrepareSketch
from fedforget.methods.fedaf.features import ReadFeatures
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.masked_sketch import BuildMaskedSketch, OfferKey
from fedforget.methods.fedaf.sketching import BuildSketch
from fedforget.methods.fedaf.without_data import ForgetFromStatistics, KeepStatistics

TASKS: tuple[type[Task], ...] = (
    Forget, BuildSketch, OfferKey, BuildMaskedSketch, ReadFeatures, PrepareSketch, KeepStatistics, ForgetFromStatistics,
)  # fmt: skip
