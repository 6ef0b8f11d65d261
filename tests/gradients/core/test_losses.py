"""Losses are differentiated alike in both ways; a pass runs compiled modules eagerly, and leaves their setting as it was."""

import pytest
import torch
import torch._dynamo
from torch import nn

from privet.gradients.core import losses, patches
from privet.gradients.core.patches import force_eager


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


@pytest.fixture(params=["by the variable", "by the public function"])
def way(request, monkeypatch):
    """Set the stance this way."""
    if request.param == "by the public function":
        monkeypatch.setattr(patches, "_set_stance", lambda frames: torch.compiler.set_stance("force_eager"))
    return request.param


def compiled(seen):
    """Return a compiled module whose backend notes that it was called."""

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    return torch.compile(nn.Linear(2, 1), backend=backend)


def test_inside_nothing_is_compiled(way):
    seen = []
    module = compiled(seen)
    with force_eager():
        module(torch.ones(1, 2))
    assert not seen


@pytest.mark.parametrize("error", [None, ValueError])
def test_afterwards_modules_are_compiled_again(way, error):
    seen = []
    module = compiled(seen)
    try:
        with force_eager():
            if error:
                raise error
    except ValueError:
        pass
    module(torch.ones(1, 2))
    assert len(seen) == 1


def test_a_stance_of_the_users_comes_back(way):
    seen = []
    module = compiled(seen)
    with torch.compiler.set_stance("force_eager"):
        with force_eager():
            pass
        module(torch.ones(1, 2))
    assert not seen


def test_passes_of_several_threads_may_end_in_any_order():
    seen = []
    module, first, second = compiled(seen), force_eager(), force_eager()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    module(torch.ones(1, 2))
    assert not seen
    second.__exit__(None, None, None)
    module(torch.ones(1, 2))
    assert len(seen) == 1


def test_the_variable_is_the_one_that_the_public_function_sets():
    """Where this fails, torch has changed, and entering a pass is slower and still right, or `_set_stance` must change."""
    frames = torch._dynamo.eval_frame
    assert hasattr(frames, "DynamoStance")
    with torch.compiler.set_stance("force_eager"):
        assert frames._stance.stance == "force_eager"
