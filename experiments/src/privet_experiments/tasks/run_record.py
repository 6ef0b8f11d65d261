"""Records of runs: lines of JSON with the configuration and the results of each run."""

from __future__ import annotations

__all__ = ["Key", "Records", "RunRecord", "key", "spell_nonfinite"]

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privet._utils.documents import from_json, replace_former_values
from privet.errors import InvalidArgumentError

# Identity of a run: arm, settings, learning rate, seed, number of examples.
Key = tuple[str, str, float | None, int, int]


@dataclass(frozen=True)
class RunRecord:
    """A finished run.

    Args:
        settings: result of `ArmConfig.described`.
        rate: learning rate; None if the task has none.
        seed: seed of the initial parameters.
        plan: the plan, as in plan.json; None for a task without data.
        epsilon: ε at the plan's δ, by PLD; infinite without privacy, None without a plan.
        metrics: name → value at the end.
        curve: metrics with `step` and `epsilon` during training, including the end.
        seconds: duration of training and evaluation.
        versions: library → version.
        finished: date and time, ISO 8601, UTC.
        study: results of gradient studies (`privet_experiments.tasks.studies`), NOT PRIVATE; None without a study.
        confidence: bin tables of a classifier's final test predictions, as `BinTable.to_dict` writes them: "predicted", of the
            confidence in the predicted class, and "true_class"; None for other tasks and in early runs.
    """

    recipe: str
    arm: str
    settings: dict[str, Any]
    rate: float | None
    seed: int
    examples: int
    plan: dict[str, Any] | None
    epsilon: float | None
    metrics: dict[str, float]
    curve: list[dict[str, float]]
    seconds: float
    machine: str
    versions: dict[str, str]
    finished: str
    study: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None

    def value(self, metric: str) -> float:
        """Return a metric at the end, or ε by the name "epsilon"."""
        if metric != "epsilon":
            return self.metrics[metric]
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def key(self) -> Key:
        """Identity of the run."""
        return key(self.arm, self.settings, self.rate, self.seed, self.examples)

    def to_json(self) -> str:
        """Return one line of JSON; infinity and NaN are words."""
        return json.dumps(spell_nonfinite(asdict(self)), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """Return the record that `to_json` wrote."""
        values = from_json(line)
        settings = values["settings"]
        if isinstance(settings.get("plan"), dict):
            settings = {**settings, "plan": replace_former_values(settings["plan"])}
        return cls(
            **{
                **values,
                "settings": settings,
                "epsilon": None if values["epsilon"] is None else float(values["epsilon"]),
                "metrics": _numbers(values["metrics"]),
                "curve": [_numbers(point) for point in values["curve"]],
            }
        )


def key(arm: str, settings: dict[str, Any], rate: float | None, seed: int, examples: int) -> Key:
    """Return the identity of a run."""
    return arm, json.dumps(settings, sort_keys=True), rate, seed, examples


class Records:
    """The runs in a file of JSON lines, one per run; the partial last line of an interrupted write is removed.

    Raises:
        InvalidArgumentError: a complete line is not a record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[Key, RunRecord] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._remember(RunRecord.from_json(line.decode("utf-8")))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                fix = f"Line {number} is damaged ({error}); delete it, or choose another directory."
                raise InvalidArgumentError("runs", str(path), "lines that this version wrote", fix) from None
        if len(whole) < len(content):
            path.write_bytes(whole)

    def get(self, wanted: Key) -> RunRecord | None:
        """Return the record of a run, if there is one."""
        return self._found.get(wanted)

    def add(self, record: RunRecord) -> None:
        """Append a record, visible to other processes on return."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(record.to_json() + "\n")
        self._remember(record)

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def _remember(self, record: RunRecord) -> None:
        self._found[record.key] = record


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def spell_nonfinite(value: Any) -> Any:
    """Return a plain value with the words "inf" and "nan" in place of numbers that JSON lacks."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: spell_nonfinite(one) for name, one in value.items()}
        case list() | tuple():
            return [spell_nonfinite(one) for one in value]
        case _:
            return value
