"""A model under FSDP2 (`fully_shard`): its shards, and its whole parameters, whose memory comes and goes.

FSDP moves parameters by hooks of its own, which `torch.func.vmap` would call for all examples at once. So Privet replaces these
hooks during a step, and moves the parameters itself: by the public `unshard` and `reshard` of FSDP's modules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.signals import hold_signals
from privet._utils.tensors import gradient_dtype
from privet.distributed.collectives import gather, reduce_rows
from privet.distributed.world import GATHER, World
from privet.errors import UnsupportedModelError
from privet.gradients.parameters import is_sharded, trainable
from privet.noise.shares import Share

_Binding = tuple[dict[str, Any], str, nn.Parameter, Any]  # table of a module, name, the whole parameter, its shard


class ShardedModel:
    """A model whose parameters `fully_shard` has distributed over the ranks of a world.

    Attributes:
        shards: name → trained parameter as the optimizer has it, a DTensor.
        whole: name → the same parameter as modules use it in a step. The object stays; its memory comes and goes.
        members: for each module that FSDP gathers on its own, the names of its trained parameters.
        shared: whether several modules are gathered together, by `fully_shard([one, other])`.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.world, self.shards = world, dict[str, Any](trainable(model, sharded=True))
        self.modules: list[Any] = [module for module in model.modules() if is_sharded(module)]
        _check(model, self.shards, world)
        states = [module._get_fsdp_state() for module in self.modules]
        states[0]._lazy_init()  # torch's own checks, such as of weights that two modules share
        self.mesh = next(iter(self.shards.values())).device_mesh
        self.group: Any = self.mesh.get_group()
        world.limit_waiting(self.group)
        self.shared = len(set(map(id, states))) < len(states)
        self.root = 0
        self._bindings: list[list[_Binding]] = []
        self._hooks = [list(_replace_hooks(*each, self)) for each in zip(self.modules, states, range(len(states)), strict=True)]
        self.enter: Callable[[int, Any], Any] | None = None  # called with the inputs of each module, while it is not None
        self.leave: Callable[[int, Any], Any] | None = None  # with its outputs
        names = {id(parameter): name for name, parameter in self.shards.items()}
        whole: dict[str, nn.Parameter] = {}
        self.members: list[list[str]] = []
        world.vote(GATHER)  # what one rank has refused before, all others refuse here
        with world.answered():
            for key in range(len(self.modules)):  # one after another: never the whole model at once
                self._bindings.append(self._bind_first(model, key))
                own = {names[id(shard)]: each for _, _, each, shard in self._bindings[-1] if id(shard) in names}
                self.members.append(list(own))
                whole |= own
        self.whole = {name: whole[name] for name in self.shards}

    @staticmethod
    def of(model: nn.Module, world: World) -> ShardedModel | None:
        """Return the model as a sharded one; None if nothing in it is sharded."""
        return ShardedModel(model, world) if any(map(is_sharded, model.modules())) else None

    def _bind_first(self, model: nn.Module, key: int) -> list[_Binding]:
        before = {(id(module), name): each for module in model.modules() for name, each in module._parameters.items()}
        self.modules[key].unshard()
        found: list[_Binding] = [
            (module._parameters, name, each, shard)
            for module in model.modules()
            for name, each in module._parameters.items()
            if each is not None and each is not (shard := before[id(module), name])
        ]
        self.modules[key].reshard()
        return found

    # Whole parameters, for a step or for a module.

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Return a context in which all parameters are whole, and passes have no collectives; all ranks enter it together."""
        with self.without_hooks():
            with hold_signals():
                self.world.vote(GATHER)
                self.gather(*range(len(self.modules)))
            yield

    @contextlib.contextmanager
    def without_hooks(self) -> Iterator[None]:
        """Return a context in which modules have their whole parameters, without memory before `gather`, and Privet's hooks."""
        for table, number, _, own in (each for hooks in self._hooks for each in hooks):
            table[number] = own
        self._bind(whole=True)
        try:
            yield
        finally:
            self.free(*range(len(self.modules)))
            self._bind(whole=False)
            for table, number, hook, _ in (each for hooks in self._hooks for each in hooks):
                table[number] = hook

    def gather(self, *keys: int) -> None:
        """Give the parameters of modules their memory and values."""
        with self.world.answered():
            for key in keys:
                self.modules[key].unshard()

    def free(self, *keys: int) -> None:
        """Free the memory of modules' parameters."""
        for key in keys:
            self.modules[key].reshard()
            for table, name, each, _ in self._bindings[key]:
                table[name] = each  # FSDP has put the shard there

    def _bind(self, *, whole: bool) -> None:
        for table, name, each, shard in (one for bindings in self._bindings for one in bindings):
            table[name] = each if whole else shard

    # Sums, and what they become.

    def zeros(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return whole sums of no gradients."""
        return {name: self.whole[name].new_zeros(self.whole[name].shape, dtype=self._dtype(name)) for name in names}

    def zero_shards(self) -> dict[str, Tensor]:
        """Return this rank's shards of the sums of no gradients."""
        return {name: torch.zeros_like(each.to_local(), dtype=self._dtype(name)).detach() for name, each in self.shards.items()}

    def reduce(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's shards of whole sums over the ranks, of parameters of one module: by one reduce-scatter."""
        with self.world.answered():
            return reduce_rows(sums, self.world.rank, self.world.size, self.group)

    def reduce_all(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's shards of all sums, whose memory is freed module by module; statistics stay as they are."""
        found: dict[str, Tensor] = {}
        for names in filter(None, self.members):
            found |= self.reduce({name: sums.pop(name) for name in names})
        return {name: found[name] for name in self.shards} | sums

    # Owners of a release: a rank owns its shards, and rank 0 what is no parameter.

    def sizes(self, sums: Mapping[str, Tensor]) -> list[int]:
        """Return the sizes of whole tensors."""
        return [self.shards[name].numel() if name in self.shards else total.numel() for name, total in sums.items()]

    def scatter(self, sums: Mapping[str, Tensor]) -> list[Share]:
        """Return this rank's shards, which are summed over the ranks already; on rank 0, also the sums of other tensors."""
        shares: list[Share] = []
        for which, (name, total) in enumerate(sums.items()):
            if name in self.shards:
                shares.append((which, self._first_coordinate(name), total))
            else:
                every = self._gather(total)
                shares += [(which, 0, every.sum(0))] if self.world.first else []
        return shares

    def join(self, sums: Mapping[str, Tensor], shares: Sequence[Share]) -> list[Tensor]:
        """Return this rank's shards as they are, and other tensors whole."""
        own = {which: part for which, _, part in shares}
        found = {name: own.get(which, total) for which, (name, total) in enumerate(sums.items())}
        return [each if name in self.shards else self._gather(each)[0] for name, each in found.items()]

    def _gather(self, values: Tensor) -> Tensor:
        """Return the values of all ranks: not their sum, in which gloo may wait for a rank that has left because of another."""
        with self.world.answered():
            return gather(values, self.world.size, self.group)

    def compute_once(
        self, compute: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], sums: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what rank 0 computes from sparse sums over the ranks."""
        return self.world.compute_once(compute, sums)

    def _first_coordinate(self, name: str) -> int:
        rows, *rest = self.shards[name].shape
        return int(min(rows, -(-rows // self.world.size) * self.world.rank) * torch.Size(rest).numel())

    def to_gradients(self, released: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a release with the shards of parameters as DTensors, which optimizers take."""
        return {name: each if ":" in name else like_shard(each, self.shards[name]) for name, each in released.items()}

    def _dtype(self, name: str) -> torch.dtype:
        return gradient_dtype(self.whole[name])


def like_shard(local: Tensor, shard: Any) -> Any:
    """Return a local tensor as a DTensor distributed as the shard of a parameter is."""
    from torch.distributed.tensor import DTensor  # not at the top: importing it takes long

    local = local.view(shard.to_local().shape)
    return DTensor.from_local(
        local, shard.device_mesh, shard.placements, run_check=False, shape=shard.shape, stride=shard.stride()
    )


def _check(model: nn.Module, shards: Mapping[str, Any], world: World) -> None:
    """Refuse what is sharded in another way than by its first dimension over all ranks of the world."""
    if not is_sharded(model):
        raise UnsupportedModelError("parts of the model are sharded, and the model is not: call fully_shard(model) last")
    for name, each in shards.items():
        if not hasattr(each, "placements"):
            raise UnsupportedModelError(f"parameter {name} is not sharded, and others are: call fully_shard(model) last")
        mesh = each.device_mesh
        if mesh.ndim != 1 or mesh.size() != world.size:
            found = f"a mesh of shape {tuple(mesh.shape)}"
            allowed = f"a mesh of one dimension over all {world.size} ranks of world="
            raise UnsupportedModelError(f"parameter {name} is sharded over {found}; Privet trains shards over {allowed}")
        if not each.placements[0].is_shard(0):
            raise UnsupportedModelError(
                f"parameter {name} is placed as {each.placements[0]}; Privet trains shards of the first dimension: leave "
                "shard_placement_fn out"
            )
        if gradient_dtype(each) != each.dtype:
            raise UnsupportedModelError(
                f"parameter {name} is sharded in {each.dtype}, which would round its updates away; call model.float() before "
                "fully_shard, and compute in low precision by mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)"
            )
        if each.device.type != mesh.device_type:
            raise UnsupportedModelError(f"parameter {name} is kept on {each.device}; leave offload_policy out of fully_shard")


class _Enter:
    """What a module does before its forward pass, in place of FSDP's hook."""

    def __init__(self, model: ShardedModel, state: Any, key: int) -> None:
        self.model, self.state, self.key = model, state, key

    def __call__(self, module: nn.Module, args: Any, options: Any) -> Any:
        given = self.state._cast_forward_inputs(args, options)  # by the policy for mixed precision
        return given if self.model.enter is None else self.model.enter(self.key, given)


class _Leave(_Enter):
    """What a module does after its forward pass, in place of FSDP's hook."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        output = self.state._cast_output_dtype(output)
        return output if self.model.leave is None else self.model.leave(self.key, output)


def _replace_hooks(module: nn.Module, state: Any, key: int, model: ShardedModel) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield a module's tables of hooks with the number of FSDP's hook, that hook, and Privet's."""
    for table, own in ((module._forward_pre_hooks, _Enter), (module._forward_hooks, _Leave)):
        for number, hook in table.items():
            if str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp"):
                yield table, number, hook, own(model, state, key)
