"""What is checked on public input before the first step.

Isolation does not rest on this: user code is handed one example at a time whatever the check finds. It finds programming errors
before they could show on private rows, losses that mean something else one example at a time, state that Python keeps out of
sight, and the fastest method that agrees with plain autograd.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from privet._utils.randomness import preserve_generators
from privet.errors import PrivetError, UnsupportedModelError
from privet.gradients.core.batching import is_batched
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.parameters import trainable
from privet.gradients.core.randomness import Draws, seeds_of_torch
from privet.gradients.core.reachable import modules_of, reachable
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.loop import differentiate
from privet.gradients.methods.passes import Passes
from privet.gradients.methods.tape import Tape
from privet.gradients.probe.joint import inner_dropout_off, refuse_in_batch_loss
from privet.gradients.probe.synthetic_batch import make_up
from privet.gradients.projection.clipping import products
from privet.gradients.projection.directions import Directions

_EXAMPLES = 3
# Relative to the size of an example's gradient, by the precision of the parameters.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7}
# Of what is computed in lower precision inside; of norms, which may be too large but not too small; of forward-mode derivatives.
_LOOSE, _NORM, _FORWARD = 3e-2, 1e-3, 1e-4
_NEGLIGIBLE = 1e-6


def refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse layers that are known to normalise over the batch.

    Raises:
        UnsupportedModelError: a batch normalisation layer is in training mode, whether or not it is trainable.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise UnsupportedModelError(
                f"module {name!r} is a {type(module).__name__} that normalises over the batch, which is one example here; use "
                "nn.GroupNorm, or keep it frozen in eval() mode with its running statistics"
            )


def refuse_foreign_parameters(model: nn.Module, loss_fn: LossFunction) -> None:
    """Refuse a criterion whose parameters ask for a gradient and are not the model's: nothing would clip, noise or train them.

    Raises:
        UnsupportedModelError: naming them.
    """
    own = {id(parameter) for parameter in model.parameters()}
    if not isinstance(loss_fn, nn.Module):
        return
    names = [name for name, parameter in loss_fn.named_parameters() if parameter.requires_grad and id(parameter) not in own]
    if names:
        raise UnsupportedModelError(
            f"the loss has parameters of its own that ask for a gradient ({', '.join(names[:3])}); make it a submodule of the "
            f"model, "
            "so that they are trained with the guarantee, or freeze them with requires_grad_(False)"
        )


def probe(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Iterable[Examples],
    *,
    public: bool = False,
    method: str = "auto",
) -> str:
    """Check a model and a loss on made-up examples, and return the fastest method that is right for them.

    Args:
        model: the module in the mode in which it will be trained; it is not changed.
        loss_fn: (model, batch) → (B,) losses.
        batches: groups of examples with the real structure, shapes and types; their content is used only if it is public.
        public: whether the examples may be used as they are.
        method: "auto", or the one that is asked for.

    Returns:
        "ghost" or "loop".

    Raises:
        UnsupportedModelError: the loss of an example depends on others, the loss does not depend on the model, something
            outlives a pass, or the method gives other gradients than plain autograd. The message names the culprit.
        InvalidArgumentError: the loss function does not return one loss per example.
    """
    refuse_batch_statistics(model)
    refuse_foreign_parameters(model, loss_fn)
    subject = Subject(model, loss_fn, trainable(model))
    chosen = method if method != "auto" else "ghost"
    with preserve_generators(), _old_objects_aside():
        for batch in batches:
            examples = batch.select(slice(_EXAMPLES)) if public else make_up(batch, _EXAMPLES)
            chosen = _check(subject, examples, chosen, required=method == "ghost")
    return chosen


@contextlib.contextmanager
def _old_objects_aside() -> Iterator[None]:
    """Let the garbage collector look at nothing inside that was there before: a program's hundred thousands take it a second."""
    free = gc.get_freeze_count() == 0
    if free:
        gc.freeze()
    try:
        yield
    finally:
        if free:
            gc.unfreeze()


def _check(subject: Subject, examples: Examples, method: str, *, required: bool) -> str:
    versions = {name: parameter._version for name, parameter in subject.parameters.items()}
    older = _batched_tensors()
    alone = _alone(subject, examples)
    _refuse_what_outlives_a_pass(subject, versions)
    _refuse_hopeless(alone)
    backwards = _alone(subject, examples.select(torch.arange(examples.count).flip(0)))[::-1]
    if not all(_close(one, other) for one, other in zip(alone, backwards, strict=True)):
        raise UnsupportedModelError(
            "an example's gradient depends on which examples came before it: the model or loss keeps something of them in Python "
            "(a global, a closure, an object of its own); keep nothing from one call to the next"
        )
    refuse_in_batch_loss(subject, examples)
    if method == "ghost" and not _ghost_is_right(subject, examples, older, required=required):
        method = "loop"
    _refuse_what_outlives_a_pass(subject, versions)
    return method


