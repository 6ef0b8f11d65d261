"""What a recipe is: an experiment of a paper as data, with the numbers that the paper reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from privet._utils.documents import DocumentError, from_toml, read_text
from privet.data.classes import parse_classes
from privet.errors import InvalidArgumentError, choice, count, positive, real
from privet_experiments.tasks.arm_config import ArmSettings, table, word
from privet_experiments.tasks.kinds import TASKS
from privet_experiments.tasks.metrics import OF_THE_RUN
from privet_experiments.tasks.studies import STUDIES, numbers_of

CHARTS = ("arms", "sweep", "curve", "distribution", "verdicts")
T = TypeVar("T")


@dataclass(frozen=True)
class Arm:
    """One line of the table: what sets it apart from the others.

    Args:
        name: as the table has it.
        settings: fields of `Settings` that differ from the recipe's; those of `plan` are merged one by one.
        reported: metric → the paper's number, in the metric's own unit (an accuracy of 98.37 % is 0.9837).
        at: coordinate → where the arm stands in charts, such as {"final rate": 0.9}.
        seeds: number of its runs, if it is another than the recipe's.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    at: Mapping[str, float | str] = field(default_factory=dict)
    seeds: int | None = None

    def __post_init__(self) -> None:
        word("arms.name", self.name)
        if self.seeds is not None:
            count("arms.seeds", self.seeds)
        for name in ("settings", "reported", "at"):
            table(f"arms.{name}", getattr(self, name))
        for metric, value in self.reported.items():
            real(f"arms.reported.{metric}", value)


@dataclass(frozen=True)
class Chart:
    """A figure of the results.

    Args:
        name: of its file, a word.
        kind: "arms", the final metric of every arm beside the paper's; "sweep", against a coordinate of the arms; "curve", during
            training; "distribution", of a number of the recipe's studies over the looks; or "verdicts", of every arm and metric.
        metric: one of the recipe's, or "epsilon"; for "distribution" a number that its studies keep; left out for "verdicts".
        x: the coordinate of a sweep; "step" or "epsilon" for a curve.
        series: coordinate whose values are the lines of a sweep; None draws one line.
        where: coordinates that an arm must have, with these values, to be shown.
        logarithmic: whether the x of a sweep is, or the metric of arms, or the number of a distribution.
    """

    name: str
    kind: str
    metric: str = ""
    x: str = "step"
    series: str | None = None
    where: Mapping[str, float | str] = field(default_factory=dict)
    logarithmic: bool = False

    def __post_init__(self) -> None:
        choice("chart.kind", self.kind, CHARTS)
        for name in ("name", "metric", "x"):
            word(f"chart.{name}", getattr(self, name))
        table("chart.where", self.where)

    def shows(self, arm: Arm) -> bool:
        """Return whether the arm has all coordinates that the chart asks for."""
        needed = [name for name in (self.x, self.series) if name is not None] if self.kind == "sweep" else []
        return all(name in arm.at for name in needed) and all(arm.at.get(name) == value for name, value in self.where.items())


