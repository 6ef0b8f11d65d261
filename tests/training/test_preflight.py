"""What is asked of model, loss and data before the first step, on public input; and again when the model was changed."""

import functools
import types
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import privet
from one_layer import D, N, Probe, linear_loss, plan, setup
from privet.collate import couples, remembers
from privet.errors import InvalidArgumentError, PrivetWarning, UnsupportedModelError
from privet.training import preflight
from privet.training.preflight import COMPUTED_FROM_PUBLIC_INPUT, SHAPES_WERE_READ
from rounding import assert_equal_up_to_rounding

READ = SHAPES_WERE_READ.format(unit="example")


class Watched(Dataset):
    def __init__(self, make=lambda index: (torch.full((D,), 0.01 * index),)):
        self.read, self.make = [], make

    def __len__(self):
        return N

    def __getitem__(self, index):
        self.read.append(index)
        return self.make(index)


def train(model=None, loss=linear_loss, dataset=None, the_plan=None, **options):
    return setup(the_plan or plan(), None, model=model or Probe(), loss=loss, dataset=dataset or Watched(), **options)


def stacked(items):
    return torch.stack([item[0] for item in items])


def collated(items):
    return (stacked(items),)


@pytest.mark.parametrize(
    "options",
    [{"reading": privet.Reading(spec=(torch.zeros(D),))}, {"reading": privet.Reading(probe_batch=(torch.randn(4, D),))}],
)
def test_a_spec_or_a_public_batch_takes_the_place_of_real_examples(options):
    dataset = Watched()
    training = train(dataset=dataset, collate=collated, **options)
    assert dataset.read == []
    assert COMPUTED_FROM_PUBLIC_INPUT in training.guarantee().notes
    assert "first three" not in str(training.guarantee())
    training.run()
    assert dataset.read


@pytest.mark.parametrize("collate", [None, collated])
def test_without_them_three_examples_are_read_and_the_statement_says_so(collate):
    dataset = Watched()
    training = train(dataset=dataset, collate=collate)
    assert set(dataset.read) == {0, 1, 2}
    assert READ in training.guarantee().notes
    assert "Privet read the structure, types and shapes of the data of the first three examples" in str(training.guarantee())


def test_only_the_shapes_of_the_first_examples_decide():
    """Neighbours with other contents are accepted alike, and by the same method."""
    methods = {train(dataset=[(torch.full((D,), v),) for _ in range(N)]).method for v in (0.0, 1e30, float("nan"), -3.0)}
    assert methods == {"ghost"}


def test_without_a_check_nothing_is_read_before_the_first_step():
    dataset = Watched()
    train(dataset=dataset, reading=privet.Reading(probe=False))
    assert dataset.read == []


def texts(word, number):
    """Items with a word and a Python number, of which only the first item's differ."""
    return [(torch.ones(D), *((word, number) if index == 0 else ("de", 1.0))) for index in range(N)]


def weighted(items):
    return stacked(items), [item[1] for item in items], items[0][2]


@pytest.mark.parametrize("collate", [None, weighted, lambda items: types.SimpleNamespace(x=items[0][0][None], word=items[0][1])])
def test_the_text_numbers_and_objects_of_the_first_examples_decide_nothing(collate):
    def loss(model, batch):
        x, word = (batch.x, batch.word) if collate not in (None, weighted) else (batch[0], batch[1][0])
        if word not in ("a", "de"):
            raise ValueError(f"unknown word {word}")
        if isinstance(batch, tuple) and isinstance(batch[2], float) and batch[2] != 1.0:
            raise ValueError(f"unknown number {batch[2]}")
        return model(x)

    assert train(loss=loss, dataset=texts("xx", float("nan")), collate=collate).method in ("ghost", "loop")


@pytest.mark.parametrize("word", ["de", "xx"])
def test_programs_that_know_only_some_words_are_checked_with_those_of_a_specification(word):
    def loss(model, batch):
        return model(batch[0]) * {"de": 1.0, "en": 2.0}[batch[1][0]]

    with pytest.raises(UnsupportedModelError, match=r"KeyError: 'a'.*reading=privet\.Reading\(spec=…\)"):
        train(loss=loss, dataset=texts(word, 1.0))
    spec = (torch.zeros(D), "en", 1.0)
    assert train(loss=loss, dataset=texts(word, 1.0), reading=privet.Reading(spec=spec)).method == "ghost"


def test_what_cannot_be_trained_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(InvalidArgumentError, match="one loss per example"):
        train(loss=lambda m, b: m(b[0]).mean(), directory=tmp_path / "run", reading=privet.Reading(spec=(torch.zeros(D),)))
    assert not (tmp_path / "run").exists()


def mixed_up(items):
    x = stacked(items)
    return (0.7 * x + 0.3 * x.flip(0),)


def standardised(items):
    x = stacked(items)
    return ((x - x.mean(0)) / (1 + x.std(0, correction=0)),)


