import copy
import dataclasses
import enum
import pathlib
import types

import cases
import numpy as np
import pytest
import torch
from recording import Hidden
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients import per_example_norms
from privet.gradients.core.examples import Examples, split_batch, stack
from privet.gradients.methods import passes as module_of_passes
from privet.gradients.methods.tape import Tape
from privet.gradients.probe import probe as module_of_probe
from privet.gradients.probe.synthetic_batch import KINDS, common_objects, join_examples, make_synthetic, make_synthetic_items

LEAF = pytree.tree_structure(0)


def probe(model, loss_fn, batch, **options):
    return module_of_probe.probe(model, loss_fn, [split_batch(batch)], **options)


def labelled(*shape, examples=6):
    return torch.randn(examples, *shape), torch.randint(3, (examples,))


def classify(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize("case", cases.by_name(
    "logistic", "mlp", "cnn", "tanh-cnn", "strided-cnn", "transformer", "tied head", "shared parameter", "class token", "lstm",
    "gru, two layers both ways", "encoder and decoder", "LSTMCell, step by step", "unused layer",
), ids=str)  # fmt: skip
def test_ordinary_models_train_by_the_tape(case):
    assert probe(case.model(), case.loss, case.batch(6)) == "ghost"


@pytest.mark.parametrize("case", cases.UNFOLLOWED, ids=str)
def test_unsupported_operations_use_the_loop(case):
    assert probe(case.model(), case.loss, case.batch(6)) == "loop"
    with pytest.raises(UnsupportedModelError, match="method 'ghost' does not suit"):
        probe(case.model(), case.loss, case.batch(6), method="ghost")


@pytest.mark.parametrize("examples", [2, 3, 5])
@pytest.mark.parametrize("case", cases.COINCIDENCES, ids=str)
def test_sizes_that_equal_the_number_of_examples_do_not_fool_it(case, examples):
    model, batch = case.model(), case.batch(cases.COINCIDENCE)
    assert probe(model, case.loss, case.batch(examples)) == "ghost"
    expected = per_example_norms(model, case.loss, batch, method="loop")
    assert torch.allclose(per_example_norms(model, case.loss, batch, method="ghost"), expected, rtol=1e-5)


class Written(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.copy_(x.mean(0).expand_as(self.weight))
        return super().forward(x)


class Lazy(nn.Linear):
    """Creates a layer in its first call."""

    def forward(self, x):
        if not hasattr(self, "extra"):
            self.extra = nn.Linear(3, 3)
        return self.extra(super().forward(x))


def weighted(model, batch):
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=batch[0].dtype)[batch[1]]
    return weights * classify(model, batch) / weights.sum()


def per_position(model, batch):
    x = batch[0][:, None].expand(-1, 6, -1)
    return F.cross_entropy(model(x.flatten(0, 1)), batch[1].repeat_interleave(6), reduction="none")


KEEPER = Hidden()


def keeps_in_an_object(m, b):
    out = KEEPER.value = classify(m, b)
    return out


def adds_up(m, b):
    KEEPER.value = KEEPER.value + float(b[0].detach().sum())
    return classify(m, b) * (1 + KEEPER.value)


def remembers_the_one_before(m, b):
    before, KEEPER.value = KEEPER.value, float(b[0].detach().sum())
    return classify(m, b) * (1 + before)


def between(layer):
    return nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 3))


