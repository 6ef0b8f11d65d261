import pytest
import torch
from recording import record

from privet.gradients.layers import losses
from privet.gradients.layers.embedding.embedding import EmbeddingGrad


def ours(x, *arguments, **options):
    return losses.mean(None, x, *arguments, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("arguments", "options"), [
    ((), {}), ((1,), {}), ((-1, True), {}), (((0, 2),), {}), ((), {"dim": 1}), ((), {"dim": (1, -1), "keepdim": True}),
    ((), {"axis": 2, "keepdims": True}), ((None,), {}), (([],), {}),
], ids=str)  # fmt: skip
def test_values_and_gradients_are_those_of_torch(arguments, options, dtype):
    torch.manual_seed(0)
    found = []
    numbers = torch.randn(6, 37, 9, dtype=dtype)
    for mean in (torch.mean, ours):
        x = numbers.clone().requires_grad_()
        out = mean(x, *arguments, **options)
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        found.append((out.detach(), gradient))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape
        assert torch.equal(one, other)


@pytest.mark.parametrize(("x", "options"), [
    (torch.ones(0, 4), {}), (torch.ones(3), {"dtype": torch.float64}), (torch.ones(3, dtype=torch.bfloat16), {}),
    (torch.ones(3, dtype=torch.complex64), {}), (torch.ones(3, 4), {"dim": 1, "out": torch.ones(3)}),
], ids=str)  # fmt: skip
def test_other_means_are_left_to_torch(x, options):
    assert ours(x, **options) is None


@pytest.mark.parametrize("reduced", [lambda x: x.mean(1), lambda x: torch.mean(x, 1), lambda x: x.sum(1)])
def test_looked_up_positions_share_one_gradient(reduced):
    model = torch.nn.Embedding(7, 3, padding_idx=2)
    tape = record(model, lambda m, x: reduced(m(x)).square().sum(1), torch.randint(7, (4, 5)), dict(model.named_parameters()))
    grad = tape.grads["weight"]
    assert isinstance(grad, EmbeddingGrad)
    assert grad.gradients.stride(1) == 0
