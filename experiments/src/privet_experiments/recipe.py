"""Recipes: experiments of papers as data, with the published numbers and claims."""

from __future__ import annotations

__all__ = ["CHARTS", "Arm", "Chart", "Recipe", "T", "read"]

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from privet._utils.documents import DocumentError, from_toml, read_text
from privet.data.classes import parse_classes
from privet.errors import InvalidArgumentError, choice, count, positive, real
from privet_experiments.claims import OF_THE_CURVE, Claim, PublishedNumber
from privet_experiments.tasks.arm_config import TaskConfig, table, word
from privet_experiments.tasks.kinds import TASKS
from privet_experiments.tasks.metrics import OF_THE_RUN
from privet_experiments.tasks.studies import STUDIES, numbers_of

CHARTS = ("arms", "sweep", "panels", "curve", "histogram", "trace", "reliability", "verdicts")
# Kinds of charts that show numbers from gradient studies, and kinds without a metric.
_OF_STUDIES, _WITHOUT_METRIC = ("histogram", "trace"), ("reliability", "verdicts")
_POINTS_OF_A_CURVE = 20
T = TypeVar("T")


@dataclass(frozen=True)
class Arm:
    """An arm of an experiment: one row of its table.

    Args:
        name: its name in the table.
        settings: fields of `ArmConfig` that differ from the recipe's; fields of `plan` are merged one by one.
        reported: metric → the paper's number, in the metric's unit (an accuracy of 98.37 % is 0.9837).
        at: coordinates of the arm in charts, such as {"final rate": 0.9}.
        seeds: number of runs, if it differs from the recipe's.
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
        name: name of its file, a single word.
        kind: "arms" (final metric of every arm, with the paper's), "sweep" (against a coordinate of the arms), "panels" (a sweep
            with separate axes for each series), "curve" (during training), "histogram" (overlaid histograms of a number from
            gradient studies), "trace" (the same number during training), "reliability" (reliability diagrams above histograms of
            the confidence and of the probability of the true class), or "verdicts" (of every arm and metric).
        metric: a metric of the recipe, or "epsilon"; for "histogram" and "trace" a number from its gradient studies; omitted for
            "reliability" and "verdicts".
        x: coordinate on the horizontal axis of a sweep or of panels; "step" or "epsilon" for a curve.
        series: coordinate whose values are the lines of a sweep, or the panels; None draws one line.
        where: coordinate → value, or possible values, of the arms to show.
        logarithmic: whether the axis is logarithmic: the horizontal one of a sweep, the metric's one of other kinds.
        against: arm that every panel of a histogram compares with one other; None overlays all arms.
        bottom: lower end of the metric's axis, for arms and curves; the figure names arms below it. None shows all.
        top: upper end of the metric's axis, as for `bottom`.
    """

    name: str
    kind: str
    metric: str = ""
    x: str = "step"
    series: str | None = None
    where: Mapping[str, float | str | tuple[float | str, ...]] = field(default_factory=dict)
    logarithmic: bool = False
    against: str | None = None
    bottom: float | None = None
    top: float | None = None

    def __post_init__(self) -> None:
        choice("chart.kind", self.kind, CHARTS)
        for name in ("name", "metric", "x"):
            word(f"chart.{name}", getattr(self, name))
        table("chart.where", self.where)
        for name in ("bottom", "top"):
            if getattr(self, name) is not None:
                real(f"chart.{name}", getattr(self, name))

    def shows(self, arm: Arm) -> bool:
        """Return whether the arm has the coordinates that `where` requires."""
        needed = [name for name in (self.x, self.series) if name is not None] if self.kind in ("sweep", "panels") else []
        asked = ((arm.at.get(name), value) for name, value in self.where.items())
        return all(name in arm.at for name in needed) and all(
            found in value if isinstance(value, tuple | list) else found == value for found, value in asked
        )