def sorted_by_size(items):
    x = stacked(items)
    return (x[x.sum(1).argsort()],)


@pytest.mark.parametrize("options", [{}, {"reading": privet.Reading(spec=(torch.zeros(D),))}])
@pytest.mark.parametrize("collate", [mixed_up, standardised, sorted_by_size])
def test_a_collate_that_computes_with_several_examples_is_refused(collate, options):
    with pytest.raises(UnsupportedModelError, match="collate computes with several examples at once"):
        train(collate=collate, **options)


def test_a_collate_that_computes_with_each_example_is_not():
    items = [(torch.randn(D),) for _ in range(3)]
    assert not couples(lambda items: (stacked(items) * 2,), items)
    assert not couples(lambda items: (stacked(items) + torch.rand(len(items), D),), items)  # random numbers are not judged
    assert not couples(lambda items: 1 / 0, items)
    assert not couples(lambda items: (items[0][0][None],), items)
    assert not couples(lambda items: (stacked(items), [{"x": item[0] * 2} for item in items]), items)
    assert couples(mixed_up, items)


DECODE = lambda text: text  # noqa: E731  # cannot be pickled


@pytest.mark.parametrize("public", [
    {}, {"spec": (torch.zeros(D),)}, {"probe_batch": (torch.randn(3, D), DECODE)},
], ids=["data", "spec", "probe_batch"])  # fmt: skip
def test_objects_that_workers_cannot_send_are_refused(public):
    """In a step, the examples that hold them would contribute nothing."""

    def collate(items):
        return stacked(items), DECODE

    with pytest.raises(InvalidArgumentError, match=r"workers is 1.*cannot be pickled.*lambda.*Reading\(workers=0\)"):
        train(collate=collate, reading=privet.Reading(workers=1, **public))
    train(collate=collate, reading=privet.Reading(workers=0, **public))


ROWS = [{"x": [0.5, float(number), 0.25], "y": 0.5} if number < 3 else {"x": [1, 0, number], "y": 1} for number in range(N)]
AS_TENSORS = [{"x": torch.tensor(row["x"], dtype=torch.float32), "y": float(row["y"])} for row in ROWS]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("reading", [{}, {"spec": {"x": [0.5, 1, 1], "y": 0.5}}], ids=["data", "spec"])
def test_whole_numbers_among_floats_contribute_as_floats(reading, workers):
    def loss_fn(model, batch):
        return model(batch["x"]).sum(1) - batch["y"]

    silent = plan(N, steps=1, multiplier=0.0, clipping=privet.clipping.Flat(1e6))
    moved = []
    for rows, options in (ROWS, {"workers": workers, **reading}), (AS_TENSORS, {}):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        train(model, loss_fn, rows, silent, reading=privet.Reading(**options)).run()
        moved.append([value.detach() for value in model.parameters()])
    assert_equal_up_to_rounding(*moved)


OWN = torch.Generator()


def adding(state):
    """Return a collate function that adds the previous item."""

    def collate(items):
        x = stacked(items)
        state.append(x)
        return (x + state[-2],)

    return collate


def test_a_collate_that_keeps_an_item_is_refused():
    with pytest.raises(UnsupportedModelError, match="collate keeps state between calls"):
        train(collate=adding([0.0]))
    with pytest.raises(UnsupportedModelError, match="collate keeps state between calls"):
        train(collate=adding([0.0]), reading=privet.Reading(spec=(torch.zeros(D),)))


@pytest.mark.parametrize(("collate", "found"), [
    (adding([0.0]), True),
    (lambda items: (stacked(items) + torch.rand(D, generator=OWN),), True),
    (lambda items: (stacked(items) + torch.rand(D),), False),
    (lambda items: (stacked(items) * 2,), False),
    (lambda items: 1 / 0, False),
], ids=["last item", "own generator", "global generator", "nothing", "fails"])  # fmt: skip
def test_what_a_collate_keeps_is_found_by_calling_it_again(collate, found):
    assert remembers(collate, [(torch.randn(D),) for _ in range(3)]) is found


def test_a_first_example_that_cannot_be_read_is_refused_without_what_the_error_says():
    def make(index):
        raise ValueError(f"secret {index}")

    with pytest.raises(UnsupportedModelError, match=r"first three examples.*ValueError in make, line \d+") as refusal:
        train(dataset=Watched(make))
    assert "secret" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize("found", [None, Path("a.png"), Image.new("L", (2, 2)), object()], ids=lambda found: type(found).__name__)
def test_an_object_that_cannot_be_put_in_a_batch_is_named_by_its_field(found):
    for item, place in (
        ((torch.zeros(D), found), r"item\[1\]"),
        ({"x": torch.zeros(D), "more": {"y": found}}, r"item\['more'\]\['y'\]"),
    ):
        with pytest.raises(
            UnsupportedModelError, match=rf"^{place} is a {type(found).__name__}, which torch cannot put in a batch.*ToTensor"
        ):
            train(dataset=Watched(lambda index, item=item: item))


