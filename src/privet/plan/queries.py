"""Queries: noisy answers about the data, in addition to the training steps; the plan accounts for each.

A query is one Gaussian mechanism: a sum of bounded contributions, one per entry, with noise proportional to the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from privet import accounting
from privet._utils.registry import add
from privet.accounting.events import MULTIPLIER_RANGE
from privet.accounting.queries import composed_multiplier
from privet.errors import InvalidArgumentError, count, positive, real


@dataclass(frozen=True)
class Query:
    """A noisy sum over the entries of one part of the data: examples, users or groups, according to the plan's unit.

    Guarantee:
        Adding or removing an entry moves the sum by at most C; replacing one moves it by at most 2C. Accountants assume this
        sensitivity for `Event(1.0, multiplier)`.
    """

    NAME: ClassVar[str]  # in the ledger
    OPTION: ClassVar[str] = "epsilon"  # name of its ε in errors

    multiplier: float  # noise over the largest norm C of one entry's contribution, in [1e-3, 1e6]

    def __post_init__(self) -> None:
        low, high = MULTIPLIER_RANGE
        if not low <= real(f"{self.NAME}.multiplier", self.multiplier) <= high:
            raise InvalidArgumentError(f"{self.NAME}.multiplier", self.multiplier, f"between {low:g} and {high:g}")

    @property
    def event(self) -> accounting.Event:
        """The release, for the accountants."""
        return accounting.Event(1.0, self.multiplier)

    @classmethod
    def calibrate(cls, epsilon: float, *, delta: float, adjacency: str = "add-remove", **fields: int) -> Self:
        """Return the query with the least noise that is (ε, δ)-private by itself; `fields` are its other fields."""
        multiplier = composed_multiplier(
            lambda sigma: [accounting.Event(1.0, sigma)],
            epsilon=positive(cls.OPTION, epsilon), delta=delta, adjacency=adjacency,
        )  # fmt: skip
        return cls(multiplier=multiplier, **fields)


@add
@dataclass(frozen=True)
class Holdout(Query):
    """The result of the final model on held-out entries, which no step uses; for `Plan(holdout=...)`.

    Args:
        multiplier: standard deviation of the noise over the largest norm of one entry's contribution, in [1e-3, 1e6].
        examples: public number of held-out entries, ≥ 1; those of the plan's `examples` are not among them.

    Guarantee:
        The held-out entries are a uniformly random subset of fixed public size, drawn without looking at values. So neighbouring
        data sets can be divided in the same way, and differ in one part only:

        * in the training part: the model satisfies the ε of the steps. The evaluation reads the model and the held-out part,
          which is the same for both neighbours, so it is post-processing of the model;
        * in the held-out part: the model has the same distribution for both neighbours. Given the model, the released result is a
          Gaussian mechanism and satisfies the ε of the query.

        So for every division the total is at most the larger of the two ε at the same δ (McSherry 2009, Theorem 4). The same
        holds on average over divisions, because the hockey-stick divergence is jointly convex. The distribution of the subset
        does not depend on the order of the entries. So an added or replaced entry may move others to new positions, as in users
        sorted by name. For add-remove neighbours, the missing entry leaves an empty place in its part: sizes are public.
    """

    NAME: ClassVar[str] = "holdout"
    OPTION: ClassVar[str] = "evaluation_epsilon"

    examples: int

    def __post_init__(self) -> None:
        super().__post_init__()
        count("holdout.examples", self.examples, fix="It is the public number of held-out entries.")


@add
@dataclass(frozen=True)
class ClassCounts(Query):
    """The number of training entries of each class, released before the first step; for `Plan(class_counts=...)`.

    Guarantee:
        Counts and steps use the same entries, so their releases are composed: the plan's ε covers both.
    """

    NAME: ClassVar[str] = "class counts"
    OPTION: ClassVar[str] = "class_counts_epsilon"
