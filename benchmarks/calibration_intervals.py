"""Coverage of the true calibration error by 95 % bootstrap intervals: `python -m benchmarks.calibration_intervals`.

Confidences are drawn from a beta distribution; the classifier is a little, or very, overconfident.
"""

from __future__ import annotations

import argparse

import numpy as np

from privet.evaluation import bootstrap_interval, equal_width, tabulate

ERRORS = {"ECE": "expected_error", "RMSCE": "root_mean_square_error", "MCE": "maximum_error"}
EDGES = equal_width()


def errors(confidence, hits):
    table = tabulate(confidence, hits, EDGES)
    return [getattr(table, name) for name in ERRORS.values()]


def draw(generator, examples, overconfidence):
    confidence = generator.beta(8, 2, examples)
    return confidence, generator.random(examples) < confidence - overconfidence * confidence * (1 - confidence)


def coverage(overconfidence, examples, repetitions, resamples, seed=0):
    """Return the true errors, and for each error the coverage of basic and of percentile intervals."""
    generator = np.random.default_rng(seed)
    truth = np.array(errors(*draw(generator, 2_000_000, overconfidence)))
    basic, percentile = np.zeros(len(ERRORS)), np.zeros(len(ERRORS))
    for repetition in range(repetitions):
        sample = draw(generator, examples, overconfidence)
        low, high = bootstrap_interval(errors, *sample, resamples=resamples, seed=repetition)
        found = np.array(errors(*sample))
        basic += (low <= truth) & (truth <= high)
        percentile += (2 * found - high <= truth) & (truth <= 2 * found - low)
    return truth, basic / repetitions, percentile / repetitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=300)
    options = parser.parse_args()
    print("| overconfidence | error | true | basic | percentile |\n|---|---|---|---|---|")
    for overconfidence in (0.1, 0.4):
        columns = coverage(overconfidence, options.examples, options.repetitions, options.resamples)
        for name, truth, basic, percentile in zip(ERRORS, *columns, strict=True):
            print(f"| {overconfidence} | {name} | {truth:.2%} | {basic:.1%} | {percentile:.1%} |")


if __name__ == "__main__":
    main()
