"""Per-example gradients, their norms and their clipped sum, for a model, a loss and a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.randomness import preserve_generators
from privet._utils.tensors import gradient_dtype, zero_sum
from privet.clipping import GEP, Projected, Rule
from privet.clipping.clipped_sum import BatchSlice, ClippedSum
from privet.clipping.weighing import read_scales, split_groups, weigh
from privet.errors import USER_ERRORS, InvalidArgumentError, choice, count, raise_interrupt
from privet.gradients.core.examples import Examples, split_batch
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.randomness import SeedSource, draw_torch_seed
from privet.gradients.masking.embedding_rows import split_tables
from privet.gradients.masking.masks import Mask, prepare_masks
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import METHODS, Passes, Past, check_past
from privet.gradients.methods.tape import Tape, clip, precise_norms
from privet.gradients.parameters import refuse_inference_mode, trainable
from privet.gradients.projection.clipping import clip_projected
from privet.gradients.projection.directions import Directions
from privet.gradients.projection.subspace import Subspace
from privet.sparsification.selected_rows import SelectedRows

# Positions of examples, the sum of their clipped gradients by name, and their norms, (G, b).
Part = tuple[Tensor, dict[str, Tensor], Tensor]
# (tape, positions of its examples) → the tape whose gradients are clipped instead
Average = Callable[[Tape, Tensor], Tape]


@dataclass(frozen=True, eq=False)
class Clipper:
    """How the gradients of one batch or draw are clipped, the same for all of its parts."""

    rule: Rule
    summed: Mapping[str, Tensor]  # name → tensor of the shape of its sum
    groups: tuple[tuple[str, ...], ...]  # names of the sums that are clipped together
    masks: Mapping[str, Mask] | None = None  # prepared; None to keep all coordinates
    support: Mapping[str, Tensor] | None = None  # the masks as bool tensors
    directions: Directions | None = None  # of `clipping.Projected`
    subspace: Subspace | None = None  # of `clipping.GEP`
    rows: SelectedRows | None = None  # of embedding tables

    @staticmethod
    def of(
        parameters: Mapping[str, Tensor],
        rule: Rule,
        masks: Mapping[str, Tensor] | None = None,
        directions: Directions | None = None,
        subspace: Subspace | None = None,
        rows: SelectedRows | None = None,
    ) -> Clipper:
        """Return the clipper of a rule; arguments as for `clipped_sum`."""
        check_subspace(rule, subspace)
        summed = {**(parameters if subspace is None else subspace.released), **({} if rows is None else rows.summed)}
        groups = split_groups(rule, tuple(summed))
        known = None if masks is None else prepare_masks(masks, parameters)
        support = None if masks is None else {name: mask for name, mask in masks.items() if name in summed}
        chosen = directions or Directions() if isinstance(rule, Projected) else None
        return Clipper(rule, summed, groups, known, support, chosen, subspace, rows)

    def clip(self, index: Tensor, whole: Tape) -> list[Part]:
        """Return the clipped sums of the examples at some positions; the tape is consumed."""
        tape = whole if self.masks is None else whole.mask(self.masks)
        if self.rows is not None:
            grads, counts = split_tables(self.rows, tape.grads)
            sums, norms = clip(Tape(tape.examples, self.summed, grads), self.rule, self.groups)
            return [(index, {**sums, **counts}, norms)]
        if self.subspace is not None:
            return [(index[where], *clip(one, self.rule, self.groups)) for where, one in self.subspace.split(tape)]
        if self.directions is not None and isinstance(self.rule, Projected):
            return [(index, *clip_projected(tape, self.rule, self.groups, self.directions))]
        return [(index, *clip(tape, self.rule, self.groups))]


@dataclass(eq=False)
class RunningSum:
    """The clipped sum of a batch or draw, to which its parts are added one after another; `sums` is empty before the first."""

    clipper: Clipper
    sums: dict[str, Tensor] = field(default_factory=dict)
    _norms: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, index: Tensor, sums: dict[str, Tensor], norms: Tensor) -> None:
        """Add the clipped sum of the examples at these positions, which are in increasing order; its tensors may change."""
        self._norms.append((index, norms))
        if not self.sums:
            self.sums = sums
        else:
            for name, value in sums.items():
                self.sums[name] += value

    def norms(self, examples: int) -> Tensor:
        """Return the norms of all examples, (G, B) float64; zero for those that were not added."""
        if len(self._norms) == 1 and self._norms[0][1].shape[1] == examples:
            return self._norms[0][1]
        device = next(iter(self.clipper.summed.values())).device
        found = torch.zeros(len(self.clipper.groups), examples, dtype=torch.float64, device=device)
        if self._norms:
            places, norms = (torch.cat(parts, -1) for parts in zip(*self._norms, strict=True))
            in_order = torch.equal(places, torch.arange(examples, device=places.device))  # on the host
            found = norms if in_order else found.index_copy_(1, places.to(device), norms)
        return found

    def to_clipped_sum(self, examples: int, part: BatchSlice | None = None) -> ClippedSum:
        """Return the clipped sum of all parts; for no examples, zeros, which are noised and accounted for like any other sum."""
        rule, sums, norms = self.clipper.rule, self.sums, self.norms(examples)
        if not sums:
            zeros = {name: zero_sum(tensor) for name, tensor in self.clipper.summed.items()}
            sums = {**zeros, **weigh(rule, norms[:, :0], self.clipper.groups)[1]}
        sums, counts = (sums, None) if self.clipper.rows is None else self.clipper.rows.finish(sums)
        scales, sensitivity = read_scales(rule, tuple(self.clipper.summed))
        return ClippedSum(sums, sensitivity, norms[0] if len(norms) == 1 else norms, part, scales, self.clipper.support, counts)


@dataclass(eq=False)
class Engine:
    """Computes clipped sums of a model's gradients over batches of isolated examples."""

    model: nn.Module
    loss_fn: LossFunction
    parameters: Mapping[str, Tensor]
    method: str = "auto"  # "auto", "ghost" or "loop"
    physical_batch_size: int | None = None  # most examples in one pass through the model; None for all
    seeds: SeedSource = draw_torch_seed  # of the model's random numbers
    skip_errors: bool = False  # whether an example whose own computation raises contributes zero instead of raising
    looped: int = 0  # number of examples that the loop has computed

    def __post_init__(self) -> None:
        choice("method", self.method, ("auto", *METHODS))
        self.program = Program(self.model, self.loss_fn, self.parameters)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(iter(self.parameters.values())).device

    def tapes(self, examples: Examples, past: Past = ()) -> Iterator[tuple[Tensor, Tape]]:
        """Yield positions of examples and their tape, until all are covered; call inside `preserve_generators`."""
        refuse_inference_mode()
        if past:
            check_past(past, self.parameters)
        limit, total = self.physical_batch_size, examples.count
        size = total if limit is None else count("physical_batch_size", limit)
        for start in range(0, total, max(1, size)):
            part = examples if size >= total else examples.select(slice(start, start + size))
            passes = Passes(self.program, self.seeds, self.method, past, self.skip_errors)
            for index, tape in passes.tapes(part):
                yield index + start if start else index, tape
            self.looped += passes.looped

    def clip(self, examples: Examples, clipper: Clipper, past: Past = (), average: Average | None = None) -> Iterator[Part]:
        """Yield the clipped sums of parts of a batch, until all examples are covered; call inside `preserve_generators`.

        Examples whose gradients cannot be summed together, because one of them took a path that a rule does not support, are
        computed again in halves. A single one is computed in the loop; if it fails there too, it contributes zero. It must not
        send the others through the loop, in which norms are rounded otherwise.
        """
        waiting: list[tuple[Tensor | None, bool]] = [(None, False)]
        while waiting:
            rows, alone = waiting.pop()
            engine = replace(self, method="loop") if alone else self
            for index, whole in engine.tapes(examples if rows is None else examples.select(rows), past):
                chosen = index if rows is None else rows[index]
                try:
                    parts = clipper.clip(chosen, whole if average is None else average(whole, chosen))
                except USER_ERRORS as error:
                    raise_interrupt(error)
                    if not self.skip_errors:
                        raise
                    if not alone:
                        waiting += [(part, len(part) == 1) for part in chosen.tensor_split(min(2, len(chosen)))]
                else:
                    yield from parts

    def clipped_sum(self, examples: Examples, clipper: Clipper, past: Past = ()) -> RunningSum:
        """Return the clipped sum over a batch; arguments as for `clip`."""
        total = RunningSum(clipper)
        with preserve_generators():
            for each in self.clip(examples, clipper, past):
                total.add(*each)
        return total


