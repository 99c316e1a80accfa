"""The lineage of a federation's models as a picture: what is current, what it came from, and what was rolled back.

The line on the left leads to the current model. Versions that a rollback left behind stand beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedforget.ledger.schema import Version
from fedforget.ledger.states import VersionKind, VersionState

ROW, LEFT, LANE = 58, 22, 26
MOST = 60
"""More versions than this are in the table alone."""


@dataclass(frozen=True)
class Node:
    x: int
    y: int
    number: int
    state: str
    about: str


@dataclass(frozen=True)
class Edge:
    path: str
    restores: bool


@dataclass(frozen=True)
class Lineage:
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    text_x: int
    hidden: int
    """How many older versions are not drawn."""


def draw_lineage(versions: Sequence[Version], about: Mapping[int, str] | None = None) -> Lineage:
    """Newest on top. `about` says what each version forgot."""
    shown = list(versions)[-MOST:]
    by_number = {version.number: version for version in shown}
    line = _line_to_current(by_number)
    places = {
        version.number: (LEFT + (0 if version.number in line else LANE), ROW // 2 + place * ROW)
        for place, version in enumerate(reversed(shown))
    }
    text_x = LEFT + 20 + (0 if len(line) == len(shown) else LANE)
    words = {version.number: "undone" for version in shown if version.number not in line} | dict(about or {})
    nodes = [_node(version, places[version.number], words.get(version.number, "")) for version in shown]
    edges = []
    for version in shown:
        origin = version.restores or version.parent
        if origin in places:
            edges.append(Edge(_path(places[origin], places[version.number]), version.restores is not None))
    return Lineage(ROW * len(shown), tuple(nodes), tuple(edges), text_x, len(versions) - len(shown))


def _line_to_current(by_number: Mapping[int, Version]) -> set[int]:
    """The current version and everything that its weights came from."""
    line: set[int] = set()
    at = max(by_number, default=None)
    while at is not None and at in by_number and at not in line:
        line.add(at)
        at = by_number[at].restores or by_number[at].parent
    return line


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    """From an older version up to a newer one; curved where it changes sides or passes others by."""
    (x1, y1), (x2, y2) = start, end
    if x1 == x2 and y1 - y2 == ROW:
        return f"M{x1} {y1}V{y2}"
    if x1 == x2:
        bow = x1 - 16
        return f"M{x1} {y1}C{bow} {y1 - ROW // 2} {bow} {y2 + ROW // 2} {x2} {y2}"
    return f"M{x1} {y1}C{x1} {y1 - ROW // 2} {x2} {y2 + ROW // 2} {x2} {y2}"


def _node(version: Version, place: tuple[int, int], about: str) -> Node:
    if version.kind == VersionKind.ROLLBACK:
        about = f"rolled back to version {version.restores}"
    elif version.kind == VersionKind.FIRST:
        about = "as it was registered"
    words = [about, version.verdict or ""]
    if version.state == VersionState.DESTROYED:
        words.append("weights destroyed")
    text = " · ".join(word for word in words if word)
    return Node(*place, version.number, version.state, text if len(text) <= 46 else text[:45] + "…")
