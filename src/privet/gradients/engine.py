"""Per-example gradients, their norms and their clipped sum, for a model, a loss and a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.randomness import preserve_generators
from privet.clipping import Projected, Rule
from privet.clipping.clipped_sum import ClippedSum, Part
from privet.errors import InvalidArgumentError, choice, count
from privet.gradients.core.examples import Examples, split_batch
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.parameters import trainable
from privet.gradients.core.randomness import Seeds, seeds_of_torch
from privet.gradients.masking.masks import prepared
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.passes import METHODS, Passes
from privet.gradients.methods.past_iterates import Past, check_past
from privet.gradients.methods.tape import Tape, clip, precise_norms
from privet.gradients.projection.clipping import clip_projected, estimates
from privet.gradients.projection.directions import Directions


@dataclass(eq=False)
class Engine:
    """Takes clipped sums of a model's gradients, of batches whose examples are kept apart.

    Args:
        model: any module, in the mode (train or eval) that is meant.
        loss_fn: (model, batch) → (B,) losses.
        parameters: name → parameter to differentiate by.
        method: "auto", "ghost" or "loop".
        physical_batch_size: most examples that go through the model at once; None for all.
        seeds: of what the model draws.
        forgiving: whether an example whose own computation raises contributes zero, instead of raising.

    Attributes:
        looped: how many examples went one at a time since the engine was made.
    """

    model: nn.Module
    loss_fn: LossFunction
    parameters: Mapping[str, Tensor]
    method: str = "auto"
    physical_batch_size: int | None = None
    seeds: Seeds = seeds_of_torch
    forgiving: bool = False
    looped: int = 0

    def __post_init__(self) -> None:
        choice("method", self.method, ("auto", *METHODS))
        self.subject = Subject(self.model, self.loss_fn, self.parameters)

    def tapes(self, examples: Examples, past: Past = ()) -> Iterator[tuple[Tensor, Tape]]:
        """Yield positions of examples and their tape, until all are covered; inside of `preserve_generators`.

        Args:
            examples: the batch.
            past: parameter sets with coefficients; the gradients at these are added.
        """
        check_past(past, self.parameters)
        for start, part in self._parts(examples):
            passes = Passes(self.subject, self.seeds, self.method, past, self.forgiving)
            for index, tape in passes.tapes(part):
                yield index + start, tape
            self.looped += passes.looped

    def _parts(self, examples: Examples) -> Iterator[tuple[int, Examples]]:
        """Yield the batch in parts of at most so many examples, with the position of the first."""
        wanted = self.physical_batch_size
        size = examples.count if wanted is None else count("physical_batch_size", wanted)
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
    ) -> Pieces:
        """Return the clipped sum over a batch; arguments are as for the function of this name."""
        with preserve_generators():
            if not isinstance(clipping, Projected):
                return self.clip(self.tapes(examples, past), examples.count, clipping, masks)
            return self._projected(examples, clipping, past, directions or Directions())

    def clip(
        self,
        covering: Iterable[tuple[Tensor, Tape]],
        examples: int,
        clipping: Rule,
        masks: Mapping[str, Tensor] | None = None,
    ) -> Pieces:
        """Return the clipped sum over tapes that cover a batch, which are spent."""
        groups = clipping.groups(tuple(self.parameters))
        known = None if masks is None else prepared(masks, self.parameters)
        pieces = Pieces.none(self.parameters, clipping, examples)
        for index, tape in covering:
            sums, norms = clip(tape if known is None else tape.masked(known), clipping, groups)
            pieces.add(index, sums, norms)
        return pieces

    def _projected(self, examples: Examples, clipping: Projected, past: Past, directions: Directions) -> Pieces:
        check_past(past, self.parameters)
        pieces = Pieces.none(self.parameters, clipping, examples.count)
        for start, part in self._parts(examples):
            drawn = directions.drawn(self.parameters, clipping.projections)
            norms = estimates(self.subject, part, drawn, past, forgiving=self.forgiving)
            for index, sums, own in clip_projected(clipping, self.parameters, norms, self.tapes(part, past)):
                pieces.add(index + start, sums, own)
        return pieces


@dataclass(eq=False)
class Pieces:
    """Sums over parts of a batch, as they add up.

    Args:
        norms: of all examples, (G, B) float64; zero for those that contributed nothing.
        sums: name → sum; empty before the first part.
    """

    norms: Tensor
    sums: dict[str, Tensor]

    @staticmethod
    def none(parameters: Mapping[str, Tensor], clipping: Rule, examples: int) -> Pieces:
        """Return the pieces of a batch before the first part."""
        device = next(iter(parameters.values())).device
        groups = len(clipping.groups(tuple(parameters)))
        return Pieces(torch.zeros(groups, examples, dtype=torch.float64, device=device), {})

    def add(self, index: Tensor, sums: dict[str, Tensor], norms: Tensor) -> None:
        """Add a part, whose examples stand at these positions."""
        self.norms[:, index.to(self.norms.device)] = norms
        if not self.sums:
            self.sums = sums
        else:
            for name, value in sums.items():
                self.sums[name] += value

    def as_sum(
        self,
        parameters: Mapping[str, Tensor],
        clipping: Rule,
        part: Part | None = None,
        masks: Mapping[str, Tensor] | None = None,
    ) -> ClippedSum:
        """Return the clipped sum; zeros, noised and counted like any other, if there was no example."""
        sums = self.sums
        if not sums:
            zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in parameters.items()}
            sums = {**zeros, **clipping.statistics(self.norms[:, :0])}
        norms = self.norms[0] if len(self.norms) == 1 else self.norms
        scales = clipping.noise_scales(tuple(parameters))
        return ClippedSum(sums, clipping.sensitivity, norms, part, scales, masks)


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
    """Return every example's gradient of every trainable parameter: a tool for research and tests, large and non-private.

    Args:
        model: any module; nothing is written to it.
        loss_fn: (model, batch) → (B,) losses, one per example. It is handed one example at a time, as a batch of one.
        batch: a tensor, or a tuple, list or dict of them, with B examples along the first dimension.
        method: "ghost" (one pass over the physical batch), "loop" (one example at a time), or "auto": the first, and the second
            for what it cannot follow.
        physical_batch_size: most examples that go through the model at once, ≥ 1; None for all. Bounds memory, and changes the
            result by rounding alone.

    Returns:
        Parameter name → (B, *shape).

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> per_example_gradients(layer, lambda model, batch: model(batch).sum(1), x)["weight"]
    tensor([[[1., 2.]],
    <BLANKLINE>
            [[3., 4.]]])
    """
    engine, examples = _of_batch(model, loss_fn, batch, method, physical_batch_size)
    found = {
        name: parameter.detach().new_zeros(examples.count, *parameter.shape) for name, parameter in engine.parameters.items()
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
    engine, examples = _of_batch(model, loss_fn, batch, method, physical_batch_size)
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
    part: Part | None = None,
    masks: Mapping[str, Tensor] | None = None,
    past: Past = (),
    directions: Directions | None = None,
) -> ClippedSum:
    """Return Σᵢ w(‖gᵢ‖)·gᵢ over the batch, with its sensitivity; with masks, m∘gᵢ takes the place of gᵢ.

    Args:
        model: any module; its parameters' `.grad` is not touched.
        loss_fn: (model, batch) → (B,) losses, one per example. It is handed one example at a time, as a batch of one.
        batch: B examples along the first dimension of its tensors; B may be 0. A tensor with another first dimension is shared.
        clipping: the rule that weights by norm.
        method, physical_batch_size: as for `per_example_gradients`.
        part: which positions of which draw these examples are, if parts are to be joined.
        masks: name → bool tensor shaped like the parameter, True where an entry is kept; what is not named is kept whole. They
            must be public, and become the sum's support.
        past: pairs (c, {name: tensor}) of coefficients and other values of the trainable parameters; gᵢ is then the gradient
            plus c times the gradient at each of these. They must be public, as released parameters are.
        directions: that `clipping.Projected` estimates norms from; parts of one batch must have the same. None draws them.

    Guarantee:
        Adding or removing one example moves the sum by at most the rule's sensitivity: model and loss see one example, so its
        gradient depends on no other. Gradients that are not finite contribute exactly zero. What the batch holds for each
        example is the caller's: rows that were computed from several examples are not noticed here.

    Source:
        Goodfellow 2015; Li et al. 2022 (norms from factors); Bu et al. 2023, "Book-Keeping" (one backward pass).
    """
    if not isinstance(clipping, Rule):
        raise InvalidArgumentError("clipping", clipping, "a rule such as privet.clipping.Flat(bound=1.0)")
    if masks is not None and isinstance(clipping, Projected):
        raise InvalidArgumentError(
            "masks", "given", f"left out with {type(clipping).__name__}", "Its estimates are of whole norms."
        )
    engine, examples = _of_batch(model, loss_fn, batch, method, physical_batch_size)
    pieces = engine.clipped_sum(examples, clipping, masks=masks, past=past, directions=directions)
    return pieces.as_sum(engine.parameters, clipping, part, masks)


def _of_batch(
    model: nn.Module, loss_fn: LossFunction, batch: Any, method: str, physical_batch_size: int | None
) -> tuple[Engine, Examples]:
    return Engine(model, loss_fn, trainable(model), method, physical_batch_size), split_batch(batch)


def empty_sum(
    parameters: Mapping[str, Tensor], clipping: Rule, part: Part | None = None, masks: Mapping[str, Tensor] | None = None
) -> ClippedSum:
    """Return the clipped sum over no examples: zeros, noised and counted like any other.

    Args:
        parameters: name → trainable parameter.
        clipping: the rule, which says what else is summed and how the noise is scaled.
        part: which positions of which draw it stands for.
        masks: as for `clipped_sum`.
    """
    return Pieces.none(parameters, clipping, 0).as_sum(parameters, clipping, part, masks)


__all__ = [
    "METHODS", "Engine", "Pieces", "clipped_sum", "empty_sum", "per_example_gradients", "per_example_norms",
    "tapes",
]  # fmt: skip