CENTRED = between(nn.Sequential(nn.Tanh(), Centred()))
BATCH_NORMS = {
    "batch norm": nn.BatchNorm1d(5), "batch norm without parameters": nn.BatchNorm1d(5, affine=False),
    "frozen batch norm": nn.BatchNorm1d(5).requires_grad_(False),
    "batch norm without statistics": nn.BatchNorm1d(5, track_running_stats=False),
    "batch norm without statistics in eval mode": nn.BatchNorm1d(5, track_running_stats=False).eval(),
}  # fmt: skip
ONE_LOSS, NO_PARAMETER, NEIGHBOURS = "loss_fn", "depends on no trainable parameter", "changes with its neighbours"
# What is wrong → model, loss, what the refusal says.
REFUSED = {
    **{name: (between(layer), classify, r"'1' is a BatchNorm1d.*replace_batch_norm") for name, layer in BATCH_NORMS.items()},
    **{f"centres over the batch, loss times {scale}": (
        CENTRED, lambda m, b, scale=scale: scale * classify(m, b), NEIGHBOURS) for scale in (1e-9, 1.0, 1e9)},
    "divides by the weights of the batch": (nn.Linear(4, 3), weighted, NEIGHBOURS),
    "mean": (nn.Linear(4, 3), lambda m, b: classify(m, b).mean(), ONE_LOSS),
    "sum": (nn.Linear(4, 3), lambda m, b: classify(m, b).sum(), ONE_LOSS),
    "one example is many": (nn.Linear(4, 3), per_position, r"is 'a tensor of shape \(6,\)'; it must be one loss per example"),
    # These would silently train on noise only.
    "detached": (nn.Linear(4, 3), lambda m, b: classify(m, b).detach(), NO_PARAMETER),
    "integer": (nn.Linear(4, 3), lambda m, b: m(b[0]).argmax(1).double(), NO_PARAMETER),
    "without the model": (nn.Linear(4, 3), lambda m, b: b[0].sum(1), NO_PARAMETER),
    "one class": (nn.Linear(4, 1), lambda m, b: F.cross_entropy(m(b[0]), 0 * b[1], reduction="none"), "is zero on a made-up"),
    "writes to a parameter": (Written(4, 3), classify, "writes to a parameter"),
    "keeps a tensor": (nn.Linear(4, 3), keeps_in_an_object, "keeps a tensor of an example"),
    "adds up": (nn.Linear(4, 3), adds_up, "came before it|neighbours"),
    "remembers the one before": (nn.Linear(4, 3), remembers_the_one_before, "came before it"),
    "creates a module": (Lazy(4, 3), classify, r"creates Lazy\.extra"),
    "takes the first example for the only one": (
        nn.Linear(4, 3), lambda m, b: classify(m, b) + b[0][0].square().sum(),
        r"several made-up examples.*words\[0\].*torch\.vmap.*probe=False"),
    "fails": (nn.Linear(5, 3), classify,
              r"cannot be multiplied.*loss_fn\(model, batch\) fails on a made-up example.*privet\.Reading\(probe_batch=…\)"),
}  # fmt: skip


def mapped(model, batch):
    return classify(model, batch) + torch.vmap(lambda one: one.square().sum())(batch[0])


@pytest.mark.parametrize("content", [0.0, 1e30, torch.nan, torch.inf], ids=str)
def test_the_verdict_does_not_depend_on_the_content_of_the_batch(content):
    batch = (torch.full((6, 4), content), torch.full((6,), 2))
    assert probe(nn.Linear(4, 3), classify, batch) == probe(nn.Linear(4, 3), mapped, batch) == "ghost"
    with pytest.raises(UnsupportedModelError, match="neighbours"):
        probe(nn.Sequential(nn.Linear(4, 3), Centred()), classify, batch)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_by_name(name):
    model, loss, says = REFUSED[name]
    KEEPER.value = 0.0
    with pytest.raises(InvalidArgumentError if says == ONE_LOSS or "one loss" in says else UnsupportedModelError, match=says):
        probe(model, loss, labelled(4))


DROPOUT = [
    cases.Case("dropout", lambda: nn.Sequential(
        nn.Linear(4, 50), nn.Dropout(0.1, inplace=True), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 3)), cases.numbers(4)),
    cases.recurrent("dropout in a lstm", nn.LSTM, num_layers=2, dropout=0.5),
    cases.Case("dropout in attention", cases.with_attention(4, 2, dropout=0.5, batch_first=True), cases.numbers(5, 4)),
]  # fmt: skip


# Each example writes into its own copy, so these models train; the values written are discarded.
def counting(m, x):
    m.seen += 1
    return m.a(x)


def counted():
    model = cases.With(counting, a=nn.Linear(4, 5))
    model.register_buffer("seen", torch.zeros(()))
    return model