@dataclass(frozen=True)
class Recipe:
    """An experiment: data, task, arms to compare, charts to draw, and published claims.

    Args:
        name: a single word.
        title: one line.
        source: paper and table or figure.
        data: name in the catalogue, or path of an .npz file with test data; None for a task without data.
        task: one of `TASKS`.
        common: fields of `ArmConfig` that all arms share.
        arms: at least one; names must differ.
        metrics: metrics of the task's evaluation or of `tasks.metrics.OF_THE_RUN`; accuracy first if the recipe is tuned.
        seeds: number of runs per arm, with different initial parameters.
        note: settings that the paper does not state, and differences in accounting; shown above the table.
        examples: number of training examples to use, from the first; None uses all.
        classes: classes of an .npz file: their number, or labels in order separated by commas; None for catalogue data.
        tuned: whether to search for each arm's learning rate first, with a seed that no run uses. The search uses the test set,
            so the table compares arms; a private search would find other rates.
        trial: length of a search run as a fraction of a full run, in (0, 1]. Search runs are calibrated to the same ε, and their
            learning rate is divided by the root of the fraction, so that the same noise accumulates.
        points: number of evaluations of a run, at equal distances; None: 20 if a chart is a curve, else 1, at the end.
        charts: figures to draw.
        studies: gradient studies of each arm's first seed, names in `privet_experiments.tasks.studies.STUDIES`. NOT PRIVATE.
        new_studies: studies of new runs only. Finished runs without them count; charts need runs with them.
        study_epochs: number of epochs to study, at the end of a run, > 0.
        hours: measured or estimated duration of all runs on two cores; None if unknown.
        claims: claims of the paper, which the runs confirm or contradict.
        published: the strongest published numbers, for comparison.
        rates: origin of the learning rates, for a recipe that is not tuned.
        remark: caveats about the verdicts.

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
    points: int | None = None
    charts: tuple[Chart, ...] = ()
    studies: tuple[str, ...] = ()
    new_studies: tuple[str, ...] = ()
    study_epochs: float = 10.0
    hours: float | None = None
    claims: tuple[Claim, ...] = ()
    published: tuple[PublishedNumber, ...] = ()
    rates: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "title", "source", "note", "rates", "remark"):
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
        if self.points is not None:
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
        for study in (*self.studies, *self.new_studies):
            choice("study", study, STUDIES)
        positive("study_epochs", self.study_epochs)
        for chart in self.charts:
            if chart.kind not in _WITHOUT_METRIC:
                choice("chart.metric", chart.metric, self._drawable(chart.kind))
            if chart.against is not None:
                choice("chart.against", chart.against, [arm.name for arm in self.arms])
        self._check_claims()
        for arm in self.arms:
            self._check_studies(arm, self.settings(arm))

    def settings(self, arm: Arm) -> TaskConfig:
        """Return the settings of an arm."""
        plan = {**table("common.plan", self.common.get("plan", {})), **table("arms.settings.plan", arm.settings.get("plan", {}))}
        merged = {**self.common, **arm.settings, **({"plan": plan} if TASKS[self.task].trains else {})}
        made: TaskConfig = _build(TASKS[self.task].settings, f"the settings of {arm.name!r}", merged)
        return made

    @property
    def evaluations(self) -> int:
        """Number of evaluations of a run."""
        return self.points or (_POINTS_OF_A_CURVE if any(chart.kind == "curve" for chart in self.charts) else 1)

    @property
    def runs(self) -> int:
        """Number of runs, without those of the search."""
        return sum(map(self.runs_of, self.arms))

    def runs_of(self, arm: Arm) -> int:
        """Return the number of runs of an arm."""
        return arm.seeds or self.seeds

    def _drawable(self, kind: str) -> tuple[str, ...]:
        if kind in _OF_STUDIES:
            return numbers_of((*self.studies, *self.new_studies))
        during = tuple(metric for metric in self.metrics if kind != "curve" or metric not in OF_THE_RUN)
        return (*during, "epsilon")

    def _check_claims(self) -> None:
        names = [arm.name for arm in self.arms]
        for claim in self.claims:
            choice("claim.metric", claim.metric, (*self.metrics, "epsilon", *OF_THE_CURVE))
            for name in claim.arms:
                choice("claim.arm", name, names)
        for number in self.published:
            choice("published.metric", number.metric, self.metrics)
            choice("published.arm", number.arm, names)

    def _check_studies(self, arm: Arm, settings: TaskConfig) -> None:
        if (self.studies or self.new_studies) and settings.adaptive:
            fix = "Its bound is not known in advance; leave out the arm or the studies."
            raise InvalidArgumentError("studies", arm.name, "of arms whose rule does not adapt its bound", fix)


def read(path: Path) -> Recipe:
    """Return the recipe in a TOML file, whose keys are the fields of `Recipe`, `Arm`, `Chart`, `Claim` and `PublishedNumber`.

    Raises:
        InvalidArgumentError: the file cannot be read, does not parse, or has unknown fields.
    """
    try:
        content = from_toml(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError("recipe", str(path), "a file that can be read: TOML", f"{error}.") from None
    made = {
        "arms": tuple(_build(Arm, "arms", one) for one in _list(content, "arms")),
        "charts": tuple(_build(Chart, "charts", one) for one in _list(content, "charts")),
        "claims": tuple(_build(Claim, "claims", one) for one in _list(content, "claims")),
        "published": tuple(_build(PublishedNumber, "published", one) for one in _list(content, "published")),
        "metrics": tuple(_list(content, "metrics")),
    }
    return _build(Recipe, "recipe", {"name": path.stem, **content, **made})


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    found = content.get(name, [])
    if not isinstance(found, list):
        raise InvalidArgumentError(name, found, "a list")
    return found


def _build(kind: type[T], name: str, values: Mapping[str, Any]) -> T:
    table(name, values)
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - known):
        cause = f"{', '.join(unknown)} is no field"
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}", cause=cause)
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", str(error)) from None
