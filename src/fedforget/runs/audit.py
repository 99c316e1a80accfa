"""Audit a run folder: every model that forgot beside the one before and Retrain, measured, judged, and reported.

audit.json                            the table, with the verdicts
report.html                           the same for people
oracles/                              retrained models, kept for the next audit
forgotten/METHOD-.../evidence-LEVEL.json    what the verdict on that model was made from, one file for each level

The first two are of the newest audit; evidence of another level stays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedforget.audit.case import Case
from fedforget.audit.evidence import evidence_record, write_evidence
from fedforget.audit.examine import ORACLES, Examination, check_level, examine, examine_oracles, judge
from fedforget.audit.feature_sensitivity import about_features, measure_sensitivity
from fedforget.audit.measures import distance_to, measure_now_and_later
from fedforget.audit.oracles import oracle_models
from fedforget.data import Dataset
from fedforget.data.backdoor import Backdoor
from fedforget.errors import InputError
from fedforget.federation.observed import Progress, silent
from fedforget.federation.seam import Federation
from fedforget.methods import LADDER
from fedforget.params import State, digest
from fedforget.report.page import write_report
from fedforget.requests import ErasureRequest, describe_requests, requests_id
from fedforget.runs.folder import Run
from fedforget.runs.forget import branch_off, results_of
from fedforget.runs.record import BEFORE, MODEL, REPORT, Audit, Figures, Result
from fedforget.runs.store import FolderOracleCache

RETRAIN = "retrain:default"
"""The name of Retrain's model, among those that are audited."""


def audit_run(
    folder: Path,
    requests: Sequence[ErasureRequest] | None = None,
    *,
    level: str | None = None,
    oracles: int | None = None,
    progress: Progress = silent,
    device: str = "cpu",
    federation: Federation | None = None,
    report: str = REPORT,
) -> Audit:
    """Measure before, Retrain and every method that served `requests` (default: the newest) and write the report.
    Before is the model that the newest of these results came from, and its peers are those that came from it too.

    With a `level` (`audit.examine`) every method gets a verdict and an evidence file. What has to be trained for it is
    kept; an interrupted audit goes on with the rounds it has. `alone` trains nothing.
    `report` is the page's name in the folder.
    """
    chosen_level = None if level is None else check_level(level)
    if oracles is not None and (chosen_level in (None, "alone") or oracles < 2):
        raise InputError(f"{oracles} oracles cannot judge anything; use 2 or more, with the level quick or full.")
    run = Run(folder)
    run.state  # noqa: B018 (a folder that is not whole is refused, whatever else is in it)
    dataset = run.config.load_dataset()
    asked, chosen = _chosen(run, requests)
    trunk = list(chosen.values())[-1].before
    federation = federation or run.config.build_federation(dataset, device)
    there = any(result.method == "retrain" and result.before == trunk for result in chosen.values())
    if not there and chosen_level != "alone":
        branch_off(run, trunk, federation, asked, "retrain", "default", progress, {})
        _, chosen = _chosen(run, asked)
    chosen = {place: result for place, result in chosen.items() if result.before == trunk}
    models = {BEFORE: run.load_trunk(trunk)}
    for place, result in chosen.items():
        if result.diverged is None:
            models[result.name] = result.load_model(place)
    case = Case(federation, asked, run.config.schedule, chosen_level or "alone", trunk.served)
    planted = run.config.backdoor
    backdoor = planted if planted is not None and planted.request.client in case.askers else None
    rows = audit_models(case, dataset, models, [*chosen.values()], progress, backdoor)
    if chosen_level is not None:
        count = ORACLES[chosen_level] if oracles is None else oracles
        judged = judge_models(run, case, count, dataset, models, chosen, progress)
        rows = [replace(row, **judged.get(row.name, {})) for row in rows]
    samples = sum(size.target for size in federation.check(asked).values())
    audit = Audit(asked, samples, tuple(dataset.classes), tuple(rows), chosen_level, backdoor, run.config.to_json())
    write_report(run.folder / report, audit, dataset, planted)
    audit.write(run.folder)
    return audit


def _chosen(
    run: Run, requests: Sequence[ErasureRequest] | None
) -> tuple[tuple[ErasureRequest, ...], dict[Path, Result]]:
    """(the requests, what served them by its folder)."""
    results = results_of(run)
    if not results:
        raise InputError(f"Nothing has been forgotten in {run.folder} yet; run `fedforget forget {run.folder}` first.")
    asked = tuple(requests) if requests else list(results.values())[-1].requests
    chosen = {place: result for place, result in results.items() if result.id == requests_id(asked)}
    if not chosen:
        raise InputError(
            f"No method has forgotten {describe_requests(asked)} in {run.folder} yet; "
            "run `fedforget forget` for it first."
        )
    return asked, chosen


