"""ORACLE and SENS for units of several rows that are clipped as one, on every model, by every method."""

from itertools import cycle

import cases
import oracle
import pytest
import torch
from recording import cover, record, shift
from torch.utils import _pytree as pytree

from privet.clipping import Automatic, Flat
from privet.gradients import clipped_sum, per_example_norms
from privet.gradients.combine.sums import GroupedGrad
from privet.gradients.core.per_example import DenseGrad
from privet.units import averaged, grouped
from rounding import assert_equal_up_to_rounding

UNITS, ROWS = 3, 4
MODELS = cases.by_name(
    "logistic", "mlp", "tanh-cnn", "transformer", "tied head", "linear, few positions", "linear, many positions",
    "conv2d few positions, wide", "scale and shift", "layer norm over positions", "lstm", "shared parameter",
)  # fmt: skip


def units_of(case, units=UNITS, rows=ROWS, dtype=torch.float64):
    """Return a batch of units and their numbers of examples."""
    batch = pytree.tree_map(lambda leaf: leaf.unflatten(0, (units, rows)), case.batch(units * rows, dtype))
    numbers = torch.tensor([rows, 1, *range(2, rows + 1)] * units)[:units]
    return (batch, torch.arange(rows) < numbers[:, None]), numbers.tolist()


def plain_gradients(case, model, units, reduction):
    """Return name → (B, *shape), by a loop over units and examples that is independent of the library."""
    (content, _), numbers = units
    found = []
    for unit, number in enumerate(numbers):
        own = oracle.plain_gradients(model, case.loss, pytree.tree_map(lambda leaf: leaf[unit, :number], content))  # noqa: B023
        found.append({name: value.sum(0) / (number if reduction == "mean" else 1) for name, value in own.items()})
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.CASES), ids=str)
def test_the_tape_gives_a_units_gradient_for_every_model(case):
    """Units are means and sums in turn, and what is done to their loss does not hide which rows are theirs."""
    reduction, factor = (("mean", 1), ("sum", 1), ("mean", 2))[len(case.name) % 3]
    model, units = case.model(torch.float64), units_of(case)
    whole, expected = grouped(case.loss, reduction), plain_gradients(case, model, units, reduction)
    expected = {name: factor * value for name, value in expected.items()}

    def loss(model, batch):
        return factor * whole(model, batch)

    covered = cover(model, loss, units[0], rule=Automatic(3.0))
    # The path of a unit of sequences depends on the lengths of all of them.
    assert covered.looped == (UNITS if case.grouped or case.of_one_row else 0)
    assert oracle.relative_error_per_example(covered.gradients, expected) <= 1e-9
    torch.testing.assert_close(covered.norms, oracle.norms_of(expected), rtol=1e-9, atol=0)
    assert oracle.relative_error(covered.sums, oracle.plain_clipped_sum(expected, "Automatic", 3.0)) <= 1e-9
    summed = clipped_sum(model, loss, units[0], Flat(0.05), physical_batch_size=2)
    assert oracle.relative_error(summed.tensors, oracle.plain_clipped_sum(expected, "Flat", 0.05)) <= 1e-9


@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.CASES), ids=str)
def test_float32_norms_are_never_too_small_by_more_than_rounding(case):
    model, units = case.model(), units_of(case, dtype=torch.float32)
    expected = oracle.norms_of(plain_gradients(case, model, units, "mean"))
    norms = per_example_norms(model, grouped(case.loss), units[0])
    assert (norms >= expected * (1 - 1e-4)).all()
    torch.testing.assert_close(norms, expected, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_whatever_a_unit_holds_it_moves_the_sum_by_at_most_the_bound(case):
    """Neighbours: the same units without one whose inputs are 10⁴ times as large as the others'."""
    rule = (Flat(1e-3), Flat(0.7), Automatic(50.0))[MODELS.index(case) % 3]
    model, ((content, mask), _) = case.model(torch.float64), units_of(case)
    content = pytree.tree_map(
        lambda leaf: torch.cat([leaf[:1], leaf[1:2] * 1e4, leaf[2:]]) if leaf.is_floating_point() else leaf, content
    )
    for unit in range(UNITS):
        assert shift(model, grouped(case.loss, "sum"), (content, mask), rule, unit, method="ghost") <= rule.bound * (1 + 1e-6)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38], ids=str)
def test_a_unit_with_an_example_that_is_not_finite_stays_within_the_bound(value, method):
    case = cases.by_name("mlp")[0]
    model, ((content, mask), _) = case.model(), units_of(case, dtype=torch.float32)
    content[0][0, 2] = value
    finite = bool(per_example_norms(model, grouped(case.loss), (content, mask), method=method)[0].isfinite())
    moved = shift(model, grouped(case.loss), (content, mask), Flat(0.7), method=method)
    assert moved <= (0.7 if finite else 1e-6) * (1 + 1e-6)


def scaled(batch, factor):
    return pytree.tree_map(lambda leaf: leaf * factor if leaf.is_floating_point() else leaf, batch)


@pytest.mark.parametrize(("case", "method"), [*zip(
    cases.by_name("mlp", "tanh-cnn", "linear, few positions", "layer norm over positions", "mlp"),
    cycle(("ghost", "auto", "loop")),
)], ids=str)  # fmt: skip
def test_views_are_averaged_before_the_clip(case, method):
    """Three views of each example, the same for both sides; the loop averages their gradients independently."""
    model, batch, factors = case.model(torch.float64), case.batch(5, torch.float64), (1.0, 1.3, -0.4)
    each = [oracle.plain_gradients(model, case.loss, scaled(batch, factor)) for factor in factors]
    expected = {name: sum(gradients[name] for gradients in each) / 3 for name in each[0]}
    calls = cycle(factors)
    loss = averaged(case.loss, lambda part: scaled(part, next(calls)), views=3)
    for size in (None, 2):
        found = clipped_sum(model, loss, batch, Flat(0.05), method=method, physical_batch_size=size)
        assert oracle.relative_error(found.tensors, oracle.plain_clipped_sum(expected, "Flat", 0.05)) <= 1e-9


@pytest.mark.parametrize("index", [slice(1, 3), slice(None), slice(0, 0), torch.tensor([3, 1])], ids=str)
def test_blocks_of_units_hold_their_own_rows(index):
    rows = torch.randn(12, 5, dtype=torch.float64)
    whole = GroupedGrad(DenseGrad(rows), 3)
    expected = rows.view(4, 3, 5).sum(1)[index]
    some = whole.index_select(index)
    assert some.examples == len(expected)
    assert_equal_up_to_rounding(some.materialize(), expected)
    weights = torch.arange(len(expected), dtype=torch.float64) + 1.5
    assert_equal_up_to_rounding(some.weighted_sum(weights), weights @ expected)


def test_rows_of_convolutions_are_measured_without_keeping_every_rows_kernel_gradient():
    case = cases.by_name("conv2d few positions, wide")[0]
    model, (units, _) = case.model(), units_of(case, dtype=torch.float32)
    tape = record(model, grouped(case.loss), units)
    assert any(isinstance(grad, GroupedGrad) for grad in tape.grads.values())
    assert tape.examples == UNITS
    assert all(grad.examples == UNITS for grad in tape.grads.values())


COMBINED = cases.by_name(
    "mlp", "tanh-cnn", "transformer", "tied head", "linear, few positions", "conv2d few positions, wide", "lstm",
    "layer norm, time first",
)  # fmt: skip
