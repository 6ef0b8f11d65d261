"""The mechanism: sampling, number of steps and noise, from which ε is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from privet._utils.registry import PARTS, add
from privet.accounting.events import ADJACENCIES, Release, round_multipliers_down
from privet.accounting.pld.interop import check_installed
from privet.accounting.privacy_unit import Unit, find_unit
from privet.accounting.queries import ACCOUNTANTS, DEFAULT_ACCOUNTANT, DIRECTIONS, composed_epsilon, composed_multiplier
from privet.accounting.root_finding import MOST_STEPS, largest_count
from privet.errors import InvalidArgumentError, between, choice, count, positive
from privet.noise import SOURCES, Correlated, Gaussian, NoiseMechanism, Participation, PastNoise
from privet.sampling import Scheme
from privet.sampling.scheme import check_declared
from privet.schedules import Factors, Schedule, factors_of, is_constant

_GUESSED_PER_OCTAVE = 16
# If every step has its own multiplier, every step is an entry of a table.
_MOST_SCHEDULED_STEPS = 2**20


@add
@dataclass(frozen=True)
class Epochs:
    """A training length in passes over the data: ⌊epochs · examples / batch size⌋ steps. `Plan.total_steps` counts them."""

    epochs: float  # > 0

    def __post_init__(self) -> None:
        positive("steps.epochs", self.epochs)

    def _refuse(self, *_: object) -> NoReturn:
        fix = "The plan's total_steps is one."
        raise InvalidArgumentError("steps", self, "a number", fix, "a length in epochs is not a number of steps")

    # What loops and learning-rate schedulers do with a number of steps.
    __rsub__ = __rtruediv__ = __rmod__ = __lt__ = __gt__ = __index__ = _refuse


def epochs(number: float) -> Epochs:
    """Return a training length of `number` epochs, for `Plan(steps=...)`. `Plan.total_steps` is the number of steps."""
    return Epochs(number)


@dataclass(frozen=True, kw_only=True)
class PrivacyMechanism:
    """Noised sums over sampled examples, regardless of the summands: everything that determines ε.

    A `privet.Plan` is a mechanism that also states the summands and their clipping; arguments are as there.

    >>> from privet.sampling import Poisson
    >>> asked = PrivacyMechanism(examples=60_000, sampling=Poisson(256), steps=3515, delta=1e-5, noise=Gaussian(multiplier=1.1))
    >>> round(asked.epsilon(), 2)
    1.13
    """

    examples: int
    sampling: Scheme
    steps: int | Epochs | None
    delta: float
    adjacency: str = "add-remove"
    noise: NoiseMechanism = field(default_factory=Gaussian)
    unit: str | Unit = "one example"
    # Of each plan, and no field: name of a schedule → its factors, if it is not constant and the number of steps is known.
    _tables: ClassVar[dict[str, Factors]]

    def __post_init__(self) -> None:
        count("examples", self.examples, minimum=2, fix="It is the public size of the training set.")
        check_type("sampling", self.sampling, Scheme, "privet.sampling.Poisson(batch_size=512)")
        check_type("noise", self.noise, NoiseMechanism, "privet.noise.Gaussian(multiplier=1.1), or leave it out and calibrate")
        check_own("noise", self.noise, "privet.noise.Gaussian")
        check_declared(self.sampling)
        self.sampling.rate(self.examples)
        self._check_steps()
        between("delta", self.delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
        choice("adjacency", self.adjacency, ADJACENCIES)
        find_unit(self.unit).check_adjacency(self.adjacency)
        if isinstance(self.noise, Correlated):
            self._fit(self.noise)
        object.__setattr__(self, "_tables", {})
        self._tabulate("noise.schedule", self.noise.schedule)

    def _tabulate(self, name: str, schedule: Schedule) -> None:
        """Keep the factors of a schedule: code of a user could return others later, and noise and accountant would differ."""
        if self.steps is not None and not is_constant(schedule):
            self._tables[name] = factors_of(name, schedule, self.total_steps)

    def _factors(self, name: str, schedule: Schedule, total: int) -> Factors:
        """Return the factors that the plan keeps; those for more steps than it has are asked for."""
        kept = self._tables.get(name)
        return kept if kept is not None and len(kept) == total else factors_of(name, schedule, total)

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same plan with another noise multiplier. Its schedules keep their factors."""
        changed = replace(self, noise=replace(self.noise, multiplier=multiplier))
        object.__setattr__(changed, "_tables", self._tables)
        return changed

    def _fit(self, noise: Correlated) -> None:
        """Replace correlated noise by the same with the numbers that depend on sampling and steps."""
        name = type(self.sampling).__name__
        if self.steps is not None:
            object.__setattr__(self, "noise", noise.fit(self.sampling.pattern(self.examples, self.total_steps), name))
            return
        single = self.sampling.pattern(self.examples, 1)
        noise.draft.fit(single, name)
        if single is not None and single.rate == 1 and not noise.by_epoch:
            allowed = f"a number or privet.epochs(n) with noise.{type(noise).__name__} and {name} sampling"
            fix = "One release covers all steps, so its ε does not say how many there are."
            raise InvalidArgumentError("steps", None, allowed, fix)

    def _participation(self, noise: Correlated, steps: int) -> Participation:
        found = self.sampling.pattern(self.examples, steps)
        assert found is not None, f"{noise} was fitted to this sampling"
        return found

    def _check_steps(self) -> None:
        if isinstance(self.steps, Epochs):
            if not 1 <= self.sampling.steps_in(self.steps.epochs, self.examples) < 2**31:
                an_epoch = self.sampling.steps_per_epoch(self.examples)
                fix = f"One epoch has {an_epoch:g} steps."
                raise InvalidArgumentError("steps", self.steps, "at least one step and less than 2**31", fix)
        elif self.steps is not None:
            count("steps", self.steps, fix="Give a number of steps, privet.epochs(n), or None to spend a budget.")

    @property
    def sampling_rate(self) -> float:
        """Sampling rate q: the probability that an example takes part in a step."""
        return self.sampling.rate(self.examples)

    @property
    def people(self) -> int:
        """Number of examples or users whose privacy is promised: more than `examples` if the units are groups."""
        return self.examples * find_unit(self.unit).size

    @property
    def total_steps(self) -> int:
        """Number of steps T, also where `steps` counts epochs; refused while `steps` is None."""
        if self.steps is None:
            fix = "Call .calibrate(epsilon=...) to solve for it."
            raise InvalidArgumentError("steps", None, "a number or privet.epochs(n)", fix)
        if isinstance(self.steps, Epochs):
            return math.floor(self.sampling.steps_in(self.steps.epochs, self.examples))
        return self.steps

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier σ: the standard deviation of the noise over the sensitivity; refused while the noise has none."""
        if self.noise.multiplier is None:
            fix = "Call .calibrate(epsilon=...) or give noise=privet.noise.Gaussian(multiplier)."
            raise InvalidArgumentError("noise.multiplier", None, "a number", fix)
        return float(self.noise.multiplier)

    @property
    def multiplier_moves(self) -> bool:
        """Whether noise multipliers vary over the steps."""
        return not is_constant(self.noise.schedule)

    @property
    def reasons_for_no_privacy(self) -> tuple[str, ...]:
        """Reasons why the mechanism has no privacy at any ε, in words; empty if it has."""
        reasons = {
            "no noise is added (multiplier 0)": self.noise_multiplier == 0.0,
            "the noise is the same on every run and known to everybody (a test source)": not SOURCES[self.noise.source].private,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    def multipliers(self) -> Factors:
        """Return the noise multiplier of each step, (T,). For correlated noise it is that of the independent noise Z."""
        return self._multipliers(self.total_steps)

    def events(self, steps: int | None = None) -> tuple[Release, ...]:
        """Return the first `steps` releases (default: all) for an accountant. Equal ones are counted together."""
        number = self.total_steps if steps is None else steps
        if number and isinstance(self.noise, Correlated):
            planned = self._participation(self.noise, max(self.total_steps, number))
            return (self.noise.event(planned, self._participation(self.noise, number)),)
        # Without a schedule, all steps are one event, so that 10⁹ steps need no list.
        if number and not self.multiplier_moves:
            together = self.sampling.participation(self.examples, number)
            return (self.sampling.event(self.examples, self.noise_multiplier, together),)
        return self.sampling.events(self.examples, self._multipliers(max(self.total_steps, number))[:number])

    def begin_noise(self) -> PastNoise | None:
        """Return the state of the noise before the first step of a run; None if steps have independent noise."""
        if not isinstance(self.noise, Correlated):
            return None
        return self.noise.begin(self._participation(self.noise, self.total_steps))

    def accumulated_noise(self) -> float:
        """Return the standard deviation of the sum of the noise of all steps, over the sensitivity of one step."""
        multipliers = self.multipliers()
        if isinstance(self.noise, Correlated):
            return float(multipliers[0]) * self.noise.error(self.total_steps)
        return float(np.linalg.norm(multipliers))

    def check_covered(self) -> None:
        """Refuse a sampling scheme that no accountant knows, unless the plan has no privacy anyway. The error names the fix."""
        if not self.reasons_for_no_privacy:
            check_installed(self.events())

    def epsilon(self, accountant: str = "pld", *, steps: int | None = None) -> float:
        """Return ε at this δ after `steps` steps (default: all); arguments as for `privet.Plan.epsilon`."""
        choice("accountant", accountant, ACCOUNTANTS)
        spent = math.inf
        if not self.reasons_for_no_privacy:
            events = self.events(steps)
            spent = composed_epsilon(events, delta=self.delta, adjacency=self.adjacency, accountant=accountant)
        self.sampling.check_adjacency(self.adjacency)
        return spent

    def calibrate(self, epsilon: float, *, accountant: str | None = None) -> Self:
        """Return a new plan that meets (ε, δ); arguments as for `privet.Plan.calibrate`."""
        target = positive("epsilon", epsilon)
        self.sampling.check_adjacency(self.adjacency)
        by = DEFAULT_ACCOUNTANT if accountant is None else accountant
        bounds = tuple(name for name, direction in DIRECTIONS.items() if direction == "upper bound")
        choice("accountant", by, bounds, "Only an upper bound can be a target.")
        open_noise, open_steps = self.noise.multiplier is None, self.steps is None
        if open_noise and open_steps:
            fix = "One of noise and steps is solved for, not both."
            raise InvalidArgumentError("steps", None, "given when the noise is not", fix)
        if not open_noise and not open_steps:
            fix = "Leave out the noise (or its multiplier), or set steps=None; exactly one is solved for."
            raise InvalidArgumentError("epsilon", epsilon, "left out when noise and steps are both given", fix)
        if open_steps:
            return self._solve_for_steps(target, by)
        multiplier = composed_multiplier(
            lambda multiplier: self.with_multiplier(multiplier).events(),
            epsilon=target, delta=self.delta, adjacency=self.adjacency, accountant=by,
        )  # fmt: skip
        return self.with_multiplier(multiplier)

    def _solve_for_steps(self, target: float, accountant: str) -> Self:
        positive("noise.multiplier", self.noise_multiplier, "Without noise no number of steps meets a target.")
        asked, correlated = self._simplify(), isinstance(self.noise, Correlated)

        def spent(number: int, change: Callable[[Iterable[Release]], Iterable[Release]] = tuple) -> float:
            events = change(replace(asked, steps=number).events())
            return composed_epsilon(events, delta=self.delta, adjacency=self.adjacency, accountant=accountant)

        most, start = _MOST_SCHEDULED_STEPS if self.multiplier_moves or correlated else MOST_STEPS, 1
        if self.multiplier_moves:
            # With few distinct multipliers, rounded down, the search is fast, and ends at most a few per cent below the solution.
            coarsely = partial(round_multipliers_down, per_octave=_GUESSED_PER_OCTAVE)
            with suppress(InvalidArgumentError):  # rounding alone may exceed the target
                start = min(largest_count(lambda number: spent(number, coarsely), target, most), most - 1)
        return replace(self, steps=largest_count(spent, target, most, start))

    def _simplify(self) -> Self:
        """Return a plan with the same ε after any number of steps, which is faster to make."""
        return replace(self, noise=self.noise.draft) if isinstance(self.noise, Correlated) else self

    def _multipliers(self, total: int) -> Factors:
        if isinstance(self.noise, Correlated):
            return np.full(total, self.noise_multiplier * self.noise.gain(self._participation(self.noise, total)))
        return self.noise_multiplier * self._factors("noise.schedule", self.noise.schedule, total)


def check_type(name: str, value: object, base: type[Any], example: str) -> None:
    """Refuse a value that is not an instance of a class."""
    if not isinstance(value, base):
        raise InvalidArgumentError(name, value, f"a value such as {example}")


def check_own(name: str, value: object, example: str) -> None:
    """Refuse a kind derived from one of those that only Privet defines: its methods would run unseen by the accountant."""
    kind = type(value)
    if PARTS.get(kind.__name__) is not kind:
        fix = "A class of your own cannot be accounted for."
        raise InvalidArgumentError(name, kind.__name__, f"a kind that Privet defines, such as {example}", fix)
