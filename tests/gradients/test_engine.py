import copy
import gc
import weakref

import cases
import pytest
import torch
from recording import Seen, cover, underlying
from torch import nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.clipping.clipped_sum import BatchSlice
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients import METHODS, clipped_sum, per_example_gradients, per_example_norms, trainable
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine
from rounding import assert_equal_up_to_rounding

WAYS = ["auto", *METHODS]
MODELS = cases.by_name("logistic", "cnn", "transformer", "scalar")
ALL_WAYS = [
    *((case, method) for case in MODELS for method in WAYS),
    *((case, method) for case in cases.UNFOLLOWED for method in ("auto", "loop")),
]
EVERY_WAY = pytest.mark.parametrize(("case", "method"), ALL_WAYS, ids=str)


@EVERY_WAY
def test_an_empty_batch_has_an_empty_result(case, method):
    model, batch = case.model(), case.batch(0)
    result = clipped_sum(model, case.loss, batch, Flat(0.7), method=method, part=BatchSlice(3, 5, 5))
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert {name: tuple(value.shape) for name, value in result.tensors.items()} == shapes
    assert not any(value.any() or value.requires_grad for value in result.tensors.values())
    assert (result.sensitivity, result.norms.shape, result.part) == (0.7, (0,), BatchSlice(3, 5, 5))
    assert per_example_norms(model, case.loss, batch, method=method).shape == (0,)
    gradients = per_example_gradients(model, case.loss, batch, method=method)
    assert {name: tuple(value.shape[1:]) for name, value in gradients.items()} == shapes
    assert not sum(map(len, gradients.values()))


@EVERY_WAY
def test_queries_change_nothing_share_nothing_and_give_the_same_again(case, method):
    model, batch = case.model(), case.batch(3)
    model.train()
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 1e6) if index % 2 else None
    before = copy.deepcopy(model.state_dict())
    grads = {name: copy.deepcopy(parameter.grad) for name, parameter in model.named_parameters()}
    inputs = copy.deepcopy(batch)
    found, again = (clipped_sum(model, case.loss, batch, Flat(0.7), method=method) for _ in range(2))
    gradients = per_example_gradients(model, case.loss, batch, method=method)
    per_example_norms(model, case.loss, batch, method=method)
    assert torch.equal(found.norms, again.norms)
    assert all(torch.equal(one, other) for one, other in zip(batch, inputs, strict=True))
    assert model.state_dict().keys() == before.keys()
    assert all(module.training for module in model.modules())
    for name, now in model.named_parameters():
        assert type(now) is nn.Parameter, name
        assert torch.equal(now, before[name]), name
        assert now.requires_grad
        assert now.grad is None if grads[name] is None else torch.equal(now.grad, grads[name])
        assert torch.equal(found.tensors[name], again.tensors[name])
        for value in (found.tensors[name], gradients[name]):
            assert not value.requires_grad
            assert value.untyped_storage().data_ptr() != now.untyped_storage().data_ptr()


def test_the_mode_of_the_model_is_kept_what_is_frozen_has_no_gradient_and_what_is_shared_has_one():
    for mode in (True, False):
        model = nn.Sequential(nn.Linear(30, 30), nn.Dropout(0.5)).train(mode)
        gradient = per_example_gradients(model, lambda m, x: m(x).sum(1), torch.ones(2, 30), method="ghost")["0.bias"]
        assert bool((gradient == 0).any()) is mode
        assert all(module.training is mode for module in model.modules())
    assert set(trainable(cases.frozen(nn.Linear(3, 2), "bias"))) == {"weight"}
    assert set(trainable(cases.with_shared_parameter())) == {"first.weight", "first.bias", "second.bias"}


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("case", cases.by_name("cnn", "transformer", "conv2d few positions, wide"), ids=str)
def test_activations_are_freed_at_once_without_the_garbage_collector(case, method):
    model, batch, alive = case.model(), case.batch(3), Seen()

    def remember(_module, inputs, output):
        alive.items.extend(weakref.ref(x) for x in map(underlying, (*inputs, output)) if x.requires_grad and not x.is_leaf)

    handles = [module.register_forward_hook(remember) for module in model.modules()]
    gc.disable()
    try:
        clipped_sum(model, case.loss, batch, Flat(0.7), method=method)
        assert alive.items
        assert not any(reference() is not None for reference in alive.items)
    finally:
        gc.enable()
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize(("says", "model", "options"), [
    ("no trainable parameter", nn.Linear(3, 2).requires_grad_(False), {}),
    *((rf"parameter 1\.weight is {found}", nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, **made)), {}) for found, made in (
        (r"torch\.", {"dtype": torch.float16}), ("torch.complex64.*its real and imaginary parts", {"dtype": torch.complex64}),
        ("on the meta device", {"device": "meta"}))),
    (r"clipping is 1\.0", nn.Linear(3, 2), {"clipping": 1.0}),
    ("'auto', 'ghost', 'loop'", nn.Linear(3, 2), {"method": "tape"}),
    ("batch is 'list'", nn.Linear(3, 2), {"batch": [1, 2]}),
])  # fmt: skip
def test_what_cannot_be_computed_is_refused_by_name(says, model, options):
    given = {"batch": torch.ones(2, 3), "clipping": Flat(0.7)} | options
    with pytest.raises((InvalidArgumentError, UnsupportedModelError), match=says):
        clipped_sum(model, lambda m, x: m(x).sum(1), **given)


