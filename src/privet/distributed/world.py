"""The processes that train together: which one this is, and the few things that they tell each other."""

from __future__ import annotations

import contextlib
import hmac
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from typing import Any

import torch
from torch import Tensor, distributed

from privet._utils.signals import hold_signals
from privet.distributed.collectives import gather, join_shares, scatter_sums
from privet.errors import InvalidArgumentError, LedgerError, PrivetError
from privet.ledger import Ledger
from privet.noise import Keystream, Source, Token
from privet.noise.shares import Share
from privet.sampling import Indices, Words

# What a rank waits for when it votes.
_PHASES = ("the start", "the next step", "the whole model", "a pass", "the sum", "the end of its loop", "a failure")
START, STEP, GATHER, PASS, SUM, LEAVE, FAILURE = range(len(_PHASES))
_GRACE = 1.0  # seconds in which ranks that are left report that they are
_MOST_CHARACTERS = 500


class WorldError(LedgerError):
    """Another rank refused, failed, ended, stopped answering or did something else; the training ends on all ranks."""


class World:
    """The W processes that train together. All of them run the same program on the same data; rank 0 keeps the ledger.

    Use `World.here()` after `torch.distributed.init_process_group`, and pass it to `Training(..., world=...)` on every rank.
    `World()` is one process, which uses nothing of torch.distributed.

    Attributes:
        rank, size: number of this process, from 0, and number of all.
        sharded: whether each rank has other examples.
        gathered: whether a model under FSDP2 is gathered whole for each step.
        lost: whether a rank ended or stopped answering, so that no group can be used again.

    Guarantee:
        A step is one draw, one sum, one release with one noise, and one entry of the ledger, whatever W is. All ranks draw the
        same examples from a stream whose key they share, and each sums a part of them. A rank enters the reduction only after
        rank 0 has made the step durable, and noise is added to the reduced sum: each rank adds it to its own share of the
        coordinates, from a source of its own, so the coordinates' noise is independent, and together the shares are a single
        Gaussian mechanism.
    """

    def __init__(self) -> None:
        self.rank, self.size, self.sharded, self.gathered = 0, 1, False, False
        self._first_example, self._examples = 0, 0  # of a sharded data set: where this rank's part begins, and its length
        self._sums: Any = None  # group for tensors, on their devices
        self._votes: Any = None  # group for votes and text, on the CPU
        self._wait = timedelta()  # the longest time that a rank waits for the others
        self._key = b""
        self._over: WorldError | None = None  # why this training has ended
        self.lost = False

    @classmethod
    def here(cls, timeout: timedelta | float = 600.0, *, sharded: bool = False, gathered: bool = False) -> World:
        """Return the ranks of the initialised process group; every rank must call this. Without a group, one process.

        Args:
            timeout: longest time that a rank waits for the others, in seconds or as a timedelta, > 0: longer than a step, and
                than the check before the first one. A rank that does not answer in time ends the training on all others.
            sharded: each rank has a part of the data, such as what its machine stores, and `plan.examples` counts all parts.
                The parts must have no example in common, nor data of one user where users are the unit. By default, every rank
                has the whole data set.

        Raises:
            InvalidArgumentError: the timeout is out of range, or torchrun started several processes without a group.
        """
        wait = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        if wait <= timedelta(0):
            raise InvalidArgumentError("timeout", timeout, "above 0 seconds")
        world, size = cls(), count_processes()
        if size == 1:
            return world
        if not distributed.is_initialized():
            fix = "Call torch.distributed.init_process_group() first."
            raise InvalidArgumentError("world", f"one of {size} processes without a group", "made in a process group", fix)
        world.rank, world.size, world.sharded, world.gathered = distributed.get_rank(), size, sharded, gathered
        world._wait = wait
        world._sums = distributed.new_group(timeout=wait)
        world._votes = distributed.new_group(backend="gloo", timeout=wait)
        return world

    def __repr__(self) -> str:
        return f"World(rank={self.rank}, size={self.size})"

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes the ledger and all files."""
        return self.rank == 0

    # What ranks tell each other.

    def vote(self, phase: int, a: float = 0.0, b: float = 0.0, error: BaseException | None = None) -> tuple[float, float]:
        """Return rank 0's numbers, once all ranks are in the same phase and none has an error; raise as `exchange` does."""
        return self.exchange(phase, a, b, error)[0]

    def exchange(
        self, phase: int, a: float = 0.0, b: float = 0.0, error: BaseException | None = None
    ) -> list[tuple[float, float]]:
        """Return the numbers of all ranks, once they are in the same phase and none has an error.

        Raises:
            WorldError: another rank is in another phase or has an error. The error itself on the rank that has it.
        """
        if self.size == 1:
            if error is not None:
                raise error
            return [(a, b)]
        if self._over is not None:
            raise error or self._over
        mine = torch.tensor([phase, error is not None, a, b], dtype=torch.float64, device="cpu")
        try:
            with hold_signals(), self.answered():  # a rank that is interrupted in between would leave the others there
                found = gather(mine, self.size, self._votes).tolist()
                if all(other == phase and not failed for other, failed, *_ in found):
                    return [(first, second) for _, _, first, second in found]
                self._over = WorldError(self._explain(found, error))
        except WorldError as lost:
            raise (error or lost) from None
        raise error or self._over

    def reserve(self, ledger: Ledger) -> Token:
        """Return the token of the next step, once rank 0 has made it durable: only then can any rank draw noise for it.

        `ledger` is rank 0's, or what another rank has in its place.
        """
        token = ledger.reserve()
        if self.size > 1 and self.first:
            self.vote(STEP, token.step, token.multiplier)
        return token

    def check_running(self) -> None:
        """Raise the error of a training that has ended."""
        if self._over is not None:
            raise self._over

    def report(self, error: BaseException) -> None:
        """End the training on all ranks because of an error on this one; nothing if it has ended."""
        if self.size > 1 and self._over is None:
            with contextlib.suppress(BaseException):
                self.vote(FAILURE, error=error)

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Return a context for the end of a loop, before which ranks that go on learn of it: they would wait in vain.

        Inside, unused steps are given back. Then the error of a training in which a rank was lost is completed by its number.
        """
        try:
            if self.size > 1 and self._over is None:
                self.vote(LEAVE)
        finally:
            try:
                yield
            finally:
                self.name_lost()

    def name_lost(self) -> None:
        """Complete the error of a training that ended because a rank did not answer by the numbers of these ranks.

        That takes a second, so give back unused steps first.
        """
        if not self.lost or self._over is None:
            return
        try:  # each rank that is left writes to the store of the group, and looks a second later
            default = distributed.distributed_c10d._get_default_store()
            name = hmac.digest(self._key, b"name of the training", "sha256").hex()
            store = distributed.distributed_c10d.PrefixStore(f"privet/{name}", default)
            store.set_timeout(timedelta(seconds=2))
            store.set(str(self.rank), "waits")
            time.sleep(_GRACE)
            lost = [rank for rank in range(self.size) if rank != self.rank and not store.check([str(rank)])]
        except RuntimeError:  # whoever kept the store has ended
            lost = [0] if self.rank else []
        if lost:
            text = f"rank {', '.join(map(str, lost))} ended or stopped answering; steps that were begun stay spent"
            self._over.args = (text,)

    @contextlib.contextmanager
    def together(self, phase: int = START) -> Iterator[None]:
        """Return a context at whose end ranks wait for each other; what one of them raises is raised on all."""
        try:
            yield
        except BaseException as error:
            self.report(error)
            raise
        self.vote(phase)

    def share(self, value: Any = None) -> Any:
        """Return rank 0's value, which travels between the ranks as their sums do."""
        if self.size == 1:
            return value
        box = [value]
        with self.answered():
            distributed.broadcast_object_list(box, src=0, group=self._votes)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            with self.answered():
                distributed.all_gather_object(found, value, group=self._votes)
        return found

    # What ranks have in common.

    def begin(self) -> None:
        """Agree on a secret key for one training, which nobody stores; call this before anything that may raise on one rank.

        Raises:
            InvalidArgumentError: there are other processes than those of this world.
        """
        self.check_complete()
        if self.lost:
            raise WorldError("a rank of this world has ended; start all processes again, and resume the run")
        self._over, self._key = None, self.agree_on_key()

    def check_complete(self) -> None:
        """Refuse to train in some of several processes: each would spend the whole ε on its own, and no ledger would say so."""
        if (size := count_processes()) != self.size:
            fix = (
                "Each would spend the whole ε on its own. Call torch.distributed.init_process_group(), and pass world=privet."
                "distributed.World.here() to privet.Training in every process; or start the script without torchrun."
            )
            found = "one process" if self.size == 1 else f"{self.size} processes"
            raise InvalidArgumentError("world", f"{found} of {size}", "all processes of the group", fix)

    def agree_on_key(self) -> bytes:
        """Return 32 random bytes that the ranks share."""
        key = torch.frombuffer(bytearray(os.urandom(32)), dtype=torch.uint8).clone()
        if self.size > 1:
            with self.answered():
                distributed.broadcast(key, 0, group=self._votes)
        return bytes(key.tolist())

    def make_words(self, purpose: str, source: Source) -> Words:
        """Return a stream of words that all ranks draw alike. Each purpose has its own, as ranks may draw at other times.

        The stream is the source's own in one process, and for the test source, which is the same on all ranks.
        """
        if self.size == 1 or not source.private:
            return source.words
        return Keystream(hmac.digest(self._key, purpose.encode(), "sha256")).words

    def check_examples(self, own: int, examples: int) -> int:
        """Return how many entries the data set of this rank must have, given how many it has; all ranks call this.

        Raises:
            InvalidArgumentError: the shards do not have the plan's number of examples together.
        """
        if not self.sharded:
            return examples
        sizes = self.gather(own)
        if sum(sizes) != examples:
            found = f"{' + '.join(map(str, sizes))} examples on {self.size} ranks"
            raise InvalidArgumentError("dataset", found, f"of exactly the plan's size, {examples}, together")
        self._first_example, self._examples = sum(sizes[: self.rank]), own
        return own

    def take(self, draw: Indices) -> tuple[int, Indices]:
        """Return the part of a draw whose gradients this rank sums, and the position where it starts.

        Of a sharded data set, these are the examples that the rank has. All ranks draw from all examples, so the draw has the law
        of the plan's sampling scheme, whichever it is.
        """
        if self.sharded:
            own = draw - self._first_example
            return int((own < 0).sum()), own[(own >= 0) & (own < self._examples)]
        first, stop = len(draw) * self.rank // self.size, len(draw) * (self.rank + 1) // self.size
        return first, draw[first:stop]

    # Sums over the ranks, of which each owns a share; see `Owners`. One process releases its sum whole.

    def sizes(self, sums: Mapping[str, Tensor]) -> list[int]:
        """Return the sizes of the sums, which every rank has whole."""
        return list(map(len, sums.values()))

    def scatter(self, sums: Mapping[str, Tensor]) -> list[Share]:
        """Return this rank's share of the sums over the ranks: one reduce-scatter for each precision."""
        with self.answered():
            return scatter_sums(list(sums.values()), self.rank, self.size, self._sums)

    def join(self, sums: Mapping[str, Tensor], shares: Sequence[Share]) -> list[Tensor]:
        """Return whole tensors from the shares of all ranks: one all-gather for each precision."""
        with self.answered():
            return join_shares(list(sums.values()), shares, self.size, self._sums)

    def compute_once(
        self, compute: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], sums: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what rank 0 computes from sparse sums over the ranks. Others compute, too: the test source goes on alike."""
        parts = self.gather({name: each.cpu() for name, each in sums.items()})
        total = {name: reduce(torch.add, [part[name] for part in parts]) for name in sums}
        return self.share(compute(total))  # type: ignore[no-any-return]

    def limit_waiting(self, group: Any) -> None:
        """Let a rank wait in a group of somebody else's, such as that of a mesh, no longer than in those of this world."""
        if self.size > 1:
            distributed.distributed_c10d._set_pg_timeout(self._wait, group)

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Return a context for one collective, which ends the training if a rank does not answer."""
        try:
            yield
        except RuntimeError:  # of the backend: a closed connection, or its time-out
            if not self.lost or self._over is None:
                text = "another rank ended or stopped answering; steps that were begun stay spent"
                self.lost, self._over = True, WorldError(text)
            raise self._over from None

    def _explain(self, found: Sequence[Sequence[float]], error: BaseException | None) -> str:
        """Return who has an error or is in another phase than rank 0; all ranks call this."""
        text = None if error is None else str(error) if isinstance(error, PrivetError) else type(error).__name__
        texts: list[str | None] = [None] * self.size
        with contextlib.suppress(WorldError):
            texts = self.gather(text)
        failed = [rank for rank, row in enumerate(found) if row[1]]
        if failed:
            return f"rank {failed[0]} failed: {(texts[failed[0]] or 'an error')[:_MOST_CHARACTERS]}"
        asked = ", ".join(f"rank {rank} waits for {_PHASES[int(row[0])]}" for rank, row in enumerate(found))
        return f"the ranks do not run the same program: {asked}"


ALONE = World()


def count_processes() -> int:
    """Return the number of processes in the group of this one, or that torchrun started."""
    if distributed.is_available():
        if distributed.is_initialized():
            return distributed.get_world_size()
        if distributed.is_torchelastic_launched():
            return int(os.environ.get("WORLD_SIZE", "1"))
    return 1
