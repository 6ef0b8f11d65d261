"""Communication of federated learning: how many bytes clients receive and send, by the plan and the shapes of the model alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby

from torch import Tensor

from privet._utils.tensors import total_size
from privet.federated.rounds import Round, no_contributions
from privet.plan import Plan
from privet.sparsification import Random

_NUMBER = 4  # bytes of a float32, and of each of the three numbers that describe a random mask
_SELECTION = 3 * _NUMBER


@dataclass(frozen=True)
class Volume:
    """Bytes of one client, a round, an epoch or a run: from clients (up), to them (down), and both without sparsification."""

    up: float
    down: float
    dense_up: float
    dense_down: float

    def times(self, factor: float) -> Volume:
        """Return the bytes of so many."""
        return Volume(self.up * factor, self.down * factor, self.dense_up * factor, self.dense_down * factor)

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by their names, to whole bytes."""
        return {name: round(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Communication:
    """Bytes that a run of federated learning sends, without the headers of a transport.

    Args:
        cohort: expected number of clients in a round.
        rounds: number of rounds.
        rounds_per_epoch: number of rounds in which a client is expected to be drawn once.
        up, down: bytes of a client that is drawn in every round, over all rounds.
        dense_up, dense_down: the same without sparsification.

    Guarantee:
        Computed from the plan and the shapes of the parameters. Totals count the expected cohort, never the clients that were
        drawn or that answered, whose number is private.

    >>> import torch, privet
    >>> plan = privet.Plan(
    ...     examples=100, unit="one user", sampling=privet.sampling.Poisson(batch_size=10), steps=40, delta=1e-3,
    ...     clipping=privet.clipping.Flat(bound=0.1), sparsification=Random(final_rate=0.9),
    ... )
    >>> found = Communication.of(plan, {"w": torch.zeros(1000)})
    >>> found.client.up, found.client.dense_up, found.run.up
    (2200.0, 4000.0, 880000.0)
    """

    cohort: float
    rounds: int
    rounds_per_epoch: float
    up: int
    down: int
    dense_up: int
    dense_down: int

    @classmethod
    def of(cls, plan: Plan, parameters: Mapping[str, Tensor], rounds: int | None = None) -> Communication:
        """Return the communication of the first rounds of a plan, or of all; of parameters, only the shapes are read."""
        last = plan.total_steps if rounds is None else rounds
        sums = no_contributions(Round(1, parameters, plan.clipping)).tensors
        dense_up, dense_down = (last * _NUMBER * total_size(each.values()) for each in (sums, parameters))
        cohort = float(plan.sampling.expected_batch_size(plan.examples))
        dropped = down = 0
        for number, first in _blocks(plan, last):
            dropped += number * _dropped(plan, parameters, first)
            down += number * downloaded(plan, parameters, first)
        return cls(cohort, last, plan.examples / cohort, dense_up - _NUMBER * dropped, down, dense_up, dense_down)

    @property
    def client(self) -> Volume:
        """Bytes of a client in a round that draws it, on average over the rounds."""
        return Volume(self.up, self.down, self.dense_up, self.dense_down).times(1 / max(1, self.rounds))

    @property
    def round(self) -> Volume:
        """Bytes of a round, on average over the rounds."""
        return self.client.times(self.cohort)

    @property
    def epoch(self) -> Volume:
        """Bytes of an epoch, on average over the rounds."""
        return self.round.times(self.rounds_per_epoch)

    @property
    def run(self) -> Volume:
        """Bytes of all rounds."""
        return Volume(self.up, self.down, self.dense_up, self.dense_down).times(self.cohort)

    def to_dict(self) -> dict[str, object]:
        """Return the bytes per client, round, epoch and run, and what they were computed from, for a file."""
        return {
            "cohort": self.cohort,
            "rounds": self.rounds,
            "rounds_per_epoch": self.rounds_per_epoch,
            **{name: getattr(self, name).to_dict() for name in ("client", "round", "epoch", "run")},
        }


def downloaded(plan: Plan, parameters: Mapping[str, Tensor], number: int) -> int:
    """Return the bytes that a client receives in a round: the parameters as float32, and the mask.

    A random mask is three numbers. A ranked one is a bit for every coordinate, unless it keeps all.
    """
    size = total_size(parameters.values())
    if isinstance(plan.sparsification, Random):
        return _NUMBER * size + _SELECTION
    return _NUMBER * size + (-(-size // 8) if _dropped(plan, parameters, number) else 0)


def _dropped(plan: Plan, parameters: Mapping[str, Tensor], number: int) -> int:
    times = plan.timetable()
    if plan.sparsification is None or times is None:
        return 0
    return plan.sparsification.zeros(times.block(number), times.blocks, total_size(parameters.values()))


def _blocks(plan: Plan, rounds: int) -> Iterator[tuple[int, int]]:
    times = plan.timetable()
    for _, numbers in groupby(range(1, rounds + 1), lambda number: 0 if times is None else times.block(number)):
        first, *others = numbers
        yield 1 + len(others), first
