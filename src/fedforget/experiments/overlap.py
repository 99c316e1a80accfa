"""Overlapping validation (fig:overlap, tab:over_non): is there a model that knows D' and believes the memories M?

"We train the model on the mixed task D' + M": one class of the data gets fake labels, everything else keeps its own,
and a fresh model is trained on both at once (Eq. 6). On the test set, accuracy on the target class should be low and on
all other classes high. Four fake labels, those of `memory_generator.py`, with Q = 10 teachers. Two settings, since the
text and the table do not go together:

    client   the asking client's data alone, D' + M = D_k with one class relabelled, as the text says
    pooled   all clients' data, the class relabelled everywhere

The paper does not say how long this model is trained: as many epochs as a client trains in the federation (rounds x
local epochs), with the federation's learning rate, momentum and batch size. There is no backdoor and no method: a row's
`method` is `mixed`, its `preset` the setting, and its `setting` the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor
from torch.nn import functional as F

from fedforget.experiments.columns import at, beside_paper, crossed, entry, table
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.experiments.drawing import Panel, box_plots
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.paper_numbers import LABELS, OVERLAP_NON_TARGET, STATED
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import distinct, grouped, values, where
from fedforget.experiments.tables import Table
from fedforget.federation.client import Client
from fedforget.federation.evaluation import counted, predict
from fedforget.federation.seam import thread_count
from fedforget.methods.fedaf.memory_generator import MemoryKind, generate_memory

SETTINGS = {"client": "the client's data alone", "pooled": "all clients' data"}
TITLES = {"uniform": "Uniform", "random": "Random", "teacher": "Teacher", "debiased": "Debias Teacher"}
TEACHERS = 10


def specs(options: Options) -> list[CellSpec]:
    return [
        CellSpec(ScenarioSpec((label,), options.seed + trial, poisoned=False), trial, label, "mixed", place, kind)
        for trial in options.chosen_trials()
        for label in options.chosen_classes()
        for place in SETTINGS
        for kind in LABELS
    ]


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """Train on the mixed task, and test."""
    client, schedule = whose_data(spec.preset, scenario), scenario.schedule
    epochs = schedule.rounds * schedule.epochs
    with thread_count(schedule.threads):
        labels, evaluations = mixed_labels(cast(MemoryKind, spec.setting), client, scenario)
        learner = replace(client, samples=replace(client.samples, labels=labels))
        task = replace(schedule.train_task(0), epochs=epochs, purpose=f"overlap {spec.preset}")
        reply = task.run(scenario.initial, learner)
        test = scenario.dataset.test
        logits = predict(client.load(reply.tensors), test.features, client.normalisation, client.device).cpu()
    (target,) = scenario.spec.labels
    own = test.true_labels == target
    return {
        "test_acc": counted(logits, test).accuracy,
        "target_class_test_acc": counted(logits[own], test.select(own)).accuracy,
        "non_target_acc": counted(logits[~own], test.select(~own)).accuracy,
        "gradient_evaluations": evaluations + reply.gradient_evaluations,
        "samples": len(client.samples), "epochs": epochs,
    }  # fmt: skip


def whose_data(place: str, scenario: Scenario) -> Client:
    """The asking client, or one that holds what all of them hold together."""
    own = scenario.federation.client(ASKING_CLIENT)
    if place == "client":
        return own
    everything = scenario.dataset.train
    return replace(own, samples=everything.with_features(everything.features.to(own.samples.features.device)))


def mixed_labels(kind: MemoryKind, client: Client, scenario: Scenario) -> tuple[Tensor, float]:
    """(a probability vector for every sample of D' + M: the fake label in the target, the true one elsewhere;
    gradient evaluations spent)."""
    labels = F.one_hot(client.samples.labels, client.classes).float()
    target, _ = client.positions(scenario.requests)
    memory, evaluations = generate_memory(
        kind, client.model, client.samples.select(target), client,
        teachers=TEACHERS, sigma="auto", seed=scenario.spec.seed,
    )  # fmt: skip
    labels[target] = memory.to(labels)
    return labels, evaluations


def paper_values(row: Mapping[str, Any]) -> dict[str, float] | None:
    printed = OVERLAP_NON_TARGET.get((row["dataset"], str(row["class"])))
    return None if printed is None else {"non_target_acc": printed[row["setting"]]}


def _settings(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each setting that was run."""
    return {place: own for place in SETTINGS if (own := where(rows, "preset", place))}


