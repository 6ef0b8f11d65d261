"""Messages of clients: their bytes, and how a server reads bytes that it cannot trust."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privet._utils.tensors import places
from privet.clipping.adaptive import COUNTS
from privet.clipping.clipped_sum import ClippedSum
from privet.federated.rounds import Round, no_contributions
from privet.sampling import Indices

# Rounding to float32 cannot lift a message that is scaled to this length above the sensitivity.
_MARGIN = 1 - 2.0**-20


def message(one: ClippedSum) -> bytes:
    """Return one client's clipped update as bytes: (1 − r)·d float32 numbers and the rule's statistics; the mask is not sent.

    Args:
        one: the contribution of one client.

    >>> from privet.clipping import Flat
    >>> from privet.federated import Round, contribution
    >>> mask = {"w": torch.tensor([True, False, True])}
    >>> told = Round(1, {"w": torch.zeros(3)}, Flat(bound=1.0), mask)
    >>> len(message(contribution({"w": torch.ones(1, 3)}, told)))
    8
    """
    support = one.support or {}
    kept = [
        tensor.flatten()[places(support[name]).to(tensor.device)] if name in support else tensor.flatten()
        for name, tensor in one.tensors.items()
    ]
    return torch.cat([part.detach().float().cpu() for part in kept]).numpy().astype("<f4").tobytes()


def checked(data: object, template: ClippedSum) -> dict[str, Tensor] | None:
    """Return the tensors in a client's message, no longer than the sensitivity; None for anything but a message of this round.

    Length, finiteness and the counts of `clipping.AdaptiveQuantile` (±½) are checked against `no_contributions`. The rule is not
    applied again: some rules, such as `Automatic`, would change an update that they have clipped already.

    Guarantee:
        Whatever the client sent, adding what is returned moves the sum by at most the sensitivity, in the norm that divides every
        tensor by its noise scale: the influence that the noise is scaled to.
    """
    support = template.support or {}
    sizes = {name: len(places(support[name])) if name in support else each.numel() for name, each in template.tensors.items()}
    if not isinstance(data, bytes) or len(data) != 4 * sum(sizes.values()):
        return None
    # As float32 first: NumPy warns of some NaNs when it converts them, and a client must not decide what the server says.
    numbers = torch.from_numpy(np.frombuffer(data, "<f4").astype(np.float32))
    if not bool(numbers.isfinite().all()):
        return None
    found = dict(zip(sizes, numbers.double().split(list(sizes.values())), strict=True))
    if COUNTS in found and bool((found[COUNTS].abs() != 0.5).any()):
        return None
    scaled = (float(part.norm()) / template.noise_scales.get(name, 1.0) for name, part in found.items())
    length = math.hypot(*scaled)
    factor = template.sensitivity * _MARGIN / length if length > template.sensitivity else 1.0
    return {name: _restore(part * factor, template.tensors[name], support.get(name)) for name, part in found.items()}


def sum_messages(answers: Iterable[tuple[int, object]], told: Round, cohort: Indices) -> ClippedSum:
    """Return the sum of a cohort's messages, each checked and counted once.

    Args:
        answers: pairs of a client's number, which the transport has authenticated, and what it sent, as they arrive; late
            answers are left out.
        told: the round.
        cohort: numbers of the clients that were asked.

    Guarantee:
        Each client of the cohort contributes at most one message of at most the rule's sensitivity. All others contribute zero:
        a client that was not asked, does not answer, answers again, or sends something else. The divisor does not depend on it.
    """
    template, waiting = no_contributions(told), {int(client) for client in cohort}
    tensors = {name: tensor.clone() for name, tensor in template.tensors.items()}
    for client, data in answers:
        if client not in waiting:
            continue
        waiting.discard(client)
        for name, tensor in (checked(data, template) or {}).items():
            tensors[name] += tensor
    return replace(template, tensors=tensors)


def _restore(values: Tensor, like: Tensor, mask: Tensor | None) -> Tensor:
    """Return values in the shape of a tensor, with zeros outside the mask."""
    found = values.to(like)
    if mask is None:
        return found.view(like.shape)
    return like.new_zeros(like.numel()).index_copy_(0, places(mask).to(like.device), found).view(like.shape)
