"""How long a training is, in passes over the data."""

from __future__ import annotations

from dataclasses import dataclass

from privet.errors import positive


@dataclass(frozen=True)
class Epochs:
    """A training length in passes over the data: ⌊epochs · examples / batch size⌋ steps, as the sampling scheme counts them.

    Args:
        epochs: > 0; an epoch is what sees every example once, in expectation or, for schemes with epochs, exactly.
    """

    epochs: float

    def __post_init__(self) -> None:
        positive("steps.epochs", self.epochs)


def epochs(number: float) -> Epochs:
    """Return a training length of `number` epochs, for `Plan(steps=...)`."""
    return Epochs(number)
