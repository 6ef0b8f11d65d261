from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.gradients.masking import kernels as mask_kernels
from privet.gradients.masking import masks
from privet.gradients.masking.kernels import IN_TORCH, is_consistent, load_kernels, rows
from privet.gradients.masking.masks import Mask
from rounding import assert_equal_up_to_rounding


@pytest.fixture(params=["torch", "compiled"])
def form(request, monkeypatch):
    """Each implementation in turn, installed for the test."""
    chosen = IN_TORCH if request.param == "torch" else load_kernels()
    if not chosen.description.startswith(request.param):
        pytest.skip(f"no kernels here: {chosen.description}")
    if request.param == "torch" and not torch.backends.mkl.is_available():
        pytest.skip("sparse products of torch need MKL")
    monkeypatch.setattr(masks, "load_kernels", lambda: chosen)
    return chosen


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31), shape=st.tuples(st.integers(1, 40), st.integers(1, 40)), examples=st.integers(1, 150),
    density=st.floats(0, 1), dtype=st.sampled_from([torch.float32, torch.float64]), scale=st.sampled_from([1e-12, 1.0, 1e9]),
    threads=st.integers(1, 5),
)  # fmt: skip
def test_products_are_those_of_dense_matrices(form, seed, shape, examples, density, dtype, scale, threads):
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(shape, generator=generator) < density
    left, right = ((torch.randn(size, examples, generator=generator) * scale).to(dtype) for size in shape)
    mask = rows(kept, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mask_kernels, "_threads", lambda multiplications: threads)
        product, values = form.product(mask, right), form.outer(mask, left, right)
    bound = torch.finfo(dtype).eps * 200
    exact = kept.double() @ right.double()
    assert ((product - exact).abs() <= bound * (kept.double() @ right.double().abs())).all()
    exact, reach = (left.double() @ right.double().t())[kept], (left.double().abs() @ right.double().abs().t())[kept]
    assert ((values - exact).abs() <= bound * reach).all()


@pytest.mark.parametrize("density", [0.05, 0.2, 0.45, 0.9])
def test_a_mask_gives_the_same_products_by_every_method(form, density):
    kept = torch.rand(33, 65) < density
    left, right = torch.randn(20, 33, dtype=torch.float64), torch.randn(20, 65, dtype=torch.float64)
    mask = Mask(kept)
    turned = [mask.columns(x) for x in (left, right)]
    assert_equal_up_to_rounding(mask.product(turned[1]), kept.double() @ right.t())
    assert_equal_up_to_rounding(mask.outer_product(*turned), (left.t() @ right) * kept)


def test_masked_entries_do_not_count_even_if_not_finite(form):
    kept = torch.tensor([[True, False, True], [False, False, False]])
    right = torch.tensor([[1.0, 2.0], [torch.nan, torch.inf], [3.0, 4.0]])
    assert form.product(rows(kept, torch.float32), right).tolist() == [[4.0, 6.0], [0.0, 0.0]]
    assert form.outer(rows(kept, torch.float32), torch.ones(2, 2), right).tolist() == [3.0, 7.0]


@pytest.mark.parametrize("name", ["product", "outer"])
def test_a_form_that_is_wrong_in_one_product_is_noticed(name):
    right = getattr(IN_TORCH, name)

    def wrong(*arguments):
        found = right(*arguments).clone()
        if found.numel():
            found.view(-1)[-1] += 1e-3
        return found

    assert not is_consistent(replace(IN_TORCH, **{name: wrong}))


def test_products_of_several_threads_are_to_the_bit_those_of_one():
    form = load_kernels()
    if not form.description.startswith("compiled"):
        pytest.skip(f"no kernels here: {form.description}")
    mask, x = rows(torch.rand(50, 30) < 0.3, torch.float32), torch.randn(30, 77)
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for threads in (1, 3, 64):
            patch.setattr(mask_kernels, "_threads", lambda multiplications, threads=threads: threads)
            found.append((form.product(mask, x), form.outer(mask, torch.ones(50, 77), x)))
    for product, values in found[1:]:
        assert torch.equal(product, found[0][0])
        assert torch.equal(values, found[0][1])
