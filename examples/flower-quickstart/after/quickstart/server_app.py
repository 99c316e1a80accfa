"""The server's side."""

import torch
from fedforget.flower.strategy import Forget
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import Net, load_centralized_dataset
from quickstart.task import test as test_fn

# Flower ServerApp
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and save the model."""

    # Read from config
    config = context.run_config
    lr = config["learning-rate"]
    train_config = ConfigRecord({"lr": lr})

    # Load the global model
    torch.manual_seed(0)
    arrays = ArrayRecord(Net().state_dict())

    # Start the strategy, run FedAvg for `num-server-rounds`
    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])
    forget = Forget(strategy, Net, rounds=config["num-server-rounds"], lr=lr, epochs=2, batch_size=32, threads=1)
    forget.request(partition=0, label=3)
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=train_config,
        num_rounds=config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    result = forget.start(grid, result.arrays, num_rounds=2, train_config=train_config, evaluate_fn=global_evaluate)

    # Save the final model to disk
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
    forget.check_served()


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on the server's test set."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy, by_class = test_fn(model, load_centralized_dataset(), torch.device("cpu"))
    return MetricRecord({"loss": loss, "accuracy": accuracy, "accuracy_of_class": by_class})
