import pytest
import torch

from privet.clipping import Flat
from privet.gradients.combine.sums import SummedGrads, sum_grads
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.methods.tape import Tape, clip, precise_norms

A = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
B = torch.tensor([[[4.0]], [[0.0]], [[2.0]]])


def tape(**grads):
    parameters = {"a": torch.zeros(2), "b": torch.zeros(1, 1), "unused": torch.zeros(3)}
    parameters |= {name: torch.zeros(value.shape[1:]) for name, value in grads.items()}
    return Tape(3, parameters, {name: DenseGrad(value) for name, value in grads.items()})


ALL = (("a", "b", "unused"),)


@pytest.mark.parametrize("kind", ["all stored", "one as factors", "one of several positions"])
def test_norms_are_over_the_group(kind):
    both = tape(a=A, b=B)
    if kind == "one as factors":
        both.grads["b"] = LinearGrad(torch.ones(3, 1, 1), B)
    if kind == "one of several positions":  # which is not measured together with the other
        both.grads["b"] = LinearGrad(torch.ones(3, 2, 1), B.expand(3, 2, 1) / 2)
    for groups, norms in ((ALL, [[5.0, 1.0, 2.0]]), ((("a",), ("b", "unused")), [[3.0, 1.0, 0.0], [4.0, 0.0, 2.0]])):
        assert torch.allclose(both.group_norms(groups), torch.tensor(norms, dtype=torch.float64), rtol=1e-6, atol=0)


def test_every_group_has_its_own_weights():
    weights = torch.tensor([[1.0, 10.0, 0.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
    sums = tape(a=A, b=B).weighted_sum((("a",), ("b", "unused")), weights)
    assert sums["a"].tolist() == [3.0, 10.0]
    assert sums["b"].tolist() == [[10.0]]
    assert sums["unused"].tolist() == [0.0] * 3


def test_rows_pick_examples_in_the_given_order():
    part = tape(a=A, b=B).index_select(torch.tensor([2, 0]))
    assert part.examples == 2
    assert part.group_norms(ALL).tolist() == [[2.0, 5.0]]
    assert tape(a=A).gradients()["unused"].shape == (3, 3)
    assert not tape(a=A).gradients()["b"].any()
    assert DenseGrad(A).squared_norms().tolist() == [9.0, 1.0, 0.0]


@pytest.mark.parametrize("bound", [1e-3, 0.7, 50.0])
def test_no_contribution_exceeds_the_bound(bound):
    sums, norms = clip(tape(a=A, b=B).index_select(torch.tensor([0])), Flat(bound), ALL)
    length = torch.cat([value.double().flatten() for value in sums.values()]).norm()
    assert length <= min(bound, 5.0)
    assert length == pytest.approx(min(bound, 5.0), rel=2e-6)
    assert norms.tolist() == [[5.0]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_left_out_and_reported_as_infinite(bad):
    spoiled = A.clone()
    spoiled[1, 0] = bad
    sums, norms = clip(tape(a=spoiled, b=B), Flat(100.0), ALL)
    assert sums["a"].tolist() == pytest.approx([3.0, 0.0], rel=2e-6)
    assert sums["b"].tolist()[0] == pytest.approx([6.0], rel=2e-6)
    assert norms.tolist() == [[5.0, torch.inf, 2.0]]


def test_one_bad_group_leaves_the_whole_example_out():
    spoiled = A.clone()
    spoiled[0, 0] = torch.nan
    sums, _ = clip(tape(a=spoiled, b=B), Flat(100.0), (("a",), ("b", "unused")))
    assert sums["b"].tolist()[0] == pytest.approx([2.0], rel=2e-6)


@pytest.mark.parametrize("width", [2, 10_000])
def test_norms_that_float32_cannot_hold_are_measured_in_float64(width):
    long = torch.nn.functional.pad(A * 1e25, (0, width - 2))
    assert width == 2 or not tape(a=long).group_norms(ALL).isfinite().all()
    assert precise_norms(tape(a=long), ALL)[0].tolist() == pytest.approx([3e25, 1e25, 0.0], rel=1e-6)
    sums, norms = clip(tape(a=long), Flat(0.5), ALL)
    assert sums["a"][:2].tolist() == pytest.approx([0.5, 0.5], rel=2e-6)
    assert norms[0].tolist() == pytest.approx([3e25, 1e25, 0.0], rel=1e-6)


def test_long_and_ordinary_gradients_have_weights_of_their_own():
    mixed = torch.tensor([[3.0, 0.0], [0.0, 1e25], [0.1, 0.0]])
    sums, norms = clip(tape(a=mixed), Flat(0.5), ALL)
    assert sums["a"].tolist() == pytest.approx([0.6, 0.5], rel=2e-6)
    assert norms[0].tolist() == pytest.approx([3.0, 1e25, 0.1], rel=1e-6)


def test_gradients_are_summed_before_norms_are_taken():
    for opposite in (sum_grads([DenseGrad(A), DenseGrad(-A)]), SummedGrads((DenseGrad(A), DenseGrad(-A)))):
        assert opposite.squared_norms().tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    doubled = sum_grads([DenseGrad(A), DenseGrad(A)])
    assert doubled.squared_norms().tolist() == pytest.approx([36.0, 4.0, 0.0])
    assert doubled.weighted_sum(torch.ones(3, dtype=torch.float64)).tolist() == [6.0, 2.0]
