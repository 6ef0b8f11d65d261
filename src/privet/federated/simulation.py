"""Simulation: clients in this process, many at once where the model allows it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.utils import _pytree as pytree
from torch.utils.data import TensorDataset

from privet._utils.own_code import is_own_code
from privet._utils.randomness import Seeds, preserve_generators, seed_generators, watch_generators
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import USER_ERRORS, InvalidArgumentError, UnsupportedModelError, count
from privet.federated.local_training import LocalSteps, train_locally
from privet.federated.rounds import Round, contribution, no_contributions
from privet.gradients import trainable
from privet.gradients.core.examples import Examples, list_children
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.patches import forbid_user_code_on_physical_batch, force_eager
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.methods.calls import GuardedCalls, SharedCalls
from privet.gradients.methods.loop import plain_gradients
from privet.gradients.methods.passes import swap_parameters
from privet.reading.batches import BatchDataset, move_groups
from privet.reading.entries import check_distinct
from privet.reading.rows import ExampleReader
from privet.sampling import Indices
from privet.units import Users

_Trained = tuple[dict[str, Tensor], Tensor]
_Clients = tuple[Any, Tensor]  # the content of K clients, a pytree of tensors (K, k, …), and its mask (K, k)
# Made-up clients and examples of each, for the trial before the first round.
_TRIED = 2
_TOLERANCE = 1e-4


class _Sequence(BatchDataset):
    """Clients as a sequence of their examples; an entry is (content (k, …), mask (k,)), as for `Users`."""

    privacy_unit = "one user"

    def __init__(self, clients: Sequence[Any]) -> None:
        # A list that grows or is sorted between rounds must not give a client to two entries.
        self._clients = tuple(clients) if type(clients) is list else clients

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def runs_user_code(self) -> bool:
        """True: a sequence may be of any kind."""
        return True

    def read(self, indices: Indices) -> Any:
        """Return the content (1, k, …) and the mask (1, k) of one client."""
        (index,) = indices.tolist()
        client = self._clients[index]
        held = client.tensors if isinstance(client, TensorDataset) else client
        leaves, tree = pytree.tree_flatten(held)
        (size,) = {len(leaf) for leaf in leaves}
        content = pytree.tree_unflatten([leaf.unsqueeze(0) for leaf in leaves], tree)
        return content, torch.ones(1, size, dtype=torch.bool, device="cpu")


class Simulation:
    """A population whose clients all live in this process, for research and for data that is in one place already.

    Args:
        model: module whose trainable parameters are trained. It is called with the parameters of each client, and not changed.
        loss_fn: (model, batch) → (b,) losses of a batch of one client's examples. `model` is a function that may only be called.
        clients: a `privet.units.Users`; or a sequence with an item per client: a tensor (k, …), a tuple, list or dict of
            tensors with equal first dimension, or a `TensorDataset`.
        local: what every client does in a round.
        at_once: most clients that are trained together, ≥ 1; memory use grows with it, and the result does not change.
        vectorise: whether clients are trained together by `torch.func.vmap`, or one after another. None decides on made-up
            clients: together if the model allows it and the results agree.

    Attributes:
        clients: number of clients.
        privacy_unit: "one user", or as in the data set.
        program: what every client runs, for the record of a run.
        shapes: name → shape of the parameters that are trained, which must be those of the server's model.
        device: where clients are trained: the device of the model's first trainable parameter.
        vectorised: whether clients are trained together.

    Guarantee:
        A client's update depends on its own data, the round and fresh random numbers alone. It starts from copies of the
        server's parameters and of the model's buffers, which live through its local steps. Writing to parameters, trained or
        not, is an error, and all other changes of the model or the loss are restored afterwards. Together, every
        operation is computed for each client by itself; code that would see all of them, or share its random numbers, trains
        them one after another. A client whose data cannot be read, or whose training raises, contributes zero, and the others
        are trained as without it. The structure, types and shapes of the first client's examples are read before the first
        round.

    Raises:
        InvalidArgumentError: an argument is out of range, a client occurs twice, the loss fails on made-up clients, or the update
            of a made-up client depends on those before it.
        UnsupportedModelError: the model or the loss writes to parameters, or takes gradients itself.

    >>> model = nn.Linear(2, 1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).square()
    >>> clients = [(torch.randn(5, 2), torch.randn(5)) for _ in range(10)]
    >>> Simulation(model, loss_fn, clients, LocalSteps(learning_rate=0.1, steps=2)).vectorised
    True
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, clients: Users | Sequence[Any], local: LocalSteps, *, at_once: int = 32,
        vectorise: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(local, LocalSteps):
            raise InvalidArgumentError("local", type(local).__name__, "a privet.federated.LocalSteps")
        if vectorise not in (True, False, None):
            raise InvalidArgumentError("vectorise", vectorise, "True, False or None")
        self._at_once = count("at_once", at_once, fix="It limits memory use and does not change the result.")
        self._model, self._loss_fn, self._local = model, loss_fn, local
        parameters = trainable(model)
        self._guard = Guard(model, loss_fn, parameters)
        self.shapes = {name: each.shape for name, each in parameters.items()}
        if hooked := [name for name, each in parameters.items() if each._backward_hooks]:
            raise UnsupportedModelError(f"parameter {hooked[0]} has a hook, which copies of the parameter would not have")
        if coarse := [name for name, each in parameters.items() if each.dtype not in (torch.float32, torch.float64)]:
            raise UnsupportedModelError(f"parameter {coarse[0]} is not float32, and local steps would be rounded away")
        data = clients if isinstance(clients, BatchDataset) else _Sequence(clients)
        check_distinct(data)
        if isinstance(clients, list | tuple) and len({id(each) for each in clients}) < len(clients):
            raise InvalidArgumentError("clients", "with one object twice", "different clients", "A client belongs to one entry.")
        self.clients, self.privacy_unit, self.program = len(data), str(data.privacy_unit), local.program(loss_fn)
        self.device = next(iter(parameters.values())).device
        self._reader = ExampleReader(data)
        self.runs_user_code = data.runs_user_code or not is_own_code(model, loss_fn)
        self.vectorised = self._try({name: each.detach() for name, each in parameters.items()}, vectorise)

    def gather(self, told: Round, cohort: Indices) -> ClippedSum:
        """Return the clipped sum of the cohort's updates; as for `Population`."""
        total, indices = no_contributions(told), np.asarray(cohort, dtype=np.int64)
        device = next(iter(told.parameters.values())).device
        for start in range(0, len(indices), self._at_once):
            with preserve_generators():
                for group in move_groups(self._reader.read(indices[start : start + self._at_once]), device):
                    clients = _unpack(group.examples)
                    found = None if clients is None else self._train(told.parameters, clients)
                    if found is not None:
                        assert total.part is not None
                        deltas, weights = found
                        total = total.join(contribution(deltas, told, weights, start=total.part.stop))
        return total

    def _train(self, parameters: Mapping[str, Tensor], clients: _Clients) -> _Trained | None:
        """Return the updates and weights of those of K clients whose training works; None if none does.

        One client that raises must not make all others run another program: it is isolated by bisection, and runs alone.
        """
        number = len(clients[1])
        if self.vectorised:
            try:
                return self._together(parameters, clients, Seeds.draw().numbers(1)[0])
            except KeyboardInterrupt:
                raise
            except USER_ERRORS:  # from one client; its error is private
                pass
            if number > 1:
                halves = slice(number // 2), slice(number // 2, None)
                return _join(self._train(parameters, pytree.tree_map(operator.itemgetter(half), clients)) for half in halves)
        return self._one_by_one(parameters, clients, Seeds.draw().numbers(number))

    def _together(self, parameters: Mapping[str, Tensor], clients: _Clients, seed: int) -> _Trained:
        seed_generators(seed)
        have_advanced = watch_generators()
        start = _copy(parameters)

        def train(content: Any, mask: Tensor) -> _Trained:
            buffers = _copy(dict(self._model.named_buffers()))
            return train_locally(partial(self._transformed, buffers), self._local, start, content, mask)

        with (
            forbid_user_code_on_physical_batch(),
            force_eager(),
            self._guard.isolate(),
            SharedCalls(self._guard, None, len(clients[1])),
        ):
            found: _Trained = vmap(train, randomness="different")(*clients)
        if have_advanced():
            raise UntraceableError("random numbers are drawn from a generator that clients would share")
        return found

    def _one_by_one(
        self, parameters: Mapping[str, Tensor], clients: _Clients, seeds: Sequence[int], *, strict: bool = False
    ) -> _Trained | None:
        trained: list[_Trained] = []
        for client, seed in enumerate(seeds):
            seed_generators(seed)
            try:
                with force_eager(), self._guard.isolate():
                    own, mask = pytree.tree_map(lambda leaf, client=client: leaf[client].clone(), clients)
                    trained.append(train_locally(self._gradient, self._local, _copy(parameters), own, mask))
            except KeyboardInterrupt:
                raise
            except USER_ERRORS:
                if strict:
                    raise
        if not trained:
            return None
        deltas = {name: torch.stack([each[name] for each, _ in trained]) for name in parameters}
        return deltas, torch.stack([weight for _, weight in trained])

    def _mean_loss(self, call: Callable[..., Any], batch: Any, weights: Tensor) -> Tensor:
        losses = self._loss_fn(call, batch)
        if losses.shape != weights.shape:
            found = f"one that returns a tensor of shape {tuple(losses.shape)}"
            allowed = f"one that returns one loss per example, here {tuple(weights.shape)}"
            fix = 'Use reduction="none".'
            raise InvalidArgumentError("loss_fn", found, allowed, fix)
        return (losses * weights).sum() / weights.sum().clamp(min=1)

    def _transformed(
        self, buffers: dict[str, Tensor], parameters: Mapping[str, Tensor], batch: Any, weights: Tensor
    ) -> Mapping[str, Tensor]:
        """Return the gradients of clients that are trained together.

        Their buffers are replaced by what the step leaves in them, for their next step: as in the model of a client alone.
        """

        def loss(leaves: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            held = {**_copy(buffers), **leaves}

            def call(*args: Any, **options: Any) -> Any:
                return functional_call(self._model, held, args, options)  # which puts new buffers of the model in `held`

            mean = self._mean_loss(call, batch, weights)
            return mean, {name: held[name] for name in buffers}

        found: Mapping[str, Tensor]
        found, after = grad(loss, has_aux=True)(dict(parameters))
        buffers.update(after)
        return found

    def _gradient(self, parameters: Mapping[str, Tensor], batch: Any, weights: Tensor) -> Mapping[str, Tensor]:
        """Return the gradient of one client, by plain autograd.

        The model has its parameters until the backward pass has ended, because checkpointed parts run again in it.
        """
        leaves = {name: nn.Parameter(each.detach()) for name, each in parameters.items()}
        own = {name: each for name, each in self._model.named_parameters() if name in leaves}
        ends = [get_gradient_edge(each) for each in (*leaves.values(), *own.values())]
        with torch.enable_grad(), swap_parameters(self._model, own, leaves), GuardedCalls(self._guard, None):
            found = plain_gradients(self._mean_loss(self._model.__call__, batch, weights), ends)
        if any(each is not None for each in found[len(leaves) :]):
            raise UnsupportedModelError("the model or the loss uses a parameter that is stored outside the modules")
        pairs = zip(leaves.items(), found, strict=False)
        return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in pairs}

    def _try(self, parameters: Mapping[str, Tensor], vectorise: bool | None) -> bool:
        """Train made-up clients, shaped like the first one's examples; return whether clients can be trained together."""
        try:
            first = self._reader.read(np.zeros(1, dtype=np.int64), strict=True)[0].examples
        except (InvalidArgumentError, UnsupportedModelError):
            raise
        except Exception as error:
            given = f"such that reading the first raises {type(error).__name__}"
            fix = "Read one entry of the data set yourself to see the error."
            raise InvalidArgumentError("clients", given, "clients that can be read", fix) from None
        held = _unpack(first.to(self.device))
        if held is None:
            allowed = "clients made of such tensors"
            fix = "Encode text and numbers as tensors whose first dimension is that of the client's examples."
            raise InvalidArgumentError("clients", "with other values than tensors of one entry per example", allowed, fix)
        mask = torch.ones(_TRIED, _TRIED, dtype=torch.bool, device=self.device)
        seeds = [0] * _TRIED  # public: only made-up values are computed with them
        with preserve_generators():
            seed_generators(0)
            made_up = pytree.tree_map(_make_up, held[0]), mask
            try:
                expected = self._one_by_one(parameters, made_up, seeds, strict=True)
                again = self._one_by_one(parameters, made_up, seeds, strict=True)
            except (InvalidArgumentError, UnsupportedModelError):
                raise
            except Exception as error:
                allowed = "a function that works on made-up examples of zeros and random numbers"
                fix = f"It raised {type(error).__name__}: {error}"
                raise InvalidArgumentError("loss_fn", self._loss_fn, allowed, fix) from error
            assert expected is not None
            assert again is not None
            if not _is_close(expected, again):
                given = "such that a made-up client's update depends on those before it"
                fix = "The model or the loss keeps something from one client to the next, or has a random generator of its own."
                raise InvalidArgumentError("clients", given, "independent updates", fix)
            if vectorise is False:
                return False
            try:
                found = self._together(parameters, made_up, 0)
                same = _is_close(expected, found)
                is_random = not same and not _is_close(found, self._together(parameters, made_up, 1))
            except Exception as error:
                if vectorise:
                    fix = f"torch.func.vmap raised {type(error).__name__}: {error}"
                    raise InvalidArgumentError("vectorise", True, "False for this model", fix) from error
                return False
        if vectorise and not (same or is_random):
            fix = "Clients that are trained together have other updates than one by one."
            raise InvalidArgumentError("vectorise", True, "False for this model", fix)
        return same or vectorise is True


def _unpack(examples: Examples) -> _Clients | None:
    """Return clients as they are read, a pair of content (K, 1, k, …) and mask (K, 1, k); None if they are anything else."""
    if not all(own and leaf.dim() > 2 and leaf.shape[1] == 1 for leaf, own in zip(examples.leaves, examples.own, strict=True)):
        return None
    parts = list_children(examples.tree)
    if len(parts) != 2 or not parts[1].is_leaf():
        return None
    content, mask = pytree.tree_unflatten([leaf.squeeze(1) for leaf in examples.leaves], examples.tree)
    return content, mask


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in tensors.items()}


def _join(parts: Iterable[_Trained | None]) -> _Trained | None:
    trained = [part for part in parts if part is not None]
    if not trained:
        return None
    deltas = {name: torch.cat([each[name] for each, _ in trained]) for name in trained[0][0]}
    return deltas, torch.cat([weights for _, weights in trained])


def _is_close(one: _Trained, other: _Trained) -> bool:
    return all(torch.allclose(one[0][name], other[0][name], _TOLERANCE, 1e-6, equal_nan=True) for name in one[0])


def _make_up(leaf: Tensor) -> Tensor:
    shape = (_TRIED, _TRIED, *leaf.shape[2:])
    made = torch.randn(shape, device=leaf.device) if leaf.is_floating_point() else torch.zeros(shape, device=leaf.device)
    return made.to(leaf.dtype)
