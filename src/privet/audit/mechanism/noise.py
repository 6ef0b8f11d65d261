"""NOISE: is what canaries do not touch noise of the promised size and law, and nothing else?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
from scipy import stats

from privet.audit.checks import Check, certain, correlation, least, spread, two_sided
from privet.audit.observations import Noise
from privet.audit.probe import Array

# Continuous noise hardly ever takes one value twice; so often only by a fault.
_REPEATED, _REPEATED_SHARE = 50, 1e-4


def checks(seen: Noise) -> list[Check]:
    """Return what is to be asked of noise."""
    everything = seen.values[seen.due]
    size = len(everything)
    deviation = math.sqrt(float(everything @ everything) / size)
    noise = seen.values / (deviation or 1.0)  # whose size is asked for elsewhere
    found = [
        Check(
            "noise deviation", f"{deviation:.5f} of the plan's, {size:,} numbers", spread(float(everything @ everything), size)
        ),
        Check("noise of every step", "least likely step", _by_step(seen)),
        Check("noise of every parameter", f"least likely of {len(seen.parameters)}", _by_parameter(seen)),
        Check("noise mean", f"{everything.mean():.2e}", two_sided(float(everything.sum()) / math.sqrt(size))),
        Check("noise law", "distance to the normal law", float(stats.kstest(noise[seen.due], "norm").pvalue)),
        _repeated(everything),
        Check("noise over steps", "correlation at lags 1 and 2", least([_lag(noise, lag) for lag in (1, 2)])),
        Check("noise over coordinates", "correlation of neighbours", least([_lag(noise.T, lag) for lag in (1, 2)])),
        Check("noise over parameters", "correlation of parameters", _between_parameters(noise, seen.parameters)),
        *(
            Check(f"noise of {name}", "against the plan's", spread(float((part**2).sum()), part.size))
            for name, part in seen.counts.items()
            if part.size
        ),
    ]
    if not seen.due.all():
        found.append(certain("masked coordinates", f"at most {seen.silent:.3g} is released of them", holds=seen.silent == 0.0))
    if seen.drawn is not None and np.ptp(seen.drawn) > 0:
        found.append(Check("noise and batch size", "correlation", _with_batch_size(seen, seen.drawn)))
    return found


def _by_step(seen: Noise) -> float:
    sums, sizes = (seen.values**2).sum(1), seen.due.sum(1)
    return least([spread(float(total), int(size)) for total, size in zip(sums, sizes, strict=True) if size])


def _by_parameter(seen: Noise) -> float:
    parts = [(seen.values[:, part], seen.due[:, part]) for part in seen.parameters.values()]
    return least([spread(float((noise**2).sum()), int(noised.sum())) for noise, noised in parts if noised.any()])


def _repeated(noise: Array) -> Check:
    times = int(np.unique(noise, return_counts=True)[1].max(initial=0))
    return certain(
        "noise values", f"none occurs more than {times} times", holds=times <= max(_REPEATED, _REPEATED_SHARE * len(noise))
    )


def _lag(noise: Array, lag: int) -> float:
    return correlation(noise[:-lag], noise[lag:])


def _between_parameters(noise: Array, parameters: Mapping[str, slice]) -> float:
    parts = [noise[:, part] for part in parameters.values()]
    pairs = itertools.pairwise(parts)
    return least([correlation(one[:, : other.shape[1]], other[:, : one.shape[1]]) for one, other in pairs])


def _with_batch_size(seen: Noise, drawn: Array) -> float:
    """Return the p-value of the correlation of a step's noise power with how many took part in it."""
    numbers = seen.due.sum(1)
    power = ((seen.values**2).sum(1) - numbers) / np.sqrt(2.0 * np.maximum(numbers, 1))
    centred = drawn - drawn.mean()
    return two_sided(float(power @ centred) / math.sqrt(float(centred @ centred)))
