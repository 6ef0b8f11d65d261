"""Conversion of a trainer's releases to noise and canary scores in units of the planned noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincinv, gammaln

from privet.audit.probe import Array, Layout, Probe, Trace, slices
from privet.clipping import Projected, Rule
from privet.plan import Plan
from privet.sparsification import Sparsification
from privet.sparsification.kinds import Timetable

Mask = NDArray[np.bool_]

_QUANTILES = 64


@dataclass(frozen=True, eq=False)
class Noise:
    """The releases of T steps at coordinates to which no example contributes, in units of the planned noise."""

    values: Array  # (T, n)
    due: Mask  # (T, n) True where noise is planned: everywhere except for masked coordinates
    parameters: Mapping[str, slice]  # name → slice of the n coordinates
    silent: float = 0.0  # largest absolute value released at a masked coordinate
    counts: Mapping[str, Array] = field(default_factory=dict)  # name → (T, k) noise of the statistics beside the gradients
    drawn: Array | None = None  # (T,) batch sizes; None if unknown


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of T steps with m canaries, in units of the planned noise."""

    noise: Noise
    scores: Array  # (T, m) coordinates of each canary, weighted as in the likelihood ratio
    references: Array  # (T, m) the same of coordinates without a canary
    taking_part: Mask  # (T, m) whether the canary was sampled and none of its coordinates was masked
    usable: Mask  # (T, m) whether none of the coordinates of the canary and its reference was masked
    shifts: Array  # (T,) shift of a canary's score according to the plan
    factors: Array  # (f,) equally likely, unknown factors of the shift: 1 unless norms are estimated


def observe(probe: Probe, layout: Layout, trace: Trace) -> Observations:
    """Return the observations in the trace of a probe."""
    plan, names = probe.plan, tuple(layout.sizes)
    rules = rules_per_step(plan, trace)
    units = unit_deviations(rules, names, trace.releases)
    deviations = {name: plan.multipliers()[:, None] * unit for name, unit in units.items()}
    norms, contributions = _influence(plan, layout, rules)
    moved = contributions / np.concatenate([deviations[group[0]] for group in layout.groups], axis=1)
    shifts = np.linalg.norm(moved, axis=1)
    directions = moved / np.where(shifts > 0, shifts, 1.0)[:, None]  # (T, G), along which a canary shifts the scaled release
    released = np.concatenate([trace.releases[name] for name in names], axis=1)
    scaled = released / np.concatenate([np.repeat(deviations[name], layout.sizes[name], axis=1) for name in names], axis=1)
    kept = _masks(plan, layout, released)
    untouched = np.ones(released.shape[1], dtype=bool)
    scores, references = np.zeros((2, len(shifts), layout.canaries))
    usable = np.repeat(shifts[:, None] > 0, layout.canaries, axis=1)
    for group, weight in enumerate(directions.T):
        own, other = layout.touched(group), layout.reference(group)
        scores += weight[:, None] * scaled[:, own]
        references += weight[:, None] * scaled[:, other]
        usable &= kept[:, own] & kept[:, other]
        untouched[own] = False
    present, drawn = np.ones_like(usable), None
    if trace.drawn is not None:
        # Canaries that do not fit into the data are not sampled.
        canaries = np.arange(layout.canaries)
        present = np.stack([np.isin(canaries, probe.data.row_of[indices]) for indices in trace.drawn])
        drawn = np.array([len(indices) for indices in trace.drawn], dtype=np.float64)
    noise = Noise(
        values=np.where(kept, scaled, 0.0)[:, untouched],
        due=kept[:, untouched],
        parameters=slices({name: int(untouched[part].sum()) for name, part in slices(layout.sizes).items()}),
        silent=float(np.abs(released[~kept]).max(initial=0.0)),
        counts={
            name: (values - _expected_counts(rules, norms, name, present.sum(1), drawn)) / deviations[name]
            for name, values in trace.releases.items()
            if name not in names and drawn is not None
        },
        drawn=drawn,
    )
    return Observations(noise, scores, references, present & usable, usable, shifts, _factors(plan.clipping))


def unit_deviations(rules: Sequence[Rule], parameters: Iterable[str], released: Iterable[str]) -> dict[str, Array]:
    """Return name → (T, 1) standard deviation of the noise of what is released in each step, at noise multiplier 1."""
    parameters = tuple(parameters)
    scales = [(rule.sensitivity, rule.noise_scales(parameters)) for rule in rules]
    return {name: np.array([[bound * one.get(name, 1.0)] for bound, one in scales]) for name in released}


def _influence(plan: Plan, layout: Layout, rules: Sequence[Rule]) -> tuple[Array, Array]:
    """Return the norms of a canary in each step, (T, G), including momentum, and its contributions."""
    past = () if plan.momentum is None else plan.momentum.coefficients
    norms = np.stack([layout.norms * (1.0 + sum(past[:step])) for step in range(plan.total_steps)])
    weights = [rule.weights(torch.from_numpy(one[:, None]))[:, 0].numpy() for rule, one in zip(rules, norms, strict=True)]
    return norms, norms * np.stack(weights)


def rules_per_step(plan: Plan, trace: Trace) -> Sequence[Rule]:
    """Return the clipping rule of each step, from the trace or else from the plan and its schedule."""
    if trace.rules is not None:
        return trace.rules
    return [plan.clipping.scale_bound(factor) for factor in plan.bound_factors().tolist()]


def _masks(plan: Plan, layout: Layout, released: Array) -> Mask:
    """Return the masks (T, d) of coordinates with data and noise."""
    kept, times = np.ones(released.shape, dtype=bool), plan.timetable()
    if plan.sparsification is None or times is None:
        return kept
    if plan.sparsification.ranks:
        return _seen_masks(plan.sparsification, times, released)
    shapes = {name: (1, size) for name, size in layout.sizes.items()}
    for step in range(plan.total_steps):
        masks = plan.sparsification.masks(times.block(step + 1), times.blocks, shapes, {})
        if masks is not None:
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


def _expected_counts(rules: Sequence[Rule], norms: Array, name: str, canaries: NDArray[np.int64], drawn: Array) -> Array:
    """Return (T, k): a statistic of the canaries and the other examples of each step, whose gradients are zero."""
    found = []
    for rule, norm, ours, every in zip(rules, torch.from_numpy(norms)[:, :, None], canaries, drawn, strict=True):
        found.append(ours * rule.statistics(norm)[name] + (every - ours) * rule.statistics(0 * norm)[name])
    return np.stack(found)


def _factors(rule: Rule) -> Array:
    """Return quantiles of √(r/χ²ᵣ), the factor by which an estimated norm is too small, at the midpoints."""
    if not isinstance(rule, Projected):
        return np.ones(1)
    half = rule.projections / 2
    found = np.sqrt(half / gammaincinv(half, (np.arange(_QUANTILES) + 0.5) / _QUANTILES))
    mean = math.sqrt(half) * math.exp(gammaln(half - 0.5) - gammaln(half))
    return np.asarray(found * mean / found.mean())
