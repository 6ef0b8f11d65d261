"""The beginning of a training in several processes: ranks refuse together, and begin with rank 0's state."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from privet.distributed.following import FollowingLedger
from privet.distributed.world import World
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.training.directory import Storage
from privet.training.manifest import Parts, describe, fingerprint
from privet.training.record import RunRecorder
from privet.training.state import TrainingState


@contextlib.contextmanager
def begin_together(world: World) -> Iterator[None]:
    """Return a context for the checks of a training's parts, in which all ranks refuse what one of them refuses."""
    world.begin()
    with world.together():
        yield


def record_together(
    world: World, plan: Plan, state: TrainingState, parts: Parts, storage: Storage,
    begin: Callable[[TrainingState, Parts], RunRecorder],
) -> RunRecorder:  # fmt: skip
    """Return rank 0's record, and on other ranks one that writes nothing, after they have taken over rank 0's state.

    Raises:
        InvalidArgumentError: ranks have different plans, models, functions or data. These are compared by digests under a key
            that is used for nothing else and stored nowhere, so whoever listens can test no guess of the data later.
    """
    if world.size == 1:
        return begin(state, parts)
    key = world.agree_on_key()
    with world.together():
        digests = _digest_parts(plan, parts, key, sharded=world.sharded)
    every = world.gather(digests)
    for rank, other in enumerate(every):
        if different := sorted(name for name in {**every[0], **other} if every[0].get(name) != other.get(name)):
            fix = f"These differ: {', '.join(different[:5])}. Run the same program with the same data and seeds on all ranks."
            raise InvalidArgumentError("world", f"rank {rank} with other parts than rank 0", "ranks with equal parts", fix)
    record = None
    if saves := world.share(storage.folder is not None):
        state.collect()
    with world.together():
        if world.first:
            record = begin(state, parts)
    told = None
    if record is not None:
        own = record.ledger
        told = own.run, dict(own.facts), own.spent, record.completed, state.tell()
    run, facts, spent, completed, values = world.share(told)
    if record is None:
        state.take_over(values)
        ledger = FollowingLedger(world, run, facts, spent, plan.total_steps)
        record = RunRecorder(plan, None, ledger, None, state, restore=storage.restore)
        record.follow(completed, saves=saves)
    state.forget()
    return record


def _digest_parts(plan: Plan, parts: Parts, key: bytes, *, sharded: bool) -> dict[str, str]:
    held: dict[str, Any] = {"plan": plan.to_dict(), **describe(parts)}
    held |= {f"{name} (contents)": value for name, value in json.loads(fingerprint(parts, key)).items()}
    for name in ("data.entries", "data (contents)", "division (contents)") if sharded else ():
        held.pop(name, None)
    return {name: hashlib.sha256(key + json.dumps(value, default=str).encode()).hexdigest() for name, value in held.items()}
