"""Before, Retrain and each method side by side: the first audit's table, with the curve of what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedforget.audit.feature_sensitivity import about_features, measure_sensitivity
from fedforget.audit.measures import distance_to, measure_now_and_later
from fedforget.data.backdoor import Backdoor
from fedforget.data.samples import Dataset
from fedforget.federation.observed import Progress
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.methods import LADDER
from fedforget.params import State, digest
from fedforget.requests import ErasureRequest
from fedforget.runs.record import BEFORE, Figures, Result


def audit_models(
    federation: Federation,
    dataset: Dataset,
    models: Mapping[str, State],
    results: Sequence[Result],
    requests: Sequence[ErasureRequest],
    schedule: Schedule,
    progress: Progress,
    *,
    served: Sequence[ErasureRequest] = (),
    backdoor: Backdoor | None = None,
) -> list[Figures]:
    """`models` maps `before` and `method:preset` to states, `results` tells what each cost (or that it diverged).

    Each model is measured as it is and again after one further ordinary round without the target, since what is only
    suppressed comes back there."""
    oracle = models.get("retrain:default")
    order = {"retrain": 0, LADDER: 1}
    ordered = sorted(results, key=lambda r: (order.get(r.method, 2), r.method, r.preset))
    rows = [Figures(BEFORE, None), *map(Figures.of, ordered)]
    for index, row in enumerate(rows):
        progress("measuring", index, len(rows))
        state = models.get(row.name)
        if state is None:
            continue
        now, later = measure_now_and_later(
            federation, state, requests, dataset.test, schedule,
            served=served, backdoor=backdoor,
        )  # fmt: skip
        found: dict[str, Any] = {}
        if about_features(requests):
            found["sensitivity"] = measure_sensitivity(federation, state, requests, schedule, served).to_json()
        if oracle is not None:
            far = distance_to(federation, state, oracle, dataset.test, schedule.threads)
            found["distance_to_retrain"] = asdict(far)
        rows[index] = replace(row, model=digest(state), now=now, later=later, **found)
    progress("measuring", len(rows), len(rows))
    return rows
