"""What the paper has not. Each is called in one line of `method.py` or of `forgetting.py`."""
