import cases
import oracle
import pytest
import torch
from recording import shift
from test_sensitivity import heavy_tailed, masks_for
from torch import nn

from privet.clipping import GEP, Automatic, Flat, Global
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, per_example_gradients, trainable
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.methods.tape import Tape
from privet.gradients.projection import subspace as module
from privet.gradients.projection.subspace import Subspace, find_subspace
from rounding import assert_equal_up_to_rounding

MODELS = cases.by_name("mlp", "tanh-cnn", "tied head", "shared parameter", "transformer", "lstm", "scale and shift")
SLACK = 1 + 1e-6
INNER, OUTER = Flat(0.7), Flat(0.4)


def rule(residual=OUTER, embedding=INNER, **options):
    settings = {"dimensions": 12, "anchors": 5, "public": "made up", **options}
    return GEP(embedding, residual, **settings)


def tape_of(gradients, parameters):
    return Tape(len(next(iter(gradients.values()))), parameters, {name: DenseGrad(g) for name, g in gradients.items()})


def subspace_of(chosen, model, loss, batch, masks=None):
    """The subspaces that a model's gradients of a batch span."""
    gradients = per_example_gradients(model, loss, batch)
    for name, mask in (masks or {}).items():
        gradients[name] *= mask
    parameters = trainable(model)
    return find_subspace(chosen, parameters, lambda: [tape_of(gradients, parameters)], torch.Generator().manual_seed(3))


def rows(gradients, names):
    return torch.cat([gradients[name].reshape(len(gradients[name]), -1) for name in names], 1)


def by_hand(chosen, space, gradients):
    """The clipped sums from whole gradients, one example after another."""
    groups = chosen.subspaces(tuple(gradients))
    total = {name: torch.zeros_like(tensor) for name, tensor in space.released.items()}
    for i in range(len(next(iter(gradients.values())))):
        flat = [rows(gradients, names)[i] for names in groups]
        inside = [basis.t() @ g for basis, g in zip(space.bases, flat, strict=True)]
        outside = [g - basis @ e for basis, g, e in zip(space.bases, flat, inside, strict=True)]
        own = chosen.embedding.weight(torch.cat(inside).norm())
        for number, embedding in enumerate(inside):
            total[f"embedding:{number}"] += own * embedding
        if chosen.residual is None:
            continue
        own = chosen.residual.weight(torch.cat(outside).norm())
        for names, rest in zip(groups, outside, strict=True):
            parts = rest.split([space.parameters[name].numel() for name in names])
            for name, part in zip(names, parts, strict=True):
                total[name] += own * part.view_as(total[name])
    return {name: oracle.SHRINK * value for name, value in total.items()}


@pytest.mark.product
@pytest.mark.parametrize("by", ["module", "parameter", "model"])
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_sums_are_those_of_explicit_gradients(case, by):
    model, anchors, batch = case.model(torch.float64), case.batch(5, torch.float64), case.batch(6, torch.float64)
    gradients = per_example_gradients(model, case.loss, batch)
    for chosen, method in (
        (rule(by=by), "loop"), (rule(None, by=by), "ghost"), (rule(Global(0.4, cutoff=2.0), Automatic(0.9, 0.1), by=by), "ghost"),
    ):  # fmt: skip
        space = subspace_of(chosen, model, case.loss, anchors)
        expected = by_hand(chosen, space, gradients)
        found = clipped_sum(model, case.loss, batch, chosen, method=method, subspace=space, physical_batch_size=4)
        assert found.tensors.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found.tensors[name], value, rtol=1e-7, atol=1e-9)
        assert found.sensitivity == chosen.sensitivity


