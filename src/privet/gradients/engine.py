"""Per-example gradients, their norms and their clipped sum, for a model, a loss and a batch."""

from __future__ import annotations

__all__ = ["METHODS", "Engine", "PartialSums", "clipped_sum", "empty_sum", "per_example_gradients", "per_example_norms", "tapes"]

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from privet.errors import USER_ERRORS, InvalidArgumentError, choice, count
from privet.gradients.core.examples import Examples, split_batch
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.private import raise_interrupt
from privet.gradients.core.randomness import SeedSource, draw_torch_seed
from privet.gradients.masking.masks import prepare_masks
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import METHODS, Passes
from privet.gradients.methods.past_iterates import Past, check_past
from privet.gradients.methods.tape import Tape, clip, precise_norms
from privet.gradients.parameters import refuse_inference_mode, trainable
from privet.gradients.projection.clipping import clip_projected
from privet.gradients.projection.directions import Directions
from privet.gradients.projection.subspace import Subspace

_Again = Callable[[Tensor], Iterator[tuple[Tensor, Tape]]]


@dataclass(eq=False)
class Engine:
    """Computes clipped sums of a model's gradients over batches of isolated examples.

    Args:
        model: any module, in the intended mode (train or eval).
        loss_fn: (model, batch) → (B,) losses.
        parameters: name → parameter to differentiate by.
        method: "auto", "ghost" or "loop".
        physical_batch_size: most examples in one pass through the model; None for all.
        seeds: source of seeds for the model's random numbers.
        skip_errors: whether an example whose own computation raises contributes zero instead of raising.

    Attributes:
        looped: number of examples computed by the loop since the engine was created.
    """

    model: nn.Module
    loss_fn: LossFunction
    parameters: Mapping[str, Tensor]
    method: str = "auto"
    physical_batch_size: int | None = None
    seeds: SeedSource = draw_torch_seed
    skip_errors: bool = False
    looped: int = 0

    def __post_init__(self) -> None:
        choice("method", self.method, ("auto", *METHODS))
        self.program = Program(self.model, self.loss_fn, self.parameters)

    def tapes(self, examples: Examples, past: Past = ()) -> Iterator[tuple[Tensor, Tape]]:
        """Yield positions of examples and their tape, until all are covered; call inside `preserve_generators`.

        Args:
            examples: the batch.
            past: parameter sets with coefficients; the gradients at these are added.
        """
        check_past(past, self.parameters)
        for start, part in self._split(examples):
            passes = Passes(self.program, self.seeds, self.method, past, self.skip_errors)
            for index, tape in passes.tapes(part):
                yield index + start if start else index, tape
            self.looped += passes.looped

    def _split(self, examples: Examples) -> Iterator[tuple[int, Examples]]:
        """Yield parts of at most `physical_batch_size` examples, with the position of the first."""
        refuse_inference_mode()
        limit = self.physical_batch_size
        size = examples.count if limit is None else count("physical_batch_size", limit)
        for start in range(0, examples.count, max(1, size)):
            yield start, examples if size >= examples.count else examples.select(slice(start, start + size))

    def clipped_sum(
        self,
        examples: Examples,
        clipping: Rule,
        *,
        masks: Mapping[str, Tensor] | None = None,
        past: Past = (),
        directions: Directions | None = None,
        subspace: Subspace | None = None,
    ) -> PartialSums:
        """Return the clipped sum over a batch; arguments as for the function of this name."""
        with preserve_generators():

            def again(index: Tensor) -> Iterator[tuple[Tensor, Tape]]:
                engine = self if len(index) > 1 else replace(self, method="loop")
                for part in index.tensor_split(min(2, len(index))):
                    for position, tape in engine.tapes(examples.select(part), past):
                        yield part[position], tape

            covering = (each for each in self.tapes(examples, past))  # a generator in another, as those of `again` are
            return self.clip(covering, examples.count, clipping, masks, directions, subspace, again)

    def clip(
        self,
        covering: Iterable[tuple[Tensor, Tape]],
        examples: int,
        clipping: Rule,
        masks: Mapping[str, Tensor] | None = None,
        directions: Directions | None = None,
        subspace: Subspace | None = None,
        again: _Again | None = None,
    ) -> PartialSums:
        """Return the clipped sum over tapes that cover a batch; the tapes are consumed.

        Args:
            covering: positions of examples and their tapes.
            examples: number of all examples.
            clipping, masks, directions, subspace: as for `clipped_sum`.
            again: positions → tapes of fewer examples, for examples whose gradients could not be summed together, because one of
                them took a path that a rule does not support; of a single one, its tape by itself. That one must not send the
                others through the loop, in which norms are rounded otherwise. If it fails by itself, it contributes zero.
        """
        check_subspace(clipping, subspace)
        summed = self.parameters if subspace is None else subspace.released
        groups = split_groups(clipping, tuple(summed))
        known = None if masks is None else prepare_masks(masks, self.parameters)
        if isinstance(clipping, Projected):
            directions = directions or Directions()
        partial_sums = PartialSums(len(groups), examples, next(iter(summed.values())).device)

        def add(index: Tensor, whole: Tape) -> None:
            found = []
            tape = whole if known is None else whole.mask(known)
            split = [(index, tape)] if subspace is None else ((index[where], part) for where, part in subspace.split(tape))
            for positions, part in split:
                if directions is not None and isinstance(clipping, Projected):
                    found.append((positions, *clip_projected(part, clipping, groups, directions)))
                else:
                    found.append((positions, *clip(part, clipping, groups)))
            for each in found:
                partial_sums.add(*each)

        waiting = [(covering, False)]
        while waiting:  # rather than recursion, so that user code always runs equally deep in the stack
            tapes_of_part, last = waiting.pop()
            for index, tape in tapes_of_part:
                try:
                    add(index, tape)
                except USER_ERRORS as error:
                    raise_interrupt(error)
                    if again is None or not self.skip_errors:
                        raise
                    waiting += [] if last else [(again(index), len(index) == 1)]
        return partial_sums


