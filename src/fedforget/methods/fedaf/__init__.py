"""FedAF, the paper's method and our first rung: begin at `method.py`."""
