"""Transfer of groups of examples from worker processes, with many small tensors packed into one.

torch transfers each tensor in a separate shared file; a batch with many lengths would exhaust file descriptors.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.examples import Examples, is_stackable
from privet.reading.batches import Group

_ALIGNED = 16  # bytes; no dtype has larger elements
_Place = tuple[slice, torch.dtype, torch.Size]  # of a tensor within the packed memory


@dataclass(frozen=True, eq=False)
class Packed:
    """Groups whose dense tensors are packed into one."""

    memory: Tensor  # uint8, of all tensors
    groups: list[bytes]  # each pickled, with places in the memory for tensors

    def unpack(self) -> list[Group]:
        """Return the groups; their tensors are views of the memory. Groups that cannot be unpickled are left out."""
        found = []
        with warnings.catch_warnings(action="ignore"):  # torch warns of its own structures
            for content in self.groups:
                try:
                    group = _Unpickler(content, self.memory).load()
                except Exception:  # an error would tell something about an example
                    continue
                found.append(Group(group.positions, replace(group.examples, owns_memory=False)))
        return found


def pack(groups: list[Group]) -> Packed:
    """Pack groups for transfer; those with an object that cannot be pickled are dropped, like unreadable examples.

    Not by the queue, whose thread would drop the whole batch, for which training waits. A group is dropped for what its examples
    have in common: shared objects, and the structure.
    """
    packed, places = list[bytes](), list[tuple[_Place, Tensor]]()
    for group in groups:
        used, file = len(places), io.BytesIO()
        try:
            _Pickler(file, places).dump(group)
        except Exception:
            del places[used:]
        else:
            packed.append(file.getvalue())
    memory = torch.empty(_find_end(places), dtype=torch.uint8, device="cpu")
    for place, tensor in places:
        _view(memory, place).copy_(tensor)
    return Packed(memory, packed)


def find_unsendable(examples: Examples) -> str | None:
    """Return why examples cannot be sent from one process to another; None if they can."""
    try:
        with warnings.catch_warnings(action="ignore"):
            pickle.loads(pickle.dumps(examples))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: list[tuple[_Place, Tensor]]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = places

    def persistent_id(self, part: Any) -> _Place | None:
        """Return the place of a dense tensor in the packed memory; None for anything else, which is pickled."""
        if not is_stackable(part) or part.device.type != "cpu":
            return None
        start = -(-_find_end(self._places) // _ALIGNED) * _ALIGNED
        place = slice(start, start + part.nbytes), part.dtype, part.shape
        self._places.append((place, part))
        return place


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, memory: Tensor) -> None:
        super().__init__(io.BytesIO(content))
        self._memory = memory

    def persistent_load(self, place: _Place) -> Tensor:
        """Return the tensor at this place of the packed memory."""
        return _view(self._memory, place)


def _find_end(places: list[tuple[_Place, Tensor]]) -> int:
    return places[-1][0][0].stop if places else 0


def _view(memory: Tensor, place: _Place) -> Tensor:
    within, dtype, shape = place
    return memory[within].view(dtype).view(shape)
