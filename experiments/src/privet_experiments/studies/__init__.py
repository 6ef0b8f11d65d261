"""Studies of the effect of clipping, noise and masks on gradients. NOT PRIVATE: all results are marked as such."""

from privet_experiments.studies.displays import (
    DeviationDisplay,
    NormDisplay,
    SimilarityDisplay,
    SparsificationDisplay,
    TrendDisplay,
    WeightDisplay,
)
from privet_experiments.studies.gradients import Observation, observe
from privet_experiments.studies.marking import WARNING, NonPrivate
from privet_experiments.studies.mechanism import Mechanism
from privet_experiments.studies.sparsity import SparsificationEffect, sparsification_effect
from privet_experiments.studies.study import FILE, Study, read_observations
from privet_experiments.studies.symmetry import Deviations, deviations

__all__ = [
    "FILE",
    "WARNING",
    "DeviationDisplay",
    "Deviations",
    "Mechanism",
    "NonPrivate",
    "NormDisplay",
    "Observation",
    "SimilarityDisplay",
    "SparsificationDisplay",
    "SparsificationEffect",
    "Study",
    "TrendDisplay",
    "WeightDisplay",
    "deviations",
    "observe",
    "read_observations",
    "sparsification_effect",
]
