"""The state of a sharded model and of its optimizer as one process would have it, for checkpoints that open anywhere."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.distributed.sharded import ShardedModel, like_shard
from privet.distributed.world import WorldError


class _Part(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


class ShardedState:
    """The state of a part that holds shards, as whole tensors in main memory, on rank 0.

    Ranks collect the state together, and then rank 0 writes it alone, like that of any part.
    """

    def __init__(self, part: _Part, model: ShardedModel, optimizers: Any = ()) -> None:
        self._part, self._model, self._optimizers = part, model, optimizers
        self._whole: dict[str, Any] | None = None
        self._loaded = False

    def check_step(self, completed: int) -> None:
        """Refuse to collect states of different steps, as when one rank has failed within a step, or without some rank."""
        if self._model.world.lost or len(set(self._model.world.gather(completed))) > 1:
            raise WorldError("the ranks are not at the same step")

    def collect(self) -> None:
        """Gather the state, one tensor after another; all ranks call this."""
        with self._model.world.answered():
            self._whole = to_whole(self._part.state_dict(), keep=self._model.world.first)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that was collected or loaded last; on rank 0."""
        if self._model.world.size == 1:
            self.collect()
        assert self._whole is not None, "the state is collected first"
        return self._whole

    def forget(self) -> None:
        """Free the state that was collected."""
        self._whole = None

    def tell(self) -> tuple[bool, dict[str, Any]]:
        """Return what other ranks need of this one: the state that it has loaded, or, of a new run, that without shards."""
        if self._loaded:
            return True, self.state_dict()
        return False, pytree.tree_map(lambda x: None if hasattr(x, "placements") else x, self._part.state_dict())

    def take_over(self, told: tuple[bool, dict[str, Any]]) -> None:
        """Take over what rank 0 told."""
        loaded, state = told
        if loaded:
            self.load_state_dict(state)
        else:
            self._part.load_state_dict(pytree.tree_map(_choose, state, self._part.state_dict()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of whole tensors; every rank takes its shards."""
        self._part.load_state_dict(self._to_shards(state))
        for parameter, held in (one for each in self._optimizers for one in each.state.items()):
            for key, value in held.items():  # torch has kept what the parameters are as tensors of their shape
                if _is_whole(value, parameter):
                    held[key] = self._take(value, parameter)
        self._whole, self._loaded = state if self._model.world.first else None, True

    def _to_shards(self, state: dict[str, Any]) -> dict[str, Any]:
        named = dict(self._model.modules[0].named_parameters(remove_duplicate=False))
        return {name: self._take(x, named[name]) if _is_whole(x, named.get(name)) else x for name, x in state.items()}

    def _take(self, whole: Tensor, shard: Any) -> Any:
        local = shard.to_local()
        rows = -(-len(whole) // self._model.world.size)
        first = min(len(whole), rows * self._model.world.rank)
        return like_shard(whole[first : first + len(local)].to(local.device, copy=True).contiguous(), shard)


def to_whole(state: Any, *, keep: bool) -> Any:
    """Return a state with whole tensors in place of shards, in main memory; all ranks call this, and others get nothing."""

    def gather(leaf: Any) -> Any:
        if not hasattr(leaf, "placements"):
            return leaf
        found = leaf.full_tensor().detach()
        return found.cpu() if keep else None

    with torch.no_grad():
        return pytree.tree_map(gather, state)


def _choose(told: Any, own: Any) -> Any:
    return own if hasattr(own, "placements") else told


def _is_whole(value: Any, parameter: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and hasattr(parameter, "placements")
        and not hasattr(value, "placements")
        and value.shape == parameter.shape
    )
