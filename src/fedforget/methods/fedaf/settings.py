"""FedAF's settings and its two presets. Each default needs no thought; each knob says where the paper decides it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_type_hints

import torch

from fedforget.errors import InputError


@dataclass(frozen=True)
class FedAFSettings:
    """All knobs of FedAF. `FedAFSettings()` is the preset `recommended`; see docs/decisions for the reasons."""

    memory: Literal["uniform", "random", "teacher", "debiased", "suppressed", "reminded"] = "reminded"
    teachers: int = 10
    """Q, for the memories `teacher` and `debiased`."""
    sigma: float | Literal["auto", "literal"] = "auto"
    """The debias weight of Eq. 4."""
    amnesia_steps: int = 16
    """How long the teacher of the memory `reminded` unlearns the target before others' data reminds it."""

    preserver: Literal["sketch", "diagonal", "none"] = "sketch"
    penalty: Literal["proximal", "gradient"] = "proximal"
    strength: float = 1e5
    """lambda, the weight of the penalty."""
    normalise: bool = True
    """Divide the penalty by n, as H = J^T J / n says; the paper then drops n."""
    sketch_rows: int = 50
    """s."""
    sketch_labels: Literal["data", "sampled", "mas"] = "sampled"
    sketch_data: Literal["retained", "all"] = "retained"
    """D' or, in the paper, D_k: which protects the target too."""
    sketch_scope: Literal["auto", "client", "federation"] = "auto"
    """Whose data: the target client's, or everybody's, merged. `auto`: everybody's when the client keeps nothing."""
    sketch_samples: int | None = 1500
    """At most so many samples, drawn at random."""
    sketch_dtype: Literal["float32", "bfloat16"] = "float32"

    ascent: Literal["none", "plain", "capped", "bounded"] = "none"
    """The form of - L_R. (The amnesia of `reminded` is always capped.)"""
    ascent_cap: float = 6.0
    epochs: int = 1
    """EWC epochs: passes over the target."""
    min_steps: int = 16
    """A small target is passed over more often, until so many steps are made."""
    lr: float | None = None
    """None: a step along one sample's gradient moves the weights by `step_length`, whatever the network: lr =
    step_length / sqrt(tr F), where the sketch tells tr F, the mean squared length of a retained sample's gradient."""
    step_length: float = 0.115
    momentum: float = 0.0
    batch_size: int = 64
    stop_below: float | None = 0.03
    """Stop once the memories are learnt: KL(memory || model) over the last batches is no more than this."""
    freeze_normalisation: bool = True

    aggregation: Literal["replace", "scaled", "average-idle", "average-training"] = "replace"
    recovery_rounds: int = 1
    recovery_share: float = 0.02
    """Part of each client's retained data in a recovery (or reminder) round; 1 makes it an ordinary round."""
    recovery_min_samples: int = 256
    """But no fewer than so many of a client's samples, where it has them: a few batches, else little is recovered."""
    recovery_lr: float = 0.01
    recovery_momentum: float = 0.9
    recovery_batch_size: int = 64

    @property
    def sketch(self) -> tuple[object, ...]:
        """What a sketch depends on: two settings with the same value here can share one."""
        return (self.sketch_rows, self.sketch_labels, self.sketch_data, self.sketch_samples, self.sketch_dtype)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.sketch_dtype == "bfloat16" else torch.float32

    @property
    def amnesia(self) -> FedAFSettings:
        """How the teacher of `reminded` loses the target: a few short steps of suppression and capped ascent."""
        return replace(
            self, memory="suppressed", ascent="capped", epochs=0, min_steps=self.amnesia_steps,
            lr=None if self.lr is None else self.lr / 2, step_length=self.step_length / 2,
        )  # fmt: skip

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):
            value = getattr(self, item.name)
            choices = [
                c
                for option in (hints[item.name], *get_args(hints[item.name]))
                for c in get_args(option)
                if isinstance(c, str)
            ]
            if isinstance(value, str) and value not in choices:
                need = f"one of {', '.join(choices)}" if choices else "a number"
                raise InputError(f"FedAF setting '{item.name}' is '{value}', but it must be {need}.")
            if isinstance(value, int | float) and (not math.isfinite(value) or value < 0):
                raise InputError(
                    f"FedAF setting '{item.name}' is {value}, but it must be a finite number, 0 or larger."
                )
        for name in (
            "teachers",
            "sketch_rows",
            "batch_size",
            "lr",
            "sketch_samples",
            "ascent_cap",
            "amnesia_steps",
            "step_length",
            "recovery_lr",
            "recovery_batch_size",
        ):
            if getattr(self, name) == 0:
                raise InputError(f"FedAF setting '{name}' is 0, but it must be above 0.")
        if self.lr is None and self.preserver == "none":
            raise InputError("FedAF setting 'lr' must be a number when there is no preserver to derive it from.")
        if self.epochs + self.min_steps == 0:
            raise InputError("FedAF settings 'epochs' and 'min_steps' are both 0, so nothing would be forgotten.")
        if not 0 < self.recovery_share <= 1:
            raise InputError(
                f"FedAF setting 'recovery_share' is {self.recovery_share}, but it must be above 0 and at most 1."
            )


RECOMMENDED = FedAFSettings()

PAPER = FedAFSettings(
    memory="debiased", teachers=10, sigma="auto",
    penalty="gradient", strength=10.0, normalise=False,
    sketch_rows=50, sketch_labels="data", sketch_data="all", sketch_scope="client", sketch_samples=None,
    ascent="plain", epochs=1, min_steps=0, stop_below=None, lr=0.001, momentum=0.0, batch_size=64,
    aggregation="average-training", recovery_rounds=0,
)  # fmt: skip
"""The text to the letter, with the ambiguities decided as docs/decisions/paper-ambiguities.md says. It diverges."""

CONVENTIONAL = replace(PAPER, preserver="none", ascent="none")
"""The paper's ablation FedAF-C: conventional training on the new memories, L_M alone."""
