"""Whether the formula chooses the fastest way to compute the norms of a convolution: `python -m benchmarks.convolutions`.

Prints milliseconds of CPU time for norms and weighted sum of one kernel: for every way to compute norms, followed by torch's
weighted sum, and for gradients that are kept for both, if allowed. The fastest eighth of the calls counts, so other work on the
machine disturbs little. The prices in `privet.gradients.layers.convolution.norms` are set so that the chosen way is nowhere much
slower than the fastest.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from privet._utils.malloc import keep_freed_memory
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.gradient import KEEP, ConvGrad
from privet.gradients.layers.convolution.norms import NORM_METHODS, cheapest_method, is_keeping_cheaper, measure

# Batch, channels in and out, kernel, stride, padding, height and width: small networks for grey images, scattering coefficients,
# residual networks, inverted residual blocks.
SHAPES = (
    (256, 1, 16, 8, 2, 3, 28), (256, 16, 32, 4, 2, 0, 13), (256, 10, 20, 5, 1, 0, 12), (256, 1, 10, 5, 1, 0, 28),
    (512, 1, 16, 5, 2, 2, 28), (512, 16, 16, 3, 1, 1, 14), (512, 16, 32, 3, 2, 1, 14), (512, 32, 32, 3, 1, 1, 7),
    (64, 1, 32, 3, 1, 1, 28), (64, 32, 32, 3, 1, 1, 28), (64, 32, 64, 3, 1, 1, 14), (64, 64, 64, 3, 1, 1, 14),
    (256, 81, 16, 3, 2, 1, 7), (256, 16, 32, 3, 1, 1, 4),
    (64, 3, 32, 3, 1, 1, 32), (16, 64, 64, 3, 1, 1, 28), (16, 128, 128, 3, 1, 1, 14), (16, 256, 256, 3, 1, 1, 7),
    (16, 512, 512, 3, 1, 1, 4), (8, 3, 64, 7, 2, 3, 112), (16, 64, 128, 3, 2, 1, 28), (16, 128, 256, 1, 2, 0, 14),
    (64, 64, 64, 1, 1, 0, 8), (64, 64, 64, 3, 1, 1, 8), (64, 128, 128, 3, 1, 1, 4),
    (32, 32, 96, 1, 1, 0, 14), (32, 96, 32, 1, 1, 0, 14),
)  # fmt: skip
LAYOUTS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Return the quantile 1/8 of the CPU time of a call."""
    call()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 8 or time.perf_counter() < end:
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return sorted(taken)[len(taken) // 8] * 1e3


def ways(grad: ConvGrad) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every applicable way, and the one that keeps gradients."""
    weights, shape = torch.rand(grad.examples), grad.shape

    def followed_by_sum(name: str) -> Callable[[], tuple[Tensor, Tensor]]:
        return lambda: (measure(NORM_METHODS[name], grad.geometry, grad.inputs, grad.gradients), grad.weighted_sum(weights))

    def kept() -> tuple[Tensor, Tensor]:
        held = grad.to_dense()
        return held.squared_norms(), held.weighted_sum(weights)

    yield from ((name, followed_by_sum(name)) for name, way in NORM_METHODS.items() if math.isfinite(way.cost(shape)))
    if shape.weight <= KEEP * shape.factors:
        yield "kept", kept


def chosen(grad: ConvGrad) -> str:
    """Return the way that the formula chooses."""
    shape = grad.shape
    if shape.weight <= KEEP * shape.factors and is_keeping_cheaper(shape):
        return "kept"
    return next(name for name, way in NORM_METHODS.items() if way is cheapest_method(shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.25, help="for each way of each shape")
    parser.add_argument("--keep-freed", action="store_true", help="keep memory that is freed, as the commands of privet do")
    options = parser.parse_args()
    if options.keep_freed:
        keep_freed_memory()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, torch {torch.__version__}")
    worst = 1.0
    for batch, channels, out, kernel, stride, padding, side in SHAPES:
        for layout, memory_format in LAYOUTS.items():
            geometry = Geometry((out, channels, kernel, kernel), (stride,) * 2, (padding,) * 2, (1, 1), 1)
            sizes = (channels, side, side), (out, *geometry.positions((side, side)))
            grad = ConvGrad(*(torch.randn(batch, *size).contiguous(memory_format=memory_format) for size in sizes), geometry)
            times = {name: milliseconds(call, options.seconds) for name, call in ways(grad)}
            choice, ordered = chosen(grad), sorted(times, key=times.__getitem__)
            worst = max(worst, times[choice] / times[ordered[0]])
            print(
                f"{batch}×{channels}×{side}² → {out}, {kernel}² by {stride}, {layout}: {choice};",
                ", ".join(f"{name} {times[name]:.2f}" for name in ordered),
                flush=True,
            )
    print(f"what is chosen takes at most {worst:.2f} times the fastest")


if __name__ == "__main__":
    main()
