"""Masks: for every layer, method and rule, m∘gᵢ is clipped to the bound and summed."""

import cases
import oracle
import pytest
import torch
from recording import make_scarce
from test_sensitivity import masks_for
from torch import nn

from privet.clipping import NORM_RULES, Flat
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, empty_sum

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10}


def assert_supported_by(masks, found):
    assert found.support.keys() == masks.keys()
    assert all(found.support[name] is mask for name, mask in masks.items())


def check(case, dtype, method, density, kind="Flat", bound=0.7):
    known = oracle.reference(case, dtype)
    masks = masks_for(known.model, density)
    expected = {name: value * masks[name] for name, value in known.expected.items()}
    wanted, whole = oracle.norms_of(expected), oracle.norms_of(known.expected)
    found = clipped_sum(known.model, case.loss, known.batch, NORM_RULES[kind](bound=bound), method=method, masks=masks)
    assert oracle.relative_error(found.tensors, oracle.plain_clipped_sum(expected, kind, bound)) <= TOLERANCE[dtype]
    assert ((found.norms - wanted).abs() <= TOLERANCE[dtype] * whole).all()
    assert_supported_by(masks, found)
    assert all(bool((found.tensors[name][~mask] == 0).all()) for name, mask in masks.items())


@pytest.mark.parametrize(
    ("dtype", "density"), [(torch.float64, 0.1), (torch.float32, 0.6)], ids=["float64, few", "float32, most"]
)
@pytest.mark.parametrize("case", cases.slow_unless_typical([*cases.FOLLOWED, *cases.UNFOLLOWED]), ids=str)
def test_the_tape_agrees_with_masked_plain_gradients(case, dtype, density):
    check(case, dtype, "auto", density, "Flat" if dtype == torch.float64 else "PSASC")  # weights are tested elsewhere


@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.FOLLOWED), ids=str)
def test_the_tape_agrees_when_memory_is_scarce(case, monkeypatch):
    make_scarce(monkeypatch)
    check(case, torch.float64, "ghost", 0.1 if len(case.name) % 2 else 0.6)


@pytest.mark.parametrize("case", cases.NETWORKS, ids=str)
def test_one_example_at_a_time_agrees(case):
    check(case, torch.float64, "loop", 0.1 if len(case.name) % 2 else 0.6)


@pytest.mark.parametrize(("width", "density"), [(64, 0.5), (1000, 0.05), (5000, 0.5)])
@pytest.mark.parametrize("same", [0.1, 1 / 3, 1.0, None], ids=str)
def test_a_wide_layer_of_equal_inputs_is_not_measured_too_short(width, density, same):
    """Sums of many equal numbers have errors of one sign."""
    torch.manual_seed(0)
    model = nn.Linear(width, 3, bias=False)
    x = torch.randn(4, width) if same is None else torch.full((4, width), same)
    masks = masks_for(model, density)
    found = clipped_sum(
        model, lambda m, b: (m(b) * torch.tensor([1.0, -3.0, 0.1])).sum(1), x, Flat(0.7), method="ghost", masks=masks
    )
    kept = torch.einsum("j,bk->bjk", torch.tensor([1.0, -3.0, 0.1]).double(), x.double()) * masks["weight"]
    lengths = kept.flatten(1).norm(dim=1)
    assert (found.norms >= lengths).all()
    assert (found.norms <= lengths * (1 + 1e-3)).all()


@pytest.mark.parametrize("sizes", [(1e-25, 1e25), (1e-15, 1e15), (1e-8, 1e20), (1e15, 1e-15), (1e18, 1e10)], ids=str)
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_factors_whose_squares_leave_float32_are_measured_all_the_same(sizes, density):
    torch.manual_seed(0)
    model, (small, large) = nn.Linear(40, 30, bias=False), sizes
    x, direction = small * torch.randn(3, 40), large * torch.randn(30)
    masks = masks_for(model, density)
    lengths = (torch.einsum("j,bk->bjk", direction.double(), x.double()) * masks["weight"]).flatten(1).norm(dim=1)
    for position, length in enumerate(lengths.tolist()):
        alone = x[position : position + 1]
        found = clipped_sum(model, lambda m, b: (m(b) * direction).sum(1), alone, Flat(0.7), method="ghost", masks=masks)
        assert oracle.size(found.tensors) <= min(0.7, length) * (1 + 1e-6)
        assert oracle.size(found.tensors) >= min(0.7, length) * (1 - 1e-3)


@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "transformer"), ids=str)
def test_masks_of_everything_and_of_nothing(case):
    model, batch = case.model(torch.float64), case.batch(5, torch.float64)
    plain = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost")
    whole = {name: torch.ones_like(tensor, dtype=torch.bool) for name, tensor in plain.tensors.items()}
    found = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks=whole)
    assert oracle.relative_error(found.tensors, plain.tensors) <= 1e-12
    found = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks={name: ~mask for name, mask in whole.items()})
    assert oracle.size(found.tensors) == 0


def test_a_parameter_without_a_mask_is_kept_whole():
    (case,) = cases.by_name("mlp")
    model, batch = case.model(torch.float64), case.batch(5, torch.float64)
    first, *others = masks_for(model, 0.5).items()
    expected = oracle.plain_gradients(model, case.loss, batch)
    expected[first[0]] *= first[1]
    found = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks=dict([first]))
    assert others
    assert oracle.relative_error(found.tensors, oracle.plain_clipped_sum(expected, "Flat", 0.3)) <= 1e-10


def test_a_mask_that_is_written_to_is_noticed():
    (case,) = cases.by_name("mlp")
    model, batch = case.model(), case.batch(5)
    masks = masks_for(model, 0.5)
    for _ in range(2):
        found = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks=masks)
        assert all(bool((found.tensors[name][~mask] == 0).all()) for name, mask in masks.items())
        for mask in masks.values():
            mask.logical_not_()


def test_parts_of_one_draw_have_one_mask():
    (case,) = cases.by_name("mlp")
    model, batch = case.model(), case.batch(6)
    masks = masks_for(model, 0.5)
    whole = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks=masks)
    parts = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", masks=masks, physical_batch_size=4)
    assert oracle.relative_error(parts.tensors, whole.tensors) <= 1e-6


def test_an_empty_batch_has_the_support_too():
    (case,) = cases.by_name("mlp")
    model = case.model()
    masks = masks_for(model, 0.5)
    assert_supported_by(masks, empty_sum(dict(model.named_parameters()), Flat(0.3), masks=masks))
    assert_supported_by(masks, clipped_sum(model, case.loss, case.batch(0), Flat(0.3), masks=masks))


@pytest.mark.parametrize("mask", [
    torch.ones(3, dtype=torch.bool), torch.ones(7, 5), torch.ones(5, 7, dtype=torch.int64),
], ids=["shape", "float", "int"])  # fmt: skip
def test_a_mask_that_does_not_fit_is_refused_by_name(mask):
    with pytest.raises(InvalidArgumentError, match=r"masks\['weight'\]"):
        clipped_sum(nn.Linear(7, 5), cases.energy, (torch.ones(2, 7),), Flat(0.3), masks={"weight": mask})
    with pytest.raises(InvalidArgumentError, match="a trainable parameter's"):
        clipped_sum(nn.Linear(7, 5), cases.energy, (torch.ones(2, 7),), Flat(0.3), masks={"none": mask})
