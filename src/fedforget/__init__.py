"""Make a federated model forget, and show that it did."""
