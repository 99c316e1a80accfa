"""Somebody's own Flower app whose network has a ridge head: both its sides. Tests copy this file into an app folder."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.utils.data import TensorDataset

from fedforget.data import Dataset, load_dataset
from fedforget.data.files import write_json
from fedforget.data.partition import partition
from fedforget.federation.ridge import Ridge, random_ridge
from fedforget.flower.attach import attach
from fedforget.flower.strategy import Forget
from fedforget.params import digest

SITES, CLASS = 3, 3


def digits() -> Dataset:
    return load_dataset("digits").first(240, 60)


def head() -> Ridge:
    return random_ridge((1, 8, 8), 10, 48, 0)


def load_data(context: Context) -> TensorDataset:
    """What this site holds, as the network takes it."""
    data = digits()
    own = data.train.select(partition("iid", data.train.labels, SITES, 0)[int(context.node_config["partition-id"])])
    return TensorDataset(data.normalisation(own.features), own.labels)


client_app = ClientApp()
attach(client_app, head, load_data)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Solve the head, let site 0 withdraw a class, go on for a round; what came of it is in summary.json."""
    forget = Forget(FedAvg(min_available_nodes=SITES, fraction_evaluate=0.0), head, threads=1)
    before = forget.start(grid, ArrayRecord(head().state_dict()), num_rounds=1).arrays
    forget.request(partition=0, label=CLASS)
    after = forget.start(grid, before, num_rounds=1).arrays
    forget.check_served()
    told = {name: digest(arrays.to_torch_state_dict()) for name, arrays in (("before", before), ("after", after))}
    write_json(Path(str(context.run_config["out"])) / "summary.json", {**told, "exact": forget.served[0].exact})
