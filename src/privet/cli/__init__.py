"""The command `privet`."""

from privet.cli.main import main

__all__ = ["main"]
