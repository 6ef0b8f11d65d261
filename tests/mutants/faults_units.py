"""Faults in units: the sum over the rows of a unit, and their order."""

from mutant import Mutant, among

TAPE = "test_the_tape_gives_a_units_gradient_for_every_model"


def units(*cases: str) -> tuple[str, ...]:
    """Units of several rows against a loop over their rows."""
    return among("test_units", *(f"{TAPE}[{name}]" for name in cases))


MUTANTS = [
    Mutant("rows of other units are joined", "sums._sum_rows",
           "(-1, size, *rows.shape[1:]).sum(1)", "(size, -1, *rows.shape[1:]).sum(0)", units("conv2d few positions, wide")),
    Mutant("each row is weighted as if it were another unit's", "GroupedGrad.weighted_sum",
           "repeat_interleave", "repeat", units("conv2d few positions, wide")),
    Mutant("a unit's rows start at another's", "GroupedGrad.index_select", "slice(self.size * start, self.size * stop)",
           "slice(start, start + self.size * (stop - start))", among("test_units", "test_blocks_of_units_hold_their_own_rows")),
]  # fmt: skip