@dataclass(frozen=True)
class Recipe:
    """An experiment: data, model, task, the arms to compare, and what to make of their runs.

    Args:
        name: a word.
        title: one line.
        source: paper and table or figure.
        data: name in the catalogue, or a path to an .npz file, which has a test part; None for a task that trains on none.
        task: one of `TASKS`.
        common: fields of `Settings` that all arms share.
        arms: at least one, of different names.
        metrics: names of numbers that the task's evaluation has, or that `tasks.metrics.OF_THE_RUN` measures; accuracy first if
            the recipe is tuned.
        seeds: number of runs of each arm, of different initial parameters.
        note: what to know when reading the table: what the paper leaves open, and where its accounting differs.
        examples: how many of the training set are used, the first ones; None takes all.
        classes: of an .npz file: their number, or their labels in order with commas between them; None for the catalogue's.
        tuned: whether each arm looks for its own learning rate first, on a seed that is not among the others. The search looks at
            the test set, so the table compares arms and is not what a private search would find.
        trial: part of a run's length, in (0, 1], that a run of the search has; it is calibrated to the same ε, and its learning
            rate is the one that is asked about over the root of the part, so that as much noise adds up.
        points: how often a run is evaluated, at equal distances; 1 is at the end only.
        charts: figures to draw.
        studies: names in `privet_experiments.tasks.studies.STUDIES`: what is looked at in the gradients of each
            arm's first seed. NOT PRIVATE.
        study_epochs: how many of the last epochs are studied, > 0.
        hours: what all runs took, or are estimated to take, on two cores; None if nobody knows.

    Raises:
        InvalidArgumentError: an argument is out of range, or two arms or charts share a name.
    """

    name: str
    title: str
    source: str
    data: str | None
    task: str
    common: Mapping[str, Any]
    arms: tuple[Arm, ...]
    metrics: tuple[str, ...]
    seeds: int = 5
    note: str = ""
    examples: int | None = None
    classes: int | str | None = None
    tuned: bool = False
    trial: float = 1.0
    points: int = 1
    charts: tuple[Chart, ...] = ()
    studies: tuple[str, ...] = ()
    study_epochs: float = 10.0
    hours: float | None = None

    def __post_init__(self) -> None:
        for name in ("name", "title", "source", "note"):
            word(name, getattr(self, name))
        if self.data is not None:
            word("data", self.data)
        for metric in self.metrics:
            word("metrics", metric)
        table("common", self.common)
        choice("task", self.task, TASKS)
        count("seeds", self.seeds)
        if not 0 < real("trial", self.trial) <= 1:
            raise InvalidArgumentError("trial", self.trial, "in (0, 1]")
        count("points", self.points)
        if self.examples is not None:
            count("examples", self.examples, minimum=2)
        if self.classes is not None:
            if not isinstance(self.classes, int | str):
                raise InvalidArgumentError("classes", self.classes, "a whole number, or one text with commas between the labels")
            parse_classes(self.classes, str(self.data))
        for what, names in (("arms", [arm.name for arm in self.arms]), ("charts", [chart.name for chart in self.charts])):
            if len(set(names)) < len(names):
                raise InvalidArgumentError(what, names, "of different names")
        if not self.arms or not self.metrics:
            raise InvalidArgumentError("arms and metrics", (self.arms, self.metrics), "at least one of each")
        if self.tuned and self.metrics[0] != "accuracy":
            raise InvalidArgumentError(
                "metrics", self.metrics, "led by 'accuracy' if the recipe is tuned", "The search raises it."
            )
        if (self.data is not None) != TASKS[self.task].trains:
            raise InvalidArgumentError("data", self.data, "given for a task that trains, and left out for others")
        for study in self.studies:
            choice("study", study, STUDIES)
        positive("study_epochs", self.study_epochs)
        for chart in self.charts:
            if chart.kind != "verdicts":
                choice("chart.metric", chart.metric, self._drawable(chart.kind))
        for arm in self.arms:
            self._check_studies(arm, self.settings(arm))

    def settings(self, arm: Arm) -> ArmSettings:
        """Return how an arm does its task."""
        plan = {**table("common.plan", self.common.get("plan", {})), **table("arms.settings.plan", arm.settings.get("plan", {}))}
        merged = {**self.common, **arm.settings, **({"plan": plan} if TASKS[self.task].trains else {})}
        made: ArmSettings = _made(TASKS[self.task].settings, f"the settings of {arm.name!r}", merged)
        return made

    @property
    def runs(self) -> int:
        """How many there are, without the search."""
        return sum(map(self.runs_of, self.arms))

    def runs_of(self, arm: Arm) -> int:
        """Return how many of them are an arm's."""
        return arm.seeds or self.seeds

    def _drawable(self, kind: str) -> tuple[str, ...]:
        if kind == "distribution":
            return numbers_of(self.studies)
        during = tuple(metric for metric in self.metrics if kind != "curve" or metric not in OF_THE_RUN)
        return (*during, "epsilon")

    def _check_studies(self, arm: Arm, settings: ArmSettings) -> None:
        if self.studies and settings.adaptive:
            fix = "Nobody knows its bound ahead; leave the arm or the studies out."
            raise InvalidArgumentError("studies", arm.name, "of arms whose rule does not adapt its bound", fix)


def read(path: Path) -> Recipe:
    """Return the recipe of a TOML file, whose keys are the fields of `Recipe`, `Arm` and `Chart`.

    Raises:
        InvalidArgumentError: the file cannot be read, does not parse, or has fields that recipes have not.
    """
    try:
        content = from_toml(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError("recipe", str(path), "a file that can be read: TOML", f"{error}.") from None
    made = {
        "arms": tuple(_made(Arm, "arms", one) for one in _list(content, "arms")),
        "charts": tuple(_made(Chart, "charts", one) for one in _list(content, "charts")),
        "metrics": tuple(_list(content, "metrics")),
    }
    return _made(Recipe, "recipe", {"name": path.stem, **content, **made})


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    found = content.get(name, [])
    if not isinstance(found, list):
        raise InvalidArgumentError(name, found, "a list")
    return found


def _made(kind: type[T], name: str, values: Mapping[str, Any]) -> T:
    table(name, values)
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - known):
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", str(error)) from None
