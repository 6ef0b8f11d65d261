import math

import pytest
import torch

from privet.gradients.core import norms
from privet.gradients.core.norms import (
    _FEW,
    _PIECE,
    _ROOM,
    _TOGETHER,
    blocks,
    factor_norms,
    full_precision,
    squared_norms,
    sum_product_norms,
)


@pytest.mark.parametrize("numbers", [1, _FEW + 1])
@pytest.mark.parametrize("length", [1, 1023, 1024, 1025, 100_000, 4_000_000])
def test_rows_of_any_length_are_exact(length, numbers):
    torch.manual_seed(0)
    x = torch.randn(-(-numbers // length), length)
    exact = x.double().square().sum(1)
    assert torch.allclose(squared_norms(x), exact, rtol=2e-6)  # 1e-6 of the norm
    assert torch.allclose(factor_norms(x), exact.sqrt(), rtol=1e-6)


@pytest.mark.parametrize("numbers", [1, _FEW + 1])
def test_a_factor_does_not_lose_what_underflows(numbers):
    x = torch.full((-(-numbers // 4), 4), 1e-30)
    assert squared_norms(x.double())[0] > 0
    assert (factor_norms(x) >= 2e-30).all()
    tiny = torch.full_like(x, 1e-170, dtype=torch.float64)  # whose square is zero in float64, too
    assert (factor_norms(tiny) >= 2e-170).all()


def test_a_row_whose_square_float32_cannot_hold_is_measured_from_pieces_that_it_can():
    assert squared_norms(torch.full((1, 102_400), 1e17)).tolist() == pytest.approx([1.024e39], rel=1e-6)


def test_the_result_is_float64_and_of_one_number_per_example():
    for dtype in (torch.float32, torch.float64):
        found = squared_norms(torch.ones(3, 2, 5, dtype=dtype))
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([10.0] * 3)
    assert squared_norms(torch.full((3,), 2.0)).tolist() == [4.0] * 3
    equal = torch.full((1, 4_000_000), 0.1)  # long rows are not under-estimated
    assert (squared_norms(equal) >= equal.double().square().sum(1) * (1 - 1e-6)).all()


SHAPES = {
    "small": [(3,), (2, 2), (4,)], "scalars": [(), (), ()], "an empty one": [(0,), (5,)], "none": [],
    "large between small": [(3,), (_FEW,), (4,), (_FEW, 2), (5, 1)], "as many as are still small": [(_FEW // 8,)] * 9,
    "a product": [((1, 3), (1, 2))], "products": [((3,), (1, 2)), ((1, 0), (4,)), ((5,), ()), ((2, 2), (1,))],
    "both": [(3,), ((1, 4), (1, 2)), (), ((2,), (6,)), (7, 2)], "a large product": [((_FEW,), (2,)), ((3,), (2,)), (4,)],
    "more than are measured together": [((2,), (3,)), (5,)] * _TOGETHER,
}  # fmt: skip


def exact_squares(product):
    """Return the squared norm of a product in float64, one number for each example."""
    return math.prod(x.double().reshape(len(x), math.prod(x.shape[1:])).square().sum(1) for x in product)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("examples", [0, 1, 4])
def test_squared_norms_of_products_add_up_to_the_same_total_when_small_ones_are_measured_together(shapes, examples):
    torch.manual_seed(0)
    pairs = [each if each and isinstance(each[0], tuple) else (each,) for each in SHAPES[shapes]]
    products = [[torch.randn(examples, *shape) for shape in pair] for pair in pairs]
    found = sum_product_norms(products)
    none = torch.zeros(examples, dtype=torch.float64)
    assert torch.allclose(sum(found, none), sum(map(exact_squares, products), none), rtol=2e-6)
    short = [product for product in products if all(math.prod(x.shape[1:]) <= _PIECE for x in product)]
    small = [product for product in short if sum(x.numel() for x in product) <= _FEW]
    numbers = sum(x.numel() for product in small for x in product)
    together = -(-len(small) // _TOGETHER) if numbers <= _FEW else len(small)
    assert len(found) <= len(products) - len(small) + together


def test_a_gradient_that_is_also_a_factor_counts_as_both_and_another_of_the_same_memory_as_itself():
    a, g = torch.tensor([[3.0], [1.0]]), torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    both = [[a, g[:, None]], [g], [g], [g[:, :1]], [a, a]]
    (found,) = sum_product_norms(both)
    assert found.tolist() == [9 * 5 + 5 + 5 + 1 + 81, 1 + 1 + 1 + 0 + 1]


def test_together_no_more_is_measured_than_is_few(monkeypatch):
    seen = []
    monkeypatch.setattr(norms, "_measure_few", lambda products: seen.append(products) or torch.zeros(2))
    sum_product_norms([[torch.ones(2, _PIECE), torch.ones(2, 1)] for _ in range(20)] + [[torch.ones(2, 1)]] * 40)
    assert sum(map(len, seen)) == 60
    assert all(sum(x.numel() for product in products for x in product) <= _ROOM for products in seen)
    assert max(map(len, seen)) == _TOGETHER


def test_tensors_of_different_precision_are_measured_each_in_its_own():
    tenth, double = torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64)
    found = sum_product_norms([[tenth.expand(2, 3)], [double.expand(2, 1)], [tenth.expand(2, 4), tenth.expand(2, 2)]])
    assert sum(found).tolist() == pytest.approx([3 * float(tenth) ** 2 + 0.01 + 8 * float(tenth) ** 4] * 2, rel=1e-14)


@pytest.mark.parametrize("rows", [3, _FEW])
@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 2e19), (torch.float64, 2e154)])
def test_a_factor_that_a_weight_may_lift_out_of_range_is_not_measured(dtype, huge, rows):
    """Neither is it taken for zero where the other factor is, nor does it change what is found for other examples."""
    for side in range(2):
        product = [torch.full((rows, 2), 3.0, dtype=dtype), torch.full((rows, 1), 2.0, dtype=dtype)]
        product[side][1], product[1 - side][1] = huge, 0.0
        found = sum(sum_product_norms([product, [torch.ones(rows, 1, dtype=dtype)]]))
        assert found[1].isnan()
        assert found[[0, 2]].tolist() == pytest.approx([18 * 4 + 1] * 2, rel=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_concerns_its_own_example_only(value):
    for broken in range(3):
        x = [torch.ones(3, 2), torch.ones(3, 3), torch.ones(3, 4)]
        x[broken][1, 0] = value
        (found,) = sum_product_norms([x[:2], x[2:]])
        assert found[[0, 2]].tolist() == [10.0, 10.0]
        assert not found[1] < torch.inf


def test_what_underflows_in_a_factor_counts_where_the_other_is_large():
    tiny, large = torch.full((2, 1), 2e-30), torch.full((2, 1), 2e18)
    (found,) = sum_product_norms([[tiny, large], [large, tiny], [torch.full((2, 1), 1e-30)]])
    assert found.tolist() == pytest.approx([2 * (4e-12) ** 2] * 2, rel=1e-5, abs=0)


@pytest.mark.parametrize("rows", [3, _FEW])
def test_complex_numbers_have_the_length_of_their_two_parts(rows):
    x = torch.complex(torch.full((rows, 2), 3.0), torch.full((rows, 2), 4.0))
    for given in (x, x.conj()):
        assert squared_norms(given)[:3].tolist() == pytest.approx([50.0] * 3)
        assert factor_norms(given)[:3].tolist() == pytest.approx([50.0**0.5] * 3)


@pytest.mark.parametrize("value", [1e25, torch.inf, torch.nan])
def test_a_square_that_float32_cannot_represent_is_finite_only_in_short_rows(value):
    for rows in (1, _FEW):
        assert squared_norms(torch.tensor([[1.0, value]]).expand(rows, 2)).isfinite().all().item() == (value == 1e25)
        assert not squared_norms(torch.tensor([[1.0, value]]).repeat(rows, _PIECE)[:, : _PIECE + 1]).isfinite().any()


@pytest.mark.parametrize(("examples", "numbers"), [(0, 5), (1, 5), (7, 0), (7, 1), (1000, 10_000), (3, 10**9)])
def test_blocks_cover_every_example_once(examples, numbers):
    covered = [i for block in blocks(examples, numbers, torch.device("cpu")) for i in range(examples)[block]]
    assert covered == list(range(examples))


def test_norms_and_sums_are_measured_without_rounded_products():
    backend = torch.backends.mkldnn.matmul
    before, backend.fp32_precision = backend.fp32_precision, "bf16"
    try:
        with torch.autocast("cpu", torch.bfloat16):
            with full_precision(torch.device("cpu")):
                inside, product = backend.fp32_precision, torch.ones(2, 2) @ torch.ones(2, 2)
            outside = backend.fp32_precision
    finally:
        backend.fp32_precision = before
    assert (inside, product.dtype, outside) == ("ieee", torch.float32, "bf16")


@pytest.mark.parametrize("dim", [1, 2])
def test_many_rows_are_measured_as_few_are_whatever_their_length(dim):
    """Rows of float32 whose squares it cannot hold, among many ordinary ones."""
    x = torch.randn(200, 1000)
    scales = torch.tensor([1e-45, 1e-38, 1e-30, 1e-22, 1e-16, 0.0, 1e16, 1e20, 1e35, torch.inf, torch.nan])
    x[: len(scales)] *= scales[:, None]
    rows = x if dim == 1 else x.view(200, 10, 100)
    few = torch.cat([norms.squared_norms(row) for row in rows.split(1)])
    torch.testing.assert_close(norms.squared_norms(rows), few, rtol=1e-6, atol=0, equal_nan=True)
    assert (few[1:5] > 0).all()
    for row, one in zip(rows[: len(scales)], few, strict=False):  # and each of them as the only one
        among = torch.cat([row[None], rows[100:]])
        torch.testing.assert_close(norms.squared_norms(among)[0], one, rtol=1e-6, atol=0, equal_nan=True)