@pytest.mark.parametrize("method", WAYS)
def test_user_code_sees_one_example_at_a_time(method):
    """For any batch, the model's input has one example and nothing else is visible."""
    model, sizes = nn.Linear(3, 2), Seen()

    def loss(m, batch):
        sizes((len(batch["x"]), batch["x"].shape, len(batch["shared"]), batch["power"]))
        return ((m(batch["x"]) * batch["shared"]) ** batch["power"]).sum(1)

    batch = {"x": torch.randn(4, 3), "shared": torch.tensor([1.0, 0.0]), "power": 2}
    found = per_example_gradients(model, loss, batch, method=method)
    assert set(sizes.items) == {(1, (1, 3), 2, 2)}
    assert found["weight"].shape == (4, 2, 3)
    assert not found["weight"][:, 1].any()
    assert found["weight"][:, 0].any()


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize(("loss", "found"), [
    (lambda m, x: m(x).sum(), r"a tensor of shape \(\)"), (lambda m, x: m(x), r"a tensor of shape \(1, 2\)"),
    (lambda m, x: m(x).sum(1, keepdim=True), r"a tensor of shape \(1, 1\)"), (lambda m, x: 1.0, "a float"),
    (lambda m, x: None, "a NoneType"),
])  # fmt: skip
def test_a_loss_that_is_not_one_per_example_is_refused(loss, found, method):
    with pytest.raises(InvalidArgumentError, match=rf"is '{found}'; it must be one loss per example"):
        per_example_gradients(nn.Linear(3, 2), loss, torch.randn(4, 3), method=method)


def total_of(engine, batch, bound=0.7):
    return engine.clipped_sum(batch, Clipper.of(engine.parameters, Flat(bound)))


@pytest.mark.parametrize("method", WAYS)
def test_inference_mode_is_refused_and_leaves_nothing_behind(method):
    model, batch = nn.Linear(3, 2), split_batch(torch.randn(4, 3))
    engine = Engine(model, lambda m, x: m(x).sum(1), trainable(model), method, skip_errors=True)
    with torch.inference_mode(), pytest.raises(InvalidArgumentError, match="left before gradients are computed"):
        total_of(engine, batch)
    with torch.no_grad():
        assert (total_of(engine, batch).norms(4) > 0).all()


CALLS = {
    "clipped_sum": lambda *args, method: clipped_sum(*args, Flat(1e6), method=method).tensors["weight"],
    "per_example_gradients": lambda *args, method: per_example_gradients(*args, method=method)["weight"],
    "per_example_norms": per_example_norms,
}


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("call", CALLS)
def test_calls_draw_new_numbers_which_torchs_seed_determines(call, method):
    model, x = nn.Linear(50, 1), torch.ones(3, 50)

    def calls():
        torch.manual_seed(5)
        return [CALLS[call](model, lambda m, x: m(F.dropout(x, 0.5)).sum(1), x, method=method) for _ in range(3)]

    first, again = calls(), calls()
    assert len({tuple(tensor.flatten().tolist()) for tensor in first}) == 3
    assert all(map(torch.equal, first, again))


def test_norms_of_parts_are_those_of_the_whole_batch_and_looped_examples_are_counted():
    for name, looped in (("cnn", 0), ("lstm with projections", 5)):
        (case,) = cases.by_name(name)
        model, batch = case.model(), split_batch(case.batch(5))
        whole, parts = (Engine(model, case.loss, trainable(model), physical_batch_size=size) for size in (None, 2))
        expected, found = (total_of(engine, batch).norms(5) for engine in (whole, parts))
        assert (found.shape, parts.looped) == ((1, 5), looped)
        assert_equal_up_to_rounding(found, expected, precision=torch.float32)


def test_norms_of_groups_are_in_the_order_of_the_batch():
    model, x = nn.Linear(3, 1), torch.randn(6, 3, dtype=torch.float64) * torch.arange(1.0, 7.0).double()[:, None]
    x[:, 0] = x[:, 0].abs() * torch.tensor([1, -1, 1, 1, -1, -1])
    model.double()

    def branching(m, x):
        return m(x).sum(1) if x[0, 0] > 0 else 2.0 * m(x).sum(1)

    norms = total_of(Engine(model, branching, trainable(model)), split_batch(x)).norms(6)[0]
    exact = (x.square().sum(1) + 1.0).sqrt() * torch.where(x[:, 0] > 0, 1.0, 2.0)
    assert_equal_up_to_rounding(norms, exact)


@pytest.mark.parametrize("method", WAYS)
def test_seeds_of_the_user_neither_repeat_nor_shift_what_is_drawn(method):
    """A model that seeds torch draws fresh numbers and leaves the global generator unchanged; its own is each example's."""
    model, x, own = nn.Linear(50, 1), torch.ones(3, 50), torch.Generator().manual_seed(1)

    def seeded(m, x):
        torch.manual_seed(0)
        return m(F.dropout(x, 0.5)).sum(1)

    def owned(m, x):
        return m(x * torch.rand(x.shape, generator=own)).sum(1)

    state, numbers = torch.get_rng_state(), iter(range(100))
    found = [cover(model, loss, x, method, seeds=lambda: next(numbers)).gradients["weight"] for loss in (seeded, seeded, owned)]
    assert len({tuple(row.flatten().tolist()) for each in found for row in each}) == 9
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("skip", [True, False])
def test_sums_are_freed_at_once(skip):
    """A reference cycle would keep those of many steps until Python collects it."""
    model, batch = nn.Linear(3, 2), split_batch(torch.randn(4, 3))
    engine = Engine(model, lambda m, x: m(x).sum(1), trainable(model), skip_errors=skip)
    gc.disable()
    try:
        kept = weakref.ref(total_of(engine, batch).sums["weight"])
        assert kept() is None
    finally:
        gc.enable()
