"""The command line: one file for each command."""

from fedforget.cli.app import main

__all__ = ["main"]
