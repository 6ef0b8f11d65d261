import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import plans
import privet
from privet.accounting.privacy_unit import group_unit
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.sampling import FullBatch, Poisson
from privet.units import Groups, Users, averaged, grouped

BOUND, RATE = 0.7, 0.31
USERS = [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 3, 3, 4]


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 4))


def data(examples, scale=1.0):
    torch.manual_seed(7)
    return torch.randn(examples, 1, 8, 8) * scale, torch.randint(4, (examples,))


def plan(units, unit, adjacency="add-remove", steps=1, multiplier=0.0, sampling=None):
    noise = privet.noise.Gaussian(multiplier, non_private=multiplier == 0)
    return plans.plan(
        examples=units, sampling=sampling or FullBatch(), steps=steps, adjacency=adjacency, noise=noise, unit=unit
    )  # fmt: skip


def setup(dataset, loss=None, adjacency="add-remove", **options):
    model = network()
    made = plan(len(dataset), getattr(dataset, "privacy_unit", "one example"), adjacency, **options)
    return privet.Training(made, model, loss or grouped(loss_fn), torch.optim.SGD(model.parameters(), lr=RATE), dataset)


def released(training):
    """Return the clipped sum of one step without noise, from the change of the parameters."""
    before = torch.cat([p.detach().flatten().double() for p in training.model.parameters()])
    next(iter(training))
    after = torch.cat([p.detach().flatten().double() for p in training.model.parameters()])
    return (before - after) / RATE * training.plan.divisor


def test_users_train_in_shared_passes_and_the_statement_says_whose_privacy_it_is():
    x, y = data(13)
    training = setup(Users(TensorDataset(x, y), USERS, cap=4), sampling=Poisson(2.5), steps=5, multiplier=2.3)
    assert training.method == "ghost"
    training.run()
    prose = str(training.guarantee())
    assert training.guarantee().unit == "one user"
    assert "differential privacy for one user, where neighbouring data sets differ in one user that is added or removed" in prose
    assert "of 5 users" in prose
    assert "the contribution of each user to 0.7" in prose
    assert "example" not in prose.split("Not covered")[0]


@pytest.mark.parametrize(("cap", "reduction"), [(1, "mean"), (3, "sum"), (10, "mean"), (10, "sum")])
def test_a_user_moves_the_sum_by_at_most_the_bound_however_much_they_contribute(cap, reduction):
    """Neighbours: with and without a user with six huge examples; all others have one. The divisor is public."""
    x, y = data(11)
    ids = np.array([0, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5])
    x[ids == 3] *= 1e4
    sums = [
        released(setup(Users(TensorDataset(x[these], y[these]), ids[these], cap), grouped(loss_fn, reduction)))
        for these in (ids >= 0, ids != 3)
    ]
    assert 0.5 * BOUND < float((sums[0] - sums[1]).norm()) <= BOUND * (1 + 1e-4)


def moved_by(change, size=4, examples=13):
    x, y = data(examples)
    sums = []
    for number in range(2):
        if number:
            change(x, y)
        sums.append(released(setup(Groups(TensorDataset(x.clone(), y.clone()), size), adjacency="replace-one")))
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize(("position", "scale"), [(0, 1e4), (5, 0.1), (12, 30.0)])
def test_replacing_an_example_moves_the_sum_by_at_most_twice_the_bound(position, scale):
    def change(x, y):
        x[position] = -scale * x[position]
        y[position] = (y[position] + 1) % 4

    assert 0 < moved_by(change) <= 2 * BOUND * (1 + 1e-4)


def test_groups_state_their_unit():
    x, y = data(13)
    training = setup(Groups(TensorDataset(x, y), 4), adjacency="replace-one", sampling=Poisson(2), steps=3, multiplier=2.3)
    assert training.method == "ghost"
    training.run()
    prose = str(training.guarantee())
    assert "for one example (in a group of 4; groups fixed in advance)" in prose
    assert "that is replaced by another" in prose
    assert "of 4 groups" in prose
    assert "the contribution of each group to 0.7" in prose
    alone = plan(4, "one example", steps=3, multiplier=2.3, sampling=Poisson(2))
    assert training.epsilon() == training.plan.epsilon() > alone.epsilon()


@pytest.mark.parametrize(
    ("adjacency", "says"), [("add-remove", "others would change groups"), ("zero-out", "holds for a placeholder too")]
)
def test_neighbours_that_groups_do_not_suit_are_refused_with_the_reason(adjacency, says):
    with pytest.raises(InvalidArgumentError, match=rf"^adjacency is '{adjacency}'; it must be 'replace-one'.*{says}"):
        plan(4, group_unit(4), adjacency)


def test_delta_is_compared_with_the_examples_in_all_groups():
    with pytest.raises(InvalidArgumentError, match=r"^delta is 1e-05; it must be below 1 / examples = 6\.25e-06"):
        plan(40_000, group_unit(4), "replace-one")
    assert plan(40_000, "one user").delta == 1e-5


