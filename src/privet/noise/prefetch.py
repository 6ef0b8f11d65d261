"""Drawing ahead: noise does not depend on data, so a second thread can draw it while the model computes.

Blocks of memory go round: the thread takes an empty one, fills it and hands it over; whoever takes it uses it and gives it
back. A block that was handed over is drawn anew before it is handed over again, so no number is used twice, and there are
never more blocks than at the start. Both ways lead through `SimpleQueue`, which has no lock that a garbage collector, running
at any point of either thread, could find taken.
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
class Ahead(Unique):
    """A thread that fills blocks ahead of their use; it ends when this is closed or forgotten, or the process ends.

    Args:
        empty: blocks to be filled; None ends the thread.
        full: blocks that were filled, or what went wrong.
        process: the only one that may take blocks: a fork would use the same numbers as its parent.
    """

    no_copy = "Two owners would use the same noise. Let a source of its own draw ahead: Ahead.start."

    empty: _EmptyBlocks
    full: _FullBlocks
    process: int

    @staticmethod
    def start(draw: Callable[[Tensor], None], blocks: list[Tensor]) -> Ahead:
        """Return a new thread's blocks; the thread begins at once.

        Args:
            draw: fills a block. It must use nothing that another thread uses, and not hold on to whoever owns the result.
            blocks: to fill; there will be no others.
        """
        ahead = Ahead(SimpleQueue(), SimpleQueue(), os.getpid())
        for block in blocks:
            ahead.empty.put(block)
        thread = threading.Thread(target=_work, args=(draw, ahead.empty, ahead.full), name="privet-noise", daemon=True)
        thread.start()
        weakref.finalize(ahead, _end, ahead.empty, ahead.process, thread)
        return ahead

    def take(self) -> Tensor | None:
        """Return a block that was drawn ahead, to be given back after use; None if none is ready.

        Raises:
            BaseException: whatever ended the thread; after it there are no more blocks.
        """
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
        """Let a block that was used be filled again."""
        self.empty.put(block)


def _work(draw: Callable[[Tensor], None], empty: _EmptyBlocks, full: _FullBlocks) -> None:
    """Fill blocks until told to end. Holds no reference to the `Ahead`, so that forgetting it ends the thread."""
    try:
        while (block := empty.get()) is not None:
            draw(block)
            full.put(block)
    except BaseException as error:
        full.put(error)


def _end(empty: _EmptyBlocks, process: int, thread: threading.Thread) -> None:
    """Tell the thread to end and wait for that; in a fork there is no such thread."""
    if process != os.getpid():
        return
    try:
        while True:
            empty.get_nowait()
    except Empty:
        empty.put(None)
    if thread is not threading.current_thread():
        thread.join(_PATIENCE)
