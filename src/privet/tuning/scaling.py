"""The scaling rule: settings that add the same noise to the parameters, and so are worth trying together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from privet.errors import InvalidArgumentError, choice, positive, real


@dataclass(frozen=True)
class Setting:
    """The hyperparameters that determine the noise on the parameters.

    Args:
        learning_rate: η > 0.
        bound: clip bound C > 0.
        momentum: µ in [0, 1), of SGD; the decay of the first moment, for Adam.
        noise_multiplier: σ > 0.
    """

    learning_rate: float
    bound: float
    momentum: float = 0.0
    noise_multiplier: float = 1.0

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        positive("bound", self.bound)
        positive("noise_multiplier", self.noise_multiplier)
        if not 0 <= real("momentum", self.momentum) < 1:
            raise InvalidArgumentError("momentum", self.momentum, "at least 0 and below 1", "0.9 is usual.")

    @property
    def noise(self) -> float:
        """η·C·σ/(1−µ): times √(number of past steps)/B, this is the noise that SGD adds to a parameter."""
        return self.learning_rate * self.bound * self.noise_multiplier / (1 - self.momentum)


def diagonal(
    base: Setting,
    *,
    bounds: Sequence[float] = (),
    momenta: Sequence[float] = (),
    noise_multipliers: Sequence[float] = (),
    optimizer: str = "sgd",
) -> tuple[Setting, ...]:
    """Return the settings that are equivalent to a known one by the scaling rule, for every combination of the arguments.

    For SGD, η·C·σ/(1−µ) stays constant: the best settings of every row and column of a grid lie on such a diagonal, so a search
    in two dimensions reduces to one along a line (vary only η at a fixed C) and one along the diagonal. For Adam, the best η does
    not depend on C and stays constant. Choosing among the settings by results on private data costs privacy; see `search`.

    Args:
        base: a setting known to be good for its bound, for example from a search over learning rates.
        bounds, momenta, noise_multipliers: other values; by default the base's.
        optimizer: "sgd" or "adam".

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", App. H.

    >>> for setting in diagonal(Setting(0.5, bound=1.0, momentum=0.5), bounds=(0.1, 1.0), momenta=(0.5, 0.9)):
    ...     print(f"C={setting.bound:g} µ={setting.momentum:g}: η={setting.learning_rate:g}")
    C=0.1 µ=0.5: η=5
    C=0.1 µ=0.9: η=1
    C=1 µ=0.5: η=0.5
    C=1 µ=0.9: η=0.1
    """
    choice("optimizer", optimizer, ("sgd", "adam"))
    combinations = product(bounds or (base.bound,), momenta or (base.momentum,), noise_multipliers or (base.noise_multiplier,))
    settings = (
        replace(base, bound=bound, momentum=momentum, noise_multiplier=multiplier) for bound, momentum, multiplier in combinations
    )
    if optimizer == "adam":  # it divides by the size of its input, noise included
        return tuple(settings)
    return tuple(replace(one, learning_rate=one.learning_rate * base.noise / one.noise) for one in settings)
