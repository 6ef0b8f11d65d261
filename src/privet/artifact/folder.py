"""The folder of a model: written atomically, and read without executing anything from it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from privet._utils.documents import DocumentError, from_json, read_text
from privet._utils.files import write_atomically, write_text
from privet.artifact.description import Architecture, ModelDescription
from privet.errors import InvalidArgumentError
from privet.models.networks import is_pretrained
from privet.training.directory import STATEMENT

# Name of the folder in the directory of a run.
FOLDER = "model"

_WEIGHTS, _DESCRIPTION, _CARD = "model.safetensors", "model.json", "README.md"
# File of a run without run.json → how to finish it.
_UNFINISHED = {
    "estimator.json": "The fit was interrupted, and an estimator cannot continue it: fit a new one, in another directory.",
    "manifest.json": "Finish the run in the Python program that began it: its class has the method resume.",
    "plan.json": "The run was interrupted. A run of privet fit cannot continue: fit again, in another directory.",
}


def write_weights(folder: Path, module: nn.Module, whole: Mapping[str, Tensor] | None = None) -> str:
    """Write the weights of a network and return their SHA-256; for a sharded network, `whole` has the gathered weights."""
    path, metadata = folder / _WEIGHTS, {"format": "pt"}
    if whole is None:
        write_atomically(path, lambda temporary: safetensors.torch.save_model(module, str(temporary), metadata))
    else:
        write_atomically(path, lambda temporary: safetensors.torch.save_file(dict(whole), str(temporary), metadata))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_folder(folder: Path, description: ModelDescription, card: str) -> None:
    """Write model card and description next to the weights; the description last, because it marks the folder as complete."""
    write_text(folder / _CARD, card)
    write_text(folder / _DESCRIPTION, description.to_json())


def find_weights(run: Path) -> Path | None:
    """Return the file with the weights of a run; None before its end. Runs of version 0.1.0 have no folder."""
    places = (run / FOLDER / _WEIGHTS, run / _WEIGHTS)
    return next((place for place in places if place.exists()), None)


def find_folder(path: Path) -> Path:
    """Return the folder of a model, given itself or the directory of its run."""
    for folder in (path, path / FOLDER):
        if (folder / _DESCRIPTION).is_file():
            return folder
    allowed = f"the directory of a finished run, or its folder {FOLDER}"
    fixes = {
        _WEIGHTS: f"It is older than the folder {FOLDER}: train again, or read model.safetensors with safetensors.",
        STATEMENT: "It has no model: the program that trained it can resume the run, and write one with the function save.",
    }
    fix = next((fix for name, fix in fixes.items() if (path / name).is_file()), how_to_finish(path))
    raise InvalidArgumentError("the model", str(path), allowed, fix)


def how_to_finish(run: Path) -> str:
    """Return, in a sentence, how the run in a directory that lacks its results can be finished, if there is one."""
    with contextlib.suppress(DocumentError, AttributeError):
        return f"Finish the run: privet {from_json(read_text(run / 'run.json')).get('command', 'train')} --resume {run}."
    for name, advice in _UNFINISHED.items():
        if (run / name).is_file():
            return advice
    return "It holds no run." if run.exists() else "It does not exist."


def read_description(folder: Path) -> ModelDescription:
    """Return the description of the model in a folder."""
    path = folder / _DESCRIPTION
    try:
        return ModelDescription.from_dict(from_json(read_text(path)))
    except DocumentError as error:
        raise _damaged(path, str(error)) from None
    except InvalidArgumentError as error:
        raise _damaged(path, f"{error.name} is {error.value!r:.200}; it must be {error.allowed}", error.fix) from None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:  # values of another kind, somewhere within
        raise _damaged(path, f"a value in it is of another kind ({error})") from None


def load_module(folder: Path, description: ModelDescription, own: nn.Module | None = None) -> nn.Module:
    """Return the network with the weights in a folder, in evaluation mode; `own` is one of the caller's, which gets the weights.

    The file is parsed as safetensors, which hold numbers and names only. Names, shapes and types are compared with the network
    before that takes any memory.
    """
    path = folder / _WEIGHTS
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"{error.strerror or error}") from None
    if hashlib.sha256(content).hexdigest() != description.weights:
        raise _damaged(path, f"its SHA-256 is not the one in {_DESCRIPTION}", "Copy the whole folder again.")
    try:
        weights = safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, f"it is no file of safetensors ({error})") from None
    architecture = description.architecture
    if own is not None:
        if why := check_shapes(own, weights):
            raise InvalidArgumentError("module", type(own).__qualname__, "built as for the training", cause=f"in {path}, {why}")
        module = own
    elif isinstance(architecture, str):
        fix = "Build it as for the training, and pass it: privet.load(path, module)."
        raise InvalidArgumentError("module", None, f"the network whose weights the folder holds, a {architecture}", fix)
    else:
        if not is_pretrained(architecture.name):  # those load weights while they are built
            with torch.device("meta"):
                _refuse_others(path, _build(folder, architecture), weights)
        module = _build(folder, architecture)
        _refuse_others(path, module, weights)
    module.load_state_dict(weights, strict=False)  # one name of a tensor that has several is enough, as was checked
    return module.eval()


def _build(folder: Path, architecture: Architecture) -> nn.Module:
    try:
        return architecture.build()
    except InvalidArgumentError as error:
        why = f"{error.name} is {error.value!r}; it must be {error.allowed}"
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # raised by torch for numbers that are too large
        why = f"the network cannot be built ({error})"
    raise _damaged(folder / _DESCRIPTION, why)


def check_shapes(module: nn.Module, weights: Mapping[str, Tensor]) -> str:
    """Return how weights do not fit a network, in words; empty if they do. Of the names of one tensor, one is enough."""
    state = module.state_dict(keep_vars=True)
    expected, found = ({name: (tuple(value.shape), value.dtype) for name, value in each.items()} for each in (state, weights))
    there = {id(value) for name, value in state.items() if name in found}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name) and (name in found or id(state[name]) not in there):
            have, want = (_describe(values.get(name)) for values in (found, expected))
            return f"the tensor {name!r} is {have}, and the network has {want}"
    return ""


def _refuse_others(path: Path, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    if why := check_shapes(module, weights):
        raise _damaged(path, why)


def _describe(kind: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "absent" if kind is None else f"{kind[1]} of shape {kind[0]}".removeprefix("torch.")


def _damaged(path: Path, why: str, fix: str = "") -> InvalidArgumentError:
    return InvalidArgumentError("the file", str(path), "as it was written", fix, why.rstrip("."))
