"""Per-example gradients, their norms and their clipped sum, for a model, a loss and a batch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from privet.clipping import Projected, Rule
from privet.errors import InvalidArgumentError, UnsupportedModelError, choice, count
from privet.gradients.directions import Directions
from privet.gradients.functional import one_by_one, vectorised
from privet.gradients.history import Method, Past, check_past, over
from privet.gradients.interception import LossFunction, record
from privet.gradients.masks import prepared
from privet.gradients.projections import clip_projected
from privet.gradients.recorder import UntraceableError
from privet.gradients.tape import Tape, clip, precise_norms
from privet.gradients.trees import examples_in, rows
from privet.values import ClippedSum, Part


def _tape(model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, Tensor]) -> Iterator[Tape]:
    yield record(model, loss_fn, batch, parameters)


# From the fastest to the most general.
METHODS: dict[str, Method] = {"tape": _tape, "vectorised": vectorised, "loop": one_by_one}

_AGREEMENT = 1e-3
_AVERAGING = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return name → parameter for those that ask for a gradient, a shared one once.

    Raises:
        UnsupportedModelError: there are none, one cannot be clipped (complex, or of lower precision), or the model is wrapped to
            average gradients that were not clipped over processes or devices.
    """
    for module in model.modules():
        if type(module).__name__ in _AVERAGING:
            raise UnsupportedModelError(
                f"the model is wrapped in {type(module).__name__}, which sums gradients that nobody clipped; "
                "hand in the module inside"
            )
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not parameters:
        raise UnsupportedModelError("the model has no trainable parameter: none has requires_grad=True")
    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise UnsupportedModelError(
                f"parameter {name} is {parameter.dtype}; gradients are clipped in float32 or float64: keep the parameters in "
                "float32"
            )
    return parameters


def _agree(
    tape: Tape,
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    parameters: Mapping[str, Tensor],
    methods: Mapping[str, Method],
) -> bool:
    """Return whether the tape's norms of the first and last example are those of plain autograd.

    Both are also followed as a pair in reverse order: a model that orders examples inside would give one the other's norm.
    """
    everything = (tuple(parameters),)
    ends = torch.tensor(sorted({0, tape.examples - 1}))
    alone = methods["loop"](model, loss_fn, rows(batch, ends), parameters)
    expected = torch.cat([precise_norms(one, everything)[0] for one in alone])
    try:
        reverse = next(methods["tape"](model, loss_fn, rows(batch, ends.flip(0)), parameters))
    except Exception:  # a model may ask for an order, say by length
        return False
    return all(
        torch.allclose(norms, expected, rtol=_AGREEMENT, atol=1e-12, equal_nan=True)
        for norms in (precise_norms(tape, everything)[0][ends], precise_norms(reverse, everything)[0].flip(0))
    )


def tapes(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    parameters: Mapping[str, Tensor],
    method: str = "auto",
    physical_batch_size: int | None = None,
    past: Past = (),
) -> Iterator[Tape]:
    """Yield tapes that cover the batch in order.

    Args:
        model: any module, in the mode (train or eval) that is meant.
        loss_fn: (model, batch) → (B,) losses.
        batch: tree of tensors with examples along the first dimension.
        parameters: name → parameter to differentiate by.
        method: "tape", "vectorised", "loop", or "auto": the fastest that follows the model, where the tape is believed only
            if it agrees with plain autograd on two examples.
        physical_batch_size: most examples that go through the model at once; None for all.
        past: parameter sets with coefficients; the gradients at these are added.
    """
    choice("method", method, ("auto", *METHODS))
    check_past(past, parameters)
    methods = {name: over(METHODS[name], name, past) for name in METHODS}
    for part in _parts(batch, physical_batch_size):
        yield from _tapes(model, loss_fn, part, parameters, method, methods)


def _parts(batch: Any, physical_batch_size: int | None) -> Iterator[Any]:
    """Yield the batch in parts of at most so many examples."""
    examples = examples_in(batch)
    size = examples if physical_batch_size is None else count("physical_batch_size", physical_batch_size)
    for start in range(0, examples, max(1, size)):
        yield batch if size >= examples else rows(batch, slice(start, start + size))


def _tapes(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    parameters: Mapping[str, Tensor],
    method: str,
    methods: Mapping[str, Method],
) -> Iterator[Tape]:
    if method != "auto":
        yield from methods[method](model, loss_fn, batch, parameters)
        return
    try:
        tape = next(methods["tape"](model, loss_fn, batch, parameters))
        if _agree(tape, model, loss_fn, batch, parameters, methods):
            yield tape
            return
    except UntraceableError:
        pass
    several = methods["vectorised"](model, loss_fn, batch, parameters)
    try:
        first = next(several)
    except InvalidArgumentError:
        raise
    except Exception:  # torch raises many kinds for what it cannot vectorise
        yield from methods["loop"](model, loss_fn, batch, parameters)
        return
    yield first
    yield from several


