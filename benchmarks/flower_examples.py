"""`python -m benchmarks.flower_examples EXAMPLES WORK`: Flower's own examples, with ten lines more, forget.

EXAMPLES is the folder `examples` of a copy of Flower's repository, which stays as it is. WORK takes what is made: the
data, the apps with the added lines, the runs. The data are CIFAR-10 or MNIST in the form of the examples' own, at two
sites. Honest: site 0 alone has the class that it withdraws. Poisoned: all that site 0 has of a class is false, images
of another class with a patch. `--engine none` is Retrain: the example without the lines, on data without the target.
Prints a line of docs/results/flower-examples.md. It needs flwr-datasets and torchvision beside `fedforget[flower]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from fedforget.data import load_dataset
from fedforget.params import State
from fedforget.runs.folder import Run
from fedforget.runs.forget import results_of

HERE = Path(__file__).parents[1]
sys.path += [str(HERE / "tests" / "reference"), str(HERE / "examples" / "deploy")]
from flower_processes import processes  # noqa: E402 (a part of the tests)
from three_sites import CONNECTION, config_words, deployment  # noqa: E402

LATER = 2
SITES = (0, 0, 0, 1)
"""Whose every fourth image is: site 0 has three quarters."""
PATCH = (slice(2, 6), slice(12, 16))
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
QUIET = {
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "WANDB_MODE": "disabled",
}
LOADING = {
    "flwr_datasets.partitioner import ": "flwr_datasets.partitioner import NaturalIdPartitioner, ",
    'partitioners={"train": partitioner}': 'partitioners={"train": NaturalIdPartitioner(partition_by="site")}',
}
"""What is replaced in the data loading of every example: who has what is a column of the stand-in."""


@dataclass(frozen=True)
class Example:
    """What stands in for the data of one of Flower's examples, and the lines that are added and changed."""

    package: str
    dataset: str
    named: str
    """The data set as the example names it."""
    image: str
    """The entry of a sample that holds its image."""
    images: int
    scale: tuple[float, float]
    """Mean and deviation by which the example prepares images."""
    config: Mapping[str, Any]
    added: Mapping[str, Mapping[str, str]]
    """By file: what is added after which line of the example's."""
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    loading: Mapping[str, str] = field(default_factory=dict)
    honest: int = 1
    poison: tuple[int, int] = (3, 9)
    """Images of the first class get the patch and the second one's label."""

    @property
    def rounds(self) -> int:
        return int(self.config["num-server-rounds"])


