"""Metrics sinks: what all share, and those for TensorBoard, Weights & Biases and MLflow, by their names on the command line."""

from __future__ import annotations

import importlib.util
import json
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from privet.errors import InvalidArgumentError, PrivetWarning, choice, count
from privet.training import Callback, Step

_POINTS = 100


class Sink(Callback):
    """A callback that sends measures of steps, and what `Training.log` is given, to a service or a file.

    It connects when it has something to send, so a run that is refused leaves nothing behind. If the service fails during
    training, a warning says so once, it gets no more values, and training continues.

    Args:
        every: steps from one value to the next, ≥ 1; None for about a hundred values per run. ε takes some milliseconds for each.

    Guarantee:
        It sends what callbacks receive: public and released values, and running times. Nothing else of the data leaves.
    """

    def __init__(self, every: int | None = None) -> None:
        self._every = None if every is None else count("every", every, fix="It is the number of steps between values.")
        self._failed = False

    def on_step(self, step: Step) -> None:
        """Send the measures of a step, if it is one of those to send."""
        due = step.is_one_of(_POINTS) if self._every is None else step.number % self._every == 0 or step.number == step.total
        if due:
            self.on_metrics(step, step.measures())

    def on_metrics(self, step: Step, metrics: Mapping[str, float | None]) -> None:
        """Send numbers; those that are None are left out."""
        # Services use slashes to group names, and some refuse colons.
        values = {name.replace(":", "/"): value for name, value in metrics.items() if value is not None}
        self._guard(lambda: self._send(step.number, values))

    def on_end(self, step: Step | None) -> None:
        """Send what is buffered."""
        self._guard(self._flush)

    def close(self) -> None:
        """Send what is buffered and end the connection."""
        self._guard(self._close)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _send(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step."""

    def _flush(self) -> None:
        """Send what is buffered; nothing by default."""

    def _close(self) -> None:
        """End the connection; nothing by default."""

    def _guard(self, act: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            act()
        except Exception as error:
            self._failed = True
            why = f"{type(self).__name__} failed ({type(error).__name__}: {error})"
            warnings.warn(f"{why}; it gets no more values, and training continues", PrivetWarning, stacklevel=3)


class TensorBoard(Sink):
    """Writes event files for `tensorboard --logdir DIRECTORY`.

    Args:
        directory: folder of the event files, such as "runs/mnist/tensorboard".
        settings: public settings to show beside the values.
        every: steps from one value to the next, ≥ 1; None for about a hundred values per run.

    Raises:
        InvalidArgumentError: the package tensorboard is not installed.
    """

    def __init__(self, directory: str | Path, *, settings: Mapping[str, Any] | None = None, every: int | None = None) -> None:
        super().__init__(every)
        _check_installed("TensorBoard", "tensorboard")
        self._directory, self._settings = Path(directory).absolute(), dict(settings or {})

    @cached_property
    def _writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(self._directory))
        if self._settings:
            writer.add_text("settings", f"```\n{json.dumps(self._settings, indent=2)}\n```")
        return writer

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _flush(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.flush()

    def _close(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.close()


class WandB(Sink):
    """Sends values to a run of Weights & Biases. Each session of a resumed run is a run of its own there.

    Args:
        project: name of the project.
        name: name of the run; None lets the service choose.
        settings: public settings to show beside the values.
        every: steps from one value to the next, ≥ 1; None for about a hundred values per run.
        options: further arguments of `wandb.init`, such as mode="offline" or id="…".

    Raises:
        InvalidArgumentError: the package wandb is not installed.
    """

    def __init__(
        self,
        project: str = "privet",
        name: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        every: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(every)
        _check_installed("WandB", "wandb")
        self._options = {"project": project, "name": name, "config": dict(settings or {}), **options}

    @cached_property
    def _run(self) -> Any:
        import wandb

        return wandb.init(**self._options)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def _close(self) -> None:
        if "_run" in self.__dict__:
            self._run.finish()


class MLflow(Sink):
    """Sends values to a run of an MLflow experiment. Each session of a resumed run is a run of its own there.

    Args:
        experiment: name of the experiment, which is made if it does not exist.
        name: name of the run; None lets MLflow choose.
        tracking_uri: address of the server or folder; None for `MLFLOW_TRACKING_URI`, or MLflow's default.
        settings: public settings, stored as parameters of the run.
        every: steps from one value to the next, ≥ 1; None for about a hundred values per run.

    Raises:
        InvalidArgumentError: neither mlflow nor mlflow-skinny is installed.
    """

    def __init__(
        self,
        experiment: str = "privet",
        name: str | None = None,
        *,
        tracking_uri: str | None = None,
        settings: Mapping[str, Any] | None = None,
        every: int | None = None,
    ) -> None:
        super().__init__(every)
        _check_installed("MLflow", "mlflow")
        self._experiment, self._name, self._uri = experiment, name, tracking_uri
        self._settings = dict(settings or {})

    @cached_property
    def _client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self._uri)

    @cached_property
    def _run(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run = str(self._client.create_run(experiment, run_name=self._name).info.run_id)
        for name, value in self._settings.items():
            self._client.log_param(run, name, value)
        return run

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def _close(self) -> None:
        if "_run" in self.__dict__:
            self._client.set_terminated(self._run)


def _check_installed(sink: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        fix = f"Install it: pip install 'privet[{package}]'."
        raise InvalidArgumentError("sink", sink, f"one whose library is installed ({package} is not)", fix)


Make = Callable[[str, Path, Mapping[str, Any]], Sink]

# Name → function of the place after "=", the directory of the run and its public settings.
SINKS: dict[str, Make] = {
    "tensorboard": lambda place, run, settings: TensorBoard(place or run / "tensorboard", settings=settings),
    "wandb": lambda place, run, settings: WandB(place or "privet", run.absolute().name, settings=settings),
    "mlflow": lambda place, run, settings: MLflow(name=run.absolute().name, tracking_uri=place or None, settings=settings),
}


def make_sink(text: str, directory: Path, settings: Mapping[str, Any] | None = None, argument: str = "sink") -> Sink:
    """Return the sink that a text names: "tensorboard", "wandb" or "mlflow", each also as "NAME=PLACE".

    The place is a folder for TensorBoard (by default the folder tensorboard of the run), a project for W&B, and a tracking
    address for MLflow. The directory of the run gives it its name; `argument` is named in errors.
    """
    name, _, place = text.partition("=")
    make = SINKS[choice(argument, name, SINKS, "A place may follow, such as tensorboard=runs/events.")]
    try:
        return make(place, directory, settings or {})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(argument, text, error.allowed, error.fix) from None


@contextmanager
def open_sinks(
    texts: Iterable[str], directory: Path, settings: Mapping[str, Any] | None = None, argument: str = "sinks"
) -> Iterator[tuple[Sink, ...]]:
    """Yield the sinks that texts name, and close them afterwards; arguments and errors as for `make_sink`."""
    made = [make_sink(text, directory, settings, argument) for text in texts]
    with ExitStack() as stack:
        yield tuple(stack.enter_context(sink) for sink in made)
