"""Optimised strategies: the least error of a workload at a given sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privet.noise.correlated.strategies import Array, Bands, Buffers, Workload, pattern_sums, square_root, squared_sensitivity

_ITERATIONS = 500
_LEAST_RATIO = 1e-9  # of two coefficients
_LOGITS, _LOGARITHMS = (-8.0, 18.0), (-12.0, 1.0)  # of decays and scales
_STARTS = 4000  # coefficients to which the first guess of buffers is fitted


def optimise_bands(bands: int, workload: Workload, separation: int, times: int) -> tuple[float, ...]:
    """Return the coefficients of the banded strategy with the least error at a given sensitivity: norm 1, decreasing, ≥ 0.

    `separation` and `times` mean what they mean for `squared_sensitivity`.

    Source:
        Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to private training", §4.
    """
    steps = workload.queries.shape[-1]
    bands = min(bands, steps)

    def objective(ratios: Array) -> tuple[float, Array]:
        coefficients = np.cumprod([1.0, *ratios])
        found = Bands(tuple(coefficients.tolist()))
        answers = found.solve(workload.queries)
        error = float((workload.weights * answers**2).sum())
        # The derivative of C⁻¹x by the j-th coefficient is −C⁻²x, j steps later.
        weighted, twice = workload.weights * answers, found.solve(answers)
        by_error = np.array([
            -2 * float((weighted[:, age:] * twice[:, : steps - age]).sum()) / error for age in range(1, bands)
        ])  # fmt: skip
        squares, by_sensitivity = _sensitivity(coefficients, steps, separation, times)
        by_coefficient = (by_error + by_sensitivity[1:] / squares) * coefficients[1:]
        return float(np.log(error) + np.log(squares)), by_coefficient[::-1].cumsum()[::-1] / ratios

    start = square_root(bands)
    if bands > 1:
        # Each as a ratio to the one before: columns that decrease have an exact sensitivity and a stable inverse.
        bounds = [(_LEAST_RATIO, 1.0)] * (bands - 1)
        start = np.cumprod([1.0, *_minimise(objective, start[1:] / start[:-1], jac=True, bounds=bounds, precision=1e-14)])
    return tuple((start / np.linalg.norm(start)).tolist())


def optimise_buffers(
    buffers: int, workload: Workload, separation: int, times: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return decays and scales of the strategy with m buffers that has the least error at a given sensitivity.

    Source:
        Dvijotham et al. 2024; McMahan, Xu, Zhang 2024 (several participations).
    """
    steps = workload.queries.shape[-1]

    def objective(values: Array) -> float:
        found = Buffers(*map(tuple, _of_values(values)))
        return float(np.log(workload.error(found)) + np.log(squared_sensitivity(found.column(steps), separation, times)))

    bounds = [_LOGITS] * buffers + [_LOGARITHMS] * buffers
    decays, scales = _of_values(_minimise(objective, _guess(buffers, steps), jac=None, bounds=bounds, precision=1e-9))
    order = np.argsort(-decays)
    return tuple(decays[order].tolist()), tuple(scales[order].tolist())


def _of_values(values: Array) -> tuple[Array, Array]:
    decays, scales = values.reshape(2, -1)
    return 1 / (1 + np.exp(-decays)), np.exp(scales)


def _guess(buffers: int, steps: int) -> Array:
    """Return values of decays at even distances, with the scales that best fit the square root of the prefix sums."""
    from scipy.optimize import nnls

    slowest = np.log(max(steps, 4))
    rates = np.exp(-slowest * (np.arange(buffers) + 0.5) / buffers)  # 1 − d
    column = square_root(min(steps, _STARTS))[1:]
    age = np.unique(np.geomspace(1, max(len(column), 1), 200).astype(np.int64)) - 1
    age = age[age < len(column)]
    scales = nnls(np.power.outer(1 - rates, age).T, column[age])[0] if len(age) else np.ones(buffers)
    decays = 1 - rates
    return np.concatenate([np.log(decays / rates), np.log(np.maximum(scales, 1e-4))])


def _sensitivity(coefficients: Array, steps: int, separation: int, times: int) -> tuple[float, Array]:
    """Return the squared sensitivity up to a constant factor, and its derivatives by the coefficients."""
    if separation >= len(coefficients):  # the columns do not overlap
        return float(coefficients @ coefficients), 2 * coefficients
    found = pattern_sums(Bands(tuple(coefficients.tolist())).column(steps), separation, times)
    return float(found @ found), np.array([2 * found[age::separation][:times].sum() for age in range(len(coefficients))])


def _minimise(objective: Callable[[Array], Any], start: Array, *, jac: bool | None, bounds: Any, precision: float) -> Array:
    from scipy.optimize import minimize

    options = {"maxiter": _ITERATIONS, "maxfun": 20 * _ITERATIONS, "ftol": precision, "gtol": 1e-9}
    return np.asarray(minimize(objective, start, method="L-BFGS-B", jac=jac, bounds=bounds, options=options).x)
