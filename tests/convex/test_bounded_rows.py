import math

import pytest
import torch

from privet.convex.minimiser import bound_rows, read_rows
from privet.errors import InvalidArgumentError


@pytest.mark.parametrize("radius", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("intercept", [0.0, 2.0])
def test_no_row_is_longer_than_one(radius, intercept):
    scales = torch.tensor([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e200, 1e308], dtype=torch.float64)
    rows = bound_rows(scales[:, None] * torch.randn(7, 5, dtype=torch.float64), radius, intercept)
    exact = [math.fsum(value * value for value in row) for row in rows.tolist()]
    assert max(exact) <= 1.0
    assert exact[5] > 0.99


def test_short_rows_keep_their_direction_and_length():
    rows = bound_rows(torch.tensor([[0.3, -0.4]], dtype=torch.float64), radius=2.0, intercept=0.5)
    torch.testing.assert_close(rows, torch.tensor([[0.15, -0.2, 0.25]], dtype=torch.float64), rtol=1e-5, atol=0)


def test_a_row_depends_on_its_example_alone():
    inputs = torch.randn(6, 4, dtype=torch.float64) * 3
    alone = torch.cat([bound_rows(row[None], 1.5, 1.0) for row in inputs])
    torch.testing.assert_close(bound_rows(inputs, 1.5, 1.0), alone, rtol=0, atol=0)


def test_what_is_not_finite_contributes_nothing():
    inputs = torch.ones(4, 2, dtype=torch.float64)
    inputs[1, 0], inputs[2, 1] = math.nan, math.inf
    rows = read_rows(inputs, torch.tensor([True, True, True, False]), 4, 2, 1.0, 1.0)
    assert (rows != 0).any(1).tolist() == [True, False, False, False]


@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (0, 2)])
def test_data_of_another_shape_than_the_plans_are_refused(shape):
    with pytest.raises(InvalidArgumentError, match="shape of the data"):
        read_rows(torch.zeros(shape), torch.ones(shape[0], dtype=torch.bool), 4, 2, 1.0, 1.0)
