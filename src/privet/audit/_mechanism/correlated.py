"""Attack on correlated noise: all steps together, whitened and matched to the steps in which a canary may take part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from privet.audit.observations import Mask, Noise, Observations, observe
from privet.audit.probe import Layout, Probe, ProbeData, Trace
from privet.noise import Correlated
from privet.plan import Plan
from privet.sampling import CyclicPoisson, FullBatch, Indices, Scheme

_EPOCH, _EPOCHS = 4, 3  # of a run in a fixed order: short, as all its steps together give one score for every canary
_RUNS, _CYCLES = 200, 400


def probes(plan: Plan, layout: Layout, observations: int) -> Iterator[Probe]:
    """Yield the runs whose scores together bound ε: one with amplified sampling, many short ones without.

    Canaries are the only examples. A cyclic sampling takes half of them, so that scores with and without a canary are alike.
    """
    number = layout.canaries
    data = ProbeData(layout.rows(), np.arange(number), number, str(plan.unit))
    if isinstance(plan.sampling, CyclicPoisson):
        cycle = min(plan.sampling.cycle, number // 2)
        sampling: Scheme = CyclicPoisson(number / (2 * cycle), cycle)
        steps, runs = cycle * max(10, min(_CYCLES, 2 * observations // number)), 1
    else:
        whole = isinstance(plan.sampling, FullBatch)
        sampling = plan.sampling if whole else replace(plan.sampling, batch_size=number // _EPOCH)  # type: ignore[type-var]
        steps, runs = _EPOCH * _EPOCHS, max(2, min(_RUNS, observations // (2 * number)))
    for _ in range(runs):
        probed = replace(plan, examples=number, steps=steps, sampling=sampling, accept_large_delta=True)
        yield Probe(probed, layout.sizes, data, physical_batch_size=number)


def observe_all(probe: Probe, layout: Layout, trace: Trace) -> Observations:
    """Return the observations in a trace with one row for every release that is accounted for, instead of every step.

    Releases are whitened: their linear combinations have noise that is independent over the steps. A canary may take part in the
    steps of its place in the cycle or epoch, which is known to the attacker. A row is the projection of whitened scores on the
    shift that these steps cause.
    """
    plan = probe.plan
    assert isinstance(plan.noise, Correlated)
    whitening = plan.noise.whitening(plan.total_steps)
    seen = observe(probe, layout, replace(trace, releases={name: whitening @ values for name, values in trace.releases.items()}))
    rows = list(_patterns(plan, seen.taking_part))
    directions = np.stack([whitening[:, steps].sum(1) for steps, _, _ in rows])
    lengths = np.linalg.norm(directions, axis=1)
    directions /= lengths[:, None]
    may = np.stack([canaries for _, canaries, _ in rows])
    return replace(
        seen,
        scores=directions @ seen.scores,
        references=directions @ seen.references,
        taking_part=np.stack([taken for _, _, taken in rows]) & may,
        usable=may,
        shifts=lengths * seen.shifts[0],
    )


def _patterns(plan: Plan, present: Mask) -> Iterator[tuple[Indices, Mask, Mask]]:
    """Yield (steps, canaries that may take part in exactly these, those that did), disjoint releases of every canary apart."""
    assert isinstance(plan.noise, Correlated)
    pattern = plan.sampling.pattern(plan.examples, plan.total_steps)
    assert pattern is not None
    if pattern.rate < 1:
        places = np.arange(len(present)) % pattern.separation
        own = np.stack([present[places == place].any(0) for place in range(pattern.separation)])
        for step in range(len(present) - pattern.separation):
            yield np.array([step]), own[places[step]], present[step]
    elif plan.noise.by_epoch:
        for step, taken in enumerate(present):
            if taken.any():
                yield np.array([step]), taken, taken
    else:
        for column in np.unique(present.T, axis=0):
            same = (column == present.T).all(1)
            if column.any():
                yield np.flatnonzero(column), same, same


def join(parts: list[Observations]) -> Observations:
    noises = [part.noise for part in parts]
    values, due = (np.concatenate([getattr(noise, name) for noise in noises]) for name in ("values", "due"))
    names = ("scores", "references", "taking_part", "usable", "shifts")
    together = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], noise=Noise(values, due, noises[0].parameters), **together)
