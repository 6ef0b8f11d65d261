"""Programs that are written to leak, which nobody writes who only wants to train a model, and the assumption that each breaks.

Privet does not defend against them; `docs/guarantee.md` states the assumptions. Nothing here runs: a program that is defended
against, because an honest one looks like it, belongs into one of the files of programs.
"""

from __future__ import annotations

# The assumptions of `docs/guarantee.md`.
STATE = "State: model, loss and data set remember nothing of an example outside modules, what these hold, and names of the loss"
RULES = "Batching rules: each computes an example from its own row"
WATCHERS = "Out of scope: what is active around the run is there to watch it, not to change or tell what it computes"

EXOTIC = {
    # Memory that Python keeps outside of dictionaries, lists and arrays.
    "an object, or the model, changes its class": STATE,
    "an object gets another dictionary of attributes": STATE,
    "a function gets another code, or other defaults": STATE,
    "a class gets another base": STATE,
    "a module keeps a number in a slot": STATE,
    "an array of objects holds a list": STATE,
    "a stream in memory keeps text": STATE,
    "the gradient of a constant keeps a number": STATE,
    "the sign of a zero keeps a bit": STATE,
    "a lock, a view or an iterator keeps a bit": STATE,
    "an exception keeps a number in one of its fields": STATE,
    "a thread-local object keeps a number": STATE,
    "a function of an installed library is patched to remember": STATE,
    # Memory of tensors.
    "the storage of a tensor is written to": STATE,
    "a tensor that the model holds grows, or gets the memory of an example": STATE,
    "an array that grows": STATE,
    "a tensor of inference mode is written to": STATE,
    "a tensor is written to through an array that shares its memory": STATE,
    "a parameter is written to by a thread, by a storage, or by a swap of tensors": STATE,
    "a hook writes to a parameter in the backward pass of a reentrant checkpoint": STATE,
    "a kernel that is registered by name writes to a parameter": STATE,
    # Code below vmap.
    "a batching rule of the user's mixes rows": RULES,
    "the backward pass of an autograd function remembers an example, or writes to a parameter": RULES,
    "a class of tensors mixes the rows that it is added to": RULES,
    "hooks on saved tensors mix rows": RULES,
    "a hook on a graph node scales the sum of gradients": RULES,
    "tracing, pickling or the storage of a tensor gives the tensor of all examples": RULES,
    # Code around the run.
    "a mode around the run, or in the model, mixes rows": WATCHERS,
    "the policy of a selective checkpoint, or a counter of operations, is read by the model": WATCHERS,
}
