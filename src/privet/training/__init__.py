"""Training: the loop, what is checked before it begins, and the directory that it keeps."""

from privet.training.callbacks import Callback, Step
from privet.training.directory import Storage, holds_run, read_plan
from privet.training.draws import Reading
from privet.training.training import Training

__all__ = ["Callback", "Reading", "Step", "Storage", "Training", "holds_run", "read_plan"]
