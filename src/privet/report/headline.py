"""The five numbers of a run: guarantee, attack, quality, training and noise."""

from __future__ import annotations

__all__ = ["KeyNumber", "attack_limit", "describe_neighbours", "list_numbers"]

import math
from collections.abc import Iterator
from dataclasses import dataclass

from privet.accounting.rounding import format_percent_up
from privet.evaluation import HeldOutEstimate
from privet.report import numbers
from privet.report.estimates import headline, list_released
from privet.report.run_files import Run, StoredGuarantee

_NEIGHBOURS = {
    "add-remove": "added or removed",
    "replace-one": "replaced",
    "zero-out": "blanked out",
}


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One of the five numbers.

    Args:
        key: "epsilon", "attack", "quality", "steps" or "noise".
        name: what it measures.
        value: the number for display.
        amount: the number; runs are ordered by it.
        about: what it means here, in one sentence.
        detail: its interval or unit, for a table; empty if there is none.
    """

    key: str
    name: str
    value: str
    amount: float
    about: str
    detail: str = ""


def list_numbers(run: Run) -> tuple[KeyNumber, ...]:
    """Return the numbers that a run's files hold, in this order: ε and δ, attack, quality, steps, noise."""
    return (*_privacy(run.guarantee), *_attack(run.guarantee), *_quality(run), *_training(run), *_noise(run))


def describe_neighbours(claimed: StoredGuarantee) -> str:
    """Return how neighbouring data sets differ, as in "one example added or removed"."""
    differs = _NEIGHBOURS.get(claimed.adjacency, claimed.adjacency)
    return f"{claimed.unit} {differs}" if differs else claimed.unit


def attack_limit(claimed: StoredGuarantee) -> float:
    """Return the largest share of right guesses of an attacker who knows that membership is a fair coin flip.

    Without the recorded curve of all pairs, this is what the stated pair (ε, δ) implies alone: (e^ε + δ) / (1 + e^ε).

    Args:
        claimed: the guarantee of a run.
    """
    if math.isinf(claimed.epsilon):
        return 1.0
    if claimed.meaning is not None:
        return 1 - claimed.meaning.bayes_risk
    return 1 - (1 - claimed.delta) / (1 + math.exp(min(claimed.epsilon, 700.0)))


def _privacy(claimed: StoredGuarantee | None) -> Iterator[KeyNumber]:
    if claimed is not None:
        slack = f"δ = {numbers.format_power_of_ten(claimed.delta)}"
        about = f"at {slack}, for {describe_neighbours(claimed)}"
        yield KeyNumber(
            "epsilon", "Privacy loss ε", numbers.format_epsilon(claimed.epsilon), claimed.epsilon, about, f"at {slack}"
        )


def _attack(claimed: StoredGuarantee | None) -> Iterator[KeyNumber]:
    if claimed is None:
        return
    name, limit = "An attacker is right", attack_limit(claimed)
    if math.isinf(claimed.epsilon):
        yield KeyNumber("attack", name, "no limit", limit, f"The model may reveal everything about {claimed.unit}.")
        return
    about = f"of the time when guessing whether {claimed.unit} was in the data; a coin flip: 50\N{NO-BREAK SPACE}%"
    yield KeyNumber("attack", name, f"≤\N{NO-BREAK SPACE}{format_percent_up(limit)}", limit, about)


def _quality(run: Run) -> Iterator[KeyNumber]:
    if run.evaluation is not None:
        best = headline(run.evaluation)
        examples = f"{run.evaluation.examples:,} test examples"
        about = f"95 % interval {best.interval_shown}, {examples}" if best.interval else examples
        yield KeyNumber("quality", f"Test {best.noun}", best.shown, best.value, about, best.interval_shown)
        return
    for m in [m for m in run.measurements if m.test_accuracy is not None or m.test_error is not None][-1:]:
        after = f"after step {m.step:,}"
        if m.test_accuracy is not None:
            yield KeyNumber("quality", "Test accuracy", numbers.format_percent(m.test_accuracy), m.test_accuracy, after, after)
        elif m.test_error is not None:
            yield KeyNumber("quality", "Test RMSE", numbers.format_measurement(m.test_error), m.test_error, after, after)
        return
    if run.held_out is not None:
        best, found = list_released(run.held_out)[0], run.held_out
        about = f"95 % interval {best.interval_shown}, {_describe_held_out(found)}"
        yield KeyNumber("quality", f"Held-out {best.noun}", best.shown, best.value, about, best.interval_shown)
        return
    # An unfinished run has no such key: it has not recorded yet whether it has test data.
    if "test_data" in run.setup and run.setup["test_data"] is None:
        about = "no public test data (--test) and no paid estimate (--holdout)"
        yield KeyNumber("quality", "Test result", "not measured", math.nan, about)


def _describe_held_out(found: HeldOutEstimate) -> str:
    released = f"released with noise at ε = {numbers.format_epsilon(found.epsilon)}"
    return f"{found.examples:,} private {found.unit}s, {released}"


def _training(run: Run) -> Iterator[KeyNumber]:
    status, last = run.status, run.measurements[-1] if run.measurements else None
    done = status.steps_done if status else last.step if last else None
    if done is None:
        return
    batch, examples, seconds = run.planned("sampling", "batch_size"), run.planned("examples"), run.setup.get("seconds")
    took = numbers.format_duration(seconds) if isinstance(seconds, int | float) else ""
    parts = [f"{took} of training"] if took else []
    if isinstance(batch, int | float) and isinstance(examples, int):
        parts.append(f"batches of {numbers.format_value(float(batch))} out of {examples:,}")
    planned = f" of {status.steps_planned:,}" if status and not status.complete and status.steps_planned else ""
    yield KeyNumber("steps", "Steps", f"{done:,}{planned}", done, "; ".join(parts), took)


def _noise(run: Run) -> Iterator[KeyNumber]:
    multiplier = run.planned("noise", "multiplier")
    if not isinstance(multiplier, int | float):
        return
    bound = run.planned("clipping", "bound")
    unit = f"the clipping bound, {bound:.4g}" if isinstance(bound, int | float) else "the clipping bound"
    about = f"standard deviation of each step's noise in units of {unit}"
    yield KeyNumber("noise", "Noise multiplier", f"{multiplier:.4g}", multiplier, about)
