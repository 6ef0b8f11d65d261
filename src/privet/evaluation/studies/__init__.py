"""Studies of the effect of clipping, noise and masks on gradients. NOT PRIVATE: all results are marked as such."""

from privet.evaluation.studies.displays import (
    DeviationDisplay,
    NormDisplay,
    SimilarityDisplay,
    SparsificationDisplay,
    TrendDisplay,
    WeightDisplay,
)
from privet.evaluation.studies.gradients import Observation, observe
from privet.evaluation.studies.marking import WARNING, NonPrivate
from privet.evaluation.studies.mechanism import Mechanism
from privet.evaluation.studies.sparsity import SparsificationEffect, sparsification_effect
from privet.evaluation.studies.study import FILE, Study, read_observations
from privet.evaluation.studies.symmetry import Deviations, deviations

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
