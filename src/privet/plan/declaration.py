"""The declaration: all fields of a plan, their joint constraints, and the numbers derived from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from privet import accounting
from privet._utils.registry import Part
from privet.accounting.events import MULTIPLIER_RANGE, Release
from privet.accounting.privacy_unit import Unit
from privet.accounting.queries import DEFAULT_ACCOUNTANT, composed_epsilon
from privet.clipping import Projected, Rule
from privet.clipping.rules import unbounded
from privet.errors import InvalidArgumentError, positive
from privet.momentum import Momentum
from privet.noise import Correlated
from privet.plan.mechanism import PrivacyMechanism, check_own, check_type
from privet.plan.queries import ClassCounts, Holdout
from privet.sampling import Scheme
from privet.schedules import Constant, Factors, Schedule, is_constant
from privet.sparsification import Sparsification
from privet.sparsification.embeddings import RowSelection
from privet.sparsification.kinds import Timetable
from privet.tables import Schema

_EXAMPLES = {
    "clipping": "privet.clipping.Flat(bound=1.0)",
    "bound_schedule": "privet.schedules.Geometric()",
    "momentum": "privet.momentum.InnerOuter(0.9, 0.1, 2)",
    "sparsification": "privet.sparsification.Random(final_rate=0.9)",
    "embeddings": "privet.sparsification.AdaFEST(tables=('words.weight',), threshold=10.0)",
    "schema": "privet.tables.Schema.read('schema.toml')",
}
_OPTIONAL = ("momentum", "sparsification", "embeddings", "schema")
_QUERIES: dict[str, type[Any]] = {"holdout": Holdout, "class_counts": ClassCounts}


@dataclass(frozen=True, kw_only=True)
class Declaration(PrivacyMechanism):
    """A mechanism and the sum that it releases: the fields of a plan; see `privet.Plan`."""

    # Field → base class of its values. `privet.register` adds a user's kinds.
    BASES: ClassVar[dict[str, type[Any]]] = {
        "sampling": Scheme,
        "clipping": Rule,
        "bound_schedule": Schedule,
        "momentum": Momentum,
        "sparsification": Sparsification,
        "embeddings": RowSelection,
        "unit": Unit,
        "schema": Schema,
        **_QUERIES,
    }

    clipping: Rule
    bound_schedule: Schedule = field(default_factory=Constant)
    momentum: Momentum | None = None
    accept_large_delta: bool = False
    sparsification: Sparsification | None = None
    embeddings: RowSelection | None = None
    holdout: Holdout | None = None
    class_counts: ClassCounts | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schema, str | Path):
            object.__setattr__(self, "schema", Schema.read(self.schema))
        for name, example in _EXAMPLES.items():
            if getattr(self, name) is not None or name not in _OPTIONAL:
                check_type(name, getattr(self, name), self.BASES[name], example)
        for name, kind in _QUERIES.items():
            if getattr(self, name) is not None:
                check_type(name, getattr(self, name), kind, f"privet.plan.{kind.__name__}.calibrate(...)")
                check_own(name, getattr(self, name), f"privet.plan.{kind.__name__}")
        self._tabulate("bound_schedule", self.bound_schedule)
        positive("clipping.sensitivity", self.clipping.sensitivity, "Noise is scaled to it.")
        if not isinstance(self.accept_large_delta, bool):
            raise InvalidArgumentError("accept_large_delta", self.accept_large_delta, "True or False")
        if self.delta * self.people >= 1 and not self.accept_large_delta:
            fix = "Publishing one random record outright would satisfy it; lower it, or say accept_large_delta=True."
            raise InvalidArgumentError("delta", self.delta, f"below 1 / examples = {1 / self.people:.3g}", fix)
        self.sampling.check_adjacency(self.adjacency)
        for name, base in self.BASES.items():
            part = getattr(self, name)
            if isinstance(part, Part):
                if issubclass(base, Part):
                    base.check_combination(part, self)  # what training relies on, also where a kind of a user overrides it
                part.check_combination(self)
        self.noise.check_combination(self)
        self._check_factors()

    @property
    def people(self) -> int:
        """Number of examples or users whose privacy is promised: all that are trained on or held out."""
        return super().people + (0 if self.holdout is None else self.holdout.examples)

    @property
    def queries(self) -> dict[str, float]:
        """Name → noise multiplier of each query."""
        return {query.NAME: query.multiplier for query in (self.class_counts, self.holdout) if query is not None}

    @property
    def divisor(self) -> float:
        """Divisor of every noised sum: the expected batch size, a public constant."""
        return self.sampling.expected_batch_size(self.examples)

    @property
    def multiplier_moves(self) -> bool:
        """Whether noise multipliers vary over the steps, by a schedule of the noise or of a bound that it does not follow."""
        return super().multiplier_moves or (self.noise.deviation == "fixed" and not is_constant(self.bound_schedule))

    @property
    def reasons_for_no_privacy(self) -> tuple[str, ...]:
        """Reasons why the plan has no privacy at any ε, in words; empty if it has."""
        if not unbounded(self.clipping):
            return super().reasons_for_no_privacy
        unclipped = "NOTHING IS CLIPPED: one example can move what is released without limit, whatever the noise"
        return (unclipped, *super().reasons_for_no_privacy)

    def bound_factors(self) -> Factors:
        """Return the factor of the rule's bound at every step, (T,)."""
        return self._factors("bound_schedule", self.bound_schedule, self.total_steps)

    def timetable(self) -> Timetable | None:
        """Return the steps that share a mask; None without sparsification."""
        if self.sparsification is None:
            return None
        epoch = Fraction(self.examples) / Fraction(self.sampling.expected_batch_size(self.examples))
        return Timetable(self.sparsification.refresh, epoch, self.total_steps)

    def gradient_deviations(self) -> Factors:
        """Return σ·sensitivity/B, the standard deviation of the noise on a coordinate of the divided sum, at every step, (T,).

        It holds for released coordinates of parameters whose noise scale is 1. Rounding to the grid adds less than one part in
        10⁴. A rule that adapts its bound is refused.
        """
        if self.clipping.adaptive:
            fix = "An adaptive one finds it while training."
            raise InvalidArgumentError("clipping", self.clipping, "a rule whose bound is known ahead", fix)
        spread = self.noise.spread(self.total_steps) if isinstance(self.noise, Correlated) else 1.0
        if self.embeddings is not None:
            spread /= math.sqrt(self.embeddings.gradient_share)
        return self.multipliers() * spread * self.bound_factors() * (self.clipping.sensitivity / self.divisor)

    def step_events(self, steps: int | None = None) -> tuple[Release, ...]:
        """Return the releases of the first `steps` steps (default: all) for an accountant. Equal ones are counted together."""
        events = super().events(steps)
        if not isinstance(self.clipping, Projected):
            return events
        if any(not isinstance(event, accounting.Event) for event in events):
            allowed = f"used with Poisson or FullBatch sampling, not {type(self.sampling).__name__}"
            fix = "No accountant averages over the law of estimated norms for other samples."
            raise InvalidArgumentError("clipping", "Projected", allowed, fix)
        return tuple(replace(event, projections=self.clipping.projections) for event in events)  # type: ignore[arg-type]

    def events(self, steps: int | None = None) -> tuple[Release, ...]:
        """Return all releases of training entries: the class counts, if any, and the first `steps` steps (default: all)."""
        counts = () if self.class_counts is None else (self.class_counts.event,)
        return (*counts, *self.step_events(steps))

    def parts(self, steps: int | None = None) -> tuple[tuple[Release, ...], ...]:
        """Return the releases on each disjoint part of the data: on training entries, and on held-out ones if there are any."""
        training = self.events(steps)
        return (training,) if self.holdout is None else (training, (self.holdout.event,))

    def epsilon(self, accountant: str = "pld", *, steps: int | None = None) -> float:
        """Return ε at this δ after `steps` steps (default: all) and all queries; infinity without private noise.

        Args:
            accountant: "pld" (default), "rdp", "moments", "strong" or "basic", which are upper bounds, from tight to loose; or
                "gdp", an approximation that can be too small.
            steps: number of steps to count.

        Raises:
            InvalidArgumentError: no bound is known for these releases and this adjacency. `privet.accounting.compare` lists the
                accountants that have one. For shuffled batches, the message states the error of assuming Poisson sampling.
        """
        return max(super().epsilon(accountant, steps=steps), self.holdout_epsilon(accountant))

    def calibrate(self, epsilon: float, *, accountant: str | None = None) -> Self:
        """Return a new plan that meets (ε, δ) with all queries: solve for noise or steps, whichever is open.

        Args:
            epsilon: target ε > 0, never exceeded.
            accountant: an accountant with an upper bound, which must meet the target; default: the tightest.

        Raises:
            InvalidArgumentError: both or neither are open, nothing is clipped, or the target cannot be met.
        """
        if unbounded(self.clipping):
            fix = "Without one no noise meets a target."
            raise InvalidArgumentError("clipping", self.clipping, "a rule that bounds what an example contributes", fix)
        solved = super().calibrate(epsilon, accountant=accountant)
        held_out = solved.holdout_epsilon(DEFAULT_ACCOUNTANT if accountant is None else accountant)
        if held_out > epsilon:
            fix = "The larger of the two is the total."
            raise InvalidArgumentError("the ε of plan.holdout", held_out, f"at most the target, {epsilon:g}", fix)
        return solved

    def _simplify(self) -> Self:
        simpler = super()._simplify()
        # A table of the bounds of 10⁹ steps says nothing of ε.
        return simpler if simpler.multiplier_moves else replace(simpler, bound_schedule=Constant())

    def holdout_epsilon(self, accountant: str = "pld") -> float:
        """Return ε at this δ of the query on held-out entries alone; 0 without such a query."""
        released = () if self.holdout is None else (self.holdout.event,)
        return composed_epsilon(released, delta=self.delta, adjacency=self.adjacency, accountant=accountant)

    def _check_factors(self) -> None:
        """Refuse factors with which a step's bound or multiplier is out of range, before a step that needs it is paid for."""
        if self.steps is None:
            return
        if not is_constant(self.bound_schedule):
            for factor in (float(choose(self.bound_factors())) for choose in (np.min, np.max)):
                try:
                    self.clipping.scale_bound(factor)
                except InvalidArgumentError as error:
                    allowed = "a factor that the clipping rule's bound can be multiplied by"
                    raise InvalidArgumentError("bound_schedule", factor, allowed, str(error)) from None
        if self.noise.multiplier and self.multiplier_moves:
            low, high = MULTIPLIER_RANGE
            for multiplier in (float(choose(self.multipliers())) for choose in (np.min, np.max)):
                if not low <= multiplier <= high:
                    fix = "It is noise.multiplier times noise.schedule and, with a fixed deviation, over bound_schedule."
                    raise InvalidArgumentError("the noise multiplier of a step", multiplier, f"between {low:g} and {high:g}", fix)

    def _multipliers(self, total: int) -> Factors:
        multipliers = super()._multipliers(total)
        if self.noise.deviation == "fixed":
            bounds = self._factors("bound_schedule", self.bound_schedule, total)
            multipliers = multipliers * (bounds[0] / bounds)
        return multipliers
