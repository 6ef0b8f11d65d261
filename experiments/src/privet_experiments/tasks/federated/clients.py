"""Private, public and held-out users of a file, divided by a hash of their ids."""

from __future__ import annotations

__all__ = ["Clients", "clients", "size", "split"]

import functools
import zlib
from dataclasses import dataclass

from privet.errors import InvalidArgumentError
from privet_experiments.tasks.federated.files import open_file
from privet_experiments.tasks.federated.problems import PROBLEMS, UserPart, UserProblem
from privet_experiments.tasks.job import TaskExamples

# Of twenty hashes, those below the first number are held out, those below the second are public, and the others are private.
_HELD_OUT, _PUBLIC, _OF = 3, 6, 20
PARTS = ("held out", "public", "rehearsed", "private")


@dataclass(frozen=True)
class Clients:
    """Users of a file in four disjoint parts: those that train, those that measure the model, and public ones.

    Args:
        public: users that rehearse a training with the noise of the private one, for the choice of settings.
        rehearsed: public users that measure a rehearsal.
    """

    problem: UserProblem
    private: UserPart
    held_out: UserPart
    public: UserPart
    rehearsed: UserPart


def split(user: int) -> str:
    """Return the part that a user belongs to, one of `PARTS`: 15 % are held out, 15 % public in two halves, 70 % private.

    >>> [split(user) for user in range(4)]
    ['private', 'private', 'private', 'private']
    """
    place = zlib.crc32(str(user).encode()) % (2 * _OF)
    if place < 2 * _HELD_OUT:
        return "held out"
    if place < 2 * _PUBLIC:
        return "rehearsed" if place % 2 else "public"
    return "private"


@functools.lru_cache(maxsize=1)
def clients(examples: TaskExamples) -> Clients:
    """Return the users of a file, with a cache for those of the last call.

    Raises:
        DataUnavailableError: the folder lacks the file.
        InvalidArgumentError: there are fewer private users than asked for, or a part is empty.
    """
    assert examples.data is not None
    problem = PROBLEMS[examples.data]
    rows = problem.rows(open_file(examples.data, examples.folder))
    names = sorted({user for user, _ in rows if split(user) == "private"})
    if examples.number is not None and examples.number > len(names):
        raise InvalidArgumentError("examples", examples.number, f"at most {len(names)} private users, of {examples.data}")
    kept = set(names[: examples.number])
    parts = {part: [one for one in rows if split(one[0]) == part] for part in PARTS}
    parts["private"] = [one for one in parts["private"] if one[0] in kept]
    if empty := [part for part, found in parts.items() if not found]:
        raise InvalidArgumentError("data", examples.data, "of users in every part", f"Nobody is {empty[0]}; use the whole file.")
    known = parts["public"] + parts["rehearsed"]
    private, held_out, public, rehearsed = (
        problem.encode(parts[part], known) for part in ("private", "held out", "public", "rehearsed")
    )
    return Clients(problem, private, held_out, public, rehearsed)


def size(examples: TaskExamples) -> int:
    """Return the number of private users."""
    return clients(examples).private.users
