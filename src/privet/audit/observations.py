"""Conversion of a trainer's releases to noise and canary scores in units of the planned noise."""

from __future__ import annotations

__all__ = ["Claims", "Mask", "Noise", "Observations", "observe", "rules_per_step"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincinv, gammaln

from privet.audit.probe import Array, Layout, Probe, Trace
from privet.clipping import Projected, Rule
from privet.plan import Plan
from privet.sparsification import Sparsification
from privet.sparsification.kinds import Timetable
from privet.training.state import MaskState

Mask = NDArray[np.bool_]

_QUANTILES = 64


@dataclass(frozen=True, eq=False)
class Noise:
    """The releases of T steps at coordinates to which no example contributes, (T, n), in units of the planned noise.

    Args:
        due: (T, n) True where noise is planned: everywhere except for masked coordinates.
        parameters: name → slice of the n coordinates.
        silent: largest absolute value released at a masked coordinate.
        counts: name → (T, k) noise of the statistics that are released with the gradients.
        drawn: (T,) batch sizes; None if unknown.
    """

    values: Array
    due: Mask
    parameters: Mapping[str, slice]
    silent: float = 0.0
    counts: Mapping[str, Array] = field(default_factory=dict)
    drawn: Array | None = None


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of T steps with m canaries, in units of the planned noise.

    Args:
        scores, references: (T, m) coordinates of each canary, weighted as in the likelihood ratio; and of no canary.
        taking_part: (T, m) whether the canary was sampled and none of its coordinates was masked.
        usable: (T, m) whether none of the coordinates of the canary and its reference was masked.
        shifts: (T,) shift of a canary's score according to the plan.
        factors: (f,) equally likely, unknown factors of the shift: 1 unless norms are estimated.
    """

    noise: Noise
    scores: Array
    references: Array
    taking_part: Mask
    usable: Mask
    shifts: Array
    factors: Array


def observe(probe: Probe, layout: Layout, trace: Trace) -> Observations:
    """Return the observations in the trace of a probe."""
    plan, steps = probe.plan, probe.plan.total_steps
    names = tuple(layout.sizes)
    claims = Claims.of(plan, layout, rules_per_step(plan, trace))
    released = np.concatenate([trace.releases[name] for name in names], axis=1)
    deviations = np.concatenate([np.repeat(claims.deviations[name], layout.sizes[name], axis=1) for name in names], axis=1)
    kept = _masks(plan, layout, released)
    scaled = released / deviations
    untouched = np.setdiff1d(np.arange(released.shape[1]), np.concatenate([layout.touched(g) for g in range(len(layout.groups))]))
    scores, references = np.zeros((2, steps, layout.canaries))
    usable = np.ones((steps, layout.canaries), dtype=bool)
    for group, weight in enumerate(claims.directions.T):
        own, other = layout.touched(group), layout.reference(group)
        scores += weight[:, None] * scaled[:, own]
        references += weight[:, None] * scaled[:, other]
        usable &= kept[:, own] & kept[:, other]
    present = np.ones_like(usable) if trace.drawn is None else _present(trace.drawn, probe, layout.canaries)
    usable &= claims.shifts[:, None] > 0
    values = Noise(
        values=np.where(kept, scaled, 0.0)[:, untouched],
        due=kept[:, untouched],
        parameters=_slices(layout, untouched),
        silent=float(np.abs(released[~kept]).max(initial=0.0)),
        counts={name: _count_noise(claims, trace, name, present) for name in trace.releases if name not in layout.sizes},
        drawn=None if trace.drawn is None else np.array([len(indices) for indices in trace.drawn], dtype=np.float64),
    )
    return Observations(values, scores, references, present & usable, usable, claims.shifts, _factors(plan.clipping))


@dataclass(frozen=True, eq=False)
class Claims:
    """The plan's claims about each step.

    Args:
        norms: (T, G) norms of a canary, including momentum.
        deviations: name → (T, 1) standard deviation of its noise.
        directions: (T, G) unit vector along which a canary shifts the scaled release.
        shifts: (T,) size of the shift.
    """

    rules: Sequence[Rule]
    norms: Array
    deviations: Mapping[str, Array]
    directions: Array
    shifts: Array

    @staticmethod
    def of(plan: Plan, layout: Layout, rules: Sequence[Rule]) -> Claims:
        """Return the claims of a plan with these rules."""
        past = () if plan.momentum is None else plan.momentum.coefficients
        gains = np.array([1.0 + sum(past[:step]) for step in range(plan.total_steps)])  # of a constant gradient, by momentum
        norms = layout.norms[None, :] * gains[:, None]
        multipliers = plan.multipliers()
        scales, contributions = [], np.zeros_like(norms)
        for step, rule in enumerate(rules):
            scales.append(rule.noise_scales(tuple(layout.sizes)))
            lengths = torch.from_numpy(norms[step][:, None])
            contributions[step] = (rule.weights(lengths) * lengths)[:, 0].numpy()
        common = multipliers * np.array([rule.sensitivity for rule in rules])
        beside = {name for one in scales for name in one} - layout.sizes.keys()
        deviations = {
            name: (common * np.array([one.get(name, 1.0) for one in scales]))[:, None] for name in (*layout.sizes, *beside)
        }
        moved = contributions / np.concatenate([deviations[group[0]] for group in layout.groups], axis=1)
        shifts = np.linalg.norm(moved, axis=1)
        return Claims(rules, norms, deviations, moved / np.where(shifts > 0, shifts, 1.0)[:, None], shifts)


def rules_per_step(plan: Plan, trace: Trace) -> Sequence[Rule]:
    """Return the clipping rule of each step, from the trace or else from the plan and its schedule."""
    if trace.rules is not None:
        return trace.rules
    scaled: dict[float, Rule] = {}
    factors = [float(factor) for factor in plan.bound_factors()]
    return [scaled.setdefault(factor, plan.clipping.scale_bound(factor)) for factor in factors]


def _masks(plan: Plan, layout: Layout, released: Array) -> Mask:
    """Return the masks (T, d) of coordinates with data and noise."""
    kept, times = np.ones(released.shape, dtype=bool), plan.timetable()
    if plan.sparsification is None or times is None:
        return kept
    if plan.sparsification.ranks:
        return _seen_masks(plan.sparsification, times, released)
    shapes = {name: torch.empty(1, size, device="cpu") for name, size in layout.sizes.items()}
    current = MaskState(plan.sparsification, times, shapes)
    for step in range(plan.total_steps):
        if (masks := current.at(step + 1)) is not None:
            kept[step] = torch.cat([masks[name].flatten() for name in layout.sizes]).numpy()
    return kept


def _seen_masks(kind: Sparsification, times: Timetable, released: Array) -> Mask:
    """Return the masks (T, d) of a ranking kind, which the optimizer's gradients show: noise is nowhere exactly zero.

    A step whose zeros are not as many as the mask's, or differ from those of its block, counts as one without a mask, so that
    zeros in it are taken for missing noise.
    """
    kept: Mask = np.not_equal(released, 0)
    first: dict[int, Mask] = {}
    for step, row in enumerate(kept):
        block = times.block(step + 1)
        expected = kind.zeros(block, times.blocks, len(row))
        if np.count_nonzero(~row) != expected or not np.array_equal(first.setdefault(block, row.copy()), row):
            kept[step] = True
    return kept


def _present(drawn: Sequence[NDArray[np.int64]], probe: Probe, canaries: int) -> Mask:
    """Return (T, m): whether a canary was sampled; False for canaries that do not fit into the data."""
    number = np.full(len(probe.data), -1, dtype=np.int64)
    number[probe.data.where] = np.arange(len(probe.data.where))
    found = np.zeros((len(drawn), canaries), dtype=bool)
    for step, indices in enumerate(drawn):
        own = number[indices]
        found[step, own[own >= 0]] = True
    return found


def _count_noise(claims: Claims, trace: Trace, name: str, present: Mask) -> Array:
    """Return (T, k) noise of a statistic in units of the planned noise; (0, k) if the sampled examples are unknown."""
    if trace.drawn is None:
        return np.zeros((0, trace.releases[name].shape[1]))
    found = []
    for step, (rule, indices) in enumerate(zip(claims.rules, trace.drawn, strict=True)):
        long = torch.from_numpy(claims.norms[step][:, None])
        canaries = int(present[step].sum())
        expected = canaries * rule.statistics(long)[name] + (len(indices) - canaries) * rule.statistics(0 * long)[name]
        found.append((trace.releases[name][step] - expected.numpy()) / claims.deviations[name][step])
    return np.stack(found)


def _factors(rule: Rule) -> Array:
    """Return quantiles of √(r/χ²ᵣ), the factor by which an estimated norm is too small, at the midpoints."""
    if not isinstance(rule, Projected):
        return np.ones(1)
    half = rule.projections / 2
    found = np.sqrt(half / gammaincinv(half, (np.arange(_QUANTILES) + 0.5) / _QUANTILES))
    mean = math.sqrt(half) * math.exp(gammaln(half - 0.5) - gammaln(half))
    return np.asarray(found * mean / found.mean())


def _slices(layout: Layout, untouched: NDArray[np.int64]) -> dict[str, slice]:
    ends = np.searchsorted(untouched, np.cumsum(list(layout.sizes.values())))
    starts = [0, *ends[:-1].tolist()]
    return {name: slice(start, stop) for name, start, stop in zip(layout.sizes, starts, ends.tolist(), strict=True)}
