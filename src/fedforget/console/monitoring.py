"""Health for whoever restarts us, metrics for whoever watches us (Prometheus' text)."""

from __future__ import annotations

from typing import Annotated

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from fedforget.console.permissions import Permission
from fedforget.console.visitors import Visitor, allow, guarded_router
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Meters:
    """What the console counts itself; the ledger's figures are read when somebody asks."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "fedforget_http_answers", "Answers by method, route and status.", ("method", "route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "fedforget_http_seconds", "Time to the answer's beginning.", ("route",), buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self.answers.labels(method, route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self, ledger: Ledger) -> bytes:
        figures, now = ledger.trail.figures(), CollectorRegistry()
        requests = Gauge("fedforget_requests", "Requests in each state.", ("state",), registry=now)
        for state, count in figures["requests"].items():
            requests.labels(state).set(count)
        for name, words in (
            ("overdue", "Open requests past their date."),
            ("due_soon", "Open requests due within a week."),
            ("events", "Events in the ledger."),
            ("versions", "Model versions."),
            ("held", "Federations that a worker holds."),
            ("oldest_queued_seconds", "How long the oldest queued request waits."),
        ):
            Gauge(f"fedforget_{name}", words, registry=now).set(figures[name])
        return generate_latest(self.registry) + generate_latest(now)


router = guarded_router(include_in_schema=False)


@router.get("/health/live")
async def live(visitor: Annotated[Visitor, allow(Permission.OPEN_TO_ALL)]) -> Response:
    """The process answers."""
    return JSONResponse({"status": "alive"})


@router.get("/health")
@router.get("/health/ready")
def ready(visitor: Annotated[Visitor, allow(Permission.OPEN_TO_ALL)]) -> Response:
    """The ledger can be read; it says nothing about what is in it."""
    try:
        visitor.ledger.trail.head()
    except FedForgetError:
        return JSONResponse({"status": "not ready", "ledger": "does not answer"}, 503)
    worker = visitor.console.worker
    said = {"status": "ready", "ledger": "reachable", "worker": "none here" if worker is None else worker.status}
    return JSONResponse(said)


@router.get("/metrics")
def metrics(visitor: Annotated[Visitor, allow(Permission.SEE_METRICS, from_loopback=True)]) -> Response:
    """For a monitor with a token, or one on this machine."""
    return Response(visitor.console.meters.text(visitor.ledger), media_type=CONTENT_TYPE_LATEST)
