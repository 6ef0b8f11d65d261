"""The Gaussian mechanism: from a clipped sum and a token to a release."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from privet._utils.registry import add
from privet._utils.tensors import places
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError, check_public_number, choice
from privet.noise.base import NoiseMechanism
from privet.noise.compiled import arithmetic
from privet.noise.noised_sum import NoisedSum
from privet.noise.past import Draw, PastNoise
from privet.noise.row_selection import CELLS_LOG2, select_rows, sparse_rows
from privet.noise.shares import Owners, draw_shares
from privet.noise.sources import SecureSource, Source
from privet.noise.token import Token
from privet.schedules import Constant, Schedule

DEVIATIONS = ("relative", "fixed")


@add
@dataclass(frozen=True)
class Gaussian(NoiseMechanism):
    """Gaussian noise on every coordinate of the sum, with standard deviation multiplier × sensitivity.

    Args:
        multiplier: noise multiplier σ, in [1e-3, 1e6]; None leaves it to `Plan.calibrate`. 0 means no noise and requires
            `non_private=True`.
        source: "secure" (cryptographic, the default) or "fixed" (the same on every run: ε = ∞).
        non_private: allow multiplier 0, for ablations; every statement then says ε = ∞.
        schedule: factor on `multiplier` at every step.
        deviation: "relative" (the default): a step's standard deviation is its multiplier times its sensitivity;
            "fixed": the sensitivity is the first step's, so the multiplier grows as a scheduled bound shrinks.

    Source:
        Fixed deviation under a shrinking bound: "Differentially Private SGD with Momentum and Varying Clipping Bound", Alg. 1.

    >>> Gaussian(multiplier=1.1).multiplier
    1.1
    """

    multiplier: float | None = None
    source: str = "secure"
    non_private: bool = False
    schedule: Schedule = field(default_factory=Constant)  # type: ignore[misc]
    deviation: str = "relative"  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("noise.deviation", self.deviation, DEVIATIONS)
        if not isinstance(self.schedule, Schedule):
            raise InvalidArgumentError("noise.schedule", self.schedule, "a value such as privet.schedules.Constant()")


def release(
    clipped: ClippedSum,
    token: Token,
    source: Source,
    divisor: float = 1.0,
    past: PastNoise | None = None,
    first: int = 1,
    *,
    reuse: bool = False,
    owners: Owners | None = None,
) -> NoisedSum:
    """Release a clipped sum: add Gaussian noise, paid for by a token, and divide by a public number.

    Sum and noise are each rounded to a grid, G = 2^⌊log₂ σC⌋·2⁻³⁰, before they are added, so the spacing of the floating-point
    numbers in the result reveals nothing about the sum (Mironov 2012; Haney et al. 2022). Rounding can move the sums of two
    neighbours apart by at most G·√d, which is added to the sensitivity before the noise is scaled to it. A tensor with noise
    scale u gets u times the standard deviation, on its own grid of 2^⌊log₂ σCu⌋·2⁻³⁰, because one grid for very different scales
    would be too fine for float64. Sensitivity and rounding are measured after division by u, so the release is a single Gaussian
    mechanism with the token's multiplier. Coordinates outside the sum's support get neither data nor noise, nor do rows
    that a sparse sum does not store. With counts of rows, these are noised first and select the stored rows (see `select_rows`).
    Secure noise that is independent over the steps is drawn on a CUDA device of the sum where Triton runs, else on the host.

    Args:
        clipped: the sum over the step's examples.
        token: permission for the step, with the noise multiplier to use.
        source: source of standard normal numbers.
        divisor: public number, not 0, by which the noised sum is divided: post-processing in the same pass over the numbers.
        past: noise of earlier steps, for noise that is correlated over the steps (C⁻¹Z instead of Z); it is brought up to date.
            The token's multiplier is then that of Z, which includes the sensitivity of C.
        first: with `past`, the step at which the draws of examples began that this step belongs to.
        reuse: write the release into the memory of the sum, which is then lost.
        owners: the processes that each have a part of the sum, and share the coordinates; None for one that has it whole.

    Returns:
        The release; with multiplier 0 (declared non-private), the sum itself, divided.
    """
    if not isinstance(clipped, ClippedSum):
        raise TypeError(f"noise can only be added to a ClippedSum, which has a sensitivity, not to {type(clipped).__name__}")
    if not isinstance(token, Token):
        raise TypeError(f"drawing noise needs a Token from a ledger, not {type(token).__name__}")
    factor = 1.0 / check_public_number(divisor, "dividing a release")
    multiplier = token.spend()
    if (counted := clipped.rows) is not None:
        clipped = select_rows(clipped, multiplier / math.sqrt(counted.share), source, owners)
        multiplier /= math.sqrt(1 - counted.share)
    scales = [clipped.noise_scales.get(name, 1.0) for name in clipped.tensors]
    kept = {name: places(mask) for name, mask in (clipped.support or {}).items()}
    flat = {name: (each.values() if each.is_sparse else each).reshape(-1) for name, each in clipped.tensors.items()}
    sums = {name: each.index_select(0, kept[name]) if name in kept else each for name, each in flat.items()}
    own, tensors = list(sums.values()), list(range(len(sums)))  # parts that get noise here, and the index of the tensor of each
    if owners is not None:
        shares = owners.scatter(sums)
        own, tensors = [part for _, _, part in shares], [which for which, _, _ in shares]
    if multiplier == 0.0:
        unnoised = _scatter(clipped, kept, sums.values() if owners is None else owners.join(sums, shares))
        return NoisedSum(unnoised, clipped.sensitivity, 0.0, clipped.noise_scales, clipped.support) * factor
    sizes = list(map(len, own)) if owners is None else owners.sizes(sums)
    log2 = CELLS_LOG2 if past is None else past.log2
    grids = [2.0 ** (math.floor(math.log2(multiplier * clipped.sensitivity * scale)) - log2) for scale in scales]
    rounding = math.sqrt(sum([size * (grid / scale) ** 2 for size, grid, scale in zip(sizes, grids, scales, strict=True)]))
    sensitivity = clipped.sensitivity + rounding * (1.0 if past is None else past.rounding)
    deviation = multiplier * sensitivity
    noised = own if reuse else [part.new_empty(part.shape) for part in own]
    add_noise = arithmetic().add_noise
    cells = [scales[which] * deviation / grids[which] for which in tensors]
    there = [place for place, part in enumerate(own) if noised_on_device(source, part, past)]
    if there:
        _add_noise_there(own, there, cells, [grids[which] for which in tensors], factor, noised)
    here = [0 if place in there else len(part) for place, part in enumerate(own)]
    fresh = partial(source.normals, sum(here))
    if owners is not None and not there:
        fresh = partial(draw_shares, source, sizes, shares)
    draw: Draw = lambda: _distribute(fresh(), here)  # noqa: E731
    pieces = draw() if past is None else past.noise(token.step, first, draw, cells, own)
    for place, part, noise in pieces:
        grid, deviations = grids[tensors[place]], cells[place] if past is None else 1.0  # past noise is in cells
        add_noise(own[place][part], noise, deviations, grid, grid * factor, noised[place][part])
    if owners is not None:
        noised = owners.join(sums, [(which, start, part) for (which, start, _), part in zip(shares, noised, strict=True)])
    released = _scatter(clipped, kept, noised)
    size = abs(factor)
    return NoisedSum(released, sensitivity * size, deviation * size, clipped.noise_scales, clipped.support)


def noised_on_device(source: Source, total: Tensor, past: PastNoise | None) -> bool:
    """Return whether the noise for a sum is drawn on its device: secure and independent noise, on CUDA, where Triton runs."""
    if past is not None or not total.is_cuda or not isinstance(source, SecureSource):
        return False
    from privet.noise import device  # only now, because it imports Triton

    return device.serves(total)


def claim_of(source: Source, sums: Iterable[Tensor], past: PastNoise | None) -> str:
    """Return what a statement says of the source, if noise is added to such sums."""
    if not any(noised_on_device(source, total, past) for total in sums):
        return source.claim
    from privet.noise import device

    return device.CLAIM


def _add_noise_there(
    sums: Sequence[Tensor], places: Iterable[int], cells: Sequence[float], grids: Sequence[float], factor: float,
    noised: Sequence[Tensor],
) -> None:  # fmt: skip
    from privet.noise import device

    device.own_stream().add_noise([
        device.NoisePart(place, sums[place], cells[place], grids[place], grids[place] * factor, noised[place]) for place in places
    ])  # fmt: skip


def _scatter(clipped: ClippedSum, kept: Mapping[str, Tensor], values: Iterable[Tensor]) -> dict[str, Tensor]:
    found = {}
    for (name, total), own in zip(clipped.tensors.items(), values, strict=True):
        flat = own if name not in kept else own.new_zeros(total.numel()).index_copy_(0, kept[name], own)
        if total.is_sparse:
            found[name] = sparse_rows(total.indices()[0], flat.view_as(total.values()), len(total))
        else:
            found[name] = flat.view(total.shape)
    return found


def _distribute(pieces: Iterator[Tensor], sizes: Iterable[int]) -> Iterator[tuple[int, slice, Tensor]]:
    """Distribute pieces of any lengths over tensors of these sizes; yield (index of the tensor, slice of it, numbers for it)."""
    piece = torch.empty(0, device="cpu")
    for which, size in enumerate(sizes):
        start = 0
        while start < size:
            piece = piece if len(piece) else next(pieces)
            part = slice(start, min(size, start + len(piece)))
            yield which, part, piece[: part.stop - start]
            piece, start = piece[part.stop - start :], part.stop
