"""Table of a run's outputs, and whether the guarantee covers each."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch
from importlib import resources
from typing import Any

from privet.report.run_files import Run, is_known


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

    `files` are patterns of its file names, or the matching names; `why` is the reason for its status.
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


def _read(row: Mapping[str, Any]) -> Release:
    return Release(row["what"], tuple(row["files"]), ReleaseStatus[row["status"]], row["why"])


_TABLE = tomllib.loads((resources.files("privet.report") / "assets" / "releases.toml").read_text(encoding="utf-8"))
_FILES = tuple(map(_read, _TABLE["files"]))
_STATISTICS, _REPORT, _NEVER = (_read(_TABLE[name]) for name in ("statistics", "report", "never"))


def list_releases(run: Run) -> tuple[Release, ...]:
    """Return all outputs in a run directory, with their status under the guarantee, and what is never recorded."""
    present = [release for release in (_match_files(each, run.files) for each in _FILES) if release.files]
    return (_weights(run), *_statistics(run), *present, *_list_unknown(run), _REPORT, _NEVER)


def _weights(run: Run) -> Release:
    status, why = ReleaseStatus.COVERED, "Every release of training is clipped, noised and accounted for; ε and δ bound this."
    if run.guarantee is None:
        status, why = ReleaseStatus.UNPROTECTED, "This run has no recorded guarantee."
    elif math.isinf(run.guarantee.epsilon):
        status, why = ReleaseStatus.UNPROTECTED, "ε is infinite: the weights may reveal any training example."
    return _match_files(Release(_WEIGHTS, _MODEL_FILES, status, why), run.files)


def _statistics(run: Run) -> tuple[Release, ...]:
    """Return the statistics that steps released, which have the status of the weights; none if there are none."""
    if not any(":" in name for name in run.recorded):
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
    quantities = ", ".join(sorted(name for name in run.recorded if not is_known(name)))
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


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