@pytest.mark.parametrize("unit", ["one person", "One example", "", None, 1, f"{group_unit(4)} or so"])
def test_invalid_units_are_refused(unit):
    with pytest.raises(InvalidArgumentError, match=r"^unit is"):
        plan(40, unit, "replace-one")


def test_the_text_of_a_unit_of_groups_is_read_from_files_of_version_0_1_0():
    made = plan(40, group_unit(7), "replace-one", multiplier=3.0)
    old = privet.Plan.from_dict(made.to_dict() | {"unit": "one example (in a group of 7; groups fixed in advance)"})
    assert (old.people, old.epsilon("rdp"), str(old.unit)) == (made.people, made.epsilon("rdp"), str(made.unit))


def test_data_and_plan_must_mean_the_same_unit():
    x, y = data(13)
    examples, users, groups = TensorDataset(x, y), Users(TensorDataset(x, y), USERS, 4), Groups(TensorDataset(x, y), 3)
    for dataset, unit in itertools.product((examples, users, groups), ("one example", "one user", group_unit(3), group_unit(2))):
        own = getattr(dataset, "privacy_unit", "one example")
        model = network()
        made = plan(len(dataset), unit, "replace-one")
        loss = loss_fn if dataset is examples else grouped(loss_fn)
        arguments = (made, model, loss, torch.optim.SGD(model.parameters(), lr=RATE), dataset)
        if own == unit:
            privet.Training(*arguments).run()
            continue
        with pytest.raises(InvalidArgumentError, match=r"^dataset is .* whose entries are of"):
            privet.Training(*arguments)


def test_a_data_set_of_users_may_say_so_itself():
    class Own(TensorDataset):
        privacy_unit = "one user"

    setup(Own(*data(13)), loss_fn).run()


@pytest.mark.parametrize("reduction", [lambda losses: losses.mean(), lambda losses: losses.mean().expand(len(losses))])
def test_losses_that_mix_examples_are_refused_also_within_units(reduction):
    x, y = data(13)
    with pytest.raises((InvalidArgumentError, UnsupportedModelError), match=r"one loss per example|changes with its neighbours"):
        setup(Users(TensorDataset(x, y), USERS, 4), grouped(lambda model, batch: reduction(loss_fn(model, batch))))


def jittered(batch):
    """Random views by functions that the check before training supports."""
    images, labels = batch
    shape = (len(images), 1, 1, 1)
    images = torch.where(torch.rand(shape) < 0.5, images, images.flip(-1))
    images = images * torch.empty(shape).uniform_(0.9, 1.1).to(images) + 0.1 * torch.randn_like(images)
    return images.roll(int(torch.randint(-2, 3, (1,))), -1), labels


@pytest.mark.parametrize(
    "mix",
    [
        lambda images: 0.7 * images + 0.3 * images.roll(1, 0),
        lambda images: 0.7 * images + 0.3 * images[torch.arange(len(images)).flip(0)],
        lambda images: images - images.mean(0),
    ],
)
def test_views_that_mix_examples_are_refused(mix):
    with pytest.raises(UnsupportedModelError, match="changes with its neighbours"):
        setup(TensorDataset(*data(13)), averaged(loss_fn, lambda batch: (mix(batch[0]), batch[1]), 2))


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_views_of_users_and_users_of_views_are_the_same_mean(method):
    x, y = (leaf.unflatten(0, (3, 4)) for leaf in data(12))
    mask = torch.tensor([[True] * 4, [True, False, False, False], [True, True, False, True]])
    batch, model, calls = ((x, y), mask), network(), itertools.cycle([1.0, -0.4])

    def of_examples(part):
        factor = next(calls)
        return part[0] * factor, part[1]

    def of_users(part):
        return of_examples(part[0]), part[1]

    rule = privet.clipping.Flat(0.05)
    one, other = (
        privet.clipped_sum(model, loss, batch, rule, method=method).tensors
        for loss in (grouped(averaged(loss_fn, of_examples, 2)), averaged(grouped(loss_fn), of_users, 2))
    )
    plain = privet.clipped_sum(
        model, grouped(loss_fn), ((torch.cat([x, -0.4 * x], 1), torch.cat([y, y], 1)), mask.repeat(1, 2)), rule, method="loop"
    ).tensors
    for name, expected in plain.items():
        torch.testing.assert_close(one[name], expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(other[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("loss_fn", lambda: grouped("mse")),
        ("reduction", lambda: grouped(loss_fn, "max")),
        ("views", lambda: averaged(loss_fn, jittered, 0)),
        ("augment", lambda: averaged(loss_fn, None, 2)),
        ("augment", lambda: averaged(loss_fn, lambda batch: (batch[0][:2], batch[1][:2]), 2)(network(), data(5))),
    ],
)
def test_bad_arguments_are_refused_by_name(name, make):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
        make()
