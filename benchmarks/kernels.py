"""Time of a wheel's kernels, of kernels compiled for exactly this processor, and of torch.

    cmake -S . -B build/kernels -DCMAKE_BUILD_TYPE=Release && cmake --build build/kernels
    python -m benchmarks.kernels build/kernels

All forms of a function take turns on the same numbers, on one thread. The output is the processor time of the fastest call, and
its ratio to the kernel that is compiled on first use (-march=native).
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from privet._utils.native import compiled_library
from privet.gradients.layers.embedding import kernels as embedding
from privet.gradients.masking import kernels as masking
from privet.noise import compiled as noise

VARIANTS = ("default", "avx2", "avx512")
SOURCES = Path(noise.__file__).parents[2]
Calls = Mapping[str, Callable[[], object]]


def noised(form: noise.Arithmetic) -> Calls:
    """A block of noise."""
    words = torch.randint(-(2**63), 2**63 - 1, (1 << 16,)).view(torch.float64)
    total, numbers = torch.randn(1 << 16), torch.randn(1 << 16, dtype=torch.float64)
    released = torch.empty_like(total)
    return {
        "box_muller": lambda: form.box_muller(words.clone()),
        "add_noise": lambda: form.add_noise(total, numbers, 1.7 * 2.0**30, 2.0**-31, 2.0**-31, released),
    }


def embedded(form: embedding.Sums) -> Calls:
    """256 examples of 64 tokens, in a table of 10,000 × 128."""
    indices, gradients, weights = torch.randint(10_000, (256, 64)), torch.randn(256, 64, 128), torch.rand(256)
    return {
        "measured": lambda: form.measure(indices, gradients, None),
        "weighted_sum": lambda: form.weighted_sum(indices, gradients, weights, 10_000, None),
    }


def masked(form: masking.Products) -> Calls:
    """A tenth of 784 × 256 coordinates, with 512 examples."""
    mask = masking.rows(torch.rand(784, 256) < 0.1, torch.float32)
    left, right = torch.randn(784, 512), torch.randn(256, 512)
    return {"product": lambda: form.product(mask, right), "outer": lambda: form.outer(mask, left, right)}


def forms(kernels: Any, built: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and form of the checked kernels that this processor can run; the one compiled here comes first."""
    source: Path = kernels._SOURCE
    runs = VARIANTS[: {"AVX2": 2, "AVX512": 3}.get(torch.backends.cpu.get_cpu_capability(), 1)]
    there = {variant: path for variant in runs for path in (built / source.relative_to(SOURCES).parent).glob(f"*-{variant}.so")}
    libraries = {"native": compiled_library(source), **{name: ctypes.CDLL(str(path)) for name, path in there.items()}}
    for name, library in libraries.items():
        form = kernels._bind(library)
        assert (kernels.agree if kernels is noise else kernels.is_consistent)(form), f"{library._name} is wrong"
        yield name, form
    yield "torch", kernels.IN_TORCH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("built", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kernels, make in ((noise, noised), (embedding, embedded), (masking, masked)):
        torch.manual_seed(0)
        arms = {name: make(form) for name, form in forms(kernels, options.built)}
        for function in arms["native"]:
            fastest = dict.fromkeys(arms, float("inf"))
            for _ in range(options.rounds):
                for name, calls in arms.items():
                    start = time.process_time()
                    calls[function]()
                    fastest[name] = min(fastest[name], time.process_time() - start)
            base = fastest["native"]
            print(f"{function:14}" + "".join(f"  {name} {t * 1e3:.3f} ms ({t / base:.2f})" for name, t in fastest.items()))


if __name__ == "__main__":
    main()
