"""The built wheel, installed into an empty environment: the command works there, and nothing is missing from it."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[1]


def run(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False, timeout=240,
        env=clean | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"} | more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built here without any network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        ROOT,
        cwd=folder,
    )
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("fedforget-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it; its dependencies are this environment's, seen through a .pth file."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    installed = run(
        sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel,
        cwd=folder.parent,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    packages = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))",
                        cwd=folder.parent).stdout.strip())  # fmt: skip
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    packages.joinpath("dependencies.pth").write_text("\n".join(sorted(ours)) + "\n")
    return interpreter


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fedforget"}
    packed = {name for name in names if name.startswith("fedforget/")}
    source = {
        f"fedforget/{path.relative_to(ROOT / 'src' / 'fedforget')}"
        for path in (ROOT / "src" / "fedforget").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == source, "also the templates and py.typed"
    assert "fedforget/report/templates/report.html.j2" in packed
    assert "fedforget/py.typed" in packed
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_package_comes_from_the_wheel(python: Path, tmp_path: Path):
    said = run(python, "-c", "import fedforget; print(fedforget.__file__, fedforget.__version__)", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    where, version = said.stdout.split()
    assert Path(where).resolve().is_relative_to(python.parents[1].resolve())
    assert version == metadata.version("fedforget")


def test_the_command_is_there(python: Path, tmp_path: Path):
    said = run(python.parent / "fedforget", "--help", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "show that it did" in said.stdout


@pytest.mark.slow
def test_train_forget_and_audit_there(python: Path, tmp_path: Path):
    command = python.parent / "fedforget"
    small = ("--clients", "3", "--rounds", "2", "--lr", "0.05", "--batch-size", "16", "--threads", "1")
    steps = [
        ("train", *small, "--train-limit", "200", "--backdoor", "client=0,class=3", "--out", "run", "--json"),
        ("forget", "run", "--client", "0", "--class", "3", "--json"),
        ("audit", "run", "--json"),
    ]
    for words in steps:
        said = run(command, *words, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert said.stderr == ""
        result = json.loads(said.stdout)
    assert [row["method"] for row in result["rows"]] == ["before", "retrain", "ladder"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<html" in page
    assert "class 3 of client 0" in page


def test_every_requirement_is_met_by_what_is_installed(wheel: Path):
    """The versions the tests run with are the ones the wheel asks for; nothing that is imported goes unnamed."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    requirements = re.findall(r"^Requires-Dist: (.+)$", text, re.MULTILINE)
    plain = [r for r in requirements if "extra ==" not in r]
    assert len(plain) >= 8
    for requirement in plain:
        name, limits = re.fullmatch(r"([A-Za-z0-9_.-]+)\s*(.*)", requirement).groups()  # type: ignore[union-attr]
        version = as_numbers(metadata.version(name))
        for limit in filter(None, re.split(r"\s*,\s*", limits.strip("() "))):
            sign, bound = re.fullmatch(r"(>=|<=|==|!=|<|>|~=)\s*([0-9.]+)", limit).groups()  # type: ignore[union-attr]
            assert meets(version, sign, as_numbers(bound)), f"{name} {version} does not meet {limit}"
    named = {re.match(r"[A-Za-z0-9_.-]+", r).group().lower() for r in plain}  # type: ignore[union-attr]
    assert named == {
        "torch", "numpy", "pyarrow", "pillow", "scikit-learn", "safetensors", "matplotlib", "jinja2", "typer", "rich",
        "click",  # not imported: only bounded, for typer
    }  # fmt: skip


def as_numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    assert release is not None
    return tuple(int(part) for part in release.group().split("."))


def meets(version: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    width = max(len(version), len(bound))
    left, right = (v + (0,) * (width - len(v)) for v in (version, bound))
    if sign == "~=":
        return left >= right and version[: len(bound) - 1] == bound[:-1]
    return {
        ">=": left >= right, "<=": left <= right, "==": left == right, "!=": left != right,
        "<": left < right, ">": left > right,
    }[sign]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "sign", "bound", "good"),
    [
        ("2.13.0+cpu", ">=", "2.7", True), ("0.21.0", "<", "0.21", False), ("0.20.1", "<", "0.21", True),
        ("1.9", ">=", "1.26", False), ("1.4.2", "~=", "1.4", True), ("2.0", "~=", "1.4", False),
    ],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version: str, sign: str, bound: str, good: bool):
    assert meets(as_numbers(version), sign, as_numbers(bound)) is good
