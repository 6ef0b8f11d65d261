"""Faults in what is clipped as one: the sum over the rows of a unit, and their order."""

from mutant import Mutant, in_conformance

TAPE = "test_the_tape_gives_a_units_gradient_for_every_model"


def units(*cases: str) -> tuple[str, ...]:
    """Units of several rows against a loop over their rows."""
    return in_conformance("test_units", *(f"{TAPE}[{name}]" for name in cases))


MUTANTS = [
    Mutant(
        "rows that are formed are averaged",
        "combine/rows.py",
        "return rows.reshape(-1, size, *rows.shape[1:]).sum(1)",
        "return rows.reshape(-1, size, *rows.shape[1:]).mean(1)",
        units("conv2d few positions, wide"),
    ),
    Mutant(
        "rows of other units are joined",
        "combine/rows.py",
        "return rows.reshape(-1, size, *rows.shape[1:]).sum(1)",
        "return rows.reshape(size, -1, *rows.shape[1:]).sum(0)",
        units("conv2d few positions, wide"),
    ),
    Mutant(
        "each row is weighted as if it were another unit's",
        "combine/rows.py",
        "self.inner.weighted_sum(weights.repeat_interleave(self.size))",
        "self.inner.weighted_sum(weights.repeat(self.size))",
        units("conv2d few positions, wide"),
    ),
    Mutant(
        "a unit's rows start at another's",
        "combine/rows.py",
        "slice(self.size * start, self.size * stop)",
        "slice(start, start + self.size * (stop - start))",
        in_conformance("test_units", "test_blocks_of_units_hold_their_own_rows"),
    ),
]
