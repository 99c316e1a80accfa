"""Before, Retrain and each method side by side: the first audit's table, with the curve of what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedforget.audit.feature_sensitivity import about_features, measure_sensitivity
from fedforget.audit.measures import distance_to, measure_now_and_later
from fedforget.data.backdoor import Backdoor
from fedforget.data.samples import Dataset
from fedforget.federation.guard import Guard
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.params import State, digest
from fedforget.requests import ErasureRequest, describe_requests
from fedforget.runs.record import Result

COSTS = ("seconds", "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes")


def audit_models(
    federation: Federation,
    dataset: Dataset,
    models: Mapping[str, State],
    results: Sequence[Result],
    requests: Sequence[ErasureRequest],
    schedule: Schedule,
    progress: Callable[[str, int, int], None],
    *,
    served: Sequence[ErasureRequest] = (),
    backdoors: Sequence[Backdoor] = (),
    guards: Mapping[str, Guard | None] | None = None,
) -> dict[str, Any]:
    """`models` maps `before` and `method:preset` to states, `results` tells what each cost (or that it diverged).

    Each model is measured as it is and again after one further ordinary round without the target, since what is only
    suppressed comes back there; under the model's guard, where `guards` has one."""
    asking = {request.client for request in requests}
    backdoor = next((b for b in backdoors if b.request.client in asking), None)
    oracle = models.get("retrain:default")
    rows: list[dict[str, Any]] = []
    order = {"retrain": 0, "fedaf": 1}
    ordered = sorted(results, key=lambda r: (order.get(r.method, 2), r.method, r.preset != "recommended"))
    for index, result in enumerate([None, *ordered]):
        progress("measuring", index, len(ordered) + 1)
        name = "before" if result is None else result.name
        row: dict[str, Any] = {"method": "before", "preset": None}
        if result is not None:
            row = {"method": result.method, "preset": result.preset}
        state = models.get(name)
        if state is not None:
            now, later = measure_now_and_later(
                federation, state, requests, dataset.test, schedule,
                served=served, backdoor=backdoor, guard=(guards or {}).get(name),
            )  # fmt: skip
            row |= now.to_json()
            row["after_one_round"] = later.to_json()
            if about_features(requests):
                heard = measure_sensitivity(
                    federation, state, requests, served, seed=schedule.seed, threads=schedule.threads
                )
                row["sensitivity"] = heard.to_json()
            if oracle is not None:
                row["distance_to_retrain"] = asdict(
                    distance_to(federation, state, oracle, dataset.test, schedule.threads)
                )
            row["model"] = digest(state)
        made = result is not None and result.diverged is None
        cost = result.cost.to_json() if result is not None and made else {}
        row |= {name: cost.get(name) for name in (*COSTS, "seconds_by_stage")}
        row["note"] = None if result is None else result.diverged
        row["notes"] = [] if result is None else list(result.notes)
        row["curves"] = result.curves if result is not None and made else None
        rows.append(row)
    progress("measuring", len(ordered) + 1, len(ordered) + 1)
    return {
        "target": describe_requests(requests),
        "requests": [request.to_json() for request in requests],
        "target_samples": sum(size.target for size in federation.check(requests).values()),
        "backdoor": None if backdoor is None else backdoor.to_json(),
        "classes": list(dataset.classes),
        "rows": rows,
    }
