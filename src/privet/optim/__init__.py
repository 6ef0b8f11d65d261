"""Noise-aware optimizers (posterior sampling, Adam without the bias from the noise), and several optimizers as one.

Torch's optimizers need nothing from here: on noised gradients, each of them is post-processing.
"""

from privet.optim.adam import AdamBC
from privet.optim.combined import Combined
from privet.optim.coupling import coupled_learning_rate, scheduled_learning_rate
from privet.optim.langevin import SGLD, GaussianPrior, sgld_learning_rates, sgld_noise
from privet.optim.published import NAG, UncorrectedAdam

__all__ = [
    "NAG",
    "SGLD",
    "AdamBC",
    "Combined",
    "GaussianPrior",
    "UncorrectedAdam",
    "coupled_learning_rate",
    "scheduled_learning_rate",
    "sgld_learning_rates",
    "sgld_noise",
]
