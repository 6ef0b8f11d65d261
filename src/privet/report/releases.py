"""Table of a run's outputs, and whether the guarantee covers each."""

from __future__ import annotations

__all__ = ["Release", "ReleaseStatus", "list_releases"]

import math
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch

from privet.report.run_files import Run


class ReleaseStatus(Enum):
    """Status of an output under the guarantee; the value is its name in the report."""

    COVERED = "Covered"
    UNPROTECTED = "Unprotected"
    PUBLIC = "Public"
    OUTSIDE = "Not covered"
    MIXED = "Mixed"
    PRIVATE = "Keep private"
    NEVER = "Never recorded"


@dataclass(frozen=True, slots=True)
class Release:
    """An output of a run, or a quantity that it deliberately does not record.

    Args:
        what: its name.
        files: patterns of its file names, or the matching names.
        status: whether the guarantee covers it.
        why: the reason, in a sentence or two.
    """

    what: str
    files: tuple[str, ...]
    status: ReleaseStatus
    why: str


_WEIGHTS = "Model weights, and the noisy gradient of each step"
# A checkpoint holds released parameters and optimizer states computed from them, and no random state.
_MODEL_FILES = (
    "model.safetensors", "model/model.safetensors", "model/*.onnx", "model/*.pt2", "samples.safetensors", "checkpoint.pt",
    "checkpoint-previous.pt",
)  # fmt: skip

_FILES = (
    Release(
        "ε, δ and the privacy statement", ("guarantee.json", "guarantee.md", "metrics.jsonl"), ReleaseStatus.PUBLIC,
        "Computed from the plan and the number of steps, not from the examples.",
    ),
    Release(
        "The plan", ("plan.json",), ReleaseStatus.PUBLIC,
        "Chosen before training. If settings were tuned on the private examples, that is a separate release.",
    ),
    Release(
        "The privacy ledger", ("ledger*",), ReleaseStatus.PUBLIC,
        "Follows the plan step by step, independent of the examples.",
    ),
    Release(
        "Training setup", ("run.json", "manifest.json", "schema.toml"), ReleaseStatus.PUBLIC,
        "Chosen before training, except for the training time: see below.",
    ),
    Release(
        "Description and card of the model", ("model/model.json", "model/README.md"), ReleaseStatus.PUBLIC,
        "Repeat settings, schema and guarantee; the card also repeats the test results, if there are any: see below.",
    ),
    Release(
        "Communication", ("communication.json",), ReleaseStatus.PUBLIC,
        "Computed from the plan and the shape of the model, for the expected number of clients.",
    ),
    Release(
        "State of the run", ("status.json",), ReleaseStatus.PUBLIC,
        "Counts steps, not examples.",
    ),
    Release(
        "Results on test data", ("evaluation.json", "metrics.jsonl"), ReleaseStatus.OUTSIDE,
        "Computed from the test set without noise. Safe only if the test set is public, or comes from other people who "
        "agreed.",
    ),
    Release(
        "Result on held-out private data", ("holdout.json",), ReleaseStatus.COVERED,
        "Released with noise of its own, which is part of ε and δ.",
    ),
    Release(
        "Keys for resuming", ("fingerprint.json", "division.key"), ReleaseStatus.PRIVATE,
        "Fingerprint of the private data, and which of them were held out. For the owner of the data alone.",
    ),
    Release(
        "Wall-clock seconds", ("metrics.jsonl", "run.json"), ReleaseStatus.OUTSIDE,
        "Timing is outside the guarantee: the duration of a step can depend on its number of examples.",
    ),
    Release(
        "Gradient study", ("study.json",), ReleaseStatus.UNPROTECTED,
        "NOT PRIVATE: computed from the raw gradients of its probe batch. If those examples are private, do not share the "
        "study.",
    ),
)  # fmt: skip
_STATISTICS = Release(
    "Statistics of adaptive rules", ("metrics.jsonl",), ReleaseStatus.COVERED,
    "Released with noise in the same steps as the gradients, and part of the same ε.",
)  # fmt: skip
_REPORT = Release(
    "This report and its figures", ("report.html", "figures"), ReleaseStatus.MIXED,
    "Repeats the numbers above: share it only if all of them may be shared.",
)  # fmt: skip
_NEVER = Release(
    "Actual batch sizes, training loss, gradient norms", (), ReleaseStatus.NEVER,
    "They depend on the private examples without noise, so training does not record them.",
)  # fmt: skip
_METRICS = frozenset(
    {
        "step", "epsilon", "learning_rate", "sensitivity", "seconds", "test_accuracy", "test_negative_log_likelihood",
        "test_expected_calibration_error", "test_mean_squared_error", "test_mean_absolute_error", "test_r_squared",
    }
)  # fmt: skip


def list_releases(run: Run) -> tuple[Release, ...]:
    """Return all outputs in a run directory, with their status under the guarantee.

    Args:
        run: contents of a run directory.

    Returns:
        The weights, the known files that exist, unknown files and quantities, the report, and the quantities that are never
        recorded.
    """
    present = [_match_files(release, run.files) for release in _FILES]
    return (
        _weights(run),
        *_statistics(run),
        *(release for release in present if release.files),
        *_list_unknown(run),
        _REPORT,
        _NEVER,
    )


def _weights(run: Run) -> Release:
    status, why = (
        ReleaseStatus.COVERED,
        "Every release of training is clipped, noised and accounted for; this is what ε and δ bound.",
    )
    if run.guarantee is None:
        status, why = ReleaseStatus.UNPROTECTED, "This run has no recorded guarantee."
    elif math.isinf(run.guarantee.epsilon):
        status, why = ReleaseStatus.UNPROTECTED, "ε is infinite: the weights may reveal any training example."
    return _match_files(Release(_WEIGHTS, _MODEL_FILES, status, why), run.files)


def _statistics(run: Run) -> tuple[Release, ...]:
    """Return the statistics that steps released, which have the status of the weights; none if there are none."""
    if not any(map(_is_statistic, run.recorded)):
        return ()
    weights = _weights(run)
    why = _STATISTICS.why if weights.status is ReleaseStatus.COVERED else weights.why
    return (Release(_STATISTICS.what, _STATISTICS.files, weights.status, why),)


def _match_files(release: Release, names: tuple[str, ...]) -> Release:
    files = tuple(name for name in names if _matches(name, release.files))
    return Release(release.what, files, release.status, release.why)


def _list_unknown(run: Run) -> tuple[Release, ...]:
    """Return the files and quantities that are not in this table, which cannot vouch for them."""
    known = [pattern for release in (*_FILES, _REPORT) for pattern in release.files] + [*_MODEL_FILES]
    files = tuple(name for name in run.files if not _matches(name, tuple(known)))
    quantities = ", ".join(sorted(name for name in run.recorded - _METRICS if not _is_statistic(name)))
    found = (
        Release("Other files", files, ReleaseStatus.OUTSIDE, "Their content is unknown to this report."),
        Release(
            f"Other recorded quantities: {quantities}",
            ("metrics.jsonl",) if quantities else (),
            ReleaseStatus.OUTSIDE,
            "Their computation is unknown to this report.",
        ),
    )
    return tuple(release for release in found if release.files)


def _is_statistic(name: str) -> bool:
    """Return whether a quantity of `metrics.jsonl` is a statistic that steps released; no other name has a colon."""
    return ":" in name


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
