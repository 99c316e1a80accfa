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

COSTS = ("seconds", "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes")


def audit_models(
    federation: Federation,
    dataset: Dataset,
    models: Mapping[str, State],
    results: Sequence[Mapping[str, Any]],
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
    entries: list[Mapping[str, Any]] = [{"name": "before", "method": "before", "preset": None}]
    order = {"retrain": 0, "fedaf": 1}
    entries += sorted(results, key=lambda r: (order.get(r["method"], 2), r["method"], r["preset"] != "recommended"))
    for index, entry in enumerate(entries):
        progress("measuring", index, len(entries))
        cost = entry.get("cost") or {}
        row: dict[str, Any] = {"method": entry["method"], "preset": entry["preset"]}
        state = models.get(entry["name"])
        if state is not None:
            now, later = measure_now_and_later(
                federation, state, requests, dataset.test, schedule,
                served=served, backdoor=backdoor, guard=(guards or {}).get(entry["name"]),
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
        row |= {name: cost.get(name) for name in COSTS}
        row["seconds_by_stage"] = cost.get("seconds_by_stage")
        row["note"] = entry.get("diverged")
        row["notes"] = entry.get("notes", [])
        row["curves"] = entry.get("curves")
        rows.append(row)
    progress("measuring", len(entries), len(entries))
    return {
        "target": describe_requests(requests),
        "requests": [request.to_json() for request in requests],
        "target_samples": sum(size.target for size in federation.check(requests).values()),
        "backdoor": None if backdoor is None else backdoor.to_json(),
        "classes": list(dataset.classes),
        "rows": rows,
    }
