"""What a pass that was interrupted may leave on the stacks of its thread."""

from __future__ import annotations

__all__ = ["end_left_passes"]

from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode

from privet.errors import InvalidArgumentError
from privet.gradients.core.batching import end_left_levels
from privet.gradients.methods.calls import GuardedCalls


def end_left_passes() -> None:
    """End what passes of this thread have left active: vmap, and the interception of torch calls. Call it between passes.

    Raises:
        InvalidArgumentError: a transformation of `torch.func` that is the caller's is active, in which no pass can run.
    """
    stack = _get_current_function_mode_stack()
    first = next((place for place, mode in enumerate(stack) if isinstance(mode, GuardedCalls)), len(stack))
    for _ in stack[first:]:
        _pop_mode()
    for mode in stack[first:]:
        if not isinstance(mode, GuardedCalls):
            _push_mode(mode)
    if end_left_levels():
        raise InvalidArgumentError(
            "torch.func", "a transformation that is active", "no transformation where a model is trained",
            "Take the steps outside of vmap, grad and jvp.",
        )  # fmt: skip
