import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet import clipping, noise, sampling
from privet.errors import InvalidArgumentError
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine
from privet.gradients.parameters import trainable
from privet.sparsification import FEST, AdaFEST, Random
from privet.sparsification.selected_rows import SelectedRows

N, T, SIZES, WIDTH, BOUND, RATE = 30, 4, (20, 9), 3, 0.6, 0.3
TABLES = ("items.weight", "users.weight")
PUBLIC = FEST({"items.weight": [17, 2, 5, 0], "users.weight": range(4)})
COUNTED = AdaFEST(TABLES, threshold=2.5, bound=1.4)


class Model(nn.Module):
    """Items are looked up several times, users once; a padding index has no gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.items, self.users = nn.Embedding(SIZES[0], WIDTH, padding_idx=2), nn.Embedding(SIZES[1], WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, items, users):
        return ((self.items(items) + self.items(items.flip(1) // 2)).sum(1) * self.users(users) * self.scale).sum(1)


def loss(model, batch):
    return (model(*batch[:2]) - batch[2]).square()


def data(examples=N):
    generator = torch.Generator().manual_seed(2)
    items = torch.randint(SIZES[0], (examples, T), generator=generator)
    users = torch.randint(SIZES[1], (examples,), generator=generator)
    return items, users, torch.randn(examples, generator=generator).double()


def plan(selection, multiplier=1.0, **changes):
    values = {
        "examples": N, "sampling": sampling.FullBatch(), "steps": 3, "clipping": clipping.Flat(BOUND), "delta": 1e-3,
        "noise": noise.Gaussian(multiplier, non_private=multiplier == 0), "embeddings": selection,
    }  # fmt: skip
    return privet.Plan(**{**values, **changes})


def train(the_plan, optimizer=torch.optim.SGD, **options):
    model = Model().double()
    training = privet.Training(the_plan, model, loss, optimizer(model.parameters(), lr=RATE), TensorDataset(*data()), **options)
    return model, training


def looked_up(items, users):
    """Return each example's rows of both tables, without the padding."""
    return [
        ({*row.tolist(), *(row // 2).tolist()} - {2}, {user}) for row, user in zip(items, users.tolist(), strict=True)
    ]  # fmt: skip


def listing(selection, steps=3):
    """Clip every example by plain autograd, restrict the sum to the rows of the selection, and take SGD steps without noise."""
    model, (items, users, y) = Model().double(), data()
    parameters = dict(model.named_parameters())
    for _ in range(steps):
        total = {name: torch.zeros_like(p) for name, p in parameters.items()}
        kept = {name: torch.zeros(len(parameters[name]), dtype=torch.double) for name in TABLES}
        for i, rows in enumerate(looked_up(items, users)):
            value = loss(model, (items[i : i + 1], users[i : i + 1], y[i : i + 1])).sum()
            grads = dict(zip(parameters, torch.autograd.grad(value, list(parameters.values())), strict=True))
            if isinstance(selection, FEST):
                for name, listed in selection.rows:
                    grads[name][[row for row in range(len(grads[name])) if row not in listed]] = 0
            norm = torch.cat([each.flatten() for each in grads.values()]).norm()
            for name, each in grads.items():
                total[name] += each * min(1.0, BOUND / float(norm))
            for name, own in zip(TABLES, rows, strict=True):
                kept[name][list(own)] += min(1.0, COUNTED.bound / math.sqrt(sum(map(len, rows))))
        for name, p in parameters.items():
            if name in kept and isinstance(selection, AdaFEST):
                total[name][kept[name] < selection.threshold] = 0
            p.data -= RATE / N * total[name]
    return parameters


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("selection", [PUBLIC, COUNTED], ids=["FEST", "AdaFEST"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, lambda *given, **of: torch.optim.SGD(*given, **of, momentum=1e-300)])
def test_steps_without_noise_are_those_of_a_plain_loop(selection, method, optimizer):
    """For SGD, which gets sparse gradients, and for an optimizer that gets dense ones."""
    model, training = train(plan(selection, 0), optimizer, method=method, physical_batch_size=7)
    training.run()
    expected = listing(selection)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-5, atol=1e-9)
    assert not torch.equal(model.items.weight, Model().double().items.weight)


def sums(selection, batch, method="ghost"):
    """Return the clipped sum of a batch, before noise."""
    model = Model().double()
    parameters = trainable(model)
    clipper = Clipper.of(parameters, clipping.Flat(BOUND), rows=SelectedRows(selection, parameters))
    examples = split_batch(batch)
    return Engine(model, loss, parameters, method).clipped_sum(examples, clipper).to_clipped_sum(examples.count)


def distance(one, other):
    return math.sqrt(sum(float((one[name] - other[name]).to_dense().square().sum()) for name in one))


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("selection", [PUBLIC, COUNTED], ids=["FEST", "AdaFEST"])
def test_one_example_moves_sum_and_counts_by_no_more_than_their_bounds(selection, method):
    """Also examples whose rows no other one looks up, which share all rows, or whose gradient is not finite."""
    whole = data(8)
    odd = [
        (whole[0][0], whole[1][0], whole[2][0]),
        (torch.tensor([19, 18, 16, 14]), torch.tensor(8), torch.tensor(1e9).double()),
        (torch.tensor([5, 5, 5, 5]), torch.tensor(3), torch.tensor(-1e3).double()),
        (torch.tensor([2, 2, 2, 2]), torch.tensor(0), torch.tensor(1.0).double()),
        (torch.tensor([1, 5, 9, 13]), torch.tensor(1), torch.tensor(torch.nan).double()),
    ]
    rest, moved, counted = sums(selection, whole, method), [], []
    for example in odd:
        more = sums(selection, tuple(torch.cat([one, each[None]]) for one, each in zip(whole, example, strict=True)), method)
        assert more.sensitivity == BOUND
        moved.append(distance(more.tensors, rest.tensors))
        if isinstance(selection, AdaFEST):
            counted.append(distance(more.rows.counts, rest.rows.counts))
    assert 0.99 * BOUND < max(moved) <= BOUND * (1 + 1e-9)
    if isinstance(selection, AdaFEST):
        assert 0.99 * selection.bound < max(counted) <= selection.bound * (1 + 1e-9)


def test_rows_outside_a_public_list_keep_their_values_and_listed_ones_get_noise():
    model, training = train(plan(PUBLIC, 1.3))
    training.run()
    for name, rows in PUBLIC.rows:
        moved = (model.get_parameter(name) != Model().double().get_parameter(name)).any(1)
        assert moved.nonzero().flatten().tolist() == list(rows)


def test_a_step_stores_only_selected_rows_and_other_optimizers_get_zeros_elsewhere():
    for optimizer, sparse in ((torch.optim.SGD, True), (torch.optim.Adam, False)):
        model, training = train(plan(AdaFEST("items.weight", threshold=6.0), 0), optimizer)
        next(training.releases())
        gradient = model.items.weight.grad
        assert (gradient.is_sparse, gradient.shape) == (sparse, model.items.weight.shape)
        rows = gradient.coalesce().indices()[0] if sparse else gradient.any(1).nonzero().flatten()
        assert rows.tolist() == (gradient.to_dense().any(1)).nonzero().flatten().tolist()
        assert 0 < len(rows) < SIZES[0]


def test_epsilon_is_that_of_the_plan_without_a_selection_and_the_parts_compose_to_its_multiplier():
    for selection in (PUBLIC, COUNTED):
        made = plan(selection, 1.3)
        assert made.events() == plan(None, 1.3).events()
        assert privet.Plan.from_json(made.to_json()) == made
        assert selection.remark in str(made.guarantee())
    multipliers = 1.3 / math.sqrt(COUNTED.share), 1.3 / math.sqrt(COUNTED.gradient_share)
    assert privet.accounting.combined(multipliers) == pytest.approx(1.3, rel=1e-12)
    assert plan(COUNTED).gradient_deviations() == pytest.approx(BOUND / N / math.sqrt(COUNTED.gradient_share), rel=1e-12)


@pytest.mark.parametrize("make", [
    lambda: FEST({}),
    lambda: FEST({"a": []}),
    lambda: FEST({"a": [-1]}),
    lambda: FEST({"a": [1, 1]}),
    lambda: FEST({"a": "words"}),
    lambda: AdaFEST((), threshold=1.0),
    lambda: AdaFEST(("a", "a"), threshold=1.0),
    lambda: AdaFEST("a", threshold=0.0),
    lambda: AdaFEST("a", threshold=1.0, share=1.0),
    lambda: AdaFEST("a", threshold=1.0, bound=0.0),
    lambda: plan("a"),
    lambda: plan(PUBLIC, sparsification=Random(0.5)),
    lambda: plan(COUNTED, momentum=privet.momentum.InnerOuter(0.9, 0.1, 2)),
    lambda: plan(COUNTED, clipping=clipping.Projected(clipping.Flat(1.0), projections=30), sampling=sampling.Poisson(5)),
    lambda: plan(COUNTED, noise=noise.Tree(multiplier=1.0)),
    lambda: privet.audit.mechanism(plan(COUNTED)),
    lambda: privet.optim.AdamBC.of(plan(COUNTED), Model()),
    lambda: train(plan(AdaFEST("words.weight", threshold=1.0))),
    lambda: train(plan(AdaFEST("scale", threshold=1.0))),
    lambda: train(plan(FEST({"items.weight": [20]}))),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_before_the_first_step(make):
    with pytest.raises(InvalidArgumentError):
        make()


def test_a_plan_that_is_left_and_resumed_selects_rows_as_before(tmp_path):
    _, training = train(plan(COUNTED, 1.3), directory=tmp_path / "run")
    next(iter(training))
    training.close()
    model = Model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    resumed = privet.Training.resume(tmp_path / "run", model, loss, optimizer, TensorDataset(*data()))
    assert resumed.plan.embeddings == COUNTED
    resumed.run()
    assert resumed.steps_left == 0
