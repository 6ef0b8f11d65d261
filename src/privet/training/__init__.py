"""Training: the loop, what is checked before it begins, and the directory that it keeps."""

from privet.training.directory import read_plan
from privet.training.loop import Step, Training

__all__ = ["Step", "Training", "read_plan"]