def check_subspace(clipping: Rule, subspace: Subspace | None) -> None:
    """Refuse a rule that needs a subspace without one, and the reverse."""
    if isinstance(clipping, GEP) != (subspace is not None):
        needed = "given" if subspace is None else "left out"
        raise InvalidArgumentError(
            "subspace", subspace and "given", f"{needed} with clipping.{type(clipping).__name__}",
            "Training finds the subspaces of clipping.GEP by itself, from the data set `public`.",
        )  # fmt: skip


def tapes(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    parameters: Mapping[str, Tensor],
    method: str = "auto",
    physical_batch_size: int | None = None,
) -> Iterator[tuple[Tensor, Tape]]:
    """Yield positions of a batch's examples and their tape, until all are covered."""
    with preserve_generators():
        yield from Engine(model, loss_fn, parameters, method, physical_batch_size).tapes(split_batch(batch))


def per_example_gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, method: str = "auto", physical_batch_size: int | None = None
) -> dict[str, Tensor]:
    """Return every example's gradient of every trainable parameter: for research and tests, large and not private.

    Args:
        model: any module; it is not modified.
        loss_fn: (model, batch) → (B,) losses, one per example. It receives one example at a time, as a batch of one.
        batch: a tensor, or a tuple, list or dict of tensors, with B examples along the first dimension. A list of B entries that
            hold other tensors, such as boxes, has one for each example, all of one shape.
        method: "ghost" (one pass over the physical batch), "loop" (one example at a time), or "auto": the first, with the second
            as fallback for operations that it does not support.
        physical_batch_size: most examples in one pass, ≥ 1; None for all. Limits memory, and changes results only by rounding.
    Returns:
        Parameter name → (B, *shape). Each call draws a new seed for the model's random numbers, such as dropout's, from torch's
        global generator: `torch.manual_seed` before a call makes its result reproducible.
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> per_example_gradients(layer, lambda model, batch: model(batch).sum(1), x)["weight"]
    tensor([[[1., 2.]],
    <BLANKLINE>
            [[3., 4.]]])
    """
    engine, examples = _make_engine(model, loss_fn, batch, method, physical_batch_size)
    found = {
        name: parameter.detach().new_zeros(examples.count, *parameter.shape, dtype=gradient_dtype(parameter))
        for name, parameter in engine.parameters.items()
    }
    with preserve_generators():
        for index, tape in engine.tapes(examples):
            for name, gradients in tape.gradients().items():
                found[name][index] = gradients.detach().to(found[name].dtype)
    return found


