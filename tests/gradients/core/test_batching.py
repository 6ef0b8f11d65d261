"""Calls on the physical batch: the example dimension is vmap's."""

import warnings

import pytest
import torch

from privet.gradients.core.batching import NestedTransformError, is_batched, run_on_physical_batch, vectorise


@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_the_function_sees_examples_first_and_its_result_is_one_examples(dimension):
    x, seen = torch.randn(5, 5, 5), []

    def below(token, physical, plain):
        seen.append((is_batched(physical), physical.shape, plain.shape))
        assert torch.equal(physical, x.movedim(dimension, 0))
        return physical.flip(0), physical.sum(0, keepdim=True).expand(5, 5, 5)

    def one(token, own, plain):
        assert is_batched(own)
        turned, total = run_on_physical_batch(token, below, (token, own, plain))
        assert turned.shape == total.shape == (5, 5)
        return turned, total

    found, total = torch.func.vmap(one, in_dims=(0, dimension, None))(torch.zeros(5), x, torch.ones(2, 3))
    assert torch.equal(found, x.movedim(dimension, 0).flip(0))
    assert torch.equal(total[0], x.movedim(dimension, 0).sum(0))
    assert seen == [(False, (5, 5, 5), (2, 3))]


def test_torch_is_not_heard_on_operators_without_a_rule():
    """It asks users to file an issue, which would be about Privet's use of vmap."""

    def call(token, x):
        return torch.kl_div(x.log_softmax(0), x.softmax(0))

    x = torch.randn(4, 3)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = vectorise(call, torch.zeros(4), [x], [True])
        assert not heard
        torch.func.vmap(lambda x: call(None, x))(x)
        assert heard
    assert found.shape == (4, 3)


@pytest.mark.parametrize("inner", [
    lambda f: torch.func.vmap(f)(torch.ones(2, 3)), lambda f: torch.func.grad(lambda x: f(x).sum())(torch.ones(3)),
    lambda f: torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),))[1],
], ids=["vmap", "grad", "jvp"])  # fmt: skip
def test_another_transformation_is_not_taken_for_the_examples(inner):
    def one(token):
        return inner(lambda x: run_on_physical_batch(token, lambda t, x: x, (token, x)))

    with pytest.raises((NestedTransformError, NotImplementedError)):
        torch.func.vmap(one)(torch.zeros(4))


def test_what_fails_below_leaves_vmap_as_it_was():
    def one(token, x):
        with pytest.raises(ZeroDivisionError):
            run_on_physical_batch(token, lambda t: 1 / 0, (token,))
        return run_on_physical_batch(token, lambda t, x: x + 1, (token, x)) * 2

    assert torch.equal(torch.func.vmap(one)(torch.zeros(3), torch.arange(3.0)), torch.tensor([2.0, 4.0, 6.0]))


def test_vmap_draws_no_numbers():
    """It would draw those of all examples from one stream, which a removed example shifts."""
    with pytest.raises(RuntimeError, match="randomness"):
        vectorise(lambda token: torch.rand(()) + token, torch.zeros(9), (), ())
    assert torch._C._functorch.maybe_current_level() is None  # after an exception nothing is vectorised
