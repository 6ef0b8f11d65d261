"""Which of a run's numbers and files the guarantee covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch

from privet.evaluation import studies
from privet.report.run_files import Run


class Standing(Enum):
    """Where something stands towards the guarantee; the value is what the report calls it."""

    COVERED = "Covered"
    UNPROTECTED = "Unprotected"
    PUBLIC = "Public"
    OUTSIDE = "Not covered"
    MIXED = "Mixed"
    NEVER = "Never recorded"


@dataclass(frozen=True, slots=True)
class Release:
    """Something a run leaves behind, or pointedly does not.

    Args:
        what: its name.
        files: where it lies: patterns of file names, or those that matched.
        standing: whether the guarantee covers it.
        why: the reason, in a sentence or two.
    """

    what: str
    files: tuple[str, ...]
    standing: Standing
    why: str


_WEIGHTS = "Model weights, and the noisy gradient of every step"
# A checkpoint holds released parameters and what an optimizer made of them, and no random state.
_MODEL_FILES = ("model.safetensors", "checkpoint.pt", "checkpoint-previous.pt")

_FILES = (
    Release(
        "ε, δ and the statement",
        ("guarantee.json", "guarantee.md", "metrics.jsonl"),
        Standing.PUBLIC,
        "Computed from the plan and the number of steps, not from the examples.",
    ),
    Release(
        "The plan",
        ("plan.json",),
        Standing.PUBLIC,
        "Chosen before training. Settings that were tuned on the private examples are a release of their own.",
    ),
    Release(
        "The record of what was spent",
        ("ledger*",),
        Standing.PUBLIC,
        "Follows the plan step by step, whatever the examples are.",
    ),
    Release(
        "Training set-up",
        ("run.json", "manifest.json"),
        Standing.PUBLIC,
        "Chosen before training, except for its seconds: see below.",
    ),
    Release("How far the run came", ("status.json",), Standing.PUBLIC, "A count of steps, not of examples."),
    Release(
        "Test accuracy, negative log-likelihood, calibration and confusion matrix",
        ("evaluation.json", "metrics.jsonl"),
        Standing.OUTSIDE,
        "Computed from the test set without noise. Harmless only if the test set is public, or comes from other people "
        "who agreed to it.",
    ),
    Release(
        "Wall-clock seconds",
        ("metrics.jsonl", "run.json"),
        Standing.OUTSIDE,
        "Timing is outside the guarantee: how long a step takes can depend on how many examples it drew.",
    ),
    Release(
        "What a study saw of the gradients",
        (studies.FILE,),
        Standing.UNPROTECTED,
        "NOT PRIVATE: computed from the raw gradients of its probe batch. If those examples are private, neither it nor this "
        "report may be passed on.",
    ),
)
_REPORT = Release(
    "This report and its figures",
    ("report.html", "figures"),
    Standing.MIXED,
    "Repeats the numbers above; pass it on only if everything in it may be.",
)
_NEVER = Release(
    "Realised batch sizes, training loss, gradient norms",
    (),
    Standing.NEVER,
    "They depend on the private examples and carry no noise, so training does not write them down.",
)
_METRICS = frozenset(
    {"step", "epsilon", "seconds", "test_accuracy", "test_negative_log_likelihood", "test_expected_calibration_error"}
)


def releases(run: Run) -> tuple[Release, ...]:
    """Return everything that a run directory holds, with where it stands towards the guarantee.

    Args:
        run: a run directory, read.

    Returns:
        The weights, the known files that are there, whatever is there that is not known, and what is never recorded.
    """
    present = [_found(release, run.files) for release in _FILES]
    return (_weights(run), *(release for release in present if release.files), *_unknown(run), _REPORT, _NEVER)


def _weights(run: Run) -> Release:
    standing, why = (
        Standing.COVERED,
        "All that leaves training was clipped, noised and counted; this is what ε and δ bound.",
    )
    if run.guarantee is None:
        standing, why = Standing.UNPROTECTED, "No guarantee is on record for this run."
    elif math.isinf(run.guarantee.epsilon):
        standing, why = Standing.UNPROTECTED, "ε is infinite: the weights may reveal any example they were trained on."
    return _found(Release(_WEIGHTS, _MODEL_FILES, standing, why), run.files)


def _found(release: Release, names: tuple[str, ...]) -> Release:
    files = tuple(name for name in names if _matches(name, release.files))
    return Release(release.what, files, release.standing, release.why)


def _unknown(run: Run) -> tuple[Release, ...]:
    """Return what is there beyond what this table knows: nothing that it may hold can be vouched for."""
    known = [pattern for release in (*_FILES, _REPORT) for pattern in release.files] + [*_MODEL_FILES]
    files = tuple(name for name in run.files if not _matches(name, tuple(known)))
    quantities = ", ".join(sorted(run.recorded - _METRICS))
    found = (
        Release("Other files", files, Standing.OUTSIDE, "This report does not know what they hold."),
        Release(
            f"Other recorded quantities: {quantities}",
            ("metrics.jsonl",) if quantities else (),
            Standing.OUTSIDE,
            "This report does not know how they were computed.",
        ),
    )
    return tuple(release for release in found if release.files)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
