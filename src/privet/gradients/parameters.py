"""Parameters as the autograd functions of handlers take them."""

from __future__ import annotations

from torch import Tensor

from privet.gradients.recorder import Recorder


def detached(recorder: Recorder, *parameters: Tensor | None) -> tuple[Tensor | None, ...] | None:
    """Return the parameters, those that are followed without their history; None if another one asks for a gradient.

    Autograd functions of handlers return no gradients of parameters, so that one would be lost.
    """
    found = tuple(p.detach() if p is not None and recorder.follows(p) else p for p in parameters)
    return None if any(p is not None and p.requires_grad for p in found) else found
