"""Metrics sinks by name, as the command line names them."""

from __future__ import annotations

__all__ = ["SINKS", "make_sink", "open_sinks"]

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from privet.errors import InvalidArgumentError, choice
from privet.tracking.mlflow import MLflow
from privet.tracking.sink import Sink
from privet.tracking.tensorboard import TensorBoard
from privet.tracking.wandb import WandB

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
    address for MLflow.

    Args:
        text: name, or name and place.
        directory: directory of the run, which gives it its name.
        settings: public settings of the run.
        argument: name of the argument in errors.

    Raises:
        InvalidArgumentError: the name is unknown, or its library is not installed.
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
