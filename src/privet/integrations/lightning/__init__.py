"""Private training in the loop of Lightning's `Trainer` (extra `lightning`)."""

from privet.integrations.lightning.module import PrivateModule

__all__ = ["PrivateModule"]
