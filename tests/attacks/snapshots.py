"""Snapshots of all visible state of a model after training besides the released parameters, and their comparison."""

import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEEPEST = 5
_OWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Return place → copy of all state that must not depend on private data: all but the trainable parameters."""
    found: dict[str, Any] = {}
    released = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    for path, module in model.named_modules():
        found[f"{path}: type"] = (type(module).__name__, module.training)
        for name, buffer in module.named_buffers(recurse=False):
            _add(found, f"{path}.{name}", buffer)
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                found[f"{path}.{name}: shape"] = tuple(parameter.shape)
            else:
                _add(found, f"{path}.{name}", parameter)
        for name, value in vars(module).items():
            if name not in _OWN and "hook" not in name and not name.startswith("_torchdynamo"):
                _add(found, f"{path}.{name}", value, released)
    return found


def generators() -> dict[str, Any]:
    """Return the states of the global generators."""
    state = np.random.get_state()
    return {
        "torch": torch.get_rng_state().clone(),
        "numpy": (state[0], state[1].tolist(), *state[2:]),
        "random": random.getstate(),
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the places at which two snapshots differ."""
    return sorted(key for key in first.keys() | second.keys() if not _equal(first.get(key), second.get(key)))


def _add(found: dict[str, Any], place: str, value: object, released: Collection[int] = (), depth: int = 0) -> None:
    """Record a value and its contents under its place; skip released parameters and objects that cannot be compared."""
    if depth > _DEEPEST or id(value) in released:
        return
    if isinstance(value, Tensor):
        found[place] = _copied(value)
    elif isinstance(value, torch.Generator):
        found[place] = value.get_state().clone()
    elif isinstance(value, np.random.Generator):
        found[place] = repr(value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        found[place] = repr(value.get_state())
    elif isinstance(value, random.Random):
        found[place] = value.getstate()
    elif isinstance(value, np.ndarray):
        found[place] = torch.from_numpy(value.copy()) if value.dtype.kind in "biuf" else repr(value)
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        found[place] = value
    elif isinstance(value, set | frozenset):
        found[place] = sorted(map(repr, value))
    elif not isinstance(value, nn.Module):
        for key, item in _items(value):
            _add(found, f"{place}[{key}]", item, released, depth + 1)


def _items(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple | deque):
        yield "length", len(value)
        yield from enumerate(value)
    elif type(value).__module__.startswith(("programs_", "materials", "test_")) and hasattr(value, "__dict__"):
        yield from vars(value).items()


def _copied(tensor: Tensor) -> object:
    """Return a copy, or a marker for a tensor of a transform that has ended, which must not exist."""
    try:
        return tensor.detach().clone().to_dense()
    except RuntimeError:
        return object()


def _equal(first: object, second: object) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        same = first.shape == second.shape and first.dtype == second.dtype
        return same and torch.equal(first.nan_to_num(), second.nan_to_num())
    if isinstance(first, float) and isinstance(second, float) and first != first:
        return second != second
    return type(first) is type(second) and bool(first == second)
