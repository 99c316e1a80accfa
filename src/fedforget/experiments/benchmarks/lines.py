"""What the figures must show, line by line, and the tables of every part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedforget.experiments.benchmarks.measuring import median, ratio
from fedforget.experiments.benchmarks.results import Results
from fedforget.experiments.tables import DASH, Table

MEGA = 1e6


def summary(results: Results) -> list[Table]:
    """Every table there are results for; the lines first."""
    made = [lines(results), *(TABLES[name](part) for name, part in results.items() if name in TABLES)]
    return [table for table in made if table.rows]


def lines(results: Results) -> Table:
    """Each line, what was measured, and whether it is met. What was not measured is not met either: it is missing."""
    rows = [
        (text, _number(value), f"at {'least' if least else 'most'} {_number(limit)}",
         "yes" if (value >= limit if least else value <= limit) else "no")
        for text, value, limit, least in _found(results)
    ]  # fmt: skip
    quick = any(part["run"]["quick"] for part in results.values())
    notes = ("A quick run: its figures mean nothing.",) if quick else ()
    return Table("What must hold", ("line", "measured", "must be", "met"), rows, notes)


def _found(results: Results) -> Iterator[tuple[str, float, float, bool]]:
    """(line, value, limit, whether the value must be at least that)."""
    if request := results.get("request"):
        seconds = request["seconds"]
        where = f"{request['dataset']}, {request['run']['device']}"
        if request["run"]["device"] == "cuda":
            yield f"{where}: seconds of a whole request, warm", median(seconds["request"]), 1.0, False
            spent = request["gradient_evaluations"]
            yield f"{where}: gradient evaluations, Retrain / request", spent["retrain"] / spent["request"], 150.0, True
        else:
            yield f"{where}: Retrain / request", ratio(seconds["retrain"], seconds["request"]), 40.0, True
        for s, limit in ((50, 2.0), (200, 3.0)):
            if forgetting := request["forgetting"].get(f"request, s = {s}"):
                over = ratio(forgetting, seconds["epoch"])
                yield f"{where}: forgetting stage / epoch over the target, s = {s}", over, limit, False
    for case in results.get("sketch", {}).get("cases", ()):
        what = f"{case['name']}, n = {case['samples']}, s = {case['rows']}"
        if case["samples"] >= case["batch"] * case["rows"]:
            yield (
                f"{what}: sketch / training epoch",
                ratio(case["seconds"]["sketch"], case["seconds"]["epoch"]),
                1.3,
                False,
            )
        if case["name"].startswith("resnet10"):
            for way in sorted(set(case["seconds"]) - {"sketch", "epoch"}):
                yield f"{what}: {way} / sketch", ratio(case["seconds"][way], case["seconds"]["sketch"]), 4.0, True
    if "clients" in results:
        points = {point["clients"]: point for point in results["clients"]["points"]}
        if 10 in points and 1000 in points:
            few, many = points[10], points[1000]
            yield "1,000 clients / 10 clients: request seconds", many["request"] / few["request"], 1.5, False
            yield "1,000 clients / 10 clients: peak memory", many["peak_bytes"] / max(1, few["peak_bytes"]), 1.2, False


def _request(part: Mapping[str, Any]) -> Table:
    seconds, evaluations = part["seconds"], part["gradient_evaluations"]
    rows = [
        (name, f"{median(times):.3f}", _number(ratio(seconds["retrain"], times)),
         _number(ratio(times, seconds["epoch"])), _count(evaluations.get(name, part["target"])))
        for name, times in seconds.items()
    ]  # fmt: skip
    stages = ", ".join(f"{name} {1000 * took:.0f}" for name, took in part["stages"]["request"].items() if took > 5e-4)
    note = (
        f"{part['dataset']}: {_count(part['parameters'])} parameters, {part['clients']} clients, "
        f"{_count(part['samples'])} samples, {part['rounds']} rounds; the target is {_count(part['target'])} samples. "
        f"A request's milliseconds by stage: {stages}."
    )
    if "cold" in part:
        first, second = (median([times[i] for times in part["cold"]]) for i in (0, 1))
        note += f" In a new process the first request takes {first:.3f} s, the second {second:.3f} s."
    title = "A whole request against other methods and one epoch over the target"
    columns = ("", "seconds", "Retrain / it", "it / epoch", "gradient evaluations")
    return Table(title, columns, rows, (note,))


def _sketch(part: Mapping[str, Any]) -> Table:
    rows = []
    for case in part["cases"]:
        for way, peak in case["peak_bytes"].items():
            times = case["seconds"][way]
            rows.append(
                (f"{case['name']}, n = {_count(case['samples'])}, s = {case['rows']}: {way}",
                 f"{median(times):.3f}", _number(ratio(times, case["seconds"]["epoch"])),
                 _number(ratio(times, case["seconds"]["sketch"])), f"{peak / MEGA:,.0f}")
            )  # fmt: skip
    note = "Peak memory is above data and model, in a process of its own; the result itself is a part of it."
    columns = ("", "seconds", "it / training epoch", "it / sketch", "peak MB")
    return Table("The sketch of the Jacobian", columns, rows, (note,))


def _points(title: str) -> Any:
    def table(part: Mapping[str, Any]) -> Table:
        rows = [
            (_count(point[part["axis"]]), f"{point['request']:.3f}", _number(point["over_epoch"]),
             _count(point["gradient_evaluations"]), f"{point['peak_bytes'] / MEGA:,.1f}",
             f"{point['stored_bytes'] / MEGA:,.1f}", f"{point['bytes'] / MEGA:,.2f}")
            for point in part["points"]
        ]  # fmt: skip
        columns = (part["axis"], "seconds", "it / epoch", "gradient evaluations", "peak MB", "stored MB", "sent MB")
        return Table(title, columns, rows, ())

    return table


def _bytes(part: Mapping[str, Any]) -> Table:
    rows = [
        (f"{row['network']}, {row['method']}", f"{row['bytes'] / MEGA:,.2f}", f"{row['models']:.1f}",
         f"{row['stored_bytes'] / MEGA:,.2f}")
        for row in part["table"]
    ]  # fmt: skip
    return Table("Bytes between server and four clients", ("", "sent MB", "in models", "stored MB"), rows, ())


TABLES: dict[str, Any] = {
    "request": _request,
    "sketch": _sketch,
    "clients": _points("More clients, who share the same samples"),
    "parameters": _points("Larger networks (MLP, 50 rows)"),
    "rows": _points("More rows in the sketch of 4,000 samples"),
    "target": _points("A larger target"),
    "bytes": _bytes,
}


def _number(value: float) -> str:
    """
    >>> _number(61.23), _number(1.234), _number(40.0)
    ('61.2', '1.23', '40')
    """
    text = f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text or DASH


def _count(value: float) -> str:
    return f"{value:,.0f}"
