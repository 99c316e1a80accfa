"""FedAF's settings: 20 of our own way, and in a class of their own what the paper leaves to its reader."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import torch

from fedforget.errors import InputError
from fedforget.methods.checks import check_settings

LARGE_NETWORK = 1_000_000
"""From so many trainable weights on a network counts as large."""
BY_SIZE: dict[tuple[str, str], tuple[Any, Any]] = {
    ("sketch_rows", "auto"): (75, 150),
    ("sketch_samples", "auto"): (1000, 1500),
    ("sketch_dtype", "auto"): ("float32", "float32"),
    ("step_length", "auto"): (0.15, 0.20),
    ("recovery_share", "auto"): (0.02, 0.06),
    ("recovery_lr", "auto"): (0.013, 0.004),
    ("reminder_guard", "auto"): (False, True),
}
"""What `auto` means for a small and for a large network (docs/decisions/network-size.md)."""
LEFT: dict[str, object] = {
    "target_data": "samples", "sketch_ahead": False, "shrink": 1.0, "rebuilding": 0.0, "held": 0.0,
}  # fmt: skip
"""Settings that there once were, with the one value that they have left: stored settings may still name them."""


@dataclass(frozen=True)
class OverwriteSettings:
    """Our own way, the first rung of the ladder; see docs/decisions for the reasons.

    `auto` depends on the size of the network: `for_network` puts a number in its place. What is settled here, such as
    the kind of memory, has its value in `FullSettings`: `opened` shows both."""

    amnesia_steps: int = 12
    """How long the teacher of the memory unlearns the target before others' data reminds it."""
    strength: float = 1e5
    """lambda, the weight of the penalty."""
    sketch_rows: int | Literal["auto"] = "auto"
    """s."""
    sketch_samples: int | Literal["auto"] | None = "auto"
    """At most so many samples, drawn at random; None: all."""
    sketch_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: float32, or what fits into memory (`extensions/planning.py`)."""
    sketch_scope: Literal["auto", "client", "federation"] = "auto"
    """Whose data: the target client's, or everybody's, merged. `auto`: everybody's when the client keeps nothing."""
    sketch_masked: bool = False
    """Everybody's sketch comes under masks that cancel in the sum, the only thing the server then sees: see
    `extensions/masked_sketch.py`. It takes three clients or more, and s rows of 8-byte numbers from each of them."""
    first_moved: str | None = None
    """Only this parameter and those after it move in the forgetting; None: all. The plan sets it where a sketch of all
    would not fit."""

    epochs: float = 1
    """EWC epochs: passes over the target, or a part of one."""
    min_steps: int = 16
    """A small target is passed over more often, until so many steps are made."""
    step_length: float | Literal["auto"] = "auto"
    """A step along one sample's gradient moves the weights by this much, whatever the network: lr = step_length /
    sqrt(tr F), where the sketch tells tr F, the mean squared length of a retained sample's gradient."""
    batch_size: int = 64

    recovery_rounds: int = 1
    recovery_share: float | Literal["auto"] = "auto"
    """Part of each client's retained data in a recovery (or reminder) round; 1 makes it an ordinary round."""
    recovery_min_samples: int = 256
    """But no fewer than so many of a client's samples, where it has them: a few batches, else little is recovered."""
    recovery_clients: int = 10
    """In a larger federation so many random clients recover (or remind) for all, or more of them, until that many times
    `recovery_min_samples` samples took part: a request costs the same in a federation of 10 and of 1,000."""
    recovery_lr: float | Literal["auto"] = "auto"
    recovery_batch_size: int = 64
    reminder_guard: bool | Literal["auto"] = "auto"
    """Take from the reminder what leads back to the model before: see `aggregation.without_return`."""

    enough: float = 0.0
    """Stop once no more of the target than this share is recognised, if that comes before the memories are learnt: the
    ladder says here how much of it a model would know that never saw it. 0: learn the memories."""

    def for_network(self, weights: int) -> Self:
        """The same settings with a number wherever a word stands, for a network of so many trainable weights."""
        large = int(weights >= LARGE_NETWORK)
        meant = {name: pair[large] for (name, word), pair in BY_SIZE.items() if getattr(self, name) == word}
        return replace(self, **meant)

    def opened(self) -> FullSettings:
        """The same with all that our way has settled: what the method runs on, and what an ablation varies."""
        return FullSettings(**{item.name: getattr(self, item.name) for item in fields(self)})

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.sketch_dtype == "bfloat16" else torch.float32

    @property
    def planned_dtype(self) -> torch.dtype:
        """Of the sketch where it is largest: under masks it travels as 64-bit numbers (`federation/masking.py`)."""
        return torch.int64 if self.sketch_masked else self.dtype

    _above_zero: ClassVar[tuple[str, ...]] = (
        "sketch_rows", "batch_size", "sketch_samples", "amnesia_steps", "step_length", "recovery_lr",
        "recovery_batch_size", "recovery_clients",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_settings("FedAF", self, above_zero=self._above_zero, below_one=["enough"])
        if self.sketch_masked and self.sketch_scope == "client":
            raise InputError(_MASKS_NEED)
        if self.epochs == 0 and self.min_steps == 0:
            raise InputError("FedAF settings 'epochs' and 'min_steps' are both 0, so nothing would be forgotten.")
        if not isinstance(self.recovery_share, str) and not 0 < float(self.recovery_share) <= 1:
            raise InputError(
                f"FedAF setting 'recovery_share' is {self.recovery_share}, but it must be above 0 and at most 1."
            )


@dataclass(frozen=True)
class FullSettings(OverwriteSettings):
    """Every step of Algorithm 1 laid open; the defaults are ours, and the paper's values are in `PAPER` below. What the
    paper leaves to its reader and what our own way has settled is all here: the method runs on these settings, and
    ablations vary them."""

    memory: Literal["uniform", "random", "teacher", "debiased", "suppressed", "reminded"] = "reminded"
    teachers: int = 10
    """Q, for the memories `teacher` and `debiased`."""
    sigma: float | Literal["auto", "literal"] = "auto"
    """The debias weight of Eq. 4."""

    preserver: Literal["sketch", "pca", "diagonal", "none"] = "sketch"
    """`pca`: the best rank-s rows in place of the sketch, from every sample's own gradient; for comparison."""
    penalty: Literal["proximal", "gradient"] = "proximal"
    normalise: bool = True
    """Divide the penalty by n, as H = J^T J / n says; the paper then drops n."""
    sketch_labels: Literal["data", "sampled", "mas"] = "sampled"
    sketch_data: Literal["retained", "all"] = "retained"
    """D' or, in the paper, D_k: which protects the target too."""

    anchor: Literal["global", "client"] = "global"
    """theta*: the global model, or what an ordinary epoch on all of its data D_k makes of it at the client."""

    ascent: Literal["none", "plain", "capped"] = "none"
    """The form of - L_R. (The amnesia of `reminded` is always capped.)"""
    ascent_cap: float = 6.0
    lr: float | None = None
    """None: by `step_length`."""
    momentum: float = 0.0
    stop_below: float | None = 0.005
    """Stop once the memories are learnt: KL(memory || model) over the last batches is no more than this."""
    freeze_normalisation: bool = True

    aggregation: Literal["replace", "scaled", "average-idle", "average-training"] = "replace"
    recovery_momentum: float = 0.9
    recovery_guard: bool = True
    """Take from the recovery what leads back to the model before."""

    _above_zero = (*OverwriteSettings._above_zero, "teachers", "lr", "ascent_cap")

    def opened(self) -> FullSettings:
        return self

    @property
    def idle(self) -> frozenset[str]:
        """The settings that change nothing beside the others: nobody asks for a step length where `lr` is a number."""
        return frozenset() if self.lr is None else frozenset({"step_length"})

    @property
    def sketch(self) -> tuple[object, ...]:
        """What a sketch depends on: two settings with the same value here can share one."""
        return (
            self.preserver, self.sketch_rows, self.sketch_labels, self.sketch_data, self.sketch_samples,
            str(self.dtype), self.first_moved,
        )  # fmt: skip

    @property
    def amnesia(self) -> FullSettings:
        """How the teacher of `reminded` loses the target: a few short steps of suppression and capped ascent."""
        return replace(
            self, memory="suppressed", ascent="capped", epochs=0, min_steps=self.amnesia_steps, enough=0.0,
            lr=None if self.lr is None else self.lr / 2, step_length=float(self.step_length) / 2,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr is None and self.preserver == "none":
            raise InputError("FedAF setting 'lr' must be a number when there is no preserver to derive it from.")
        if self.preserver == "pca" and self.sketch_scope == "federation":
            raise InputError(
                "FedAF's preserver 'pca' has no federation-wide form: principal components of the clients do not add "
                "up as sketches do; use the preserver 'sketch', or the sketch_scope 'client'."
            )
        if self.sketch_masked and self.preserver != "sketch":
            raise InputError(_MASKS_NEED)


_MASKS_NEED = (
    "FedAF setting 'sketch_masked' is about everybody's sketch; it needs the preserver 'sketch' and the "
    "sketch_scope 'federation' or 'auto'."
)


OVERWRITE = OverwriteSettings()

PAPER = FullSettings(
    memory="debiased", teachers=10, sigma="auto",
    penalty="gradient", strength=10.0, normalise=True,
    sketch_rows=50, sketch_labels="data", sketch_data="all", sketch_scope="client", sketch_samples=None,
    ascent="plain", epochs=1, min_steps=0, stop_below=None, lr=0.001, momentum=0.9, batch_size=88,
    freeze_normalisation=False, aggregation="average-training", recovery_rounds=0,
)  # fmt: skip
"""The reading of the text that comes nearest to its tables (docs/results/readings.md): Eq. 8 to 10 with their 1/n. Its
batch size is MNIST's; for other data sets see `experiments/configurations.py`."""

LITERAL = replace(PAPER, normalise=False, momentum=0.0, batch_size=64)
"""The text after Eq. 13, which omits n: plain steps of this penalty leave the finite numbers on the paper's data."""

CONVENTIONAL = replace(LITERAL, preserver="none", ascent="none")
"""The paper's ablation FedAF-C: conventional training on the new memories, L_M alone."""

CONVENTIONAL_REPLACING = replace(CONVENTIONAL, aggregation="replace")
"""The same where the client's model becomes the global one: the paper does not say what the peers send."""