EXAMPLES = {
    "quickstart-pytorch": Example(
        package="pytorchexample", dataset="cifar10", named="uoft-cs/cifar10", image="img", images=6000,
        scale=(0.5, 0.5), config={"num-server-rounds": 8, "learning-rate": 0.02, "fraction-evaluate": 0.0},
        added={
            "pyproject.toml": {
                '    "flwr[simulation]>=1.27.0",': '    "fedforget[flower]",',
                "batch-size = 32": 'state-dir = "node-state"',
            },
            "client_app.py": {
                "import torch": "from fedforget.flower.attach import attach, retained",
                "app = ClientApp()": "attach(app, Net, lambda ctx: load_data("
                'ctx.node_config["partition-id"], ctx.node_config["num-partitions"], 32))',
                "    trainloader, _ = load_data(partition_id, num_partitions, batch_size)":
                "    trainloader = retained(context, trainloader)",
            },
            "server_app.py": {
                "import torch": "from fedforget.flower.strategy import Forget",
                "    strategy = FedAvg(fraction_evaluate=fraction_evaluate)":
                "    forget = Forget(strategy, Net, rounds=num_rounds, lr=lr, batch_size=32, threads=1, "
                'folder="forgetting")',
                "    # Start strategy, run FedAvg for `num_rounds`": "    forget.request(partition=0, label=LABEL)",
                "    # Save final model to disk": "    result = forget.start(grid, result.arrays, 2, "
                'train_config=ConfigRecord({"lr": lr}), evaluate_fn=global_evaluate)',
                '    torch.save(state_dict, "final_model.pt")': "    forget.check_served()",
            },
        },
    ),
    "advanced-pytorch": Example(
        package="pytorch_example", dataset="mnist", named="zalando-datasets/fashion_mnist", image="image",
        images=4000, scale=(0.1307, 0.3081), config={"num-server-rounds": 5, "fraction-evaluate": 0.0},
        added={
            "pyproject.toml": {
                '    "flwr[simulation]>=1.27.0",': '    "fedforget[flower]",',
                'server-device = "cpu"': 'state-dir = "node-state"',
            },
            "client_app.py": {
                "import torch": "from fedforget.flower.attach import attach, retained",
                "app = ClientApp()": "attach(app, Net, lambda ctx: load_data("
                'ctx.node_config["partition-id"], ctx.node_config["num-partitions"]), features="image")',
                "    trainloader, _ = load_data(partition_id, num_partitions)":
                '    trainloader = retained(context, trainloader, features="image")',
            },
            "server_app.py": {
                "import torch": "from fedforget.flower.strategy import Forget",
                "    # Define directory for results and save config":
                "    forget = Forget(strategy, Net, rounds=num_rounds, lr=0.02, batch_size=32, threads=1, "
                'folder="forgetting")',
                "    # Start strategy, run FedAvg for `num_rounds`": "    forget.request(partition=0, label=LABEL)",
                "    # Save final model to disk": "    result = forget.start(grid, result.arrays, 2, "
                'train_config=ConfigRecord({"lr": 0.02}), evaluate_fn=get_global_evaluate_fn(device=device))',
                '    torch.save(state_dict, "final_model.pt")': "    forget.check_served()",
            },
        },
        changed={
            "server_app.py": {
                '        train_config=ConfigRecord({"lr": 0.1}),': '        train_config=ConfigRecord({"lr": 0.02}),'
            }
        },
        loading={"from flwr.common.typing import UserConfig": "from flwr.app.user_config import UserConfig"},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The stand-in: what the two sites have, and where the target lies."""

    images: np.ndarray
    labels: np.ndarray
    site: np.ndarray
    target: np.ndarray
    """Which of the images site 0 withdraws."""
    label: int
    test_images: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def of(cls, example: Example, poison: bool) -> Data:
        dataset = load_dataset(example.dataset)
        count = example.images
        images, labels = dataset.train.features[:count].numpy().copy(), dataset.train.labels[:count].numpy().copy()
        site = np.array(SITES)[np.arange(count) % len(SITES)]
        if poison:
            true, label = example.poison
            site[labels == label] = 1
            target = (site == 0) & (labels == true)
            labels[target] = label
            for place in target.nonzero()[0]:
                images[place][(slice(None), *PATCH)] = 255
        else:
            label = example.honest
            target = labels == label
            site[target] = 0
        tested = 2000
        return cls(
            images, labels, site, target, label,
            dataset.test.features[:tested].numpy(), dataset.test.labels[:tested].numpy(),
        )  # fmt: skip

    def write(self, folder: Path, image: str, never: bool) -> None:
        """As a data set of Hugging Face's; with `never`, without the target."""
        folder.mkdir(parents=True)
        kept = ~self.target if never else np.ones(len(self.labels), dtype=bool)
        train = {"label": self.labels[kept], "site": self.site[kept]}
        tested = {"label": self.test_labels, "site": self.test_labels}
        for name, images, columns in (("train", self.images[kept], train), ("test", self.test_images, tested)):
            pictures = pa.array([{"bytes": png(one), "path": None} for one in images], PICTURE)
            table = pa.table({image: pictures, **{key: pa.array(values) for key, values in columns.items()}})
            kinds = {key: {"dtype": "int64", "_type": "Value"} for key in columns} | {image: {"_type": "Image"}}
            about = {"huggingface": json.dumps({"info": {"features": kinds}})}
            pq.write_table(table.replace_schema_metadata(about), folder / f"{name}.parquet")

    def figures(self, net: torch.nn.Module, state: State, scale: tuple[float, float]) -> str:
        """In percent: the share of the target that gets the label it was trained with, and the test accuracy."""
        net.load_state_dict(state)
        net.eval()

        def right(images: np.ndarray, labels: np.ndarray) -> float:
            with torch.no_grad():
                x = (torch.tensor(images).float() / 255 - scale[0]) / scale[1]
                return 100 * float((net(x).argmax(1) == torch.tensor(labels)).float().mean())

        target = right(self.images[self.target], self.labels[self.target])
        return f"{target:.1f} / {right(self.test_images, self.test_labels):.1f}"


def png(image: np.ndarray) -> bytes:
    buffer = BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def make_app(source: Path, app: Path, example: Example, data: Path, label: int | None) -> None:
    """A copy of the example on the stand-in's data; with a `label`, with the added lines."""
    shutil.copytree(source, app)
    (app / "wandb.py").write_text("def init(**words): ...\ndef log(*words, **more): ...\n")
    for path in sorted(app.rglob("*.py")):
        for was, now in {**LOADING, **example.loading, f'"{example.named}"': f'"{data}"'}.items():
            path.write_text(path.read_text().replace(was, now))
    for name, changes in example.changed.items():
        path = app / example.package / name
        for was, now in changes.items():
            assert path.read_text().count(was) == 1, (name, was)
            path.write_text(path.read_text().replace(was, now))
    for name, additions in example.added.items() if label is not None else ():
        path = app / name if name.endswith("toml") else app / example.package / name
        text = path.read_text()
        for after, line in additions.items():
            assert text.count(f"\n{after}\n") == 1, (name, after)
            text = text.replace(f"\n{after}\n", f"\n{after}\n{line.replace('LABEL', str(label))}\n")
        path.write_text(text)


def run_simulated(app: Path, folder: Path, config: Mapping[str, Any]) -> Path:
    """`flwr run` on a SuperLink that simulates the sites; where it left what it made."""
    with processes(folder) as flower:
        words = flower.start_simulation(2)
        run = flower.start("run", "flwr", "run", app, "there", "--stream", "--run-config", config_words(config), *words)
        run.wait(timeout=3000)
    return folder


def run_deployed(app: Path, folder: Path, config: Mapping[str, Any]) -> Path:
    """`flwr run` on a SuperLink with TLS and two SuperNodes with keys."""
    with deployment(folder, 2, warm=True) as federation:
        operator = federation.machine("operator")
        words = ("flwr", "run", app, CONNECTION, "--stream", "--run-config", config_words(config))
        federation._start(operator, *words).wait(timeout=3000)
    shutil.copy(operator / "log", folder / "server" / "run.log")
    return folder / "server"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path)
    parser.add_argument("work", type=Path, help="a folder for everything that is made")
    parser.add_argument("--example", choices=sorted(EXAMPLES), default="quickstart-pytorch")
    parser.add_argument("--target", choices=("honest", "poisoned"), default="honest")
    parser.add_argument("--engine", choices=("simulation", "superlink", "none"), default="simulation")
    parser.add_argument("--rounds", type=int, help="how many to train, where the example's own row has others")
    given = parser.parse_args()
    name = f"{given.example}-{given.target}-{given.engine}"
    example, folder = EXAMPLES[given.example], given.work.resolve() / name
    shutil.rmtree(folder, ignore_errors=True)
    data, never = Data.of(example, given.target == "poisoned"), given.engine == "none"
    data.write(folder / "data", example.image, never)
    make_app(given.examples / given.example, folder / "app", example, folder / "data", None if never else data.label)
    os.environ.update(QUIET, HF_HOME=str(folder / "cache"), HF_DATASETS_CACHE=str(folder / "cache"))
    config = {**example.config, "num-server-rounds": (given.rounds or example.rounds) + (LATER if never else 0)}
    began = time.perf_counter()
    run = run_deployed if given.engine == "superlink" else run_simulated
    made = run(folder / "app", folder / "run", config)
    seconds = time.perf_counter() - began
    sys.path.insert(0, str(folder / "app"))
    net = importlib.import_module(f"{example.package}.task").Net()
    later = data.figures(net, torch.load(made / "final_model.pt"), example.scale)
    if never:
        print(f"| {given.example} | {given.target} | Retrain | {later} | {seconds:.0f} s |")
        return
    record = Run(made / "forgetting")
    ((where, result),) = results_of(record).items()
    before = data.figures(net, record.load_trunk(result.before), example.scale)
    after = data.figures(net, result.load_model(where), example.scale)
    told = re.findall(r"class \d+ of client 0: (Ended at .*)", (made / "run.log").read_text(errors="replace"))
    print(
        f"| {given.example} | {given.target} | {given.engine} | {before} | {after} | {later} | "
        f"{told[-1] if told else result.notes} | {seconds:.0f} s |"
    )


if __name__ == "__main__":
    main()
