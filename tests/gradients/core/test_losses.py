import pytest
import torch
from torch import nn

from privet.gradients.core import losses


@pytest.mark.parametrize("internal", [True, False])
def test_gradients_are_those_of_the_sum_and_what_is_not_used_has_none(internal, monkeypatch):
    """Torch's internal function only saves time: this version has it."""
    assert losses._run_backward is not None
    if not internal:
        monkeypatch.setattr(losses, "_run_backward", None)
    used, unused = torch.tensor([2.0, 3.0], requires_grad=True), nn.Parameter(torch.ones(2))
    found, none = losses.backpropagate((used**2)[:, None] * torch.tensor([[1.0], [10.0]]), [used, unused])
    assert found.tolist() == [4.0, 60.0]
    assert none is used.grad is unused.grad is None