def test_gradients_in_the_span_of_the_anchors_have_no_residual():
    case = cases.by_name("mlp")[0]
    model, anchors = case.model(torch.float64), case.batch(5, torch.float64)
    chosen = rule(dimensions=1000, by="parameter", residual=Flat(1e6), embedding=Flat(1e6))
    space = subspace_of(chosen, model, case.loss, anchors)
    for basis in space.bases:
        assert torch.allclose(basis.t() @ basis, torch.eye(basis.shape[1]).double(), atol=1e-12)
    found = clipped_sum(model, case.loss, anchors, chosen, subspace=space)
    whole = {name: value.sum(0) for name, value in per_example_gradients(model, case.loss, anchors).items()}
    joined = space.join(found.tensors)
    for name, value in whole.items():
        assert float(found.tensors[name].abs().max()) < 1e-5 * max(1.0, float(value.abs().max()))
        torch.testing.assert_close(joined[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_bases_are_those_of_power_iteration(iterations):
    torch.manual_seed(5)
    gradients, chosen = {"weight": torch.randn(30, 4, 5).double()}, rule(dimensions=3, anchors=30, iterations=iterations)
    parameters = {"weight": torch.zeros(4, 5).double()}
    space = find_subspace(chosen, parameters, lambda: [tape_of(gradients, parameters)], torch.Generator().manual_seed(7))
    g = gradients["weight"].flatten(1)
    basis = torch.randn(20, 3, generator=torch.Generator().manual_seed(7)).double()
    for _ in range(iterations):
        basis = torch.linalg.qr(g.t() @ (g @ basis))[0]
    assert_equal_up_to_rounding(space.bases[0] @ space.bases[0].t(), basis @ basis.t())


def test_more_iterations_find_more_of_the_gradients():
    torch.manual_seed(6)
    parameters = {"weight": torch.zeros(40)}
    gradients = {"weight": torch.randn(60, 40) * torch.logspace(0, -2, 40)}
    tapes = [tape_of({"weight": part}, parameters) for part in gradients["weight"].split(17)]
    left = []
    for iterations in (1, 3, 10):
        chosen = rule(dimensions=5, anchors=60, iterations=iterations)
        basis = find_subspace(chosen, parameters, lambda: tapes, torch.Generator().manual_seed(1)).bases[0]
        left.append(float((gradients["weight"] - gradients["weight"] @ basis @ basis.t()).norm()))
    exact = torch.linalg.svd(gradients["weight"])[2][:5].t()
    best = float((gradients["weight"] - gradients["weight"] @ exact @ exact.t()).norm())
    assert left[0] > left[1] > 1.001 * left[2]
    assert best <= left[2] < 1.03 * best


def test_anchors_without_a_finite_gradient_are_left_out():
    torch.manual_seed(7)
    parameters, chosen = {"weight": torch.zeros(9)}, rule(dimensions=3, anchors=8)
    good = torch.randn(8, 9)
    bad = torch.cat([good, torch.full((1, 9), torch.nan), torch.full((1, 9), torch.inf), torch.full((1, 9), 1e30)])
    one, other = (
        find_subspace(chosen, parameters, lambda g=g: [tape_of({"weight": g}, parameters)], torch.Generator().manual_seed(1))
        for g in (good, bad)
    )
    assert_equal_up_to_rounding(one.bases[0], other.bases[0])
    nothing = {"weight": torch.zeros(8, 9)}
    blank = find_subspace(chosen, parameters, lambda: [tape_of(nothing, parameters)], torch.Generator())
    assert not blank.bases[0].any()


@pytest.mark.parametrize("chosen", [
    rule(), rule(None), rule(Flat(3e-3), share=0.1), rule(Automatic(0.02, 1e-6), Flat(0.5), share=0.9), rule(by="model"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "tied head"), ids=str)
def test_removing_any_example_moves_the_sums_by_at_most_the_sensitivity(case, chosen):
    model, batch = case.model(torch.float64), heavy_tailed(case, 7, torch.float64)
    space = subspace_of(chosen, model, case.loss, case.batch(5, torch.float64))
    whole = clipped_sum(model, case.loss, batch, chosen, subspace=space)
    rest = (clipped_sum(model, case.loss, oracle.without(batch, position), chosen, subspace=space) for position in range(7))
    moved = [oracle.moved(whole, smaller) for smaller in rest]
    assert max(moved) <= chosen.sensitivity * SLACK
    # Large examples fill both parts, so the sensitivity is not larger than it has to be.
    assert max(moved) > 0.9 * chosen.sensitivity


@pytest.mark.parametrize("basis", [
    torch.zeros(12, 2), torch.ones(12, 2), 1e4 * torch.randn(12, 2), torch.full((12, 2), torch.nan), torch.eye(12)[:, :2],
], ids=["zero", "equal", "long", "NaN", "orthonormal"])  # fmt: skip
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20, 1e30, torch.inf, torch.nan])
def test_a_contribution_is_bounded_whatever_basis_and_gradient(basis, scale):
    chosen = rule(share=0.3)
    torch.manual_seed(8)
    x = torch.randn(4, 12)
    x[0] *= scale
    layer = nn.Linear(12, 1, bias=False)
    space = Subspace(chosen, trainable(layer), [basis])

    def loss(model, batch):
        return model(batch)[:, 0]

    moved = shift(layer, loss, x, chosen, subspace=space)
    assert moved <= chosen.sensitivity * (1e-6 if scale == torch.inf or scale != scale else SLACK)


@pytest.fixture
def plane():
    """A vector of length 3,742 in the span of a basis of three dimensions, a direction outside, and the sum of a gradient."""
    basis = torch.linalg.qr(torch.randn(40, 3, generator=torch.Generator().manual_seed(1)))[0]
    beside = torch.randn(40, 1, generator=torch.Generator().manual_seed(2))
    outside = torch.linalg.qr(torch.cat([basis, beside], 1))[0][:, 3]

    def found(gradient, residual):
        layer, chosen = nn.Linear(40, 1, bias=False), rule(residual=residual, embedding=Flat(10.0))
        space = Subspace(chosen, trainable(layer), [basis])
        sums = clipped_sum(layer, lambda model, batch: model(batch)[:, 0], gradient[None], chosen, subspace=space).tensors
        return sums, basis.double().t() @ gradient.double()

    return basis @ torch.tensor([3e3, -2e3, 1e3]), outside, found


def test_a_residual_that_is_small_beside_its_gradient_is_not_lost_to_rounding(plane):
    """‖g‖² − ‖Bᵀg‖² would be off by a tenth in float32 here."""
    inside, outside, found = plane
    sums, _ = found(inside + 4 * outside, Flat(4.0))
    assert float(sums["weight"].norm()) == pytest.approx(4.0, abs=0.02)
    assert float(sums["weight"][0] @ outside) == pytest.approx(4.0, abs=0.02)


@pytest.mark.parametrize("part", ["embedding", "residual"])
def test_a_part_that_is_rounding_is_not_scaled_up_to_its_bound(plane, part):
    """The digits of an outlier's rounding depend on the number of examples: one more would turn its contribution round."""
    inside, outside, found = plane
    sums, _ = found(1e5 * (inside if part == "residual" else 4e3 * outside), Flat(4.0))
    bound, name = (4.0, "weight") if part == "residual" else (10.0, "embedding:0")
    assert float(sums[name].norm()) <= 0.02 * bound


def test_an_embedding_without_a_residual_is_computed_precisely(plane):
    """Nothing tells then how much of it is rounding."""
    inside, outside, found = plane
    sums, exact = found(1e6 * outside + inside / 1e3, None)
    assert torch.allclose(sums["embedding:0"].double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("residual", [Flat(0.4), None])
def test_masks_apply_to_anchors_embeddings_and_residuals(residual):
    case = cases.by_name("mlp")[0]
    model, batch, chosen = case.model(torch.float64), case.batch(6, torch.float64), rule(residual)
    masks = masks_for(model, 0.4)
    space = subspace_of(chosen, model, case.loss, case.batch(5, torch.float64), masks)
    gradients = {name: g * masks[name] for name, g in per_example_gradients(model, case.loss, batch).items()}
    found = clipped_sum(model, case.loss, batch, chosen, masks=masks, subspace=space)
    for name, value in by_hand(chosen, space, gradients).items():
        torch.testing.assert_close(found.tensors[name], value, rtol=1e-7, atol=1e-9)
    assert set(found.support) == (set(masks) if residual else set())
    for name, value in space.join(found.tensors).items():
        assert not value[~masks[name]].any()


def test_examples_are_split_in_blocks(monkeypatch):
    case = cases.by_name("mlp")[0]
    model, batch, chosen = case.model(torch.float64), case.batch(7, torch.float64), rule()
    space = subspace_of(chosen, model, case.loss, case.batch(5, torch.float64))
    together = clipped_sum(model, case.loss, batch, chosen, subspace=space)
    monkeypatch.setattr(module, "_AT_ONCE", 2 * sum(p.numel() for p in model.parameters()))
    apart = clipped_sum(model, case.loss, batch, chosen, subspace=space)
    assert_equal_up_to_rounding(apart.tensors, together.tensors)
    assert_equal_up_to_rounding(together.norms, apart.norms)


def test_no_examples_give_zeros_for_all_that_is_released():
    layer, chosen = nn.Linear(3, 2), rule()
    space = Subspace(chosen, trainable(layer), [torch.eye(8)[:, :4]])
    found = clipped_sum(layer, lambda model, batch: model(batch).sum(1), torch.zeros(0, 3), chosen, subspace=space)
    assert {name: tuple(value.shape) for name, value in found.tensors.items()} == {
        "embedding:0": (4,), "weight": (2, 3), "bias": (2,),
    }  # fmt: skip
    assert not any(value.any() for value in found.tensors.values())
    assert set(found.noise_scales) == set(found.tensors)


def test_rules_and_subspaces_belong_together():
    layer, loss = nn.Linear(3, 2), lambda model, batch: model(batch).sum(1)
    space = Subspace(rule(), trainable(layer), [torch.eye(8)[:, :4]])
    with pytest.raises(InvalidArgumentError, match=r"given with clipping\.GEP"):
        clipped_sum(layer, loss, torch.zeros(2, 3), rule())
    with pytest.raises(InvalidArgumentError, match=r"left out with clipping\.Flat"):
        clipped_sum(layer, loss, torch.zeros(2, 3), Flat(1.0), subspace=space)
