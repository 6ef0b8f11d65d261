"""Runs: trainings configured by name, each in a directory that is complete or marked as unfinished."""

from privet.runs.config import Setup
from privet.runs.run import Outcome, read_setup, resume, start
from privet.runs.tasks import scale_targets

__all__ = ["Outcome", "Setup", "read_setup", "resume", "scale_targets", "start"]
