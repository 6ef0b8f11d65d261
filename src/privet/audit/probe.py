"""What a mechanism audit trains: a model whose per-example gradients are its inputs, on examples of the greatest influence.

With loss ⟨w, x⟩ the gradient of an example is x, whatever w is. So whoever writes x knows what every example contributes, and
what is released beyond that is noise.
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
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.sampling import Indices

Array = NDArray[np.float64]

_FEWEST = 16  # coordinates of a group that is clipped by itself
_DEFAULT_GROUPS = 3
# Norms are looked for among so many, from far below the sensitivity to far above.
_NORMS, _LOWEST, _HIGHEST = 4000, 1e-4, 1e14
_BEYOND = 50.0  # times the norm that is clipped first
_WITHIN = 0.9995  # times the longest norm that is not dropped: rounding does not carry it over


class ProbeData(BatchDataset):
    """Examples of which a few have rows of their own and all others are zero; it remembers which were read.

    Args:
        rows: (m, d) gradients of those that are not zero.
        where: (m,) their indices.
        examples: how many there are in all.
        unit: whose data an example is, as the plan says.
    """

    row_wise = True

    def __init__(self, rows: Tensor, where: Indices, examples: int, unit: str) -> None:
        self.rows, self.where, self.privacy_unit = rows, where, unit
        self._row_of = np.full(examples, -1, dtype=np.int64)
        self._row_of[where] = np.arange(len(where))
        self._read: list[Indices] = []

    def __len__(self) -> int:
        return len(self._row_of)

    def read(self, indices: Indices) -> Tensor:
        """Return the rows of these examples, (B, d), and remember that they were asked for."""
        self._read.append(indices)
        own = self._row_of[indices]
        found = self.rows.new_zeros(len(indices), self.rows.shape[1])
        found[torch.from_numpy(own >= 0)] = self.rows[torch.from_numpy(own[own >= 0])]
        return found

    def taken(self) -> Indices:
        """Return the indices that were read since this was last asked."""
        read, self._read = self._read, []
        return np.concatenate([np.empty(0, dtype=np.int64), *read])


@dataclass(frozen=True, eq=False)
class Probe:
    """What a trainer is asked to do: take the plan's steps on this data, where an example's gradient is its row.

    Args:
        plan: rule, sampling, noise, steps. Its examples are those of the data.
        sizes: parameter → number of coordinates, in the order of a row.
        data: the rows. A trainer reads them through it, step by step.
        physical_batch_size: most rows to compute with at once, fewer than a step has.
        tied: whether every parameter is to be used twice, each time with half the row, if the trainer's models can do that.
    """

    plan: Plan
    sizes: Mapping[str, int]
    data: ProbeData
    physical_batch_size: int
    tied: bool = False

    def by_parameter(self, sums: Array) -> dict[str, Array]:
        """Return releases (T, d), whose rows are as those of the data, by the parameters' names."""
        ends = np.cumsum(list(self.sizes.values()))[:-1]
        return dict(zip(self.sizes, np.split(sums, ends, axis=1), strict=True))


@dataclass(frozen=True, eq=False)
class Trace:
    """What an adversary sees of a training, and what only an auditor knows.

    Args:
        releases: name → (T, size) noised sums of every step, as they were before the division by the public batch size.
            Parameters by the probe's names; what else was released by names with a colon.
        drawn: indices of the examples of every step; None if the trainer cannot tell, which is audited with everybody in.
        rules: the clipping rule of every step, if it is not the plan's with its schedule.
    """

    releases: Mapping[str, Array]
    drawn: Sequence[Indices] | None
    rules: Sequence[Rule] | None = None


Trainer = Callable[[Probe], Trace]


class LinearModel(nn.Module):
    """Parameters of given names, all zero, with output ⟨w, x⟩.

    Args:
        sizes: parameter → number of coordinates; dots make submodules.
        tied: use every parameter twice, each time with half of x.
    """

    def __init__(self, sizes: Mapping[str, int], tied: bool = False) -> None:
        super().__init__()
        self._sizes, self._uses = list(sizes.values()), 2 if tied else 1
        for name, size in sizes.items():
            owner: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, nn.Module())
                owner = owner.get_submodule(part)
            owner.register_parameter(last, nn.Parameter(torch.zeros(1, size)))
        self._names = list(sizes)

    def forward(self, rows: Tensor) -> Tensor:
        """Return ⟨w, x⟩ for every row, (B,)."""
        parts = torch.split(rows / self._uses, self._sizes, 1)
        weights: list[Tensor] = [operator.attrgetter(name)(self) for name in self._names]
        terms = [F.linear(part, weight)[:, 0] for weight, part in zip(weights, parts, strict=True) for _ in range(self._uses)]
        return torch.stack(terms).sum(0)


