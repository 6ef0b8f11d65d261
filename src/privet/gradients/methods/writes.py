"""What a call of torch writes to: its name, its options, the schema of an operator, or a table tells it."""

from __future__ import annotations

__all__ = ["find_written", "is_write", "may_write", "pick_arguments"]

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree

_IN_PLACE_OPERATORS = {
    f"__i{name}__"
    for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul"]
}  # fmt: skip
_HARMLESS = {"requires_grad_", "detach_", "retain_grad", "__setitem__"}
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_RUNNING = ((1, "running_mean"), (2, "running_var"))
_NATIVE = ((3, "running_mean"), (4, "running_var"))
_OBSERVED = ((3, "running_min"), (4, "running_max"), (5, "scale"), (6, "zero_point"))
# Functions that update statistics → the flag that asks for it (None: always; always the sixth argument), its default, what is
# written to.
_STATISTICS: dict[Any, tuple[str | None, bool, tuple[tuple[int, str], ...]]] = {
    F.batch_norm: ("training", False, _RUNNING), F.instance_norm: ("use_input_stats", True, _RUNNING),
    torch.batch_norm: ("training", False, _NATIVE), torch.instance_norm: ("use_input_stats", True, _NATIVE),
    torch.native_batch_norm: ("training", False, _NATIVE),
    torch.fused_moving_avg_obs_fake_quant: (None, True, _OBSERVED),
}  # fmt: skip


@functools.cache
def is_write(name: str) -> bool:
    """Return whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_OPERATORS
    return name.endswith("_") and name not in _HARMLESS


def may_write(func: Any, name: str) -> bool:
    """Return whether a torch function can write to an argument besides `out` and the target of `inplace`."""
    return is_write(name) or isinstance(func, _OPERATORS) or func in _STATISTICS


def find_written(func: Any, name: str, args: Any, options: Any) -> list[Tensor]:
    """Return the tensors that a call writes to."""
    targets: list[Any] = []
    if is_write(name) or options.get("inplace"):
        targets += args[:1] or [options]  # initialisers pass on all arguments by name
    if options.get("out") is not None:
        targets.append(options["out"])
    if isinstance(func, _OPERATORS):
        targets += pick_arguments(_written_arguments(func), args, options)
    elif func in _STATISTICS:
        flag, default, arguments = _STATISTICS[func]
        if flag is None or (args[5] if len(args) > 5 else options.get(flag, default)):
            targets += pick_arguments(arguments, args, options)
    return [x for x in pytree.tree_leaves(targets) if isinstance(x, Tensor)] if targets else []


def pick_arguments(arguments: Iterable[tuple[int, str]], args: Any, options: Any) -> list[Any]:
    """Return the arguments at these positions, or of these names."""
    return [args[place] if place < len(args) else options.get(name) for place, name in arguments]


@functools.cache
def _written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator, in any of its overloads, writes to."""
    overloads = [operator] if hasattr(operator, "_schema") else [getattr(operator, name) for name in operator.overloads()]
    return tuple(
        {
            (place, argument.name): None
            for overload in overloads
            for place, argument in enumerate(overload._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
    )
