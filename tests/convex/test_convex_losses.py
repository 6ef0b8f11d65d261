import math
from functools import partial

import pytest
import torch
from torch.func import grad, hessian

from privet.convex import AdjustedLogistic, Huber, Logistic
from privet.errors import InvalidArgumentError
from rounding import assert_equal_up_to_rounding

LOSSES = [Logistic(2), Logistic(5), Huber(0.4), Huber(2.0), AdjustedLogistic(3, (0.7, 0.2, 0.1))]
EXTREMES = [0.0, 1e-3, 1.0, 30.0]


def examples(loss, number=200):
    """Yield rows of norm 1, targets, and weights of all sizes."""
    for scale in EXTREMES:
        rows = torch.nn.functional.normalize(torch.randn(number, 4, dtype=torch.float64))
        if isinstance(loss, Logistic):
            targets = torch.randint(loss.classes, (number,))
        else:
            targets = torch.rand(number, dtype=torch.float64) * 2 - 1
        yield rows, targets, scale * torch.randn(loss.outputs, 4, dtype=torch.float64)


def loss_of_scores(loss, target, scores):
    return loss.evaluate(scores[None], target)[0][0]


def loss_of_one(loss):
    return lambda weights, row, target: loss.evaluate((row @ weights.T)[None], target[None])[0][0]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_derivatives_are_those_of_the_loss(loss):
    for rows, targets, weights in examples(loss, 8):
        scores = rows @ weights.T
        slopes = loss.evaluate(scores, targets)[1]
        direction = torch.randn_like(scores)
        products = loss.multiply_hessian(scores, targets, direction)
        for i in range(len(rows)):
            one = partial(loss_of_scores, loss, targets[i : i + 1])
            torch.testing.assert_close(grad(one)(scores[i]), slopes[i], rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(hessian(one)(scores[i]) @ direction[i], products[i], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_no_gradient_is_longer_and_no_curvature_larger_than_declared(loss):
    longest = 0.0
    for rows, targets, weights in examples(loss):
        _, slopes = loss.evaluate(rows @ weights.T, targets)
        longest = max(longest, float(slopes.norm(dim=1).max()))
        for row, target in zip(rows[:10], targets[:10], strict=True):
            whole = hessian(loss_of_one(loss))(weights, row, target).reshape(weights.numel(), -1)
            assert float(torch.linalg.eigvalsh(whole).max()) <= loss.curvature + 1e-9
    assert 0.99 * loss.lipschitz <= longest <= loss.lipschitz + 1e-12


@pytest.mark.parametrize(("loss", "regularisation"), [*zip(LOSSES, [0.05, 1.0, 20.0, 0.05, 1.0], strict=True)], ids=str)
def test_no_example_adds_more_to_the_log_determinant_than_declared(loss, regularisation):
    most = 0.0
    for rows, targets, weights in examples(loss, 10):
        others = regularisation * torch.eye(weights.numel(), dtype=torch.float64)
        for row, target in zip(rows, targets, strict=True):
            added = hessian(loss_of_one(loss))(weights, row, target).reshape(weights.numel(), -1)
            most = max(most, float(torch.logdet(others + added) - torch.logdet(others)))
            others = others if weights.abs().sum() == 0 else others + 0.1 * added  # other examples can only decrease it
    assert 0.9 * loss.log_determinant(regularisation) <= most <= loss.log_determinant(regularisation) + 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients_push_in_as_many_directions_as_declared(loss):
    """The inner product of any gradient of a label with a vector is at most the largest of T fixed ones, or zero."""
    for rows, targets, weights in examples(loss, 50):
        slopes = loss.evaluate(rows @ weights.T, targets)[1]
        vectors = torch.randn_like(slopes)
        if isinstance(loss, Logistic):
            towards = vectors - vectors.gather(1, targets[:, None])
            assert all((row != 0).sum() == loss.tails for row in towards)
        else:
            towards = loss.threshold * torch.cat((vectors, -vectors), dim=1)
            assert towards.shape[1] == loss.tails
        largest = towards.amax(1).clamp_min(0)
        assert ((slopes * vectors).sum(1) <= largest + 1e-12).all()
        assert ((-slopes * vectors).sum(1) <= (-towards).amax(1).clamp_min(0) + 1e-12).all()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_losses_depend_on_one_part_of_the_weights_only(loss):
    for rows, targets, weights in examples(loss, 5):
        main, rest = loss.split(weights)
        assert_equal_up_to_rounding(main + rest, weights)
        assert_equal_up_to_rounding(loss.evaluate(rows @ main.T, targets)[1], loss.evaluate(rows @ weights.T, targets)[1])
        assert float(loss.evaluate(rows @ (0 * weights).T, targets)[0].max()) <= loss.at_zero + 1e-12


def test_targets_that_are_none_are_not_usable():
    labels, known = Logistic(3).encode(torch.tensor([0, 2, 3, -100]))
    assert known.tolist() == [True, True, False, False]
    assert labels.tolist()[:2] == [0, 2]
    values, known = Huber().encode(torch.tensor([0.5, -7.0, math.nan, math.inf]))
    assert known.tolist() == [True, True, False, False]
    assert values.tolist() == [0.5, -1.0, 0.0, 0.0]


@pytest.mark.parametrize(("make", "name"), [
    (lambda: Logistic(1), "loss.classes"), (lambda: Huber(0.0), "loss.threshold"),
    (lambda: AdjustedLogistic(2, (0.5, 0.0)), "loss.priors"), (lambda: AdjustedLogistic(3, (0.5, 0.5)), "loss.priors"),
])  # fmt: skip
def test_constants_out_of_range_are_refused(make, name):
    with pytest.raises(InvalidArgumentError, match=name):
        make()
