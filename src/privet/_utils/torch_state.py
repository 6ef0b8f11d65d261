"""What torch has in this process: devices that it can use, and modes that are active."""

from __future__ import annotations

__all__ = ["Modes", "check_device", "is_harmless", "read_modes"]

from typing import Any, NamedTuple

import torch
from torch import overrides
from torch.utils import _python_dispatch

from privet.errors import InvalidArgumentError


def check_device(argument: str, name: str) -> None:
    """Check that torch can use a device on this machine.

    Raises:
        InvalidArgumentError: it cannot; the message names the argument.
    """
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        usable = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise InvalidArgumentError(
            argument, name, f"one of {', '.join(map(repr, usable))}, which torch can use on this machine", _why_unusable(name)
        ) from None


def _why_unusable(device: str) -> str:
    """Return why torch has no CUDA device, if one was named."""
    if not device.startswith("cuda") or torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"The installed torch {torch.__version__} is built without CUDA."
    return "Torch finds no CUDA device; nvidia-smi shows whether the driver finds one."


class Modes(NamedTuple):
    """Function modes and dispatch modes that are active in a thread, the innermost last."""

    function: tuple[Any, ...]
    dispatch: tuple[Any, ...]


_NONE = Modes((), ())


def read_modes() -> Modes:
    """Return the modes that are active in this thread."""
    if not torch._C._len_torch_function_stack() and not torch._C._len_torch_dispatch_stack():
        return _NONE
    return Modes(tuple(overrides._get_current_function_mode_stack()), tuple(_python_dispatch._get_current_dispatch_mode_stack()))


def is_harmless(mode: object) -> bool:
    """Return whether a mode neither calls user code nor keeps what it sees, as torch's counters, tracers and caches do."""
    return str(type(mode).__module__).startswith(("torch.utils._device", "privet."))
