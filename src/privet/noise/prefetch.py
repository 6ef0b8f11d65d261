"""Noise prefetching: noise does not depend on data, so a second thread can draw it while the model computes.

A block is refilled before it is passed on again, so no number is used twice, and no others are allocated. Both directions use
`SimpleQueue`, which is reentrant: a garbage collection at any point of either thread cannot deadlock on it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from torch import Tensor

from privet._utils.unique import Unique

_PATIENCE = 5.0  # seconds; a block takes less than one thousandth of that

_EmptyBlocks = SimpleQueue[Tensor | None]
_FullBlocks = SimpleQueue[Tensor | BaseException]


@dataclass(frozen=True, eq=False)
class Prefetcher(Unique):
    """A thread that fills blocks ahead of their use; it ends with this object or the process.

    None among the empty blocks ends it, and an exception among the full ones did. Only `process` may take blocks: a fork would
    use the same numbers as its parent.
    """

    no_copy = "Two owners would use the same noise. Start another prefetcher with its own stream: Prefetcher.start."

    empty: _EmptyBlocks
    full: _FullBlocks
    process: int

    @staticmethod
    def start(draw: Callable[[Tensor], None], blocks: list[Tensor]) -> Prefetcher:
        """Start a new thread that fills these blocks. `draw` must share no state with another thread, nor refer to the result."""
        ahead = Prefetcher(SimpleQueue(), SimpleQueue(), os.getpid())
        for block in blocks:
            ahead.empty.put(block)
        thread = threading.Thread(target=_work, args=(draw, ahead.empty, ahead.full), name="privet-noise", daemon=True)
        thread.start()
        weakref.finalize(ahead, _end, ahead.empty, ahead.process, thread)
        return ahead

    def take(self) -> Tensor | None:
        """Return a filled block, to be given back after use; None if none is ready. Raises what ended the thread, if anything."""
        if self.process != os.getpid():
            return None
        try:
            block = self.full.get_nowait()
        except Empty:
            return None
        if isinstance(block, BaseException):
            raise block
        return block

    def give_back(self, block: Tensor) -> None:
        """Return a used block for refilling."""
        self.empty.put(block)


def _work(draw: Callable[[Tensor], None], empty: _EmptyBlocks, full: _FullBlocks) -> None:
    """Fill blocks until None arrives, without a reference to the `Prefetcher`, so that its finalizer can end the thread."""
    try:
        while (block := empty.get()) is not None:
            draw(block)
            full.put(block)
    except BaseException as error:
        full.put(error)


def _end(empty: _EmptyBlocks, process: int, thread: threading.Thread) -> None:
    """End the thread and wait for it; a forked process has no such thread."""
    if process != os.getpid():
        return
    try:
        while True:
            empty.get_nowait()
    except Empty:
        empty.put(None)
    if thread is not threading.current_thread():
        thread.join(_PATIENCE)