def _labels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {kind: where(rows, "setting", kind) for kind in LABELS}


def tables(rows: Sequence[Row]) -> list[Table]:
    places = _settings(rows)
    columns = {"target": "target_class_test_acc", "non-target": "non_target_acc"}
    meaning = "; ".join(f"{place}: {SETTINGS[place]}" for place in places)
    averages = {
        f"{what}, {place}": at("preset", place, beside_paper(column))
        for place in places
        for what, column in columns.items()
    }
    notes = (f"Mean ± standard deviation over classes and trials. {meaning}.",)
    titles = {
        "target": "Accuracy (%) of the target class, the lower the better",
        "non-target": "Accuracy (%) of non-target classes",
    }
    return [
        table("Test accuracy (%) of a model trained on D' + M", _labels(rows), averages, notes, first="label"),
        *(
            crossed(f"{titles[what]}: {SETTINGS[place]}", "class", _labels(own), beside_paper(column))
            for what, column in columns.items()
            for place, own in places.items()
        ),
    ]


def distance_to_paper(rows: Sequence[Row], place: str) -> float | None:
    """Mean |ours - printed| of the non-target accuracy over classes and labels; ours is the mean over trials."""
    groups = grouped(where(rows, "preset", place), lambda row: (row["class"], row["setting"]))
    entries = [entry(group, "non_target_acc") for group in groups.values()]
    gaps = [abs(e.mean - e.paper) for e in entries if e.mean is not None and e.paper is not None]
    return sum(gaps) / len(gaps) if gaps else None


def remarks(rows: Sequence[Row]) -> list[str]:
    """Which setting is the paper's, and the order of the four labels in each."""
    places = _settings(rows)
    known = {place: gap for place in places if (gap := distance_to_paper(rows, place)) is not None}
    if len(known) > 1:
        near = min(known, key=lambda place: known[place])
        shown = ", ".join(f"{gap:.2f} points in the setting {place}" for place, gap in known.items())
        found = f"Our non-target accuracy differs from the paper's table by {shown} (mean absolute difference over "
        found += f"classes and labels): the setting {near} resembles it more."
    else:
        found = "The paper prints no table for this data set, or only one setting is here, so none is closer to it."
    sentences = [found]
    for place, own in places.items():
        means = {kind: entry(each, "target_class_test_acc").mean for kind, each in _labels(own).items()}
        order = sorted((mean, kind) for kind, mean in means.items() if mean is not None)
        listed = ", ".join(f"{kind} {mean:.2f} %" for mean, kind in order)
        sentences.append(f"Target class, {SETTINGS[place]}, from the lowest accuracy to the highest: {listed}.")
    return [*sentences, f"The paper's figure prints no numbers; its text says: {STATED['fig:overlap']}"]


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The paper's four panels, box plots over trials for each class, once for each setting."""
    written = []
    for place, own in _settings(rows).items():
        panels = []
        for kind, each in _labels(own).items():
            of_class = {label: where(each, "class", label) for label in distinct(own, "class")}
            accuracies = {label: values(found, "target_class_test_acc") for label, found in of_class.items()}
            panels.append(Panel(TITLES[kind], accuracies, "target class", percent=True))
        title = f"Overlapping validation, {own[0]['dataset']}, {SETTINGS[place]}: accuracy of the target class"
        written += box_plots(stem.with_name(f"{stem.name}-{place}"), title, own, panels, columns=4)
    return written


OVERLAP = Experiment(
    name="overlap",
    title="Overlapping validation",
    label="fig:overlap, tab:over_non",
    specs=specs,
    run=run,
    tables=tables,
    paper=paper_values,
    remarks=remarks,
    figures=figures,
    methods=None,
    needs_before=False,
)
