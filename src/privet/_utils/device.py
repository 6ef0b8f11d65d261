"""Devices that torch can use on this machine."""

from __future__ import annotations

import torch

from privet.errors import InvalidArgumentError


def check_device(argument: str, name: str) -> None:
    """Check that torch can use a device on this machine."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        usable = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        allowed = f"one of {', '.join(map(repr, usable))}, which torch can use on this machine"
        raise InvalidArgumentError(argument, name, allowed, _why_unusable(name)) from None


def _why_unusable(device: str) -> str:
    """Return why torch has no CUDA device, if one was named."""
    if not device.startswith("cuda") or torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"The installed torch {torch.__version__} is built without CUDA."
    return "Torch finds no CUDA device; nvidia-smi shows whether the driver finds one."