def test_dropout_in_eval_mode_is_warned_of():
    model = nn.Sequential(nn.Linear(D, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    loss = lambda model, batch: model(batch[0])[:, 0].square()  # noqa: E731
    train(model, loss)
    train(nn.Sequential(nn.Linear(D, 4), nn.Dropout(0.0), nn.Linear(4, 1)).eval(), loss)
    with pytest.warns(PrivetWarning, match=r"in eval\(\) mode, in which its dropout does nothing: call model.train\(\)"):
        train(model.eval(), loss)


class Transformed(Probe):
    """Uses its parameter in a way that no rule follows on a whole physical batch: in a transformation of its own."""

    def forward(self, x):
        return torch.func.vmap(torch.mul, (1, 0), 1)(x, self.w).sum(1)


def test_a_method_that_is_asked_for_is_used_or_refused():
    assert train().method == "ghost"
    assert train(method="loop").method == "loop"
    assert train(Transformed()).method == "loop"
    train(Transformed()).run()
    with pytest.raises(UnsupportedModelError, match="the method 'ghost' does not suit this model"):
        train(Transformed(), method="ghost")


CHANGES = {
    "another mode": lambda model: model[1].eval(),
    "a hook": lambda model: model[0].register_forward_hook(lambda module, inputs, output: output * 1.0),
    "a hook before": lambda model: model[0].register_forward_pre_hook(lambda module, inputs: None),
    "a module": lambda model: model.append(nn.Flatten(0)),
    "a buffer": lambda model: model.register_buffer("seen", torch.zeros(3)),
    "another forward": lambda model: setattr(model[0], "forward", functools.partial(nn.Linear.forward, model[0])),
}


def network():
    return nn.Sequential(nn.Linear(D, 1), nn.Dropout(0.5))


def mean_loss(model, batch):
    return model(batch[0]).reshape(-1)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_model_that_was_changed_is_checked_again(change, monkeypatch):
    asked, real = [], preflight.probe
    monkeypatch.setattr(preflight, "probe", lambda *arguments, **options: asked.append(1) or real(*arguments, **options))
    training = train(network(), mean_loss)
    steps = iter(training)
    next(steps), next(steps)
    assert len(asked) == 1
    change(training.model)
    next(steps)
    assert len(asked) == 2


def test_a_change_that_breaks_the_promise_is_refused_before_the_step_is_paid_for():
    training = train(network(), mean_loss)
    next(iter(training))
    training.model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] - inputs[0].mean(0),))
    before = training.model[0].weight.detach().clone()
    with pytest.raises(UnsupportedModelError, match="changes with its neighbours"):
        next(iter(training))
    assert training.steps_spent == 1
    assert torch.equal(before, training.model[0].weight)


def test_a_check_that_is_asked_again_reads_nothing():
    dataset = Watched()
    training = train(network(), mean_loss, dataset, plan(1e-6, steps=3))
    before = len(dataset.read)
    next(iter(training))
    CHANGES["another mode"](training.model)
    next(iter(training))
    assert len(dataset.read) == before


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize("normalise", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
@pytest.mark.parametrize("size", [4, 100])
def test_spectral_norm_trains_as_in_a_plain_loop(normalise, size):
    """Power iteration goes on by one round a step, whatever the physical batches, and the check leaves it where it was."""
    x, runs = torch.randn(10, 5), []
    made = plan(10, steps=5, multiplier=0.0, examples=10, clipping=privet.clipping.Flat(1e6))

    def loss(model, batch):
        return model(batch[0]).square().sum(1)

    for private in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(normalise(nn.Linear(5, 4)), nn.Tanh(), normalise(nn.Linear(4, 3)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if private:
            privet.Training(made, model, loss, optimizer, TensorDataset(x), physical_batch_size=size).run()
        else:
            for _ in range(5):
                optimizer.zero_grad()
                loss(model, (x,)).mean().backward()
                optimizer.step()
        runs.append(model.state_dict())
    plain, private = runs
    for name, value in plain.items():
        torch.testing.assert_close(private[name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 3, 2, 3)])
def test_a_public_batch_may_hold_a_list_of_targets(sizes):
    items = [(torch.randn(D), {"boxes": torch.randn(size, D)}) for size in sizes]

    def collate(some):
        return torch.stack([x for x, _ in some]), [target for _, target in some]

    def loss(model, batch):
        return torch.stack([model(boxes["boxes"] - x).square().mean() for x, boxes in zip(*batch, strict=True)])

    reading = privet.Reading(probe_batch=collate(items))
    training = train(None, loss, items, plan(examples=4, batch_size=2.0), collate=collate, reading=reading)
    training.run()
    assert training.model.w.any()
