"""A Flower app: digits, PyTorch, FedAvg."""
