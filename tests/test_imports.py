"""The numerics import and run with torch, numpy, pyarrow and Pillow alone, and imports point one way."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import fedforget
from fedforget.methods import METHODS

PACKAGE = Path(fedforget.__file__).parent
ALLOWED = ("torch", "numpy", "pyarrow", "PIL", "fedforget")
HOOK = """
import sys
from importlib.machinery import PathFinder

class Bare:
    '''A machine with nothing but the standard library, what is allowed, and what that itself stands on.'''

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or top in ALLOWED or top in NEEDED or top.startswith("_sysconfigdata")
        return PathFinder.find_spec(name, path, target) if known else None

ALLOWED, NEEDED = %(allowed)r, %(needed)r
sys.meta_path[sys.meta_path.index(PathFinder)] = Bare()
"""


def torch_needs() -> set[str]:
    """The modules of what the allowed packages themselves require: not ours to leave out."""
    todo, seen = ["torch", "numpy", "pyarrow", "pillow"], set()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name not in seen:
            seen.add(name)
            with contextlib.suppress(metadata.PackageNotFoundError):
                todo += [re.match(r"[\w.-]+", r).group() for r in metadata.requires(name) or () if "extra ==" not in r]  # type: ignore[union-attr]
    owners = metadata.packages_distributions().items()
    return {module for module, names in owners if {re.sub(r"[-_.]+", "-", n).lower() for n in names} & seen}


@pytest.fixture(scope="module")
def hook() -> str:
    return HOOK % {"allowed": ALLOWED, "needed": tuple(sorted(torch_needs() - set(OTHERS)))}


OTHERS = (
    "sklearn", "scipy", "safetensors", "typer", "click", "rich", "matplotlib", "jinja2", "markupsafe", "flwr",
    "sqlalchemy", "fastapi", "pandas", "hypothesis", "pytest",
)  # fmt: skip


def bare(hook: str, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", hook + code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.real
def test_the_hook_blocks(hook: str):
    """Or the tests below would show nothing."""
    code = """
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        print(name)
import torch
"""
    said = bare(hook, code, *OTHERS)
    assert said.stdout.split() == list(OTHERS), said.stderr


@pytest.mark.real
def test_the_numerics_import_on_a_bare_machine(hook: str):
    code = """
import fedforget
import fedforget.methods, fedforget.data, fedforget.federation, fedforget.audit, fedforget.experiments
import fedforget.audit.measures, fedforget.runs.audit, fedforget.federation.local
bad = sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:]))
assert not bad, bad
print("imported")
"""
    said = bare(hook, code, *OTHERS)
    assert (said.returncode, said.stdout) == (0, "imported\n"), said.stderr


@pytest.mark.real
def test_the_experiments_run_on_a_bare_machine(hook: str):
    said = bare(hook, "import runpy; runpy.run_module('fedforget.experiments', run_name='__main__')", "--help")
    assert said.returncode == 0, said.stderr
    assert "usage: " in said.stdout


@pytest.mark.real
def test_the_numerics_run_on_a_bare_machine(hook: str):
    """Train, forget and measure on arrays of one's own; the digits say what they lack."""
    code = """
import torch
from fedforget import *
generator = torch.Generator().manual_seed(0)
x, y = torch.randn(60, 1, 5, 5, generator=generator), torch.arange(60) % 3
data = from_arrays(x, y, x[:9], y[:9])
model = build_model("cnn", data.shape, 3, seed=0)
federation = LocalFederation(data, partition("iid", data.train.labels, 2, 0), model)
schedule = Schedule(rounds=1, threads=1)
history = MemoryHistory()
before = train(federation, state_of(model), schedule, history=history)
request = ErasureRequest.of_class(0, 1)
for method in METHODS:
    result = forget(federation, before, request, schedule, method, history=history)
    measure(federation, result.state, [request], data.test)
try:
    load_dataset("digits")
except InputError as error:
    print(error)
"""
    said = bare(hook, code)
    assert said.returncode == 0, said.stderr
    assert said.stdout == (
        "The data set 'digits' comes with scikit-learn, which is not installed; pip install scikit-learn.\n"
    )


