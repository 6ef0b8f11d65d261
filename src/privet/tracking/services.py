"""Metrics sinks for TensorBoard, Weights & Biases and MLflow, by name as the command line names them."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from privet.errors import InvalidArgumentError, choice
from privet.tracking.sink import Sink


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
        _check_installed("TensorBoard", "tensorboard", "tensorboard")
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
        _check_installed("WandB", "wandb", "wandb")
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
        _check_installed("MLflow", "mlflow", "mlflow")
        self._experiment, self._name, self._uri = experiment, name, tracking_uri
        self._settings = dict(settings or {})

    @cached_property
    def _client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self._uri)

    @cached_property
    def _run(self) -> str:
        """The id of the run."""
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


def _check_installed(sink: str, package: str, extra: str) -> None:
    """Refuse a sink whose library is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InvalidArgumentError(
            "sink", sink, f"one whose library is installed ({package} is not)", f"Install it: pip install 'privet[{extra}]'."
        )


Make = Callable[[str, Path, Mapping[str, Any]], Sink]

# Name → function of the place after "=", the directory of the run and its public settings.
SINKS: dict[str, Make] = {
    "tensorboard": lambda place, run, settings: TensorBoard(place or run / "tensorboard", settings=settings),
    "wandb": lambda place, run, settings: WandB(place or "privet", run.absolute().name, settings=settings),
    "mlflow": lambda place, run, settings: MLflow(
        name=run.absolute().name, tracking_uri=place or None, settings=settings
    ),
}  # fmt: skip


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
