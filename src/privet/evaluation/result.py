"""What an evaluation found, as a value that survives a trip through JSON unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from privet.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A classifier's results on a set of examples.

    Args:
        accuracy: share of examples whose largest output is at their label, in [0, 1].
        negative_log_likelihood: mean of −ln p(label), in nats; infinite or NaN where the model's outputs are.
        confusion: confusion[i][j] examples of class i were taken for class j; square.
        examples: how many examples were evaluated, at least 1.

    Raises:
        InvalidArgumentError: the confusion matrix is not square or does not add up to `examples`.
    """

    accuracy: float
    negative_log_likelihood: float
    confusion: tuple[tuple[int, ...], ...]
    examples: int

    def __post_init__(self) -> None:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            shape = [len(row) for row in self.confusion]
            raise InvalidArgumentError("confusion", shape, "square: as many columns in every row as there are rows")
        if sum(map(sum, self.confusion)) != self.examples:
            raise InvalidArgumentError("examples", self.examples, "the sum of the confusion matrix")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that standard JSON can hold; `from_dict` gives back an equal evaluation."""
        loss = self.negative_log_likelihood
        # Standard JSON has no infinities, so those are spelled as words, which float() reads back.
        return asdict(self) | {
            "negative_log_likelihood": loss if math.isfinite(loss) else str(loss),
            "confusion": [list(row) for row in self.confusion],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the evaluation that `to_dict` described.

        Args:
            values: the dictionary, straight from `to_dict` or through JSON.

        Raises:
            InvalidArgumentError: a field is missing, or the fields contradict each other.
        """
        missing = [field.name for field in fields(cls) if field.name not in values]
        if missing:
            raise InvalidArgumentError("values", sorted(values), "a dictionary that also has " + ", ".join(missing))
        return cls(
            accuracy=float(values["accuracy"]),
            negative_log_likelihood=float(values["negative_log_likelihood"]),
            confusion=tuple(tuple(int(cell) for cell in row) for row in values["confusion"]),
            examples=int(values["examples"]),
        )
