"""The check of a model and a loss on public input before the first step.

Isolation does not depend on this check: user code receives one example at a time in any case. The check finds programming errors
before they occur on private rows, losses that depend on several examples, hidden Python state, and the fastest method that
agrees with plain autograd.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from privet._utils.randomness import preserve_generators
from privet._utils.tensors import sketch, total_size
from privet.errors import PrivetError, UnsupportedModelError
from privet.gradients.core.batching import is_batched
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import LossFunction, check_loss_function
from privet.gradients.core.norms import squared_norms
from privet.gradients.core.randomness import Draws, draw_torch_seed
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.loop import differentiate
from privet.gradients.methods.passes import Passes, swap_values
from privet.gradients.methods.tape import Tape
from privet.gradients.parameters import trainable
from privet.gradients.probe.joint import disable_inner_dropout, move_parameters, refuse_in_batch_loss
from privet.gradients.probe.restored import warn_of_restored
from privet.gradients.probe.slow import MANY, is_faster_alone, warn_of_groups, warn_of_loop
from privet.gradients.probe.synthetic_batch import KINDS, common_objects, make_synthetic

_EXAMPLES, _LARGE = 3, 1_000_000  # and the number of parameters from which two examples do
# Relative to the norm of an example's gradient, by the precision of the parameters.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7}
# For models that compute in lower precision: bfloat16 has 8 bits. For norms, which may be too large but not too small.
_LOOSE, _NORM = 0.1, 1e-3
_NEGLIGIBLE = 1e-6
_Sketches = dict[str, Tensor]  # of the gradients of one example
_SEEDS = 10  # with which gradients are zero before a loss is refused for it

MADE_UP = "a made-up example of the real shapes"
_FIX = (
    "If they need other values (positive numbers, lengths, words), pass a public batch as reading=privet.Reading(probe_batch=…), "
    "or a made-up item as reading=privet.Reading(spec=…)"
)


class _UnsuitableInputError(UnsupportedModelError):
    """The program fails on this input, and may not on another."""


def refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse batch normalisation layers in training mode, whether or not they are trainable."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise UnsupportedModelError(
                f"module {name!r} is a {type(module).__name__} that normalises over the batch, which is one example here: "
                "call privet.models.replace_batch_norm(model), or freeze it in eval() mode with its running statistics"
            )


def refuse_foreign_parameters(model: nn.Module, loss_fn: LossFunction) -> None:
    """Refuse a criterion with trainable parameters that are not the model's: they would not be clipped, noised or trained."""
    own = {id(parameter) for parameter in model.parameters()}
    if not isinstance(loss_fn, nn.Module):
        return
    names = [name for name, parameter in loss_fn.named_parameters() if parameter.requires_grad and id(parameter) not in own]
    if names:
        raise UnsupportedModelError(
            f"the loss has parameters of its own that require a gradient ({', '.join(names[:3])}); make it a submodule of the "
            "model, so that they are trained with the guarantee, or freeze them with requires_grad_(False)"
        )


def probe(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Iterable[Examples],
    *,
    public: bool = False,
    method: str = "auto",
    usual: int = MANY,
) -> str:
    """Check a model and a loss on made-up examples; return the fastest method that is correct for them, "ghost" or "loop".

    Args:
        model: the module, in the mode in which it will be trained; it is not changed.
        batches: groups of examples with the real structure, shapes and types; their content is used only if `public`.
        method: "auto", "ghost" or "loop".
        usual: number of examples that a step computes together, on which the faster method depends.
    Raises:
        UnsupportedModelError: the loss of an example depends on others, the loss does not depend on the model, state outlives a
            pass, or the requested method gives other gradients than plain autograd. The message names the cause.
        InvalidArgumentError: the loss is no function of model and batch, or does not return one loss per example.
    """
    groups = list(batches)
    if public:
        chosen = [[each.select(slice(_EXAMPLES)) for each in groups]]
        return probe_first_suitable(model, loss_fn, chosen, "an example of the public batch", method, usual)
    kept = common_objects(groups)
    attempts = [[make_synthetic(each, _EXAMPLES, kind=kind, kept=kept) for each in groups] for kind in range(len(KINDS))]
    return probe_first_suitable(model, loss_fn, attempts, MADE_UP, method, usual, quiet=bool(kept))


