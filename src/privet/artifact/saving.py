"""Writing of a model's folder: weights, description, card and statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from privet.accounting.guarantee.statement import Statement
from privet.artifact.card import PublicMetric, format_card
from privet.artifact.description import Architecture, GuaranteeSummary, ModelDescription
from privet.artifact.folder import FOLDER, check_shapes, write_folder, write_weights
from privet.errors import InvalidArgumentError
from privet.gradients.parameters import own_class
from privet.models.networks import find_arguments
from privet.tables import Classification
from privet.training.directory import write_guarantee
from privet.training.loop import Loop


def write_model(
    folder: Path, module: nn.Module, guarantee: Statement, metrics: Sequence[PublicMetric] = (), license: str | None = None,
    whole: Mapping[str, Tensor] | None = None, **described: Any,
) -> Path:  # fmt: skip
    """Write the folder of a model and return it; `described` are further arguments of `ModelDescription`.

    For a sharded model, `whole` has the gathered weights.

    Guarantee:
        Weights aside, only public facts are written: settings, the statement, and metrics that the caller vouches for.
    """
    known: dict[str, Any] = {"guarantee": GuaranteeSummary.of(guarantee), "versions": guarantee.versions}
    description = ModelDescription(**described, **known, weights=write_weights(folder, module, whole))
    write_guarantee(folder, guarantee)
    write_folder(folder, description, format_card(description, metrics, license))
    return folder


def save(
    training: Loop,
    folder: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    target: str = "class",
    license: str | None = None,
) -> Path:
    """Write the model of a training, with its guarantee and a model card, into a folder that `privet.load` opens.

    The weights are those after the last step, or their average if the training has one. A network of `privet.models` is
    described; of any other, the folder holds the weights and the name of its class, and `privet.load(folder, module)` takes a
    network that your code builds. In several processes, call it in all of them: rank 0 writes.

    Args:
        training: a `privet.Training`, or a `privet.federated.Federated`, between two steps or after the last one.
        folder: where to write; by default, and for the directory of the run, the folder `model` in that directory.
        classes: the classes in the order of the outputs, so that the loaded model predicts them by name; a plan with a schema
            has them.
        target: name of what the model predicts, for the card.
        license: identifier of the model's licence for the card, such as "apache-2.0".

    Returns:
        The folder: model.safetensors, model.json, README.md (the card), guarantee.md and guarantee.json.

    Raises:
        InvalidArgumentError: there is no folder, or classes are given beside a schema.

    Guarantee:
        The statement in the folder covers the weights: it counts all steps that were paid for so far. Everything else is public.
    """
    whole = training.collect_weights()
    if not training.world.first:
        return Path(folder or FOLDER)
    place = training.directory if folder is None else Path(folder).expanduser().absolute()
    if place is None:
        raise InvalidArgumentError("folder", None, "given for a training without a directory", "Name a folder for the model.")
    place = place / FOLDER if place == training.directory else place  # whose own statement is that of the last step
    schema = getattr(training.plan, "schema", None)
    if schema is not None and classes is not None:
        raise InvalidArgumentError("classes", list(classes), "left out with a schema", "The schema of the plan has them.")
    module = training.model if training.averaged_model is None else training.averaged_model.module
    task = Classification(tuple(map(str, classes))) if classes is not None else schema and schema.task
    return write_model(
        place, module, training.guarantee(), license=license, whole=whole, architecture=_describe(training.model), task=task,
        schema=schema, target=schema.target if schema else target,
    )  # fmt: skip


def _describe(module: nn.Module) -> Architecture | str:
    """Return what a network was built of, if it is one of `privet.models` that was not changed, else the name of its class."""
    if (arguments := find_arguments(module)) is not None:
        name, shape, outputs, options = arguments
        found = Architecture(name, shape, outputs, options)
        if not check_shapes(found.build(), module.state_dict()):
            return found
    return own_class(module).__qualname__
