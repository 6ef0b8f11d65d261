"""The plan: one frozen value that holds everything the guarantee depends on, and derives all that must agree.

Sampler, sampling rate, sensitivity, noise standard deviation, divisor, accounting events and the printed statement all come
from here; none is typed twice. What does not change the promise (physical batch size, device, progress) lives elsewhere.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from privet import accounting
from privet._utils import documents
from privet._utils.encoding import construct, encode
from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.pld.interop import check_installed
from privet.clipping import Projected, Rule
from privet.errors import InvalidArgumentError, between, choice, count, positive
from privet.momentum import MOMENTA, Momentum, PerExample
from privet.noise import Gaussian
from privet.plan import promise, solving
from privet.plan.length import Epochs
from privet.plan.registry import PARTS, check_kinds, check_registered
from privet.sampling import Scheme
from privet.schedules import Constant, Factors, Schedule
from privet.sparsification import Sparsification, Timetable

FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """What will be trained on, how often, how bounded and how noised: the promise, before any data is touched.

    Args:
        examples: public number of examples N ≥ 2 the guarantee is stated for; training refuses a data set of another size. If
            users or groups are clipped as one (see `privet.units`), it is their number.
        sampling: who takes part in a step, such as `privet.sampling.Poisson(batch_size=512)`.
        steps: number of steps, `privet.epochs(n)`, or None to let `calibrate` spend a budget with given noise.
        clipping: how contributions are bounded, such as `privet.clipping.Flat(bound=0.3)`.
        delta: δ in (0, 1), below 1/N unless `accept_large_delta`.
        adjacency: "add-remove", "replace-one" or "zero-out": how neighbouring data sets differ.
        noise: `privet.noise.Gaussian(multiplier=...)`; without a multiplier `calibrate` finds it.
        bound_schedule: factor of the rule's bound at every step, such as `privet.schedules.Geometric()`.
        momentum: of the gradients, beside the optimizer's own: `privet.momentum.InnerOuter(...)`, `PerExample(...)` or None.
        accept_large_delta: allow δ ≥ 1/N, at which a mechanism may publish somebody's data outright.
        sparsification: which coordinates a step leaves out, such as `privet.sparsification.Random(final_rate=0.9)`; or None.
        unit: whose privacy it is: "one example", "one user", or that of a `privet.units.Groups`; training refuses a data set of
            other units.

    Raises:
        InvalidArgumentError: an argument is out of range, or two do not go together.

    >>> from privet import clipping, noise, sampling
    >>> plan = Plan(
    ...     examples=60_000, sampling=sampling.Poisson(batch_size=256), steps=3515, clipping=clipping.Flat(bound=1.0),
    ...     delta=1e-5, noise=noise.Gaussian(multiplier=1.1),
    ... )
    >>> round(plan.epsilon(), 2)
    1.13
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    examples: int
    sampling: Scheme
    steps: int | Epochs | None
    clipping: Rule
    delta: float
    adjacency: str = "add-remove"
    noise: Gaussian = field(default_factory=Gaussian)
    bound_schedule: Schedule = field(default_factory=Constant)
    momentum: Momentum | None = None
    accept_large_delta: bool = False
    sparsification: Sparsification | None = None
    unit: str = "one example"

    def __post_init__(self) -> None:
        count("examples", self.examples, minimum=2, fix="It is the public size of the training set.")
        _instance("sampling", self.sampling, Scheme, "privet.sampling.Poisson(batch_size=512)")
        _instance("clipping", self.clipping, Rule, "privet.clipping.Flat(bound=1.0)")
        _instance("noise", self.noise, Gaussian, "privet.noise.Gaussian(multiplier=1.1), or leave it out and calibrate")
        _instance("bound_schedule", self.bound_schedule, Schedule, "privet.schedules.Geometric()")
        if self.sparsification is not None:
            _instance("sparsification", self.sparsification, Sparsification, "privet.sparsification.Random(final_rate=0.9)")
        _instance("momentum", self.momentum, (*MOMENTA.values(), type(None)), "privet.momentum.InnerOuter(0.9, 0.1, 2)")
        choice("adjacency", self.adjacency, accounting.ADJACENCIES)
        self._check_rule()
        accounting.unit(self.unit).check_adjacency(self.adjacency)
        self.sampling.rate(self.examples)
        if isinstance(self.momentum, PerExample) and self.sampling_rate < 1:
            raise InvalidArgumentError(
                "momentum", "PerExample", "used with full batches, sampling rate 1: every average must see every step",
                "Make the batch size the number of examples, or choose privet.momentum.InnerOuter.",
            )  # fmt: skip
        if self.sparsification is not None and isinstance(self.clipping, Projected):
            raise InvalidArgumentError(
                "sparsification", self.sparsification, "left out with clipping.Projected", "Its estimates are of whole norms."
            )
        if isinstance(self.momentum, PerExample) and isinstance(self.clipping, Projected):
            raise InvalidArgumentError(
                "clipping", self.clipping, "a rule of exact norms with momentum.PerExample, which has every gradient at hand"
            )
        between("delta", self.delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
        if not isinstance(self.accept_large_delta, bool):
            raise InvalidArgumentError("accept_large_delta", self.accept_large_delta, "True or False")
        if self.delta * self.people >= 1 and not self.accept_large_delta:
            raise InvalidArgumentError(
                "delta", self.delta, f"below 1 / examples = {1 / self.people:.3g}",
                "Publishing one random record outright would satisfy it; lower it, or say accept_large_delta=True.",
            )  # fmt: skip
        if isinstance(self.steps, Epochs):
            if not 1 <= self.sampling.steps_in(self.steps.epochs, self.examples) < 2**31:
                an_epoch = self.sampling.steps_per_epoch(self.examples)
                raise InvalidArgumentError(
                    "steps", self.steps, "at least one step and less than 2**31", f"One epoch has {an_epoch:g} steps."
                )
        elif self.steps is not None:
            count("steps", self.steps, fix="Give a number of steps, privet.epochs(n), or None to spend a budget.")
        if self.adjacency in self.sampling.refused and self.noise.multiplier is not None and self.steps is not None:
            self.epsilon()  # refuses with the size of the error that accounting for another scheme would make
        self.sampling.check_adjacency(self.adjacency)

    def _check_rule(self) -> None:
        rule = self.clipping
        positive("clipping.sensitivity", rule.sensitivity, "Noise is scaled to it.")
        if rule.adaptive and not isinstance(self.bound_schedule, Constant):
            raise InvalidArgumentError(
                "bound_schedule", self.bound_schedule, f"left out with {type(rule).__name__}", "It moves the bound by itself."
            )
        if rule.adaptive and self.noise.deviation != "follows the bound":
            raise InvalidArgumentError(
                "noise.deviation", self.noise.deviation, f"'follows the bound' with {type(rule).__name__}",
                "Where its bound will go is not known in advance, so no multiplier could make up for it.",
            )  # fmt: skip

    @property
    def sampling_rate(self) -> float:
        """q, the probability that an example takes part in a step."""
        return self.sampling.rate(self.examples)

    @property
    def people(self) -> int:
        """Examples or users whose privacy is promised: more than `examples` if those are groups."""
        return self.examples * accounting.unit(self.unit).size

    @property
    def divisor(self) -> float:
        """What every noised sum is divided by: the expected batch size, a public constant."""
        return self.sampling.expected_batch_size(self.examples)

    @property
    def total_steps(self) -> int:
        """Number of steps T.

        Raises:
            InvalidArgumentError: `steps` is None, to be solved for by `calibrate`.
        """
        if self.steps is None:
            raise InvalidArgumentError(
                "steps", None, "a number or privet.epochs(n)", "Call .calibrate(epsilon=...) to solve for it."
            )
        if isinstance(self.steps, Epochs):
            return math.floor(self.sampling.steps_in(self.steps.epochs, self.examples))
        return self.steps

    @property
    def noise_multiplier(self) -> float:
        """σ, noise standard deviation over sensitivity.

        Raises:
            InvalidArgumentError: the noise has no multiplier yet.
        """
        if self.noise.multiplier is None:
            raise InvalidArgumentError(
                "noise.multiplier",
                None,
                "a number",
                "Call .calibrate(epsilon=...) or give noise=privet.noise.Gaussian(multiplier).",
            )
        return float(self.noise.multiplier)

    @property
    def multiplier_moves(self) -> bool:
        """Whether steps have noise multipliers of their own, by a schedule of the noise or of a bound that the noise ignores."""
        shrinking = self.noise.deviation == "fixed" and not isinstance(self.bound_schedule, Constant)
        return shrinking or not isinstance(self.noise.schedule, Constant)

    def multipliers(self) -> Factors:
        """Return the noise multiplier of every step, (T,): noise standard deviation over that step's sensitivity."""
        return self._multipliers(self.total_steps)

    def bound_factors(self) -> Factors:
        """Return what the rule's bound is multiplied by at every step, (T,)."""
        return self.bound_schedule.factors(self.total_steps)

    def timetable(self) -> Timetable | None:
        """Return which steps share a mask; None without sparsification."""
        if self.sparsification is None:
            return None
        epoch = Fraction(self.examples) / Fraction(self.sampling.expected_batch_size(self.examples))
        return Timetable(self.sparsification.refresh, epoch, self.total_steps)

    def gradient_deviations(self) -> Factors:
        """Return the standard deviation σ·sensitivity/B of the noise on the divided gradient's coordinates at every step, (T,).

        It is that of parameters whose noise scale is 1; rounding to the grid adds less than one part in 10⁴.

        Raises:
            InvalidArgumentError: the rule adapts its bound to what is released, so that nobody knows it ahead.
        """
        if self.clipping.adaptive:
            raise InvalidArgumentError(
                "clipping", self.clipping, "a rule whose bound is known ahead", "An adaptive one finds it while training."
            )
        return self.multipliers() * self.bound_factors() * (self.clipping.sensitivity / self.divisor)

    def events(self, steps: int | None = None) -> tuple[accounting.Release, ...]:
        """Return what an accountant is told: the first `steps` releases (all of them by default), equal ones counted together."""
        number = self.total_steps if steps is None else steps
        events = self._alike(number) or self.sampling.events(
            self.examples, self._multipliers(max(self.total_steps, number))[:number]
        )
        if not isinstance(self.clipping, Projected):
            return events
        if any(not isinstance(event, accounting.Event) for event in events):
            raise InvalidArgumentError(
                "clipping", "Projected", f"used with Poisson or FullBatch sampling, not {type(self.sampling).__name__}",
                "No accountant averages over the law of estimated norms for other samples.",
            )  # fmt: skip
        return tuple(replace(event, projections=self.clipping.projections) for event in events)  # type: ignore[arg-type]

    def check_covered(self) -> None:
        """Refuse a sampling scheme whose ε nobody can compute, or nobody here, unless nothing is private anyway.

        Training asks before it starts.

        Raises:
            InvalidArgumentError: naming the scheme and the fix.
        """
        if not promise.no_privacy(self):
            check_installed(self.events())

    def epsilon(self, accountant: str = "pld", *, steps: int | None = None) -> float:
        """Return ε at this plan's δ after `steps` steps (all of them by default); infinity without private noise.

        Args:
            accountant: "pld" (default), "rdp", "moments", "strong" or "basic" (upper bounds, from tight to loose), or "gdp"
                (approximation that can be too small).
            steps: how many releases to count.

        Raises:
            InvalidArgumentError: the accountant has no bound for what is released; `privet.accounting.compare` says which have.
        """
        if promise.no_privacy(self):
            choice("accountant", accountant, accounting.ACCOUNTANTS)
            return math.inf
        events = self.events(steps)
        return accounting.composed_epsilon(events, delta=self.delta, adjacency=self.adjacency, accountant=accountant)

    def calibrate(self, epsilon: float, *, accountant: str | None = None) -> Plan:
        """Return a new plan that meets (ε, δ), solving for whichever of noise and steps was left open.

        Args:
            epsilon: target ε > 0, never exceeded.
            accountant: which ε is to meet it, any upper bound; by default the tightest that is sound at this δ.

        Raises:
            InvalidArgumentError: both or neither are open, or the target cannot be met.
        """
        return solving.solved(self, epsilon, accountant)

    def guarantee(self, *, steps: int | None = None, accountant: str | None = None) -> Guarantee:
        """Return the statement of what this plan promises after `steps` steps (all of them by default).

        Args:
            steps: how many releases to count.
            accountant: which ε is promised; by default the tightest bound that is sound at this δ.
        """
        return promise.guarantee(self, steps, accountant)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {"format": FORMAT, **{f.name: encode(getattr(self, f.name)) for f in fields(self)}}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the plan as a JSON object; `from_json` gives an equal plan back, to the last bit."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote.

        Raises:
            InvalidArgumentError: the text is not a plan, lacks a field without a default, has an unknown one, or another format.
        """
        try:
            data = documents.from_json(text)
        except documents.DocumentError as error:
            raise InvalidArgumentError("plan", text[:40], "a JSON object", f"{error}.") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> Plan:
        """Return the plan that `to_dict` gave; errors as for `from_json`."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else data
            raise InvalidArgumentError("plan.format", found, str(FORMAT), "It was written by another version, or is not a plan.")
        check_kinds(data)
        plan: Plan = construct(cls, "plan", {name: value for name, value in data.items() if name != "format"}, PARTS)
        return plan

    def check_readable(self) -> None:
        """Refuse a plan that its JSON does not give back: a run of it could spend, and then not be resumed.

        Raises:
            InvalidArgumentError: naming the part that is of a kind which is not known, or does not come back as it was.
        """
        for each in fields(self):
            check_registered(f"plan.{each.name}", getattr(self, each.name))
        try:
            same = Plan.from_json(self.to_json()) == self
        except (TypeError, ValueError):  # what JSON has no word for; InvalidArgumentError, too
            same = False
        if not same:
            raise InvalidArgumentError(
                "plan", "not what its JSON gives back", "made of numbers, text, tuples and such values",
                "A run of it could not be resumed; see Plan.to_json.",
            )  # fmt: skip

    def _alike(self, steps: int) -> tuple[accounting.Release, ...]:
        """Return the first steps as one event if no schedule tells them apart, so that a question about 10⁹ needs no list."""
        if self.multiplier_moves or not steps:
            return ()
        return (self.sampling.event(self.examples, self.noise_multiplier, self.sampling.participation(self.examples, steps)),)

    def _multipliers(self, total: int) -> Factors:
        multipliers = self.noise_multiplier * self.noise.schedule.factors(total)
        if self.noise.deviation == "fixed":
            bounds = self.bound_schedule.factors(total)
            multipliers = multipliers * (bounds[0] / bounds)
        return multipliers


def _instance(name: str, value: object, kinds: type | tuple[type, ...], example: str) -> None:
    if not isinstance(value, kinds):
        raise InvalidArgumentError(name, value, f"a value such as {example}")