def audit_models(
    case: Case,
    dataset: Dataset,
    models: Mapping[str, State],
    results: Sequence[Result],
    progress: Progress,
    backdoor: Backdoor | None = None,
) -> list[Figures]:
    """`models` maps `before` and `method:preset` to states, `results` tells what each cost (or that it diverged).

    Each model is measured as it is and again after one further ordinary round without the target, since what is only
    suppressed comes back there."""
    oracle = models.get(RETRAIN)
    order = {"retrain": 0, LADDER: 1}
    ordered = sorted(results, key=lambda r: (order.get(r.method, 2), r.method, r.preset))
    rows = [Figures(BEFORE, None), *map(Figures.of, ordered)]
    for index, row in enumerate(rows):
        progress("measuring", index, len(rows))
        state = models.get(row.name)
        if state is None:
            continue
        now, later = measure_now_and_later(case, state, dataset.test, backdoor)
        found: dict[str, Any] = {}
        if about_features(case.requests):
            found["sensitivity"] = measure_sensitivity(case, state).to_json()
        if oracle is not None:
            far = distance_to(case.federation, state, oracle, dataset.test, case.schedule.threads)
            found["distance_to_retrain"] = asdict(far)
        rows[index] = replace(row, model=digest(state), now=now, later=later, **found)
    progress("measuring", len(rows), len(rows))
    return rows


def judge_models(
    run: Run,
    case: Case,
    count: int,
    dataset: Dataset | None,
    models: Mapping[str, State],
    results: Mapping[Path, Result],
    progress: Progress,
) -> dict[str, dict[str, Any]]:
    """What every examined model's `Figures` get, with its verdict; every method's folder gets its evidence."""
    data = _data_digest(run, dataset)
    oracles: list[State] = []
    # A retrained shard is no oracle: it begins where the model before began, beside members of that model.
    first = None if run.config.shards > 1 or not count else RETRAIN
    if count:
        oracles = oracle_models(
            case.federation, case.requests, case.schedule, count, data=data, served=case.served,
            cache=FolderOracleCache(run.folder / "oracles"), retrained=models.get(first) if first else None,
            progress=progress,
        )  # fmt: skip
    examined_oracles = examine_oracles(case, oracles, progress)
    examined: dict[str, Examination] = {}
    names = [name for name in models if name != first]
    for number, name in enumerate(names):
        progress("examining", number, len(names))
        examined[name] = examine(case, models[name], oracles)
    progress("examining", len(names), len(names))
    found: dict[str, dict[str, Any]] = {name: {} for name in examined}
    places = {result.name: place for place, result in results.items()}
    for name, examination in examined.items():
        exact = name != BEFORE and results[places[name]].exact
        assumed = results[places[name]].assumed if exact else ()
        evidence, verdict = judge(
            examination, examined[BEFORE], examined_oracles, exact=exact, assumed=assumed
        )  # fmt: skip
        found[name]["verdict"] = verdict.to_json()
        if name == BEFORE:
            continue
        result = results[places[name]]
        path = places[name] / f"evidence-{case.level}.json"
        record = evidence_record(
            request={
                "requests": [request.to_json() for request in case.requests],
                "served": [request.to_json() for request in case.served],
                "samples": examination.samples,
                "ids_fingerprint": f"{examination.fingerprint:012x}",
            },
            run={"config": run.config.to_json(), "data": data},
            models={
                "subject": {
                    "method": result.method,
                    "preset": result.preset,
                    "settings": dict(result.settings),
                    "file": MODEL,
                    "sha256": result.sha256,
                    "digest": digest(models[name]),
                    **({"exact": True} if exact else {}),
                    **({"assumed": list(assumed)} if assumed else {}),
                },
                "before": {"digest": digest(models[BEFORE]), "sha256": result.before.sha256},
                "oracles": [digest(state) for state in oracles],
            },
            readings=evidence,
            verdict=verdict,
            pictures={
                "subject": examination.pictures,
                "before": examined[BEFORE].pictures,
                "oracles": [o.pictures for o in examined_oracles],
            },
            level=case.level,
            notes=(*result.notes, *examination.notes),
        )
        found[name]["evidence"] = {"file": str(path.relative_to(run.folder)), "sha256": write_evidence(path, record)}
    return found


def _data_digest(run: Run, dataset: Dataset | None) -> str:
    """What the clients hold: the data set's bits, and how they are spread and poisoned."""
    config = {name: value for name, value in run.config.to_json().items() if name != "schedule"}
    text = json.dumps({"config": config, "data": None if dataset is None else dataset.digest()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
