"""Probe of a mechanism audit: a model whose per-example gradients are its inputs, and examples of the largest influence.

With the loss ⟨w, x⟩, the gradient of an example is x for every w. The auditor chooses x and so knows all contributions; the rest
of a release is noise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from privet.clipping import AdaptiveQuantile, Layerwise, Projected, Rule
from privet.clipping.gep import refuse_anchors
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.sampling import Indices

Array = NDArray[np.float64]

_FEWEST = 16  # smallest number of coordinates of a group
_DEFAULT_GROUPS = 3
# Search grid for norms, from far below the sensitivity to far above it.
_NORMS, _LOWEST, _HIGHEST = 4000, 1e-4, 1e14
_BEYOND = 50.0  # factor above the smallest norm that is clipped
_WITHIN = 0.9995  # factor below the largest norm that is not dropped, as a margin for rounding


class ProbeData(BatchDataset):
    """Examples of which a few have given rows and the others are zero; it records which ones are read.

    Args:
        rows: (m, d) gradients of the non-zero examples.
        where: (m,) indices of these examples.
        examples: number of all examples.
        unit: unit of privacy, as in the plan.
    """

    row_wise = True

    def __init__(self, rows: Tensor, where: Indices, examples: int, unit: str) -> None:
        self.privacy_unit = unit
        self.row_of = np.full(examples, -1, dtype=np.int64)  # of an example, −1 if it is zero
        self.row_of[where] = np.arange(len(where))
        self._rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])  # the last is that of zero examples
        self._read: list[Indices] = []

    def __len__(self) -> int:
        return len(self.row_of)

    def read(self, indices: Indices) -> Tensor:
        """Return the rows of these examples, (B, d), and record the indices."""
        self._read.append(indices)
        return self.at(indices)

    def at(self, indices: Indices) -> Tensor:
        """Return the rows of these examples, (B, d)."""
        return self._rows[torch.from_numpy(self.row_of[indices])]

    def taken(self) -> Indices:
        """Return the indices that were read since the last call."""
        read, self._read = self._read, []
        return np.concatenate([np.empty(0, dtype=np.int64), *read])


@dataclass(frozen=True, eq=False)
class Probe:
    """The task of a trainer: take the plan's steps on this data, in which an example's gradient is its row.

    Args:
        plan: the plan, for the examples of the data.
        sizes: parameter → number of coordinates, in the order of a row.
        data: the examples.
        physical_batch_size: largest number of rows to process at once, smaller than a batch.
        tied: use each parameter twice, each time with half the row, if the trainer's models support that.
    """

    plan: Plan
    sizes: Mapping[str, int]
    data: ProbeData
    physical_batch_size: int
    tied: bool = False

    def by_parameter(self, sums: Array) -> dict[str, Array]:
        """Split releases (T, d), with columns as in the data, by parameter name."""
        return {name: sums[:, part] for name, part in slices(self.sizes).items()}


def slices(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return parameter → its coordinates within a row, for the number of coordinates of each."""
    ends = np.cumsum(list(sizes.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


@dataclass(frozen=True, eq=False)
class Trace:
    """The releases of a training run, which an adversary sees, and its samples and rules, which only the auditor knows.

    Args:
        releases: name → (T, size) noised sum of each step, before the division by the public batch size. Parameters have the
            probe's names; other released statistics have names with a colon.
        drawn: indices of the examples of each step; None if the trainer does not report them, which is audited with full batches
            only.
        rules: clipping rule of each step; None for the plan's rule with its schedule.
    """

    releases: Mapping[str, Array]
    drawn: Sequence[Indices] | None
    rules: Sequence[Rule] | None = None


Trainer = Callable[[Probe], Trace]


class LinearModel(nn.Module):
    """Model with given parameters, initialised to zero, and output ⟨w, x⟩.

    Args:
        sizes: parameter → number of coordinates; dots in names create submodules.
        tied: use each parameter twice, each time with half of x.
    """

    def __init__(self, sizes: Mapping[str, int], tied: bool = False) -> None:
        super().__init__()
        self._sizes, self._uses = dict(sizes), 2 if tied else 1
        for name, size in sizes.items():
            owner: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                owner = owner._modules.setdefault(part, nn.Module())  # type: ignore[assignment]
            owner.register_parameter(last, nn.Parameter(torch.zeros(1, size, device="cpu")))

    def forward(self, rows: Tensor) -> Tensor:
        """Return ⟨w, x⟩ for each row, (B,)."""
        parts = torch.split(rows / self._uses, list(self._sizes.values()), 1)
        weights: list[Tensor] = [operator.attrgetter(name)(self) for name in self._sizes]
        terms = [F.linear(part, weight)[:, 0] for weight, part in zip(weights, parts, strict=True) for _ in range(self._uses)]
        return torch.stack(terms).sum(0)


@dataclass(frozen=True, eq=False)
class Layout:
    """Coordinates of the canaries: the i-th uses coordinate 2i of each group; no example uses odd coordinates."""

    sizes: Mapping[str, int]  # parameter → number of coordinates
    groups: tuple[tuple[str, ...], ...]  # names of the parameters that are clipped together
    columns: tuple[Indices, ...]  # for each group, its coordinates within a row
    canaries: int  # number of them
    norms: Array  # (G,) norm of a canary's gradient in each group, at which the rule lets it contribute most

    def touched(self, group: int) -> Indices:
        """Return each canary's coordinate in a group, (m,)."""
        return self.columns[group][: 2 * self.canaries : 2]

    def reference(self, group: int) -> Indices:
        """Return as many unused coordinates of the group, (m,)."""
        return self.columns[group][1 : 2 * self.canaries : 2]

    def rows(self) -> Tensor:
        """Return the canaries' gradients, (m, d)."""
        found = torch.zeros(self.canaries, sum(self.sizes.values()), device="cpu")
        for group, norm in enumerate(self.norms):
            found[torch.arange(self.canaries, device="cpu"), torch.from_numpy(self.touched(group))] = float(norm)
        return found


def build_layout(rule: Rule, names: Sequence[str] | None, coordinates: int, gain: float = 1.0) -> Layout:
    """Return coordinates and canaries for a rule.

    Args:
        names: names of the model's parameters; None for synthetic names.
        coordinates: approximate number of coordinates with one group. Each of G groups has 1/√G as many, which keeps the cost of
            a step constant: there are √G times fewer canaries, in rows that are √G times longer.
        gain: largest factor by which momentum multiplies an example's gradient.
    """
    refuse_anchors(rule, "an audit")
    names = tuple(names or _synthetic_names(rule))
    groups = rule.groups(names)
    share = max(_FEWEST, int(coordinates / math.sqrt(len(groups))))
    each = {name: 2 * max(1, share // len(group) // 2) for group in groups for name in group}
    sizes = {name: each[name] for name in names}
    places = slices(sizes)
    columns = tuple(np.r_[tuple(places[name] for name in group)] for group in groups)
    return Layout(sizes, groups, columns, min(map(len, columns)) // 2, most_influential(rule, len(groups)) / gain)


def most_influential(rule: Rule, groups: int) -> Array:
    """Return the norm in each group at which a gradient contributes most, (G,), far above the bound if the rule permits."""

    def contributions(norms: Array) -> Array:
        """Return the contributions of gradients with these norms to each group, (G, B)."""
        return np.asarray(norms * rule.weights(torch.from_numpy(norms.copy())).numpy())

    best = np.full(groups, rule.sensitivity)
    for grid in (np.geomspace(_LOWEST, _HIGHEST, _NORMS), np.geomspace(0.98, 1.02, _NORMS)):
        norms = best[:, None] * grid
        found = contributions(norms)
        first = (found >= (1 - 1e-4) * found.max(1, keepdims=True)).argmax(1)
        best = norms[np.arange(groups), first]
    far = _BEYOND * best
    beyond = contributions(far[:, None]) >= contributions(best[:, None])
    return np.where(beyond[:, 0], far, _WITHIN * best)


def _synthetic_names(rule: Rule) -> list[str]:
    """Return synthetic parameter names: one per group of the rule, or two for each of three groups by default."""
    inner = rule.rule if isinstance(rule, AdaptiveQuantile | Projected) else rule
    if isinstance(inner, Layerwise) and inner.by == "pattern":
        raise InvalidArgumentError(
            "names", None, "the names of the model's parameters, to which the rule's patterns refer",
            "Give names=[name for name, _ in model.named_parameters()].",
        )  # fmt: skip
    if isinstance(inner, Layerwise):
        for given in (inner.rules, inner.noise):
            if isinstance(given, tuple):
                return [f"layer{number}.weight" for number in range(len(given))]
    return [f"layer{number}.{kind}" for number in range(_DEFAULT_GROUPS) for kind in ("weight", "bias")]
