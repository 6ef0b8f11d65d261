"""The summary of a training has at most eight lines, however many warnings and results there are."""

from dataclasses import replace
from pathlib import Path

import pytest

from privet import Plan, clipping, noise, sampling
from privet.cli.running import format_summary
from privet.evaluation import Evaluation, HeldOutEstimate
from privet.runs import Outcome

GUARANTEE = Plan(
    examples=500, sampling=sampling.Poisson(50), steps=9, delta=1e-4, clipping=clipping.Flat(0.3), noise=noise.Gaussian(2.0)
).guarantee()
TESTED = Evaluation(accuracy=0.5, negative_log_likelihood=0.7, confusion=((1, 1), (1, 1)), examples=4)
RELEASED = HeldOutEstimate(
    task="classification", metrics={"accuracy": 0.6}, intervals={"accuracy": (0.4, 0.7)}, examples=90, unit="example",
    epsilon=0.5, delta=1e-4, noise_multiplier=9.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "results", [{}, {"evaluation": TESTED}, {"held_out": RELEASED}, {"evaluation": TESTED, "held_out": RELEASED}]
)
@pytest.mark.parametrize("defaults", [{}, {"steps": 9}])
@pytest.mark.parametrize("warnings", [0, 2, 7])
def test_a_summary_has_at_most_eight_lines(results, defaults, warnings):
    texts = tuple(f"number {index}" for index in range(warnings))
    given = {"evaluation": None, "held_out": None, **results}
    outcome = Outcome(
        directory=Path("runs/mine"), guarantee=replace(GUARANTEE, warnings=texts), test_data=None, seconds=1.0, defaults=defaults,
        **given,
    )  # fmt: skip
    lines = format_summary(outcome).splitlines()
    assert len(lines) <= 8
    assert lines[-1] == "Full statement: privet guarantee runs/mine"
    shown = [text for text in texts if f"Warning: {text}" in lines]
    hidden = [line for line in lines if line.endswith("in the full statement")]
    left = warnings - len(shown)
    assert hidden == ([f"Warning: {left} {'more ' if shown else ''}in the full statement"] if left else [])