def _alone(subject: Subject, examples: Examples, seed: int = 0) -> list[dict[str, Tensor]]:
    """Return the gradients of every example by the loop, all with random numbers of one seed; without those of unused parameters.

    Raises:
        UnsupportedModelError: user code raises; worded as a failure on made-up input.
    """
    try:
        return [_gradients(tape) for _, tape in Passes(subject, lambda: seed, "loop").tapes(examples)]
    except PrivetError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"the model or loss fails on a made-up example of the real shapes ({type(error).__name__}: {error}); pass "
            "probe_batch=, a public batch that it accepts, or fix the model for a single example"
        ) from error


def _gradients(tape: Tape) -> dict[str, Tensor]:
    return {name: use.materialize()[0] for name, use in tape.uses.items()}


def _refuse_what_outlives_a_pass(subject: Subject, versions: dict[str, int]) -> None:
    written = [name for name, parameter in subject.parameters.items() if parameter._version != versions[name]]
    if written:
        raise UnsupportedModelError(
            f"parameter {written[0]!r} changes in the forward pass, so the released model would hold private data that no noise "
            "covers; write to no parameter outside of the optimizer"
        )
    if subject.guard.made:
        raise UnsupportedModelError(
            f"the model makes {sorted(subject.guard.made)[0]} in its forward pass, which would be gone after it; call the "
            f"model once "
            "on a public batch before the training is made, or make everything in __init__"
        )
    gc.collect()  # a tensor that was made inside of the pass is gone
    foreign = [tensor for tensor in (known() for known in subject.foreign) if tensor is not None]
    if foreign:
        raise UnsupportedModelError(
            f"the loss uses {_name(subject, foreign[0])}, which asks for a gradient and is no parameter of the model: "
            f"nothing "
            "would clip, noise or train it; make it part of the model, or freeze it with requires_grad_(False) or detach()"
        )


def _batched_tensors() -> list[Tensor]:
    """Return all tensors of passes in this process."""
    return [x for x in gc.get_objects() if type(x) is Tensor and is_batched(x)]


def refuse_survivors(older: list[Tensor]) -> None:
    """Refuse a model or loss that keeps a tensor of a pass that is over.

    Args:
        older: tensors that something else had kept before.

    Raises:
        UnsupportedModelError: there is another one, in Python: what only torch's graphs hold is out of reach of user code.
    """
    known = set(map(id, older))
    if all(id(x) in known for x in _batched_tensors()):
        return
    gc.collect()
    gc.unfreeze()  # what holds one may have been there before
    left = _batched_tensors()
    ours = [left, older]
    for x in left:
        holders = [r for r in gc.get_referrers(x) if not any(r is own for own in ours) and not isinstance(r, types.FrameType)]
        if id(x) not in known and holders:
            raise UnsupportedModelError(
                "the model or loss keeps a tensor of an example after the pass (in a global, a closure or an object of its own); "
                "keep nothing, or a detached Python number"
            )


def _name(subject: Subject, tensor: Tensor) -> str:
    for name, module in modules_of(subject.loss_fn).items():
        for own, parameter in module.named_parameters():
            if parameter is tensor:
                return f"parameter {'.'.join(filter(None, (name, own)))}"
    named = next((name for name, value in reachable(subject.loss_fn).items() if value is tensor), None)
    return f"the tensor {named!r}" if named else f"a tensor of shape {tuple(tensor.shape)}"


def _refuse_hopeless(alone: list[dict[str, Tensor]]) -> None:
    if not any(alone):
        raise UnsupportedModelError(
            "the loss depends on no trainable parameter, so nothing but noise would be learned; look for detach(), no_grad() or "
            "an integer on the way from the parameters to the loss"
        )
    for name, value in (pair for gradients in alone for pair in gradients.items()):
        if not bool(value.isfinite().all()):
            raise UnsupportedModelError(
                f"the gradient of {name!r} is not finite on made-up examples (standard normal numbers), so nothing can be "
                "checked; clamp what the model or loss divides by or takes the logarithm of"
            )


def _norm(gradients: dict[str, Tensor]) -> float:
    return float(sum(value.double().square().sum() for value in gradients.values()) ** 0.5)


