"""What a call of torch writes to: its name, its options, the schema of an operator, or a table tells it."""

from __future__ import annotations

__all__ = ["OPERATOR_KINDS", "find_written", "find_written_by_script", "is_write", "may_write"]

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.nn import functional as F

from privet.gradients.core.batching import list_leaves

_IN_PLACE_OPERATORS = {
    f"__i{name}__"
    for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul"]
}  # fmt: skip
_HARMLESS = {"requires_grad_", "detach_", "retain_grad", "__setitem__"}
OPERATOR_KINDS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_BUILTINS = (type(torch.add), type(Tensor.add))
_Places = tuple[tuple[int, str], ...]
_Statistics = tuple[_Places, str, bool]
_RUNNING = ((1, "running_mean"), (2, "running_var"))
_NATIVE = ((3, "running_mean"), (4, "running_var"))
# Functions that update statistics: what is written to, and the name and default of the flag, the sixth argument, that asks for
# it; no name, if they always are. F's own functions, and those of aten whose schemas do not declare the write.
_STATISTICS: dict[Any, _Statistics] = {
    F.batch_norm: (_RUNNING, "training", False), F.instance_norm: (_RUNNING, "use_input_stats", True),
    **dict.fromkeys(
        ("batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
         "_native_batch_norm_legit"),
        (_NATIVE, "training", False),
    ),
    "instance_norm": (_NATIVE, "use_input_stats", True),
    "batch_norm_update_stats": (_RUNNING, "", True),
    **dict.fromkeys(("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"), (_NATIVE, "", True)),
}  # fmt: skip


@functools.cache
def is_write(name: str) -> bool:
    """Return whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_OPERATORS
    return name.endswith("_") and name not in _HARMLESS


def may_write(func: Any, name: str) -> bool:
    """Return whether a torch function can write to an argument besides `out` and the target of `inplace`."""
    return is_write(name) or isinstance(func, (*OPERATOR_KINDS, HigherOrderOperator)) or any(_written_arguments(func))


def find_written(func: Any, name: str, args: Any, options: Any) -> list[Tensor]:
    """Return the tensors that a call writes to."""
    targets: list[Any] = []
    if is_write(name) or options.get("inplace"):
        targets += args[:1] or [options]  # initialisers pass on all arguments by name
    if options.get("out") is not None:
        targets.append(options["out"])
    places, statistics = _written_arguments(func)
    targets += _pick_arguments(places, args, options)
    if statistics is not None:
        running, flag, default = statistics
        if not flag or (args[5] if len(args) > 5 else options.get(flag, default)):
            targets += _pick_arguments(running, args, options)
    return [x for x in list_leaves(targets) if isinstance(x, Tensor)] if targets else []


def _pick_arguments(arguments: Iterable[tuple[int, str]], args: Any, options: Any) -> list[Any]:
    """Return the arguments at these positions, or of these names."""
    return [args[place] if place < len(args) else options.get(name) for place, name in arguments]


@functools.lru_cache(maxsize=4096)
def _written_arguments(func: Any) -> tuple[_Places, _Statistics | None]:
    """Return the arguments that a function writes to in any of its overloads, and its entry in `_STATISTICS`."""
    if func in _STATISTICS:
        return (), _STATISTICS[func]
    is_operator = isinstance(func, OPERATOR_KINDS)
    if is_operator:
        overloads = [func] if hasattr(func, "_schema") else [getattr(func, overload) for overload in func.overloads()]
        schemas = [overload._schema for overload in overloads]
        full_name = schemas[0].name
    elif isinstance(func, _BUILTINS):
        full_name = f"aten::{func.__name__}"
        schemas = torch._C._jit_get_schemas_for_operator(full_name)
    else:
        return (), None
    library, _, name = full_name.partition("::")
    statistics = _STATISTICS.get(name) if library == "aten" else None
    found = {
        (place, argument.name): None
        for schema in schemas
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        # What a builtin writes to first, or as `out`, its name and options tell; aten also has operators on lists of these names.
        and (is_operator or not (argument.kwarg_only or argument.name == "self"))
    }
    return tuple(place for place in found if statistics is None or place not in statistics[0]), statistics


def find_written_by_script(script: Any, args: Any, options: Any) -> list[Tensor]:
    """Return the tensors that a TorchScript function may write to: all that it is given or holds, if it writes to any."""
    writes, held = _read_script(script)
    return [x for x in list_leaves((args, options, held)) if isinstance(x, Tensor)] if writes else []


@functools.lru_cache(maxsize=256)
def _read_script(script: Any) -> tuple[bool, tuple[Tensor, ...]]:
    """Return whether a TorchScript function writes to any tensor, and the tensors that its graph holds."""
    nodes = list(_iter_nodes(script.inlined_graph))
    writes = any(_WRITTEN_TENSOR.search(node.schema()) or node.kind().partition("::")[2] in _STATISTICS for node in nodes)
    return writes, tuple(node.t("value") for node in nodes if node.hasAttribute("value") and node.kindOf("value") == "t")


def _iter_nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _iter_nodes(inner)


_WRITTEN_TENSOR = re.compile(r"Tensor\(\w+!")  # in a schema, such as "aten::add_(Tensor(a!) self, …"
