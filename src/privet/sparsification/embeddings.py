"""Sparse updates of embedding tables: which rows a step releases, by public knowledge or by noised counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privet._utils.registry import Part, add
from privet.clipping import GEP, Projected
from privet.clipping.base import check_scale
from privet.errors import InvalidArgumentError, between, positive
from privet.noise import Correlated


class RowSelection(Part, ABC):
    """A way to select the rows of embedding tables that a step releases; all other rows get neither data nor noise."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the tables: two-dimensional parameters of the model, one row per entry of the vocabulary."""

    @property
    @abstractmethod
    def remark(self) -> str:
        """Sentences for the statement, without a final stop."""

    @property
    def gradient_share(self) -> float:
        """Part of 1/σ² that the noise on the gradient gets."""
        return 1.0

    def check_combination(self, plan: Any) -> None:
        """Refuse parts that need a gradient of every row."""
        taken_back = "A row without noise has none to take back."
        for refused, part, allowed, fix in (
            (isinstance(plan.clipping, Projected | GEP), "clipping", "a rule of exact norms", "Flat is one."),
            (isinstance(plan.noise, Correlated), "noise", "privet.noise.Gaussian(...)", taken_back),
            (plan.sparsification is not None, "sparsification", "left out", "Both would say which coordinates are released."),
            (plan.momentum is not None, "momentum", "left out", "It would keep a sum for every row."),
        ):
            if refused:
                raise InvalidArgumentError(part, getattr(plan, part), f"{allowed} with sparsification.{type(self).__name__}", fix)


def _check_names(names: tuple[str, ...]) -> None:
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        fix = "They are names of model.named_parameters(), such as 'words.weight'."
        raise InvalidArgumentError("embeddings.tables", names, "different names of parameters, at least one", fix)


@add
@dataclass(frozen=True)
class FEST(RowSelection):
    """Train only public rows of embedding tables (DP-FEST with a public vocabulary), such as the words of a public list.

    The gradient of all other rows is set to zero before it is clipped, so they keep their initial values and use none of the
    bound. Noise is drawn for the listed rows only.

    Args:
        rows: name of a table → its trained rows, in any order, each from 0 to the number of rows minus 1.

    Guarantee:
        The list must be chosen without looking at the private data. Then a step is the Gaussian mechanism on fewer coordinates,
        with the same sensitivity, and ε is that of the plan without a list.

    Source:
        Ghazi et al. 2023, "Sparsity-Preserving Differentially Private Training of Large Embedding Models" (DP-FEST), with a
        vocabulary that is known and not released.

    >>> FEST({"words.weight": [5, 0, 2]}).rows
    (('words.weight', (0, 2, 5)),)
    """

    rows: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        given = self.rows.items() if isinstance(self.rows, Mapping) else self.rows
        try:
            found = tuple((name, tuple(sorted(int(row) for row in rows))) for name, rows in given)
        except (TypeError, ValueError):
            raise InvalidArgumentError("embeddings.rows", self.rows, "a table's name → its rows") from None
        _check_names(tuple(name for name, _ in found))
        for name, rows in found:
            if not rows or rows[0] < 0 or len(set(rows)) < len(rows):
                fix = "A table without trained rows is frozen: requires_grad_(False)."
                raise InvalidArgumentError(f"embeddings.rows[{name!r}]", rows[:3], "different numbers from 0, at least one", fix)
        object.__setattr__(self, "rows", found)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(name for name, _ in self.rows)

    @property
    def remark(self) -> str:
        """The number of trained rows of each table."""
        listed = ", ".join(f"{len(rows):,} of {name}" for name, rows in self.rows)
        return (
            f"Of embedding tables, only listed rows are trained ({listed}). The list was made without looking at the private data"
        )


@add
@dataclass(frozen=True)
class AdaFEST(RowSelection):
    """Release only the rows of embedding tables that many examples of a step look up, by noised counts (DP-AdaFEST).

    Every step counts for each row the examples that look it up, adds noise to the counts, and selects the rows whose noised count
    reaches the threshold. The clipped gradient and its noise are released in these rows, and zeros in all others. Rows that no
    example looks up are selected by noise alone; their number is drawn without drawing noise for each of them, so that time and
    memory of a step depend on the rows that are looked up or selected, and not on the size of the table.

    Args:
        tables: names of the tables, such as ("words.weight",).
        threshold: τ > 0, in examples: smallest noised count of a row that is released. A higher one releases fewer rows.
        bound: C₁, largest L2 norm of what one example adds to the counts of all tables together. An example that looks up n
            rows adds min(1, C₁/√n) to each.
        share: part of 1/σ², in (0, 1), that the counts get, where σ is the plan's noise multiplier: theirs is σ₁ = σ/√share, and
            that of the gradient is σ₂ = σ/√(1 − share).

    Guarantee:
        Counts over their bound C₁ and gradients over the bound of the clipping rule, each over its noise multiplier, are the two
        parts of one sum. Adding or removing an example moves its scaled parts by at most 1/σ₁ and 1/σ₂, together by
        √(1/σ₁² + 1/σ₂²) = 1/σ. So both together are one Gaussian mechanism of multiplier σ on one sample, which the plan's events
        describe for every sampling scheme. The paper composes the two mechanisms on one sample; here the gradient is clipped
        before rows are selected, and dropping rows of a sum that has noise everywhere is post-processing. Noise of dropped rows
        is independent of everything that is released, and so it need not be drawn.

    Source:
        Ghazi et al. 2023, "Sparsity-Preserving Differentially Private Training of Large Embedding Models" (DP-AdaFEST).

    >>> AdaFEST(("words.weight",), threshold=10.0, share=0.2).gradient_share
    0.8
    """

    tables: tuple[str, ...]
    threshold: float
    bound: float = 1.0
    share: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", (self.tables,) if isinstance(self.tables, str) else tuple(self.tables))
        _check_names(self.tables)
        positive("embeddings.threshold", self.threshold, "It is a number of examples of one step.")
        check_scale("embeddings.bound", self.bound, "1 lets an example that looks up one row count as 1.")
        between("embeddings.share", self.share, 0.0, 1.0, "It divides the noise between counts and gradient.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables."""
        return self.tables

    @property
    def gradient_share(self) -> float:
        """1 − share."""
        return 1.0 - self.share

    @property
    def remark(self) -> str:
        """What is released, and the two noise multipliers as multiples of the plan's."""
        return (
            f"Of {', '.join(self.tables)}, a step releases the rows whose noised number of examples is at least "
            f"{self.threshold:g}. The noise on these numbers is {self.share**-0.5:.4g} times the step's multiplier times "
            f"{self.bound:g}, and the noise on the gradient is {self.gradient_share**-0.5:.4g} times as large as stated above. "
            "Both together are one Gaussian mechanism of the step's multiplier, which ε counts"
        )