def _close(one: dict[str, Tensor], other: dict[str, Tensor], *, loose: bool = False) -> bool:
    """Return whether two gradients of an example differ by rounding; a parameter that is missing has zero."""
    names = dict.fromkeys([*one, *other])
    differences = {
        name: (one[name].double() if name in one else 0) - (other[name].double() if name in other else torch.zeros(()))
        for name in names
    }
    tolerance = _LOOSE if loose else max((_TOLERANCE[x.dtype] for x in (*one.values(), *other.values())), default=0.0)
    return _norm(differences) <= tolerance * _norm(other) + _NEGLIGIBLE


def _random(subject: Subject, examples: Examples) -> bool:
    """Return whether passes over the same example differ by their seeds, as something is drawn in them."""
    first = examples.select(slice(1))
    one, *others = (_alone(subject, first, seed)[0] for seed in range(4))
    return any(one.keys() != other.keys() or any(not torch.equal(one[name], other[name]) for name in one) for other in others)


def _ghost_is_right(subject: Subject, examples: Examples, older: list[Tensor], *, required: bool) -> bool:
    """Return whether a pass over all examples gives the gradients and norms of each alone, with the same random numbers.

    Raises:
        UnsupportedModelError: it does not, and this method is required.
    """
    problem = ""
    passes = Passes(subject, seeds_of_torch)
    try:
        with inner_dropout_off(subject.model):
            for index, tape in passes.tapes(examples):
                refuse_survivors(older)
                if passes.looped:
                    problem = "no rule follows every use of its parameters"
                    break
                if not _agrees(subject, tape, examples.select(index), passes.draws):
                    problem = "its gradients are not those of plain autograd"
                    break
    except UnsupportedModelError:
        raise
    except Exception as error:  # a method that fails here is not used
        problem = f"{type(error).__name__}: {error}"
    if problem and required:
        raise UnsupportedModelError(f"the method 'ghost' does not suit this model: {problem}; use 'auto' or 'loop'")
    return not problem


def _agrees(subject: Subject, tape: Tape, examples: Examples, draws: Draws) -> bool:
    gradients = {name: use.materialize() for name, use in tape.uses.items()}
    groups = (tuple(subject.parameters),)
    norms = tape.group_norms(groups)[0]
    weights = torch.linspace(1.0, 0.3, examples.count, device=norms.device)
    sums = tape.weighted_sum(groups, weights[None])
    if not _close(
        {name: sums[name] for name in gradients},
        {name: torch.einsum("b,b...->...", weights.to(value.dtype), value) for name, value in gradients.items()},
        loose=subject.low_precision,
    ):
        return False
    for position in range(examples.count):
        where = torch.tensor([position])
        wanted = _gradients(differentiate(subject, examples.select(where), draws.again(where), 0))
        found = {name: value[position] for name, value in gradients.items()}
        loose = subject.low_precision
        tolerance = _LOOSE if loose else _NORM
        if not _close(found, wanted, loose=loose) or float(norms[position]) < (1 - tolerance) * _norm(wanted) - _NEGLIGIBLE:
            return False
    return True


def probe_projections(model: nn.Module, loss_fn: LossFunction, batches: Iterable[Examples], *, public: bool = False) -> None:
    """Check that what is estimated in forward mode is the gradient that is summed, for made-up examples.

    Args:
        model, loss_fn, batches, public: as for `probe`, which is to be asked first.

    Raises:
        UnsupportedModelError: the model draws random numbers, has no forward-mode derivatives, or these are not its gradients in
            the precision that it computes in.
    """
    subject = Subject(model, loss_fn, trainable(model))
    with preserve_generators():
        for batch in batches:
            _check_projections(subject, batch.select(slice(_EXAMPLES)) if public else make_up(batch, _EXAMPLES))


def _check_projections(subject: Subject, examples: Examples) -> None:
    if _random(subject, examples):
        raise UnsupportedModelError(
            "the model draws random numbers (dropout, say), so that the gradient whose norm is estimated is not the one that is "
            "summed; switch them off, or clip by exact norms"
        )
    directions = list(Directions().drawn(subject.parameters, 2))
    try:
        found = torch.stack([products(subject, examples, subject.parameters, direction) for direction in directions])
    except PrivetError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"norms cannot be estimated: the model has no forward-mode derivative ({type(error).__name__}: {error}); clip by "
            "exact norms"
        ) from error
    for position, gradient in enumerate(_alone(subject, examples)):
        for direction, value in zip(directions, found, strict=True):
            expected = sum(float((direction[name].double() * gradient[name].double()).sum()) for name in gradient)
            if not abs(float(value[position]) - expected) <= _FORWARD * (_NEGLIGIBLE + _norm(gradient)):
                raise UnsupportedModelError(
                    "forward-mode derivatives are not the gradients that are summed: the model computes in low precision "
                    "(autocast), or keeps parameters outside of its modules; clip by exact norms"
                )


__all__ = ["probe", "probe_projections", "refuse_batch_statistics"]
