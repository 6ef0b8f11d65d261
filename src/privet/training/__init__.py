"""Training: the loop, what is checked before it begins, and the directory that it keeps."""

from privet.training.directory import holds_run, read_plan
from privet.training.observation.callbacks import Callback
from privet.training.observation.steps import Step
from privet.training.options import Reading, Storage
from privet.training.training import Training

__all__ = ["Callback", "Reading", "Step", "Storage", "Training", "holds_run", "read_plan"]
