import pytest
import torch

from privet._utils.tensors import sketch


def numbers(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.3


@pytest.mark.parametrize("large", [numbers(300, 200), numbers(400, 1).expand(400, 100)], ids=["of any rank", "of rank 1"])
def test_a_sketch_is_linear_and_about_as_long_as_its_tensor(large):
    """So gradients agree where their sketches do: what differs in some rows differs in the sketch."""
    found, other = sketch(large), large.flip(0)
    assert found.numel() < large.numel() / 2
    for whole, short in ((large, found), (other - large, sketch(other) - found)):
        assert 0.3 < float(short.norm() / whole.norm()) < 2
    torch.testing.assert_close(sketch(2 * large - other), 2 * found - sketch(other), atol=1e-10, rtol=0)


def test_a_small_tensor_is_its_own_sketch():
    assert torch.equal(sketch(numbers(3, 4)), numbers(3, 4).flatten())