CHANGING = [
    cases.Case("counter", counted, cases.numbers(4)),
    cases.Case("running statistics", lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), cases.numbers(3, 5)),
    cases.Case("spectral norm in training", lambda: nn.Sequential(
        nn.Linear(4, 5), nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3))), cases.numbers(4)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the model changes its own state")
@pytest.mark.parametrize("case", [
    *cases.by_name("cnn", "transformer", "positions of several examples in another order"), *DROPOUT, *CHANGING,
], ids=str)  # fmt: skip
def test_the_model_and_the_batch_stay_as_they_are_and_none_of_the_users_randomness_is_used(case):
    model, batch = case.model(), case.batch(6)
    rates = [getattr(module, "dropout", None) for module in model.modules()]
    model.train(case in DROPOUT + CHANGING)
    next(model.children(), model).train()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before, then, modes = copy.deepcopy(model.state_dict()), copy.deepcopy(batch), [m.training for m in model.modules()]
    state = torch.get_rng_state()
    assert probe(model, case.loss, batch) == "ghost"
    assert torch.equal(torch.get_rng_state(), state)
    assert [getattr(module, "dropout", None) for module in model.modules()] == rates
    assert [m.training for m in model.modules()] == modes
    assert all(
        torch.equal(value, before[name]) and value.dtype == before[name].dtype for name, value in model.state_dict().items()
    )
    assert all(torch.equal(parameter.grad, torch.ones_like(parameter)) for parameter in model.parameters())
    assert all(torch.equal(one, other) for one, other in zip(batch, then, strict=True))


def test_synthetic_batches_keep_structure_and_types_only():
    batch = {
        "x": torch.full((5, 2), 7.0, dtype=torch.float64), "y": torch.full((5,), 7, dtype=torch.int32),
        "m": torch.zeros(5, dtype=torch.bool), "k": 3, "shared": torch.full((2, 2), 7.0),
    }  # fmt: skip
    given = split_batch(batch)
    examples = make_synthetic(given, 2, kept=common_objects([given]))
    found = join_examples(examples)
    assert examples.count == 2
    assert {name: tuple(value.shape) for name, value in found.items() if name != "k"} == {
        "x": (2, 2), "y": (2,), "m": (2,), "shared": (2, 2)
    }  # fmt: skip
    assert (found["x"].dtype, found["y"].dtype, found["m"].dtype) == (torch.float64, torch.int32, torch.bool)
    assert set(found["y"].tolist()) <= {0, 1}
    assert not (found["x"] == 7).any()
    assert found["m"].all()
    assert found["k"] == 1
    assert torch.equal(found["shared"], batch["shared"])
    assert torch.equal(join_examples(make_synthetic(split_batch(batch), 2))["x"], found["x"])
    assert not torch.equal(join_examples(make_synthetic(split_batch(batch), 2, seed=1))["x"], found["x"])


def test_synthetic_items_keep_structure_and_types_only():
    item = {"x": torch.full((2,), 7.0), "n": np.full(3, 7, dtype=np.uint8), "label": 7, "size": 7.0, "name": "seven", "ok": True}
    made = make_synthetic_items(item, 3)
    assert len(made) == 3
    for one in made:
        assert one["x"].shape == (2,)
        assert not (one["x"] == 7).any()
        assert one["n"].dtype == np.uint8
        assert set(one["n"].tolist()) | {one["label"]} <= {0, 1}
        assert isinstance(one["label"], int)
        assert isinstance(one["size"], float)
        assert one["size"] != 7.0
        assert (one["name"], one["ok"]) == ("a", True)
    assert not torch.equal(made[0]["x"], made[1]["x"])