def per_example_norms(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, method: str = "auto", physical_batch_size: int | None = None
) -> Tensor:
    """Return the L2 norm of every example's gradient over all trainable parameters, without forming the gradients.

    Args: as for `per_example_gradients`.

    Returns:
        (B,) float64; infinite or NaN where the gradient is not finite in the model's precision.
    """
    engine, examples = _make_engine(model, loss_fn, batch, method, physical_batch_size)
    found = torch.zeros(examples.count, dtype=torch.float64, device=next(iter(engine.parameters.values())).device)
    with preserve_generators():
        for index, tape in engine.tapes(examples):
            found[index.to(found.device)] = precise_norms(tape, (tuple(engine.parameters),))[0]
    return found


def clipped_sum(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    clipping: Rule,
    *,
    method: str = "auto",
    physical_batch_size: int | None = None,
    part: BatchSlice | None = None,
    masks: Mapping[str, Tensor] | None = None,
    past: Past = (),
    directions: Directions | None = None,
    subspace: Subspace | None = None,
) -> ClippedSum:
    """Return Σᵢ w(‖gᵢ‖)·gᵢ over the batch, with its sensitivity; with masks, m∘gᵢ replaces gᵢ.

    Args:
        model: any module; its parameters' `.grad` is not changed.
        loss_fn: (model, batch) → (B,) losses, one per example. It receives one example at a time, as a batch of one.
        batch: B examples along the first dimension of its tensors; B may be 0. A tensor with another first dimension is shared.
        clipping: the clipping rule, which computes weights from norms.
        method, physical_batch_size: as for `per_example_gradients`, and so are random numbers.
        part: positions of these examples within a draw, if parts of it are added later.
        masks: name → bool tensor shaped like the parameter, True where an entry is kept; parameters without a mask are kept
            whole. Masks must be public; they become the support of the sum.
        past: pairs (c, {name: tensor}) of coefficients and other values of the trainable parameters; gᵢ is then the gradient
            plus c times the gradient at each of these. They must be public, as released parameters are.
        directions: from which `clipping.Projected` estimates norms; all parts of one batch must use the same. Drawn if None.
        subspace: by which `clipping.GEP` splits gradients, from `find_subspace`; all parts of one batch must use the same.

    Guarantee:
        Adding or removing one example changes the sum by at most the rule's sensitivity: model and loss see one example at a
        time, so its gradient depends on no other. Gradients that are not finite contribute exactly zero. The caller must
        provide rows that each depend on one example only; rows computed from several examples are not detected here.

    Source:
        Goodfellow 2015; Li et al. 2022 (norms from factors); Bu et al. 2023, "Book-Keeping" (one backward pass).
    """
    if not isinstance(clipping, Rule):
        raise InvalidArgumentError("clipping", clipping, "a rule such as privet.clipping.Flat(bound=1.0)")
    if masks is not None and isinstance(clipping, Projected):
        raise InvalidArgumentError(
            "masks", "given", f"left out with {type(clipping).__name__}", "It estimates the norms of unmasked gradients."
        )
    engine, examples = _make_engine(model, loss_fn, batch, method, physical_batch_size)
    clipper = Clipper.of(engine.parameters, clipping, masks, directions, subspace)
    return engine.clipped_sum(examples, clipper, past).to_clipped_sum(examples.count, part)


def _make_engine(
    model: nn.Module, loss_fn: LossFunction, batch: Any, method: str, physical_batch_size: int | None
) -> tuple[Engine, Examples]:
    # From outside `preserve_generators`, which puts torch's generator back: each call must draw other numbers than the last.
    seeds = partial(draw_torch_seed, torch.Generator().manual_seed(draw_torch_seed()))
    return Engine(model, loss_fn, trainable(model), method, physical_batch_size, seeds), split_batch(batch)


def empty_sum(
    parameters: Mapping[str, Tensor], clipping: Rule, part: BatchSlice | None = None, masks: Mapping[str, Tensor] | None = None
) -> ClippedSum:
    """Return the clipped sum over no examples: zeros, which are noised and accounted for like any other sum."""
    return RunningSum(Clipper.of(parameters, clipping, masks)).to_clipped_sum(0, part)
