"""The tasks that the audit asks of clients."""

from __future__ import annotations

from fedforget.audit.check import CheckBeside
from fedforget.audit.feature_sensitivity import MeasureSensitivity
from fedforget.audit.label_loss import LabelLoss, TargetPairs
from fedforget.audit.membership import AttackMembership
from fedforget.federation.tasks import Task

TASKS: tuple[type[Task], ...] = (AttackMembership, TargetPairs, LabelLoss, MeasureSensitivity, CheckBeside)