@dataclass(frozen=True, eq=False)
class Layout:
    """Which coordinates canaries touch: the i-th touches coordinate 2i of every group, and nobody touches the odd ones.

    Args:
        sizes: parameter → number of coordinates.
        groups: names of the parameters that are clipped together.
        columns: for each group, its coordinates within a row.
        canaries: how many there are.
        norms: (G,) norm of a canary's gradient in every group: where a rule lets it contribute the most.
    """

    sizes: Mapping[str, int]
    groups: tuple[tuple[str, ...], ...]
    columns: tuple[Indices, ...]
    canaries: int
    norms: Array

    def touched(self, group: int) -> Indices:
        """Return the coordinate of a group that each canary touches, (m,)."""
        return self.columns[group][: 2 * self.canaries : 2]

    def reference(self, group: int) -> Indices:
        """Return as many coordinates of the group that no canary touches, (m,)."""
        return self.columns[group][1 : 2 * self.canaries : 2]

    def rows(self) -> Tensor:
        """Return the canaries' gradients, (m, d)."""
        found = torch.zeros(self.canaries, sum(self.sizes.values()))
        for group, norm in enumerate(self.norms):
            found[torch.arange(self.canaries), torch.from_numpy(self.touched(group))] = float(norm)
        return found


def layout(rule: Rule, names: Sequence[str] | None, coordinates: int, gain: float = 1.0) -> Layout:
    """Return coordinates and canaries for a rule.

    Args:
        rule: the plan's.
        names: of the parameters that it is for; made up if None.
        coordinates: how many there are to be of one group, about. With G groups each has 1/√G as many: a step then costs as much
            to compute, as there are that many fewer canaries in rows that are as many times longer.
        gain: how many times its gradient an example's contribution is made of at most, by momentum.
    """
    names = tuple(names or _made_up_names(rule))
    groups = rule.groups(names)
    share = max(_FEWEST, int(coordinates / math.sqrt(len(groups))))
    each = {name: 2 * max(1, share // len(group) // 2) for group in groups for name in group}
    sizes = {name: each[name] for name in names}
    ends = dict(zip(names, np.cumsum(list(sizes.values())), strict=True))
    columns = tuple(np.concatenate([np.arange(ends[name] - sizes[name], ends[name]) for name in group]) for group in groups)
    return Layout(sizes, groups, columns, min(map(len, columns)) // 2, most_influential(rule, len(groups)) / gain)


def most_influential(rule: Rule, groups: int) -> Array:
    """Return the norm in every group at which a gradient contributes most, (G,): far beyond the bound if the rule allows it."""
    scale = rule.sensitivity
    coarse = np.broadcast_to(scale * np.geomspace(_LOWEST, _HIGHEST, _NORMS), (groups, _NORMS))
    best = _first_best(rule, coarse)
    fine = best[:, None] * np.geomspace(0.98, 1.02, _NORMS)
    best = _first_best(rule, fine)
    far = _BEYOND * best
    beyond = _contributions(rule, far[:, None]) >= _contributions(rule, best[:, None])
    return np.where(beyond[:, 0], far, _WITHIN * best)


def _first_best(rule: Rule, norms: Array) -> Array:
    found = _contributions(rule, norms)
    first = (found >= (1 - 1e-4) * found.max(1, keepdims=True)).argmax(1)
    return np.asarray(norms[np.arange(len(norms)), first])


def _contributions(rule: Rule, norms: Array) -> Array:
    """Return how much gradients with these norms (G, B) contribute to every group."""
    return np.asarray(norms * rule.weights(torch.from_numpy(norms.copy())).numpy())


def _made_up_names(rule: Rule) -> list[str]:
    """Return names of as many parameters as the rule has groups, two to a group if it does not say how many."""
    inner = rule.rule if isinstance(rule, AdaptiveQuantile | Projected) else rule
    if isinstance(inner, Layerwise) and inner.by == "pattern":
        raise InvalidArgumentError(
            "names", None, "the names of the model's parameters, as the rule's patterns refer to them",
            "Give names=[name for name, _ in model.named_parameters()].",
        )  # fmt: skip
    if isinstance(inner, Layerwise):
        for given in (inner.rules, inner.noise):
            if isinstance(given, tuple):
                return [f"layer{number}.weight" for number in range(len(given))]
    return [f"layer{number}.{kind}" for number in range(_DEFAULT_GROUPS) for kind in ("weight", "bias")]
