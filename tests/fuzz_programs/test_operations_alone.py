"""Every operation of random programs by itself: that a program fails says little, that an operation does says why."""

import one_at_a_time
import pytest
import torch
from agreement import Tally, UnsuitableError, hold
from operations import OPERATIONS, Sizes
from programs import alone

# As many examples as positions and features, and no two sizes alike.
SIZES = [Sizes(3, 3, 3, 3, 3, 3), Sizes(4, 3, 2, 1, 5, 2)]


@pytest.mark.product
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_alone_is_right(name):
    """The program does not mix examples, so that its losses together are those one at a time."""
    for sizes in SIZES:
        try:
            hold(alone(name, sizes), Tally(), shifts=False)
        except UnsuitableError as reason:
            pytest.fail(f"no comparison: {reason}")
    program = alone(name, SIZES[0])
    together, by_itself = one_at_a_time.losses(program)
    assert torch.allclose(together, by_itself, rtol=1e-9) or program.one_at_a_time


def test_there_are_enough_operations_with_and_without_parameters():
    assert len(OPERATIONS) >= 150
    assert sum(bool(operation.parts) for operation in OPERATIONS.values()) >= 60
    assert sum(not operation.parts for operation in OPERATIONS.values()) >= 60