def probe_first_suitable(
    model: nn.Module,
    loss_fn: LossFunction,
    attempts: Sequence[Sequence[Examples]],
    what: str,
    method: str = "auto",
    usual: int = MANY,
    *,
    quiet: bool = False,
) -> str:
    """Check a model and a loss, as `probe` does, on the first of several inputs on which they run.

    Args:
        attempts: inputs, each of several groups of examples, made up or public. A program that is made for lengths or for
            probabilities fails on the first, say.
        what: an example is, for messages.
        quiet: whether to leave out what an exception says, because examples hold objects that are not made up.
    """
    check_loss_function(loss_fn)
    refuse_batch_statistics(model)
    refuse_foreign_parameters(model, loss_fn)
    program = Program(model, loss_fn, trainable(model))
    few = 2 if total_size(program.parameters.values()) > _LARGE else _EXAMPLES

    def check(groups: Sequence[Examples]) -> str:
        chosen = method if method != "auto" else "ghost"
        for examples in groups:
            chosen = _check(program, examples.select(slice(few)), chosen, what, 0 if method == "ghost" else usual, quiet=quiet)
        warn_of_restored(program, groups[0])
        return chosen

    with preserve_generators(), _freeze_old_objects(), disable_inner_dropout(model):
        for groups in attempts:
            with contextlib.suppress(_UnsuitableInputError):
                return check(groups)
        try:  # again for the message: an exception that was kept meanwhile would keep tensors of the pass
            return check(attempts[0])
        except _UnsuitableInputError as error:
            raise UnsupportedModelError(*error.args) from error.__cause__


@contextlib.contextmanager
def _freeze_old_objects() -> Iterator[None]:
    """Return a context in which the garbage collector skips older objects: scanning them takes about a second."""
    free = gc.get_freeze_count() == 0
    if free:
        gc.freeze()
    try:
        yield
    finally:
        if free:
            gc.unfreeze()


def _check(program: Program, examples: Examples, method: str, what: str, usual: int, *, quiet: bool) -> str:
    before = {name: sketch(parameter.detach()).clone() for name, parameter in program.parameters.items()}
    older = _batched_tensors()
    alone = _loop_gradients(program, examples, what, quiet=quiet)
    _refuse_what_outlives_a_pass(program, before)
    _refuse_hopeless(alone, what)
    two = examples.select(torch.arange(min(2, examples.count), device="cpu").flip(0))
    backwards = _loop_gradients(program, two, what, quiet=quiet)[::-1]
    if not all(_is_close(one, other) for one, other in zip(alone, backwards, strict=False)):
        raise UnsupportedModelError(
            "an example's gradient depends on which examples came before it: the model or loss keeps Python state between calls "
            "(in a global, a closure or an object); keep no state from one call to the next"
        )
    refuse_in_batch_loss(program, examples)
    if not any(map(_norm, alone)):
        # By chance, dropout may leave nothing, and the first parameters may be where the loss is least.
        with swap_values(program.parameters, move_parameters(program)):
            _refuse_zero([x for seed in range(_SEEDS) for x in _loop_gradients(program, examples, what, seed, quiet=quiet)], what)
    if method == "ghost" and (problem := _find_problem(program, examples, alone, older, usual, quiet=quiet)):
        if not usual:
            raise UnsupportedModelError(f"the method 'ghost' does not suit this model: {problem}; use 'auto' or 'loop'")
        warn_of_loop(program, examples, problem)
        method = "loop"
    _refuse_what_outlives_a_pass(program, before)
    return method


def _sketch_alone(tape: Tape) -> _Sketches:
    return {name: sketch(grad.materialize()[0]) for name, grad in tape.grads.items()}


def _loop_gradients(program: Program, examples: Examples, what: str, seed: int = 0, *, quiet: bool) -> list[_Sketches]:
    try:
        return [_sketch_alone(tape) for _, tape in Passes(program, lambda: seed, "loop").tapes(examples)]
    except PrivetError:
        raise
    except Exception as error:
        says = type(error).__name__ if quiet else f"{type(error).__name__}: {error}"
        cause = None if quiet else error
        raise _UnsuitableInputError(
            f"{says}. This is how loss_fn(model, batch) fails on {what}, a batch of one; correct the model, the loss, or "
            f"the types and shapes of the data. {_FIX}"
        ) from cause


def _refuse_what_outlives_a_pass(program: Program, before: Mapping[str, Tensor]) -> None:
    written = [
        name for name, parameter in program.parameters.items() if not torch.equal(sketch(parameter.detach()), before[name])
    ]
    if written:
        raise UnsupportedModelError(
            f"parameter {written[0]!r} changes in the forward pass, so the released model would contain private data without "
            "noise; change parameters only in the optimizer"
        )
    if program.guard.created:
        raise UnsupportedModelError(
            f"the model creates {sorted(program.guard.created)[0]} in its forward pass, after which it is discarded; call the "
            "model once on a public batch before creating Training, or create everything in __init__"
        )
    gc.collect()  # frees tensors that were created during the pass
    foreign = [tensor for tensor in (known() for known in program.reached) if tensor is not None]
    if foreign:
        raise UnsupportedModelError(
            f"the loss uses {_name_of(program, foreign[0])}, which requires a gradient and is not a parameter of the model: it "
            "would not be clipped, noised or trained; make it part of the model, or freeze it with requires_grad_(False) or "
            "detach(). A copy of a model whose forward was patched (by accelerate or TRL, say) still runs the original: copy it "
            "before it is patched, or remove the patch with: del module.forward"
        )