def per_example_gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, method: str = "auto", physical_batch_size: int | None = None
) -> dict[str, Tensor]:
    """Return every example's gradient of every trainable parameter: a tool for research and tests, large and non-private.

    Args:
        model: any module; nothing is written to it.
        loss_fn: (model, batch) → (B,) losses, one per example.
        batch: a tensor, or a tuple, list or dict of them, with B examples along the first dimension.
        method: how: "auto", "tape", "vectorised" or "loop".
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
    parameters = trainable(model)
    found = [tape.gradients() for tape in tapes(model, loss_fn, batch, parameters, method, physical_batch_size)]
    blank = {name: parameter.detach().new_zeros(0, *parameter.shape) for name, parameter in parameters.items()}
    return {name: torch.cat([part[name] for part in (blank, *found)]).detach() for name in parameters}


def per_example_norms(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, method: str = "auto", physical_batch_size: int | None = None
) -> Tensor:
    """Return the L2 norm of every example's gradient over all trainable parameters, without forming the gradients.

    Args: as for `per_example_gradients`.

    Returns:
        (B,) float64; infinite or NaN where the gradient is not finite in the model's precision.
    """
    parameters = trainable(model)
    everything = (tuple(parameters),)
    norms = [precise_norms(tape, everything)[0] for tape in tapes(model, loss_fn, batch, parameters, method, physical_batch_size)]
    return torch.cat(norms) if norms else torch.zeros(0, dtype=torch.float64)


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
        loss_fn: (model, batch) → (B,) losses, one per example.
        batch: B examples along the first dimension; B may be 0.
        clipping: the rule that weights by norm.
        method, physical_batch_size: as for `per_example_gradients`.
        part: which positions of which draw these examples are, if parts are to be joined.
        masks: name → bool tensor shaped like the parameter, True where an entry is kept; what is not named is kept whole. They
            must be public, and become the sum's support.
        past: pairs (c, {name: tensor}) of coefficients and other values of the trainable parameters; gᵢ is then the gradient
            plus c times the gradient at each of these. They must be public, as released parameters are.
        directions: that `clipping.Projected` estimates norms from; parts of one batch must have the same. None draws them.

    Guarantee:
        If no example's loss depends on another example, adding or removing one moves the sum by at most the rule's
        sensitivity. Gradients that are not finite contribute exactly zero. Training checks the condition; this function,
        a tool for research, does not.

    Source:
        Goodfellow 2015; Li et al. 2022 (norms from factors); Bu et al. 2023, "Book-Keeping" (one backward pass).
    """
    if not isinstance(clipping, Rule):
        raise InvalidArgumentError("clipping", clipping, "a rule such as privet.clipping.Flat(bound=1.0)")
    parameters = trainable(model)
    if not isinstance(clipping, Projected):
        return clipped_sum_of(
            tapes(model, loss_fn, batch, parameters, method, physical_batch_size, past), clipping, parameters, part, masks
        )
    if masks is not None:
        raise InvalidArgumentError(
            "masks", "given", f"left out with {type(clipping).__name__}", "Its estimates are of whole norms."
        )
    check_past(past, parameters)
    drawn, number = directions or Directions(), clipping.projections
    parts = (
        clip_projected(
            model, loss_fn, some, clipping, parameters, drawn.drawn(parameters, number), past,
            functools.partial(tapes, model, loss_fn, some, parameters, method, None, past),
        )
        for some in _parts(batch, physical_batch_size)
    )  # fmt: skip
    return _joined(parts, clipping, parameters, part, None)


def clipped_sum_of(
    covering: Iterable[Tape],
    clipping: Rule,
    parameters: Mapping[str, Tensor],
    part: Part | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> ClippedSum:
    """Return the clipped sum over the examples of some tapes, which are spent; the arguments are as for `clipped_sum`."""
    groups = clipping.groups(tuple(parameters))
    known = None if masks is None else prepared(masks, parameters)
    kept = covering if known is None else (tape.masked(known) for tape in covering)
    return _joined((clip(tape, clipping, groups) for tape in kept), clipping, parameters, part, masks)


def _joined(
    parts: Iterable[tuple[dict[str, Tensor], Tensor]], clipping: Rule, parameters: Mapping[str, Tensor], part: Part | None,
    masks: Mapping[str, Tensor] | None,
) -> ClippedSum:  # fmt: skip
    """Return the clipped sum from sums and norms of parts of a batch."""
    sums = None
    norms = []
    for found, measured in parts:
        norms.append(measured)
        if sums is None:
            sums = found
        else:
            for name, value in found.items():
                sums[name] += value
    if sums is None:
        return empty_sum(parameters, clipping, part, masks)
    return _clipped(sums, torch.cat(norms, dim=1), parameters, clipping, part, masks)


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
    device = next(iter(parameters.values())).device
    norms = torch.zeros(len(clipping.groups(tuple(parameters))), 0, dtype=torch.float64, device=device)
    zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in parameters.items()}
    return _clipped({**zeros, **clipping.statistics(norms)}, norms, parameters, clipping, part, masks)


def _clipped(
    sums: Mapping[str, Tensor], norms: Tensor, parameters: Mapping[str, Tensor], clipping: Rule, part: Part | None,
    masks: Mapping[str, Tensor] | None,
) -> ClippedSum:  # fmt: skip
    scales = clipping.noise_scales(tuple(parameters))
    return ClippedSum(sums, clipping.sensitivity, norms[0] if len(norms) == 1 else norms, part, scales, masks)