@dataclasses.dataclass
class Holder:
    x: torch.Tensor
    name: str = "private"
    more: object = None


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize("leaf", [
    "private", b"private", 777, 777.0, np.full((2, 3), 777.0)[:, ::-1], np.full(3, 777, ">i4"), np.full(3, 777, np.longdouble),
    np.full(3, 777j), np.array(["private"]), np.float32(777), np.datetime64("2026-01-01"),
    np.array([(777.0,)], dtype=[("v", "f4")]), Colour.BLUE, Holder(torch.full((2,), 777.0)),
    types.SimpleNamespace(x=777, inner=[Holder(torch.full((2,), 777.0))]),
    torch.full((2,), 777j),
], ids=lambda leaf: type(leaf).__name__)  # fmt: skip
def test_what_is_made_up_has_the_type_of_a_real_value_and_no_other_trace_of_it(leaf):
    for made in (*make_synthetic_items(leaf, 2), make_synthetic(Examples((leaf,), (False,), LEAF, 3), 2).get(0)):
        assert type(made) is type(leaf)
        assert getattr(made, "dtype", None) == getattr(leaf, "dtype", None)
        assert getattr(made, "shape", None) == getattr(leaf, "shape", None)
        assert "777" not in repr(made)
        assert "private" not in repr(made)
        assert "BLUE" not in repr(made)


class Registered:
    """A class whose objects keep something besides tensors, as torch allows."""

    def __init__(self, x, kept):
        self.x, self.kept = x, kept


pytree.register_pytree_node(Registered, lambda each: ([each.x], each.kept), lambda x, kept: Registered(*x, kept))


@pytest.mark.parametrize("make", [lambda: pathlib.Path("private"), lambda: {7}, lambda: np.array([None], dtype=object)])
@pytest.mark.parametrize("place", [lambda x, value: (x, value), Registered])
def test_objects_that_cannot_be_made_up_are_refused_unless_all_examples_share_one(make, place):
    x, one = torch.zeros(1, 4), make()
    apart = [stack([place(x, make())]) for _ in range(3)]
    with pytest.raises(UnsupportedModelError, match=r"cannot be made up.*privet\.Reading\(spec=…\)") as caught:
        module_of_probe.probe(nn.Linear(4, 3), lambda m, b: 1 / 0, apart)
    assert "private" not in str(caught.value)
    assert common_objects([stack([place(x, one)]) for _ in range(3)]) == {id(one)}
    assert common_objects([stack([place(x, one)])]) == frozenset()


def test_what_an_error_says_is_left_out_if_examples_hold_real_objects():
    def loss(model, batch):
        raise ValueError(f"unknown {batch[1]}")

    for shared in (
        [stack([(torch.zeros(1, 4), pathlib.Path)]) for _ in range(3)],
        [split_batch((torch.zeros(3, 4), pathlib.Path))],
    ):
        with pytest.raises(UnsupportedModelError, match=r"^ValueError\. This is how") as caught:
            module_of_probe.probe(nn.Linear(4, 3), loss, shared)
        assert caught.value.__cause__ is None
    with pytest.raises(UnsupportedModelError, match="ValueError: unknown tensor") as caught:
        probe(nn.Linear(4, 3), loss, labelled(4))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_programs_that_need_other_numbers_are_checked_with_those(kind):
    """Whichever kind of numbers a program takes, it is checked with them; one that takes none is refused for the first."""

    def loss(model, batch):
        bits = bool(((batch[0] == 0) | (batch[0] == 1)).all())
        inside = bool(((batch[0] >= 0) & (batch[0] <= 1)).all())
        if (kind == 1 and not inside) or (kind == 2 and not bits):
            raise ValueError(f"not of kind {kind}")
        return classify(model, batch)

    assert probe(nn.Linear(4, 3), loss, labelled(4)) == "ghost"
    with pytest.raises(UnsupportedModelError, match="neighbours"):
        probe(nn.Sequential(nn.Linear(4, 3), Centred()), loss, labelled(4))


def test_a_method_that_is_wrong_is_not_used(monkeypatch):
    right = module_of_passes.ghost.record

    def half(*arguments, **options):
        tape = right(*arguments, **options)
        tape.grads.pop("bias")
        return tape

    monkeypatch.setattr(module_of_passes.ghost, "record", half)
    for scale in (1e-3, 1.0):
        assert probe(nn.Linear(4, 3), lambda m, b, scale=scale: scale * classify(m, b), labelled(4)) == "loop"
    with pytest.raises(UnsupportedModelError, match="differ from those of plain autograd"):
        probe(nn.Linear(4, 3), classify, labelled(4), method="ghost")


