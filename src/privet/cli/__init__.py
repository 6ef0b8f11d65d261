"""The `privet` command."""

from privet.cli.main import main

__all__ = ["main"]
