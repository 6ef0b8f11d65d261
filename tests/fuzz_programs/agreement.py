"""Hold the library against one example at a time on a program, and count how it went."""

import itertools
import warnings
from collections import Counter
from dataclasses import dataclass, field

import one_at_a_time
import torch
from programs import Program, loss_fn

import privet
from privet.clipping.clipped_sum import ClippedSum
from privet.gradients import clipped_sum, per_example_norms
from privet.gradients.core.randomness import draw_torch_seed

# Precision → largest relative error, step of the values that tells how well conditioned a program is, largest effect of it.
ROUNDING = {torch.float64: (1e-7, 1e-12, 1e-7), torch.float32: (2e-4, 3e-7, 1e-4)}


class UnsuitableError(Exception):
    """A program that torch itself does not run on one example, that has no gradient, or that is not well conditioned."""


@dataclass
class Tally:
    """How programs fared."""

    ways: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    unsuitable: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> float:
        """Return the share of programs that were refused."""
        return self.ways["refused"] / max(1, self.ways.total())

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in self.ways.most_common())
        unsuitable = ", ".join(f"{count} {why}" for why, count in self.unsuitable.most_common())
        refusals = (f"{n} × {why}" for why, n in self.refusals.items())
        return "\n".join([f"{self.ways.total()} programs: {ways}", f"left out: {unsuitable}", *refusals])


def expected_gradients(program: Program, shifts: bool = True) -> one_at_a_time.Gradients:
    """Return the gradients of every example by itself.

    Args:
        program: what is computed.
        shifts: whether it is computed at slightly shifted values too, to find that it is not well conditioned.

    Raises:
        UnsuitableError: there is nothing to compare with.
    """
    _, step, effect = ROUNDING[program.dtype]
    try:
        expected = one_at_a_time.gradients(program)
    except (RuntimeError, ValueError, IndexError) as reason:
        raise UnsuitableError("torch does not run one example") from reason
    if not expected:
        raise UnsuitableError("no parameters")
    norms = one_at_a_time.norms(expected)
    if not norms.isfinite().all() or float(norms.max()) == 0 or float(norms.max()) > 1e12:
        raise UnsuitableError("no gradient or no finite one")
    others = [one_at_a_time.gradients(program, shift=sign * step) for sign in (1, -1) if shifts]
    if program.dtype == torch.float32:  # where rounding alone moves what a shift in float64 does not, such as (x + 0.3) - x
        others += [one_at_a_time.gradients(program, torch.float32, shift=sign * step) for sign in (0, 1, -1)]
    for other in others:
        moved = one_at_a_time.norms({name: other[name].double() - expected[name] for name in expected})
        if not bool((moved <= effect * norms.clamp(min=float(norms.max()) * 1e-3)).all()):
            raise UnsuitableError("a kink or ill conditioned")
    return expected


def hold(program: Program, tally: Tally, method: str = "auto", shifts: bool = True) -> None:
    """Assert that the library's sum, norms and contributions are those of one example at a time, and that nothing else moved.

    Args:
        program: what is tried.
        tally: where it is counted.
        method: how the library is asked to compute.
        shifts: as of `expected_gradients`.

    Raises:
        UnsuitableError: there is nothing to compare with.
        AssertionError: the library is wrong.
    """
    expected = expected_gradients(program, shifts)
    norms, (tolerance, _, _) = one_at_a_time.norms(expected), ROUNDING[program.dtype]
    bound = program.bound * float(norms[norms > 0].median())
    model, batch = program.model(), program.batch()
    passes = itertools.count()  # a plain number would be put back after every pass
    before, state = one_at_a_time.snapshot(model), torch.get_rng_state()

    def counted(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        next(passes)
        return loss_fn(model, batch)

    def asked(some: dict[str, torch.Tensor]) -> ClippedSum:
        return clipped_sum(
            model, counted, some, privet.clipping.Flat(bound=bound), method=method, physical_batch_size=program.part
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = asked(batch)
        except privet.errors.PrivetError as refusal:
            tally.ways["refused"] += 1
            tally.refusals[f"{type(refusal).__name__}: {str(refusal)[:100]}"] += 1
            assert one_at_a_time.snapshot(model) == before, "a refusal left something in the model"
            return
        taken, parts = next(passes), -(-program.sizes.B // (program.part or program.sizes.B))
        tally.ways["one at a time" if taken >= program.sizes.B > parts else "in groups" if taken > parts else "in one pass"] += 1
        position = program.seed % program.sizes.B
        rest = [i for i in range(program.sizes.B) if i != position]
        neighbour = asked({name: value[rest] for name, value in batch.items()})
        measured = per_example_norms(model, loss_fn, batch, method=method, physical_batch_size=program.part)
    wanted = one_at_a_time.clipped_sum(expected, bound)
    scale = float(norms.clamp(max=bound).sum())
    error = one_at_a_time.distance(found.tensors, wanted) / scale
    assert error <= tolerance, f"the sum is off by {error:.3g} of what was added"
    moved = one_at_a_time.distance(found.tensors, neighbour.tensors)
    assert moved <= bound * (1 + 1e-6), f"example {position} moved the sum by {moved / bound:.6g} bounds"
    off = float(((measured.double() - norms).abs() / norms.max()).max())
    assert off <= tolerance, f"a norm is off by {off:.3g} of the largest"
    moved_on = torch.get_rng_state()
    torch.set_rng_state(state)
    for _ in range(3):  # each call of a public function draws one seed
        draw_torch_seed()
    assert torch.equal(torch.get_rng_state(), moved_on), "the user's generator moved"
    assert one_at_a_time.snapshot(model) == before, "something in the model is not as it was"


def smallest_failure(program: Program, method: str = "auto") -> Program:
    """Return a program that fails with as many lines left out as can be, everything else alike."""

    def fails(candidate: Program) -> bool:
        try:
            hold(candidate, Tally(), method)
        except UnsuitableError:
            return False
        except Exception:  # whatever is wrong with it
            return True
        return False

    k = len(program.lines)
    while k and len(program.lines) > 1:
        k -= 1
        shorter = program.without(k)
        if shorter.results() and fails(shorter):
            program, k = shorter, len(shorter.lines)
    return program
