"""Words of the command line and the parts of a plan that they stand for."""

from __future__ import annotations

__all__ = ["NOISES", "SCHEDULES", "SCHEMES", "STYLES", "rules_with"]

import math
from collections.abc import Callable
from typing import Any

from privet.clipping import NORM_RULES, Layerwise, NormRule
from privet.errors import InvalidArgumentError
from privet.noise import Banded, BufferedToeplitz, Gaussian, NoiseMechanism, Tree
from privet.sampling import BallsInBins, FixedOrder, FixedSize, FullBatch, Poisson, Scheme, Shuffle, TruncatedPoisson
from privet.schedules import Constant, Geometric, Linear, Piecewise, Schedule

# Noise over the steps.
NOISES: dict[str, type[NoiseMechanism]] = {
    "independent": Gaussian, "banded": Banded, "buffered": BufferedToeplitz, "tree": Tree,
}  # fmt: skip
# Style → a rule that clips all parameters together, or each group by itself.
STYLES: dict[str, Callable[[NormRule], NormRule | Layerwise]] = {
    "flat": lambda rule: rule,
    "parameter": lambda rule: Layerwise(rule, by="parameter"),
    "module": lambda rule: Layerwise(rule, by="module"),
}


def _constant(setting: str) -> Schedule:
    if setting:
        raise ValueError
    return Constant()


def _piecewise(setting: str) -> Schedule:
    *pieces, last = setting.split(",")
    values, ends = zip(*(map(float, piece.split("@")) for piece in pieces), strict=True)
    return Piecewise((*values, float(last)), ends)


# Name → what its setting may be, and a function from the setting after the colon, "" without one.
SCHEDULES: dict[str, tuple[str, Callable[[str], Schedule]]] = {
    "constant": ("without a setting", _constant),
    "linear": (
        "linear, or with its target length in steps, such as linear:2000",
        lambda setting: Linear(over=int(setting)) if setting else Linear(),
    ),
    "geometric": (
        "geometric, or with its rate, such as geometric:0.001",
        lambda setting: Geometric(float(setting)) if setting else Geometric(),
    ),
    "piecewise": (
        "with factors and ends, such as piecewise:1@0.95,200 for the factor 1 up to 95 % of the steps and then 200", _piecewise,
    ),
}  # fmt: skip


def _full(size: float, examples: int) -> Scheme:
    if size != examples:
        raise InvalidArgumentError("--batch-size", size, f"the number of examples, {examples}, for a full batch")
    return FullBatch()


def _whole(size: float) -> Any:
    return int(size) if size == int(size) else size


# Name → function from batch size and number of examples to the scheme. Truncation is six standard deviations above the mean.
SCHEMES: dict[str, Callable[[float, int], Scheme]] = {
    "poisson": lambda size, _: Poisson(size),
    "truncated-poisson": lambda size, _: TruncatedPoisson(size, cap=math.ceil(size + 6 * math.sqrt(size))),
    "fixed-size": lambda size, _: FixedSize(_whole(size)),
    "balls-in-bins": lambda size, _: BallsInBins(size),
    "fixed-order": lambda size, _: FixedOrder(size),
    "full-batch": _full,
    "shuffle": lambda size, _: Shuffle(_whole(size)),
}


def rules_with(option: str) -> dict[str, Any]:
    """Return rule → default value of an option, for the rules that have this option."""
    return {
        name.lower(): kind.__dataclass_fields__[option].default
        for name, kind in NORM_RULES.items()
        if option in kind.__dataclass_fields__
    }
