"""Streams of noise on a device, their keys and nonces, and where they are used."""

from __future__ import annotations

import functools
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from privet._utils.native import SWITCH
from privet._utils.unique import Unique
from privet.noise.device.definition import LONGEST, M32, TILE, NoisePart, add_noise_in_torch

# Writes releases of tensors of one device, from the key's eight words there, and the two words of the number of the draw.
AddNoise = Callable[[Tensor, tuple[int, int], Sequence[NoisePart]], None]
CLAIM = (
    "cryptographic: ChaCha20 on the device for noise, AES-256-CTR for sampling and for sums on the host, both keyed by the "
    "operating system, Gaussian transform in float64, released on a grid"
)


class DeviceStream(Unique):
    """Noise of one process, under a key of its own from the operating system, which is never stored or shown.

    The nonce is the place of the tensor and the number of the draw. Draws are counted here, not by a ledger: so no two tensors
    share numbers, in however many runs. A resumed run has another key.
    """

    no_copy = "Two owners would draw the same noise. Each process makes its own."

    def __init__(self, add_noise: AddNoise) -> None:
        self._add_noise, self._process, self._lock, self._draws = add_noise, os.getpid(), threading.Lock(), 0
        self._key = torch.tensor(struct.unpack("<8I", os.urandom(32)), dtype=torch.int64, device="cpu")
        self._keys: dict[torch.device, Tensor] = {}

    def add_noise(self, parts: Sequence[NoisePart]) -> None:
        """Write the releases of some tensors, whose places differ, as one draw."""
        if self._process != os.getpid():
            raise RuntimeError("a stream of noise does not go on in a fork")
        with self._lock:
            number, self._draws = self._draws, self._draws + 1
        for device in dict.fromkeys(part.total.device for part in parts):
            refuse_recording(device)
            if device not in self._keys:
                self._keys[device] = self._key.to(device)
            own = [part for part in parts if part.total.device == device]
            self._add_noise(self._keys[device], (number & M32, number >> 32), own)


def refuse_recording(device: torch.device) -> None:
    """Refuse to draw while this thread's work on a device is recorded."""
    tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")
    recorded = torch.compiler.is_compiling() or (tracer is not None and tracer.get_proxy_mode() is not None)
    if device.type == "cuda" and not recorded:
        with torch.cuda.device(device):
            recorded = torch.cuda.is_current_stream_capturing()
    if recorded:
        raise RuntimeError("noise must not be recorded, in a CUDA graph or otherwise: a replay would add the same noise again")


@functools.cache
def own_stream() -> DeviceStream:
    """Return the stream of this process; a fork has another."""
    from privet.noise.device.kernel import add_noise_by_kernel

    return DeviceStream(add_noise_by_kernel)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=own_stream.cache_clear)


def serves(total: Tensor) -> bool:
    """Return whether the kernel adds the noise to a tensor on a CUDA device; for others, noise is drawn on the host."""
    known = total.dtype in (torch.float32, torch.float64) and total.numel() <= LONGEST
    return known and not reason_against(total.device)


@functools.cache
def reason_against(device: torch.device) -> str:
    """Return why the kernel is not used on a device; empty where it gives the same releases as the definition on the host."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH}=0"
    refuse_recording(device)
    try:
        from privet.noise.device.kernel import add_noise_by_kernel

        return "" if agree(add_noise_by_kernel, device) else "the kernel does not agree with the definition"
    except Exception as error:  # of imports, compilers and drivers
        return f"{type(error).__name__}: {error}"


def agree(form: AddNoise, device: torch.device, size: int = 2 * TILE + 1) -> bool:
    """Return whether a form of `add_noise` gives the bits of the definition, under a public key, which draws nothing else."""
    key, found = torch.arange(8, device="cpu") * 0x1234567 + 0x80000001, []
    for dtype in (torch.float32, torch.float64):
        total = torch.linspace(-1e3, 1e3, size, dtype=dtype, device="cpu")
        for place, add_noise in (("cpu", add_noise_in_torch), (device, form)):
            there = total.to(place)
            released = torch.empty_like(there)
            add_noise(key.to(place), (M32, 7), [NoisePart(3, there, 1.7 * 2.0**30, 2.0**-31, 0.3 * 2.0**-31, released)])
            found.append(released.cpu())
    return torch.equal(found[0], found[1]) and torch.equal(found[2], found[3])
