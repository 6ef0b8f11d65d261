"""Training: the loop, what is checked before it begins, and the directory that it keeps."""

from privet.training.directory import read_plan
from privet.training.loop import Training
from privet.training.options import Reading, Storage
from privet.training.progress import Step

__all__ = ["Reading", "Step", "Storage", "Training", "read_plan"]