def test_norms_that_are_too_small_are_not_used(monkeypatch):
    right = Tape.group_norms
    monkeypatch.setattr(Tape, "group_norms", lambda *arguments: 0.9 * right(*arguments))
    assert probe(nn.Linear(4, 3), classify, labelled(4)) == "loop"


class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 3))

    def forward(self, model, batch):
        return (model(batch[0]) - self.centres[batch[1]]).square().sum(1)


def test_foreign_parameters_are_refused_by_name():
    criterion, free, loose = Criterion(), nn.Linear(4, 3), torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedModelError, match=r"the loss has parameters of its own.*centres"):
        probe(nn.Linear(4, 3), criterion, labelled(4))
    assert probe(nn.Linear(4, 3), criterion.requires_grad_(False), labelled(4)) == "ghost"
    with pytest.raises(UnsupportedModelError, match=r"uses parameter free\.weight"):
        probe(nn.Linear(4, 3), lambda m, b: classify(m, b) + free(b[0]).sum(1), labelled(4))
    with pytest.raises(UnsupportedModelError, match="uses the tensor 'loose'"):
        probe(nn.Linear(4, 3), lambda m, b: classify(m, b) + (m(b[0]) * loose).sum(1), labelled(4))
    frozen = nn.Linear(4, 3).requires_grad_(False)
    assert probe(nn.Linear(4, 3), lambda m, b: (m(b[0]) - frozen(b[0])).square().sum(1), labelled(4)) == "ghost"


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.filterwarnings("ignore:each example gets a pass of its own")
def test_a_foreign_parameter_beside_reentrant_checkpoints_is_refused(inside):
    free = nn.Linear(4, 3)

    def loss(m, b, own):
        x = b[0].requires_grad_()
        out = checkpoint(m, x, use_reentrant=True)
        other = x if own else checkpoint(free, x, use_reentrant=True) if inside else free(x)
        return classify(lambda _: out, b) + other.sum(1)

    with pytest.raises(UnsupportedModelError, match="which requires a gradient and is not a parameter of the model"):
        probe(nn.Linear(4, 3), lambda m, b: loss(m, b, own=False), labelled(4))
    assert probe(nn.Linear(4, 3), lambda m, b: loss(m, b, own=True), labelled(4)) == "loop"


TEACHER = nn.Linear(4, 3)


def generate(x):
    return TEACHER(torch.randn(len(x), 4))


def without_gradients(call):
    with torch.no_grad():
        return call()


# Losses that use another network's output without its gradient.
DETACHED = {
    "generator": lambda m, b: classify(m, b) + m(generate(b[0]).detach().repeat(1, 2)[:, :4]).square().sum(1),
    "teacher": lambda m, b: (m(b[0]) - TEACHER(b[0]).detach()).square().sum(1),
    "teacher, no_grad": lambda m, b: (m(b[0]) - without_gradients(lambda: TEACHER(b[0]))).square().sum(1),
    "pseudo-labels": lambda m, b: classify(m, (b[0], TEACHER(b[0]).argmax(1))),
}


@pytest.mark.parametrize("name", DETACHED)
def test_the_detached_output_of_another_network_is_accepted_in_a_pass(name):
    assert probe(nn.Linear(4, 3), DETACHED[name], labelled(4)) == "ghost"


def test_a_public_batch_is_used_as_it_is():
    def loss(m, b):
        return m((b - 1.2).log()).square().sum(1)

    model, batch = nn.Linear(4, 3), torch.rand(5, 4) + 1.5
    with pytest.raises(UnsupportedModelError, match="not finite"):
        probe(model, loss, batch)
    assert probe(model, loss, batch, public=True) == "ghost"


def test_a_model_in_low_precision_is_compared_loosely():
    class Rounded(nn.Linear):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x.tanh()).float()

    torch.manual_seed(0)
    model = nn.Sequential(Rounded(40, 80), nn.GroupNorm(4, 80), Rounded(80, 40), nn.Tanh(), nn.Linear(40, 3))
    assert probe(model, classify, labelled(40)) == "ghost"
