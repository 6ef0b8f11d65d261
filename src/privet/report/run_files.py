"""Read the files of a run directory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from privet._utils.documents import from_json, read_text
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.tradeoff import Meaning
from privet.artifact.folder import FOLDER
from privet.errors import InvalidArgumentError
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation

T = TypeVar("T")
# Quantities in `metrics.jsonl` that Privet itself records.
_KNOWN = frozenset({
    "step", "epsilon", "learning_rate", "sensitivity", "seconds", "communicated", "communicated_dense", "test_accuracy",
    "test_negative_log_likelihood", "test_expected_calibration_error", "test_mean_squared_error", "test_mean_absolute_error",
    "test_r_squared",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredGuarantee:
    """`guarantee.json`: the guarantee of a run.

    ε is infinite without privacy, and None by an accountant that does not cover the run; an adjacency or a summary that is not
    recorded is empty, and a meaning None.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    prose: str
    summary: str
    epsilon_by_accountant: Mapping[str, float | None]
    meaning: Meaning | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A line of `metrics.jsonl`: values after a step; None if not measured.

    `test_error` is a root mean squared error. `communicated` are the expected bytes of a federated run so far. `logged` are the
    values that a program of the user gave to `Training.log`, by name.
    """

    step: int
    epsilon: float | None
    test_accuracy: float | None
    test_error: float | None = None
    communicated: float | None = None
    communicated_dense: float | None = None
    logged: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """`status.json`: progress of a run; `steps_planned` is None if training lasts until the budget is spent."""

    complete: bool
    steps_done: int
    steps_planned: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """Contents of a run directory; None or empty for files that do not exist.

    `measurements` are in order of steps, and lines of one step complement each other; `recorded` are all their names. `files`
    are the visible entries of the directory, sorted, with those in the model's folder one by one.
    """

    directory: Path
    plan: Mapping[str, Any]
    guarantee: StoredGuarantee | None
    measurements: tuple[Measurement, ...]
    recorded: frozenset[str]
    evaluation: Evaluation | RegressionEvaluation | None
    held_out: HeldOutEstimate | None
    setup: Mapping[str, Any]
    status: Status | None
    schema: str
    communication: Mapping[str, Any]
    files: tuple[str, ...]

    def planned(self, *keys: str) -> Any:
        """Return the value at nested keys of the plan, such as ("noise", "multiplier"); None where the file has no such value."""
        value: Any = self.plan
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def read(directory: Path) -> Run:
    """Read a run directory with `plan.json` and any of the other files; a damaged file is named."""
    plan = _load(directory / "plan.json", _mapping)
    if plan is None:
        fix = "Give a directory that privet train wrote."
        raise InvalidArgumentError("directory", str(directory), "a run directory, which contains plan.json", fix)
    measurements, recorded = _load(directory / "metrics.jsonl", _metrics, decode=_json_lines) or ((), frozenset())
    run = Run(
        directory=directory,
        plan=plan,
        guarantee=_load(directory / "guarantee.json", _guarantee),
        measurements=measurements,
        recorded=recorded,
        evaluation=_load(directory / "evaluation.json", _evaluation),
        held_out=_load(directory / "holdout.json", HeldOutEstimate.from_dict),
        setup=_load(directory / "run.json", _mapping) or {},
        status=_load(directory / "status.json", _status),
        schema=_load(directory / "schema.toml", str, decode=str) or "",
        communication=_load(directory / "communication.json", _communication) or {},
        files=_list_files(directory),
    )
    if not isinstance(run.evaluation, Evaluation) or run.evaluation.class_names:
        return run
    # Earlier versions kept the public names of the classes in the schema or the settings alone.
    declared = run.planned("schema", "task", "classes")
    names = declared if isinstance(declared, list) else str(run.setup.get("classes") or "").split(",")
    known = tuple(map(str, names)) if len(names) == len(run.evaluation.confusion) else ()
    return replace(run, evaluation=replace(run.evaluation, class_names=known))


def _list_files(directory: Path) -> tuple[str, ...]:
    """Return the names of files and folders. The model's folder is listed by its files, which differ in what they release."""
    entries = [entry for entry in directory.iterdir() if entry.name != FOLDER]
    inside = [entry for entry in (directory / FOLDER).glob("*") if not entry.name.startswith(".")]
    names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return tuple(sorted([*names, *(f"{FOLDER}/{entry.name}" for entry in inside)]))


def _load(path: Path, parse: Callable[[Any], T], decode: Callable[[str], Any] = from_json) -> T | None:
    if not path.is_file():
        return None
    try:
        return parse(decode(read_text(path)))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        fix = f"It cannot be read ({error}); restore or remove it."
        raise InvalidArgumentError("the file", str(path), "unchanged since training", fix) from None


def _json_lines(text: str) -> list[Any]:
    # After a crash, the last line may be incomplete and lack a newline; it is ignored.
    return [from_json(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.strip()]


def _metrics(lines: list[Any]) -> tuple[tuple[Measurement, ...], frozenset[str]]:
    # Lines of one step complement each other; where they overlap, the later one includes everything that was spent.
    joined: dict[int, dict[str, Any]] = {}
    for line in lines:
        joined.setdefault(int(line["step"]), {}).update(line)
    names = frozenset(name for line in lines for name in line)
    return tuple(_measurement(joined[step]) for step in sorted(joined)), names


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("not a JSON object")
    return value


def _communication(value: Any) -> Mapping[str, Any]:
    """Return the bytes of a client, a round, an epoch and the run, after a check that all are numbers."""
    volumes = ("up", "down", "dense_up", "dense_down")
    known = {part: {name: float(value[part][name]) for name in volumes} for part in ("client", "round", "epoch", "run")}
    return {"cohort": float(value["cohort"]), "rounds": int(value["rounds"]), **known}


def _guarantee(value: Any) -> StoredGuarantee:
    by_accountant = value.get("epsilon_by_accountant") or {}
    return StoredGuarantee(
        epsilon=float(value["epsilon"]), delta=float(value["delta"]), adjacency=str(value.get("adjacency") or ""),
        unit=str(value.get("unit") or "one example"), prose=str(value.get("prose") or ""),
        summary=str(value.get("summary") or ""),
        epsilon_by_accountant={str(name): _optional(epsilon) for name, epsilon in by_accountant.items()},
        meaning=tradeoff.from_dict(value["meaning"]) if value.get("meaning") else None,
    )  # fmt: skip


def is_known(name: str) -> bool:
    """Return whether a quantity of `metrics.jsonl` is one of Privet's own; those of released statistics alone have a colon."""
    return name in _KNOWN or ":" in name


def _measurement(value: Any) -> Measurement:
    squared = _optional(value.get("test_mean_squared_error"))
    return Measurement(
        step=int(value["step"]),
        epsilon=_optional(value.get("epsilon")),
        test_accuracy=_optional(value.get("test_accuracy")),
        test_error=None if squared is None else math.sqrt(squared),
        communicated=_optional(value.get("communicated")),
        communicated_dense=_optional(value.get("communicated_dense")),
        logged={name: float(logged) for name, logged in value.items() if not is_known(name) and logged is not None},
    )


def _evaluation(value: Any) -> Evaluation | RegressionEvaluation:
    return RegressionEvaluation.from_dict(value) if "mean_squared_error" in value else Evaluation.from_dict(value)


def _status(value: Any) -> Status:
    """Return the progress; a run from Python ends as "trained", with the statement of its last step."""
    planned = value.get("steps_planned")
    return Status(value["state"] in ("complete", "trained"), int(value["steps_done"]), None if planned is None else int(planned))


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
