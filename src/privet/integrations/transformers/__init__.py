"""Private training in the loop of transformers' `Trainer` (extra `transformers`)."""

from privet.integrations.transformers.trainer import PrivateTrainer, PrivateTrainerMixin

__all__ = ["PrivateTrainer", "PrivateTrainerMixin"]
