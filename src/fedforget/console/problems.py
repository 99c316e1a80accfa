"""Errors as answers: problem+json (RFC 9457) for programs, a page for people, one status for each class of error."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.errors import BusyError, ConflictError, MissingError, TamperedError

API = "/api/v1"


class Problem(BaseModel):
    """What went wrong, in one sentence."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    fields: dict[str, str] = Field(default_factory=dict, description="What is wrong with which part of the input.")


class DeniedError(HTTPException):
    """Not for this visitor: 401 who are you, 403 not you, 429 not so often."""


def status_of(error: FedForgetError) -> int:
    for kind, status in ((MissingError, 404), (ConflictError, 409), (TamperedError, 409), (InputError, 422)):
        if isinstance(error, kind):
            return status
    return 503 if isinstance(error, BusyError) else 500


def for_programs(request: Request) -> bool:
    """Whether a program asks: it wants problem+json and no page to sign in."""
    path = request.scope["path"]
    return path.startswith("/api/") or path == "/metrics" or "authorization" in request.headers


def problem_response(
    status: int, detail: str, *, fields: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, fields=dict(fields or {}))
    values = problem.model_dump()
    more = {"retry-after": "2"} if status == 503 else {}
    return JSONResponse(values, status, {**more, **(headers or {})}, media_type="application/problem+json")


def validation_fields(error: RequestValidationError) -> dict[str, str]:
    """Which part of the input is wrong, and how."""
    found: dict[str, str] = {}
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"] if part not in ("body", "query", "path"))
        found.setdefault(_printable(place) or "body", _printable(str(item["msg"])))
    return found


def _printable(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown[:200]


def openapi_responses() -> dict[int | str, dict[str, Any]]:
    """The errors that any route of the API may answer with, for its description."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
    }
