import pytest
import torch
from cases import With

from privet._utils.randomness import preserve_generators
from privet.clipping import Flat
from privet.gradients.core import per_example
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine, RunningSum
from privet.gradients.parameters import trainable
from privet.gradients.per_example_momentum import Averages
from privet.momentum import PerExample
from rounding import assert_equal_up_to_rounding

N = 4


def derived(m, x):
    """A weight that is computed from parameters, whose graph an example with large inputs frees before it is used."""
    weight = m.gain.exp() * m.w
    if x.abs().max() > 100:
        torch.autograd.grad(weight.sum(), m.w)
    return (x @ weight.t()).square().sum(1)


def sums(x, indices, *, skip_errors):
    torch.manual_seed(0)
    model = With(derived, w=(2, 3), gain=(2, 1))
    engine = Engine(model, lambda model, x: model(x), trainable(model), skip_errors=skip_errors)
    averages = Averages(PerExample(0.5), N, engine.parameters)
    with preserve_generators():
        for _ in range(2):
            total = RunningSum(Clipper.of(engine.parameters, Flat(0.1)))
            for part in engine.clip(split_batch(x), total.clipper, average=averages.of_examples(torch.tensor(indices))):
                total.add(*part)
    return total.sums


@pytest.mark.parametrize("kept", [0, per_example.KEEP], ids=["later", "at once"])
def test_an_example_whose_gradients_cannot_be_formed_contributes_nothing(kept, monkeypatch):
    monkeypatch.setattr(per_example, "KEEP", kept)
    x = torch.randn(N, 3)
    x[1] = 300.0
    try:
        found, rest = sums(x, [0, 1, 2, 3], skip_errors=True), sums(x[[0, 2, 3]], [0, 2, 3], skip_errors=True)
    except RuntimeError as error:
        pytest.fail(f"one example ends the step: {error}")
    for name, value in found.items():
        assert_equal_up_to_rounding(value, rest[name])
        assert value.any()


def test_for_public_examples_the_error_is_raised():
    x = torch.randn(N, 3)
    x[1] = 300.0
    with pytest.raises(RuntimeError, match="second time"):
        sums(x, [0, 1, 2, 3], skip_errors=False)