@dataclass(eq=False)
class PartialSums:
    """Accumulated sums over parts of a batch.

    Args:
        groups: G.
        examples: B.
        device: of the norms.

    Attributes:
        sums: name → sum; empty before the first part.
    """

    groups: int
    examples: int
    device: torch.device
    sums: dict[str, Tensor] = field(default_factory=dict)
    _norms: Tensor | None = None

    @staticmethod
    def empty(parameters: Mapping[str, Tensor], clipping: Rule, examples: int) -> PartialSums:
        """Return the partial sums of a batch before the first part."""
        groups = split_groups(clipping, tuple(parameters))
        return PartialSums(len(groups), examples, next(iter(parameters.values())).device)

    @property
    def norms(self) -> Tensor:
        """Norms of all examples, (G, B) float64; zero for examples that are not yet added."""
        if self._norms is None:
            self._norms = torch.zeros(self.groups, self.examples, dtype=torch.float64, device=self.device)
        return self._norms

    def add(self, index: Tensor, sums: dict[str, Tensor], norms: Tensor) -> None:
        """Add a part of the batch, with its examples at these positions, in increasing order."""
        if norms.shape[1] == self.examples:
            self._norms = norms
        else:
            self.norms.index_copy_(1, index.to(self.device), norms)
        if not self.sums:
            self.sums = sums
        else:
            for name, value in sums.items():
                self.sums[name] += value

    def to_clipped_sum(
        self,
        parameters: Mapping[str, Tensor],
        clipping: Rule,
        part: BatchSlice | None = None,
        masks: Mapping[str, Tensor] | None = None,
    ) -> ClippedSum:
        """Return the clipped sum; for no examples, zeros, which are noised and accounted for like any other sum.

        Args:
            parameters: name → parameter, or another tensor of the shape of its sum.
            clipping, part, masks: as for `clipped_sum`; masks of parameters that are not summed do not apply.
        """
        sums = self.sums
        if not sums:
            zeros = {name: zero_sum(parameter) for name, parameter in parameters.items()}
            sums = {**zeros, **weigh(clipping, self.norms[:, :0], clipping.groups(tuple(parameters)))[1]}
        norms = self.norms[0] if len(self.norms) == 1 else self.norms
        scales, sensitivity = read_scales(clipping, tuple(parameters))
        # The same object where all of it applies, so that parts of a draw are seen to share it at no cost.
        support = masks
        if masks is not None and not masks.keys() <= sums.keys():
            support = {name: mask for name, mask in masks.items() if name in sums}
        return ClippedSum(sums, sensitivity, norms, part, scales, support)


def check_subspace(clipping: Rule, subspace: Subspace | None) -> None:
    """Refuse a rule that needs a subspace without one, and the reverse.

    Raises:
        InvalidArgumentError: the message says which.
    """
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
    """Yield positions of a batch's examples and their tape, until all are covered.

    Args:
        model, loss_fn, batch, method, physical_batch_size: as for `per_example_gradients`.
        parameters: name → parameter to differentiate by.
    """
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
        physical_batch_size: most examples in one pass through the model, ≥ 1; None for all. Limits memory, and changes the
            result only by rounding.

    Returns:
        Parameter name → (B, *shape). Random numbers of the model, such as dropout's, are new for each example in each call, which
        draws one number from torch's global generator: `torch.manual_seed` before a call makes its result reproducible.

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
    partial_sums = engine.clipped_sum(examples, clipping, masks=masks, past=past, directions=directions, subspace=subspace)
    summed = engine.parameters if subspace is None else subspace.released
    return partial_sums.to_clipped_sum(summed, clipping, part, masks)


def _make_engine(
    model: nn.Module, loss_fn: LossFunction, batch: Any, method: str, physical_batch_size: int | None
) -> tuple[Engine, Examples]:
    # From outside `preserve_generators`, which puts torch's generator back: each call must draw other numbers than the last.
    seeds = partial(draw_torch_seed, torch.Generator().manual_seed(draw_torch_seed()))
    return Engine(model, loss_fn, trainable(model), method, physical_batch_size, seeds), split_batch(batch)


def empty_sum(
    parameters: Mapping[str, Tensor], clipping: Rule, part: BatchSlice | None = None, masks: Mapping[str, Tensor] | None = None
) -> ClippedSum:
    """Return the clipped sum over no examples: zeros, which are noised and accounted for like any other sum.

    Args:
        parameters: name → trainable parameter.
        clipping: the clipping rule, which determines further statistics in the sum and the scale of the noise.
        part: positions within a draw that it covers.
        masks: as for `clipped_sum`.
    """
    return PartialSums.empty(parameters, clipping, 0).to_clipped_sum(parameters, clipping, part, masks)
