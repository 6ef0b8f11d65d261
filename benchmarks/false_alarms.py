"""False alarms of the statistical checks of noise, sampler, low bits and keystream.

    python -m benchmarks.false_alarms

Each run performs every check once with fresh randomness, as tests and audits do: a check with p < 1e-6 is repeated before it
counts. At most a hundredth of valid p-values is below 0.01; the printed shares show whether α is right.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats

from privet import Plan
from privet.audit._mechanism import noise, sampler
from privet.audit.observations import Noise
from privet.clipping import Flat
from privet.clipping.clipped_sum import ClippedSum
from privet.noise import Gaussian, SecureSource, Token, release
from privet.noise.sources import Keystream
from privet.sampling import Poisson

ALPHA = 1e-6
LEVELS = (0.01, 0.001)
SIGMA, SENSITIVITY, STEPS, SIZE = 1.7, 0.7, 60, 400
PLAN = Plan(
    examples=300, sampling=Poisson(30), steps=STEPS, clipping=Flat(SENSITIVITY), delta=1e-4, noise=Gaussian(SIGMA)
)  # fmt: skip
SOURCE = SecureSource()


def battery() -> dict[str, float]:
    """Return the p-values of the audit's battery for secure noise, and of its correlation with the number drawn."""
    sums = {name: torch.zeros(SIZE // 2) for name in ("a", "b")}
    released = []
    for step in range(STEPS):
        found = release(ClippedSum(sums, SENSITIVITY, torch.zeros(0)), Token(step + 1, SIGMA), SOURCE)
        released.append(np.concatenate([found.tensors[name].double().numpy() for name in sums]) / found.standard_deviation)
    values = np.stack(released)
    parts = {"a": slice(0, SIZE // 2), "b": slice(SIZE // 2, SIZE)}
    drawn = np.random.default_rng().binomial(300, 0.1, STEPS).astype(np.float64)
    seen = Noise(values, np.ones_like(values, dtype=bool), parts, drawn=drawn)
    return {check.name: check.p_value for check in noise.checks(seen)}


def sampling() -> dict[str, float]:
    """Return the p-values of the audit for the plan's own draws."""
    draws = PLAN.sampling.draws(PLAN.examples, SOURCE.words)
    return {check.name: check.p_value for check in sampler.checks(PLAN, [next(draws) for _ in range(STEPS)])}


def low_bits() -> dict[str, float]:
    """Return p-values of whether the lowest bits of releases distinguish an empty sum from a full contribution."""
    grid, ones = 2.0**-60, []
    for total in (0.0, SENSITIVITY):
        found = release(
            ClippedSum({"w": torch.full((4000,), total, dtype=torch.float64)}, SENSITIVITY, torch.zeros(0)),
            Token(1, SIGMA), SOURCE,
        ).tensors["w"].numpy()  # fmt: skip
        grid = min(value for value in 2.0 ** np.arange(-60, 1) if not (found / (2 * value) == np.rint(found / (2 * value))).all())
        cells = np.rint(found / grid).astype(np.int64)
        ones.append((int((cells & 1).sum()), int((cells >> 1 & 1).sum())))
    return {
        f"bit {place}": float(stats.binomtest(ones[0][place] + ones[1][place], 8000).pvalue) for place in (0, 1)
    } | {
        f"bit {place}, of neighbours": float(
            stats.fisher_exact([[ones[0][place], 4000 - ones[0][place]], [ones[1][place], 4000 - ones[1][place]]])[1]
        )
        for place in (0, 1)
    }  # fmt: skip


def words() -> dict[str, float]:
    """Return p-values of whether the keystream's bytes are uniform and independent of earlier bytes."""
    found = Keystream().words(4096).view(np.uint8)
    counts = np.bincount(found, minlength=256)
    bits = np.unpackbits(found)
    return {
        "bytes": float(stats.chisquare(counts).pvalue),
        "bits": float(stats.binomtest(int(bits.sum()), len(bits)).pvalue),
        "neighbouring bits": float(stats.binomtest(int((bits[1:] == bits[:-1]).sum()), len(bits) - 1).pvalue),
    }


FAMILIES: dict[str, Callable[[], dict[str, float]]] = {
    "noise battery": battery, "sampler": sampling, "low bits": low_bits, "keystream": words,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    print(
        f"{'family':16}{'runs':>7}{'p-values':>10}"
        + "".join(f"{f'p < {level:g}':>12}" for level in LEVELS)
        + "  alarms  after the rerun"
    )
    for name, family in FAMILIES.items():
        started, found, first, both = time.process_time(), [], 0, 0
        for _ in range(runs):
            p_values = family()
            found += p_values.values()
            rejected = [check for check, p in p_values.items() if not p >= ALPHA]
            first += bool(rejected)
            if rejected:
                again = family()
                both += any(not again[check] >= ALPHA for check in rejected)
        shares = "".join(f"{np.mean(np.array(found) < level):12.5f}" for level in LEVELS)
        seconds = time.process_time() - started
        print(f"{name:16}{runs:7,}{len(found):10,}{shares}{first:8}{both:8}    ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