def _name_of(program: Program, tensor: Tensor) -> str:
    used = inspect.getclosurevars(program.loss_fn) if inspect.isfunction(program.loss_fn) else None
    for name, value in {} if used is None else {**used.globals, **used.nonlocals}.items():
        if value is tensor:
            return f"the tensor {name!r}"
        for own, parameter in value.named_parameters() if isinstance(value, nn.Module) else ():
            if parameter is tensor:
                return f"parameter {name}.{own}"
    return f"a tensor of shape {tuple(tensor.shape)}"


def _batched_tensors() -> list[Tensor]:
    return [x for x in gc.get_objects() if type(x) is Tensor and is_batched(x)]


def refuse_survivors(older: list[Tensor]) -> None:
    """Refuse a model or loss that keeps a batched tensor of a completed pass, besides those that were there before it.

    Tensors held only by torch's graphs are allowed, as user code cannot reach them.
    """
    known = set(map(id, older))
    gc.collect()
    new = [x for x in _batched_tensors() if id(x) not in known]
    if not new:
        return
    gc.unfreeze()  # the referrer may be an older object
    ours = (new, older)
    if any(
        not isinstance(holder, types.FrameType) and all(holder is not each for each in ours)
        for x in new
        for holder in gc.get_referrers(x)
    ):
        raise UnsupportedModelError(
            "the model or loss keeps a tensor of an example after the pass (in a global, a closure or an object); keep no "
            "tensors, or only Python numbers"
        )


def _refuse_hopeless(alone: list[_Sketches], what: str) -> None:
    if not any(alone):
        raise UnsupportedModelError(
            "the loss depends on no trainable parameter, so training would only add noise; look for detach(), no_grad() or a "
            "conversion to integers between the parameters and the loss, or for a checkpoint without use_reentrant=False"
        )
    for name, value in (pair for each in alone for pair in each.items()):
        if not bool(value.isfinite().all()):
            raise _UnsuitableInputError(
                f"the gradient of {name!r} is not finite on {what}, so the model cannot be checked; clamp the arguments of "
                f"divisions and logarithms in the model or loss. {_FIX}"
            )


def _refuse_zero(alone: list[_Sketches], what: str) -> None:
    if not any(map(_norm, alone)):
        raise _UnsuitableInputError(
            f"the gradient of each example's loss is zero on {what}, so training would only add noise; look for cross_entropy of "
            f"one class, a mask or a weight of zero, and a loss that compares an example with itself. {_FIX}"
        )


def _norm(gradients: Mapping[str, Tensor]) -> float:
    return float(sum(value.double().square().sum() for value in gradients.values()) ** 0.5)


def _is_close(one: Mapping[str, Tensor], other: Mapping[str, Tensor], *, loose: bool = False) -> bool:
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    names = one.keys() | other.keys()
    differences = {name: one.get(name, zero).double() - other.get(name, zero).double() for name in names}
    tolerance = _LOOSE if loose else max((_TOLERANCE[x.dtype] for x in (*one.values(), *other.values())), default=0.0)
    return _norm(differences) <= tolerance * _norm(other) + _NEGLIGIBLE


def _find_problem(
    program: Program, examples: Examples, alone: list[_Sketches], older: list[Tensor], usual: int, *, quiet: bool
) -> str:
    """Return why passes give other gradients or norms than the loop, or take longer for `usual` examples if not 0; or ""."""
    passes = Passes(program, draw_torch_seed, explain=not quiet)
    try:
        for index, tape in passes.tapes(examples):
            refuse_survivors(older)
            if passes.looped:
                return passes.reason
            expected = [alone[position] for position in index] if passes.draws.are_unused else None
            if not _matches_loop(program, tape, expected or _repeat(program, examples.select(index), passes.draws)):
                return "the gradients of a pass over several examples differ from those of plain autograd"
    except UnsupportedModelError:
        raise
    except Exception as error:  # a method that fails here is not used
        return type(error).__name__ if quiet else f"{type(error).__name__}: {error}"
    if passes.groups > 1:
        if usual and is_faster_alone(program, examples, usual):
            return f"{passes.reason}, and their random numbers alone make more groups of them than pay"
        warn_of_groups(passes.groups, examples.count, passes.reason)
    return ""


def _repeat(program: Program, examples: Examples, draws: Draws) -> Iterator[_Sketches]:
    for position in range(examples.count):
        where = torch.tensor([position], device="cpu")
        yield _sketch_alone(differentiate(program, examples.select(where), draws.restart(where), 0))


def _matches_loop(program: Program, tape: Tape, expected: Iterable[_Sketches]) -> bool:
    groups = (tuple(program.parameters),)
    norms = tape.group_norms(groups)[0]
    for norm, row, alone in zip(norms, torch.eye(tape.examples, device=norms.device), expected, strict=True):
        sums = tape.weighted_sum(groups, row[None])  # an example's gradient, by the way that the sum of a step takes
        exact = float(sum(squared_norms(sums[name][None]) for name in tape.grads) ** 0.5)
        found = {name: sketch(sums.pop(name)) for name in tape.grads}
        if float(norm) < (1 - _NORM) * exact - _NEGLIGIBLE or not _is_close(found, alone, loose=program.low_precision):
            return False
    return True
