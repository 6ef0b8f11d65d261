"""Export of a network to the formats of other programs."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from privet._utils.files import write_atomically
from privet.artifact.description import ModelDescription
from privet.errors import InvalidArgumentError, PrivetError, choice

# Key of `model.json` in what is exported.
_METADATA = "model.json"


def choose_format(path: Path, to: str | None) -> str:
    """Return the format of a file: the one that is asked for, or else the one of its ending."""
    if to is not None:
        return choice("to", to, FORMATS)
    found = next((name for name, (ending, _) in FORMATS.items() if path.suffix.lower() == ending), None)
    if found is None:
        endings = " or ".join(ending for ending, _ in FORMATS.values())
        raise InvalidArgumentError("path", str(path), f"a file that ends in {endings}", "Or name the format with to.")
    return found


def export_module(module: nn.Module, description: ModelDescription, path: Path, to: str | None) -> Path:
    """Write the network to a file and return its path; as for `Predictor.export`."""
    _, write = FORMATS[choose_format(path, to)]
    if isinstance(description.architecture, str):
        fix = "The shape of its inputs is unknown: call torch.onnx.export or torch.export on its module."
        raise InvalidArgumentError("the model", description.architecture, "a network of privet.models", fix)
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    example = torch.zeros(2, *description.architecture.input_shape, device=device)
    with _quiet():
        return write_atomically(path, write(module, example, description.to_json()))


def _write_onnx(module: nn.Module, example: Tensor, metadata: str) -> Callable[[Path], object]:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise PrivetError("ONNX needs onnx and onnxscript, which are not installed; run: pip install 'privet[export]'") from None
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(
        module, (example,), dynamo=True, dynamic_shapes=batch, input_names=["inputs"], output_names=["outputs"], verbose=False
    )
    assert program is not None
    program.model.metadata_props[_METADATA] = metadata
    return lambda place: program.save(place)


def _write_torch(module: nn.Module, example: Tensor, metadata: str) -> Callable[[Path], object]:
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))

    def write(place: Path) -> None:
        with place.open("wb") as file:
            torch.export.save(program, file, extra_files={_METADATA: metadata})

    return write


# Format → ending of its files, and function that prepares the network and returns what writes it.
FORMATS: dict[str, tuple[str, Callable[[nn.Module, Tensor, str], Callable[[Path], object]]]] = {
    "onnx": (".onnx", _write_onnx),
    "torch-export": (".pt2", _write_torch),
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # torch logs and warns about packages of others (torchvision), and about itself.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
