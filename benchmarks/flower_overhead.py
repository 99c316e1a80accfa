"""`python -m benchmarks.flower_overhead`: a request on Flower against the same request in one process.

One machine, TLS and node keys on (examples/deploy), four sites with their own .npz files. Prints a table and writes
benchmarks/flower_overhead.json. A task that does nothing and carries nothing tells what a message costs by itself:
Flower starts a process for each message at a node, which imports everything and reads the site's file, and both sides
poll."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedforget.data import Dataset, load_dataset
from fedforget.data.samples import Samples
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import train
from fedforget.flower.app.settings import AppSettings
from fedforget.methods import forget
from fedforget.params import digest, state_of
from fedforget.runs.store import save_model, write_sealed

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "flower_app"), str(HERE.parent / "examples" / "deploy")]
from recorded import Recorded  # noqa: E402 (part of an app, not of a package)
from three_sites import deployment  # noqa: E402

SITES = 4
CASES = {
    "digits, CNN": {"source": "digits", "samples": 1_437, "model": "cnn", "rounds": 2},
    "MNIST, CNN": {"source": "mnist", "samples": 60_000, "model": "cnn", "rounds": 2},
    "CIFAR-10 (400 images), ResNet-10": {"source": "cifar10", "samples": 400, "model": "resnet10", "rounds": 2},
}


def measure(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The figures of one case; everything is made in `folder`."""
    dataset = load_dataset(case["source"]).first(case["samples"], 500)
    config = {"dataset": save_npz(folder / "server.npz", dataset.train, dataset.test), "model": case["model"]}
    config |= {"clients": SITES, "classes": 10, "threads": 1, "request-client": 0, "request-class": 3}
    settings = AppSettings.read(config)
    assert settings.request is not None
    own = settings.run.load_dataset()
    federation, files = sites(own, settings, folder)
    schedule = settings.run.schedule
    trained = train(federation, state_of(federation.model), replace(schedule, rounds=case["rounds"]))

    forget(
        federation, trained, settings.request, schedule, "overwrite"
    )  # the first one pays for what later ones find warm
    recorded = Recorded(federation)
    start = time.perf_counter()
    local = forget(recorded, trained, settings.request, schedule, "overwrite")
    seconds = time.perf_counter() - start

    flower = {}
    for way in ("fresh", "warm"):
        with deployment(folder / way, SITES, data=files, warm=way == "warm") as machines:
            out = folder / way / "server" / "run"
            out.mkdir(parents=True)
            write_sealed(out / "trained.json", {"sha256": save_model(out / "trained.safetensors", trained)})
            flower[way] = machines.serve({**config, "out": str(out)}, app=HERE / "flower_app")
    return {
        "in_process": {"seconds": seconds, "bytes": local.cost.bytes, "asks": recorded.asks},
        "flower": flower,
        "node_start_seconds": node_start_seconds(config, files[0]),
        "same_digest": all(told["digest"] == digest(local.state) for told in flower.values()),
    }


def sites(dataset: Dataset, settings: AppSettings, folder: Path) -> tuple[LocalFederation, list[str]]:
    """The four sites as a federation in this process, and their files."""
    parts = torch.arange(len(dataset.train)).chunk(SITES)
    files = []
    for k, part in enumerate(parts):
        mine = dataset.train.select(part)
        files.append(save_npz(folder / f"site-{k}.npz", mine, mine.select(torch.arange(1))))
    return LocalFederation(dataset, parts, settings.run.build_model(dataset)), files


def save_npz(file: Path, train: Samples, test: Samples) -> str:
    np.savez(file, x_train=train.features, y_train=train.labels, x_test=test.features, y_test=test.labels)
    return str(file)


def node_start_seconds(config: dict[str, Any], file: str, repeats: int = 3) -> float:
    """A node's process alone, without Flower: import everything, read the site's file, make the model."""
    code = (
        "import json, sys; from types import SimpleNamespace as Context; from fedforget.flower.app.apps import "
        "load_own_client; load_own_client(Context(run_config=json.loads(sys.argv[1]), "
        "node_config={'partition-id': 0, 'data': sys.argv[2]}))"
    )
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, json.dumps(config), file], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def table(name: str, told: dict[str, Any]) -> list[str]:
    """One case in lines for people."""
    local = told["in_process"]
    lines = [f"{name}: {local['seconds']:.2f} s in one process, {len(local['asks'])} steps"]
    for way, flower in told["flower"].items():
        one = statistics.median(flower["empty_message_to_one_seconds"])
        every = statistics.median(flower["empty_message_to_all_seconds"])
        own = flower["seconds"] - local["seconds"]
        polled = flower["idle_bytes_per_second"] * flower["seconds"]
        lines += [
            f"  {way}: {flower['seconds']:.1f} s on Flower, {100 * own / flower['seconds']:.0f} % of them its own; "
            f"{flower['messages']} messages in {flower['steps']} steps",
            f"    a message that does nothing takes {one:.2f} s to one node and {every:.2f} s to {SITES} at once; "
            f"the request took {flower['seconds'] / every:.1f} such rounds",
            f"    {local['bytes'] / 1e6:.2f} MB of models and numbers, {flower['loopback_bytes'] / 1e6:.2f} MB on the "
            f"wire; {polled / 1e6:.2f} MB are what an idle federation sends in that time",
        ]
    return [*lines, f"  to start a node's process and read its data takes {told['node_start_seconds']:.2f} s"]


def main() -> None:
    """Every case, or the ones whose names hold a word of the command line; each is written down when it is done."""
    path = HERE / "flower_overhead.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    for name, case in CASES.items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = measure(case, Path(folder))
        print("\n".join(table(name, figures[name])), flush=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
