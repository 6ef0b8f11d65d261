"""NOISE: check that coordinates without a canary contain only noise of the planned size and distribution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np
from scipy import stats

from privet.audit.checks import Check, bonferroni, correlation_p_value, deterministic_check, two_sided_p_value, variance_p_value
from privet.audit.observations import Mask, Noise
from privet.audit.probe import Array

# Continuous noise almost never repeats a value; more repetitions than this indicate a fault.
_REPEATED, _REPEATED_SHARE = 50, 1e-4


def checks(seen: Noise) -> list[Check]:
    everything = seen.values[seen.due]
    size = len(everything)
    deviation = math.sqrt(float(everything @ everything) / size)
    noise = seen.values / (deviation or 1.0)  # the size has its own check
    times = int(np.unique(everything, return_counts=True)[1].max(initial=0))
    most = max(_REPEATED, _REPEATED_SHARE * size)
    found = [
        Check(
            "noise deviation", f"{deviation:.5f} of the plan's, {size:,} numbers",
            variance_p_value(float(everything @ everything), size),
        ),
        Check("noise of every step", "least likely step", _least_likely(zip(seen.values, seen.due, strict=True))),
        Check(
            "noise of every parameter", f"least likely of {len(seen.parameters)}",
            _least_likely((seen.values[:, part], seen.due[:, part]) for part in seen.parameters.values()),
        ),
        Check("noise mean", f"{everything.mean():.2e}", two_sided_p_value(float(everything.sum()) / math.sqrt(size))),
        Check("noise distribution", "distance to the normal", float(stats.kstest(noise[seen.due], "norm").pvalue)),
        deterministic_check("noise values", f"none occurs more than {times} times", holds=times <= most),
        Check("noise over steps", "correlation at lags 1 and 2", bonferroni([_lag_p_value(noise, lag) for lag in (1, 2)])),
        Check("noise over coordinates", "correlation of neighbours", bonferroni([_lag_p_value(noise.T, lag) for lag in (1, 2)])),
        Check("noise over parameters", "correlation of parameters", _between_parameters(noise, seen.parameters)),
        *(
            Check(f"noise of {name}", "relative to the plan's", variance_p_value(float((part**2).sum()), part.size))
            for name, part in seen.counts.items()
        ),
    ]  # fmt: skip
    if not seen.due.all():
        finding = f"largest released value: {seen.silent:.3g}"
        found.append(deterministic_check("masked coordinates", finding, holds=seen.silent == 0.0))
    if seen.drawn is not None and np.ptp(seen.drawn) > 0:
        found.append(Check("noise and batch size", "correlation", _with_batch_size(seen, seen.drawn)))
    return found


def _least_likely(parts: Iterable[tuple[Array, Mask]]) -> float:
    return bonferroni([variance_p_value(float((noise**2).sum()), int(due.sum())) for noise, due in parts if due.any()])


def _lag_p_value(noise: Array, lag: int) -> float:
    return correlation_p_value(noise[:-lag], noise[lag:])


def _between_parameters(noise: Array, parameters: Mapping[str, slice]) -> float:
    parts = [noise[:, part] for part in parameters.values()]
    pairs = itertools.pairwise(parts)
    return bonferroni([correlation_p_value(one[:, : other.shape[1]], other[:, : one.shape[1]]) for one, other in pairs])


def _with_batch_size(seen: Noise, drawn: Array) -> float:
    numbers = seen.due.sum(1)
    power = ((seen.values**2).sum(1) - numbers) / np.sqrt(2.0 * np.maximum(numbers, 1))
    centred = drawn - drawn.mean()
    return two_sided_p_value(float(power @ centred) / math.sqrt(float(centred @ centred)))
