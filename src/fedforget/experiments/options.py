"""What a user may choose for an experiment, checked before any work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedforget.errors import InputError
from fedforget.experiments.configurations import Configuration, find_configuration
from fedforget.methods import LADDER, METHODS, method_settings

EVERY_PRESET = ("fedaf-c", "sga", "cdp")
"""Methods of which `all` takes every preset: what the paper compares FedAF with, where that is quick."""
QUICK_CLASSES = 2
TARGET_KINDS = ("class", "samples", "client")


@dataclass(frozen=True)
class Options:
    """The choices. `classes`, `methods` and `trials` are None where the user leaves them to the experiment.

    Trial t has the seed `seed` + t: for the partition, the backdoor, the initial weights and the schedule."""

    dataset: str = "digits"
    classes: tuple[int, ...] | None = None
    methods: tuple[tuple[str, str], ...] | None = None
    trials: int | None = None
    device: str = "cpu"
    seed: int = 0
    out: Path = Path("results")
    quick: bool = False
    threads: int = os.cpu_count() or 1
    configuration: str = "default"
    targets: tuple[str, ...] | None = None
    """For experiments with more than one kind of target, such as class, clean-samples, client."""

    def __post_init__(self) -> None:
        known = self.settings.classes
        for label in self.classes or ():
            if not 0 <= label < known:
                raise InputError(f"Class {label} does not exist; {self.dataset} has classes 0 to {known - 1}.")
        for name, lowest in (("trials", 1), ("repeats", 1), ("threads", 1), ("seed", 0)):
            value = getattr(self, name, None)
            if value is not None and value < lowest:
                raise InputError(f"--{name} is {value}, but it must be {lowest} or larger.")
        try:
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError):
            raise InputError(f"Device '{self.device}' cannot be used on this machine; use cpu.") from None
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is not a folder; choose another --out.")

    @classmethod
    def parse(cls, *, classes: str, methods: str | None, targets: str | None, **others: Any) -> Options:
        """The choices as a user writes them down."""
        return cls(
            classes=parse_classes(classes), methods=None if methods is None else parse_methods(methods),
            targets=None if targets is None else parse_targets(targets), **others,
        )  # fmt: skip

    @property
    def settings(self) -> Configuration:
        return find_configuration(self.dataset, self.configuration)

    def chosen_classes(self) -> tuple[int, ...]:
        """The user's, or all (a few of them if it must be quick)."""
        every = tuple(range(self.settings.classes))
        return self.classes or (every[:QUICK_CLASSES] if self.quick else every)

    def chosen_trials(self) -> range:
        """The user's number, or 3 (1 if it must be quick)."""
        return range(self.trials or (1 if self.quick else 3))

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that tell this choice of data and settings from others, for names of files and cells."""
        version = () if self.configuration == "default" else (self.configuration,)
        return (self.dataset, *version, *(("quick",) if self.quick else ()))


def parse_classes(text: str) -> tuple[int, ...] | None:
    """`all`, or numbers and ranges such as 0-3,7.

    >>> parse_classes("0-3,7")
    (0, 1, 2, 3, 7)
    """
    if text == "all":
        return None
    found: list[int] = []
    try:
        for piece in text.split(","):
            first, dash, last = piece.partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
        if not found:
            raise ValueError
    except ValueError:
        raise InputError(f"The classes '{text}' cannot be read; write them as 0-9 or 0,3,7.") from None
    return tuple(dict.fromkeys(found))


def parse_targets(text: str) -> tuple[str, ...]:
    """Kinds of targets, each poisoned or `clean-`.

    >>> parse_targets("class,clean-samples")
    ('class', 'clean-samples')
    """
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in found:
        if word.removeprefix("clean-") not in TARGET_KINDS:
            known = ", ".join(f"{kind}, clean-{kind}" for kind in TARGET_KINDS)
            raise InputError(f"Target '{word}' is unknown; choose from {known}.")
    return found


def parse_methods(text: str) -> tuple[tuple[str, str], ...]:
    """(method, preset) pairs of `all`, or of names such as retrain,fedaf:paper; a bare name is its default preset.

    `all` is every method of the table in its default preset, and those of `EVERY_PRESET` in all of theirs."""
    if text == "all":
        return tuple(
            (name, preset)
            for name, method in METHODS.items()
            for preset in (method.presets if name in EVERY_PRESET else [next(iter(method.presets))])
        )
    pairs = []
    for word in text.split(","):
        name, colon, preset = word.strip().partition(":")
        if name == LADDER:
            raise InputError("The ladder is no method but climbs three of them; its experiment is 'ladder'.")
        pairs.append((name, method_settings(name, preset if colon else None)[0]))
    return tuple(dict.fromkeys(pairs))