@pytest.mark.real
def test_an_experiment_runs_on_a_bare_machine(hook: str, tmp_path: Path):
    """With data of one's own in the place of the digits, which come with scikit-learn."""
    code = """
import torch
from fedforget import from_arrays
from fedforget.experiments import scenario
from fedforget.experiments.__main__ import main
x, y = torch.randint(0, 255, (120, 1, 8, 8), dtype=torch.uint8), torch.arange(120) % 10
scenario.load_dataset = lambda name: from_arrays(x, y, x[:20], y[:20])
main()
"""
    words = ("reproduce", "time", "--quick", "--methods", "retrain,fedaf-c", "--threads", "1", "--out", str(tmp_path))
    said = bare(hook, code, *words)
    assert said.returncode == 0, said.stderr
    assert "Running time of unlearning one class of one client" in said.stdout
    assert "left" in said.stderr, "the time left, in plain lines"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".json", ".jsonl", ".md", ".tex"]


# Which room may import which: the picture in CONTRIBUTING.md, "Direction".

LAYERS = (
    ("errors",), ("seeds",), ("params",), ("models",), ("requests",), ("data",), ("federation",), ("methods",),
    ("audit",), ("runs",), ("report", "experiments"), ("flower",), ("ledger",), ("console",), ("cli",), ("__main__",),
)  # fmt: skip
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
NOT_YET = {("runs/audit.py", "report")}
"""Imports that go up, and are still to be turned round."""


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every fedforget module that a file imports, also inside functions, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name.startswith("fedforget"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by a relative name"
            if node.module == "fedforget":
                yield from ((f"fedforget.{alias.name}", node.lineno) for alias in node.names)
            elif node.module and node.module.startswith("fedforget."):
                yield node.module, node.lineno


SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = {name: name.partition("/")[0].removesuffix(".py") for name in SOURCES if name != "__init__.py"}


def test_every_room_has_a_layer():
    assert set(ROOMS.values()) == HEIGHT.keys(), "a new room needs its place in LAYERS"


def test_the_root_has_the_foundation_and_nothing_else():
    assert len(list(PACKAGE.glob("*.py"))) <= 7


@pytest.mark.parametrize("name", ROOMS)
def test_imports_point_one_way(name: str):
    """The package's own list of public names may import everything, and nobody imports it."""
    own, allowed = ROOMS[name], {room for file, room in NOT_YET if file == name}
    for module, line in imports(SOURCES[name]):
        room = part_of(module)
        assert room, f"{name}:{line} imports the package's list of names; import from where a thing is made"
        if room != own and room not in allowed:
            assert HEIGHT[room] < HEIGHT[own], f"{name}:{line}: {own} must not import {room}"
            assert (own, room) != ("data", "models"), f"{name}:{line}: data must not import models"


@pytest.mark.parametrize("name", [name for name in ROOMS if ROOMS[name] == "flower"])
def test_flower_names_no_algorithm(name: str):
    """It knows the table of methods, and of every task what its class declares."""
    inside = [module for module, _ in imports(SOURCES[name]) if module.startswith("fedforget.methods.")]
    assert inside == [], "a task says what it needs and returns, and a method's row lists its tasks"
    words = [node.value for node in ast.walk(ast.parse(SOURCES[name].read_text())) if isinstance(node, ast.Constant)]
    assert not set(METHODS) & {word for word in words if isinstance(word, str)}


@pytest.mark.parametrize(("name", "room"), sorted(NOT_YET))
def test_what_is_not_yet_turned_round_is_still_there(name: str, room: str):
    assert room in {part_of(module) for module, _ in imports(SOURCES[name])}, "take it out of NOT_YET"


def test_the_picture_in_contributing_is_this_order():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text().partition("**Direction.**")[2]
    drawn = [line[6:40] for line in text.splitlines() if line.startswith("      ")][: len(LAYERS) - 1]
    assert [tuple(re.split(r" \| ", line.strip())) for line in drawn] == [*reversed(LAYERS[:-1])]


def test_the_checker_sees_a_wrong_import(tmp_path: Path):
    wrong = tmp_path / "x.py"
    wrong.write_text("def f():\n    from fedforget.runs.train import train_run\n    import fedforget.cli\n")
    assert sorted(imports(wrong)) == [("fedforget.cli", 3), ("fedforget.runs.train", 2)]


@pytest.mark.parametrize("folder", ["methods", "data", "federation", "audit", "experiments"])
def test_the_numerics_name_no_other_library_at_the_top(folder: str):
    """A part that needs more imports it where it is used, and says so where it is missing."""
    allowed = {*ALLOWED, *sys.stdlib_module_names}
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed, path
