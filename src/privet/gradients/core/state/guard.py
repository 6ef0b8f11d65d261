"""Isolation of state: after a pass, modules, buffers, attributes and containers are restored.

During a pass, modules hold copies of their buffers and plain tensors; bindings are restored afterwards. A tensor of one pass
that stayed on a module would otherwise be mistaken for an example's in the next pass, whose vmap has the same level.
"""

from __future__ import annotations

__all__ = ["Guard", "restore_left"]

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privet._utils.torch_state import leave_modes, read_modes
from privet.errors import USER_ERRORS, LedgerError, UnsupportedModelError
from privet.gradients.core.state.forbidden_calls import forbid_calls
from privet.gradients.core.state.held_tensors import data_pointer, list_parts
from privet.gradients.core.state.identities import Found
from privet.gradients.core.state.reachable import (
    find_modules,
    find_operator_functions,
    list_modules,
    refuse_scripts,
    unwrap_all,
)
from privet.gradients.core.state.restoring import Restore
from privet.gradients.core.state.snapshot import Snapshot

# The passes that run, or that ended without being restored, in the order in which they began: what they replaced, the function
# that puts torch's modes back, their guard and their thread.
_begun: dict[Snapshot, tuple[Restore, Guard, threading.Thread]] = {}


class Guard:
    """Restores the state that is reachable from a model and a loss function.

    Args:
        model, loss_fn: user code that is run.
        parameters: the trained parameters: their bindings are restored; their values are never written to.

    Attributes:
        model: as given.
        created: names of parameters and submodules that user code bound during a pass, and that were removed after it.
    """

    def __init__(self, model: nn.Module, loss_fn: object, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = parameters
        others = list(find_modules(loss_fn).values())
        self.model = model
        # Those of the loss are of whomever, while those that are found later are the user's.
        self._functions = [*unwrap_all(loss_fn), *find_operator_functions()]
        self._roots, self._reached = [model, loss_fn, *others], [*list_modules(model), *others]
        self._found = Found()
        self._large: Sequence[Tensor] = ()
        self._last: Snapshot | None = None  # for a pass that finds everything as it did
        self.created: set[str] = set()
        for module in self._reached:
            refuse_scripts(module)

    @contextlib.contextmanager
    def isolate(self, batched: Callable[[Tensor], Tensor] | None = None, held: Sequence[object] = ()) -> Iterator[None]:
        """Return a context in which modules hold copies of buffers and tensors; on exit, also after errors, restore everything.

        Args:
            batched: copies a buffer, if each example gets its own copy to write into.
            held: objects that examples hold, and may share with others.
        """
        last = vars(self).pop("_last", None)  # not for passes inside this one, or in another thread
        again = last is not None and not batched and not held and last.begin_again()
        outer = (self._reached, self._large) if any(guard is self for _, guard, _ in _begun.values()) else None
        snapshot = last if last is not None and again else Snapshot(batched or torch.clone, self.iter_parameters, self._found)
        modes = _save_modes()  # last, as nothing would restore them if it failed later
        _begun[snapshot] = modes, self, threading.current_thread()
        try:
            if not again:
                self._fill(snapshot, held)
            self._reached, self._found, self._large = snapshot.modules, snapshot.found, snapshot.large
            with forbid_calls():
                yield
        finally:
            try:
                self._end(snapshot, modes)
            except BaseException:  # such as an interrupt that no signal announces, whose second does not follow at once
                self._end(snapshot, modes)
                raise
            finally:
                if outer is not None:
                    self._reached, self._large = outer
        if snapshot.moved:
            raise UnsupportedModelError(
                "the model or loss writes to a parameter, by replacing its memory, while it runs on an example; change "
                "parameters through the optimizer only"
            )
        if snapshot.drawn:
            raise UnsupportedModelError(
                "the model or loss draws from a generator of Python or NumPy of its own, whose numbers could not be new for each "
                "example; draw with torch, or from the global generators of `random` and `numpy.random`"
            )
        self._last = snapshot.keep() if not batched and not held else None

    def _fill(self, snapshot: Snapshot, held: Iterable[object]) -> None:
        """Save everything: anything may have been added, or defined anew, since the last pass."""
        for function in self._functions:
            snapshot.save_function(function)
        for root in (*self._roots, *held):
            snapshot.save(root)
        snapshot.save_global_hooks()
        snapshot.note_identities()

    def _end(self, snapshot: Snapshot, modes: Restore) -> None:
        """Restore what a pass replaced; after an exception, this can be called again."""
        with torch._C.DisableTorchFunctionSubclass():  # classes of the user's would run after what they changed is restored
            snapshot.restore()
        self.created |= snapshot.created
        modes()
        # With the passes that ran inside of it: restored later, they would bring this pass's state back.
        while snapshot in _begun:
            del _begun[next(later for later in reversed(_begun) if _begun[later][2] is _begun[snapshot][2])]

    @property
    def modules(self) -> Sequence[nn.Module]:
        """The modules that the current or the last pass found, or those of the model and the loss before the first."""
        return self._reached

    def is_protected(self, x: Tensor) -> bool:
        """Return whether a tensor shares memory with a parameter, trained or frozen, or with a tensor that is not copied."""
        places = {data_pointer(part) for part in list_parts(x)} - {None}
        if not places:  # without numbers
            return any(x is parameter for parameter in self.iter_parameters())
        return not places.isdisjoint(self._protected_pointers())

    @contextlib.contextmanager
    def keep_values(self) -> Iterator[None]:
        """Return a context after which what is protected holds what it held before: for code whose calls nothing intercepts."""
        before = [(tensor.data, tensor.detach().clone()) for tensor in (*self.iter_parameters(), *self._large)]
        try:
            yield
        finally:
            for memory, values in before:
                memory.copy_(values)

    def iter_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all reachable modules, trained or not."""
        for module in self._reached:
            yield from (parameter for parameter in module._parameters.values() if parameter is not None)

    def _protected_pointers(self) -> set[int | None]:
        protected = (*self.parameters.values(), *self.iter_parameters(), *self._large)
        return {data_pointer(part) for x in protected for part in list_parts(x)}


def restore_left(model: nn.Module) -> bool:
    """Restore a model that a pass left as an example had made it, and return whether one did.

    Call it between passes, before the model is saved or trained further. A pass restores the model itself, and tries again if it
    is interrupted; so this concerns one that failed twice.

    Raises:
        LedgerError: another thread runs the model on examples, or restoring fails again.
    """
    left = [(snapshot, *how) for snapshot, how in list(_begun.items()) if how[1].model is model]
    if any(thread.is_alive() and thread is not threading.current_thread() for *_, thread in left):
        raise LedgerError("another thread runs the model on examples now; save the model, or take a step, after it has ended")
    for snapshot, modes, guard, _ in left:  # the first that began holds the state before all of them
        try:
            if snapshot in _begun:
                guard._end(snapshot, modes)
        except KeyboardInterrupt:
            raise
        except USER_ERRORS:  # whose message may show what an example left
            raise LedgerError(
                "the model could not be restored after it ran on an example, so it can neither be saved nor trained; create it, "
                "and the training, again"
            ) from None
    return bool(left)


def _save_modes() -> Restore:
    """Return a function that restores torch's global modes, which a model may leave changed.

    Meanwhile, no parametrized weight is cached (`torch.nn.utils.parametrize.cached()`): examples after the one that computed it
    would have no gradient through it.
    """
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    before, active = _read_modes(kinds), read_modes()
    cached = {name: getattr(parametrize, name) for name in ("_cache", "_cache_enabled") if hasattr(parametrize, name)}
    for name, value in cached.items():
        setattr(parametrize, name, type(value)())

    def restore() -> None:
        leave_modes(active)
        for name, value in cached.items():
            setattr(parametrize, name, value)
        if _read_modes(kinds) == before:
            return
        gradients, number, anomaly, *autocast = before
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(number)
        torch.set_anomaly_enabled(*anomaly)
        for kind, (enabled, precision) in zip(kinds, autocast, strict=True):
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, precision)

    return restore


def _read_modes(kinds: Sequence[str]) -> list[Any]:
    autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    return [torch.is_grad_enabled(), torch.get_default_dtype(), anomaly, *autocast]
