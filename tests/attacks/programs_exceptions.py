"""Examples that raise, in the pass or while they are read: they reveal and contribute nothing, nor how many were drawn."""

import contextlib
import io
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch
from harness import Task, Verdict, attack, bounded, train, training_of
from materials import CLASSES, WIDTH, Body, Listed, body_of, classify, listed, model_of, perceptron, points, sentences
from torch import nn
from torch.utils.data import default_collate

import privet
from privet.errors import PrivetError

SECRET, ODD = "Zoe of ward 88417", 88417.0
NOTHING = 1e-3  # for a contribution that must be zero


@contextlib.contextmanager
def overheard() -> Iterator[io.StringIO]:
    """Collect all printed output, warnings and log messages."""
    heard, handler = io.StringIO(), logging.StreamHandler()
    handler.setStream(heard)
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
                yield heard
        heard.write("\n".join(str(warning.message) for warning in caught))
    finally:
        logging.getLogger().removeHandler(handler)


def told(error: BaseException | None) -> str:
    """Return all text attached to an exception: arguments, notes, causes and contexts, suppressed or not."""
    if error is None:
        return ""
    notes = " ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__} {error} {error.args} {notes} | {told(error.__cause__)} | {told(error.__context__)}"


def passes_over(task: Task, data, index: int) -> Verdict:
    """Return the verdict on a data set whose example `index` raises."""
    with overheard() as heard:
        verdict = bounded(task, data, remove=(index,))
    if re.search("88417|Zoe|ward", heard.getvalue()):
        return Verdict(False, f"it is told: {heard.getvalue()[:160]}")
    if verdict.passed and verdict.moved is not None and verdict.moved > NOTHING:
        return Verdict(False, f"an example that raises contributes {verdict.moved:.3g}", verdict.moved)
    return verdict


def odd(index: int = 7, data=None):
    """Return points of which one begins with the odd number."""
    data = points() if data is None else data
    data.tensors[0][index, 0] = ODD
    return data


def is_odd(x) -> bool:
    return bool((x == ODD).any())


def in_the_model(fail) -> Verdict:
    """Return the verdict on a model that calls `fail` when it sees the odd number."""

    def forward(self, x):
        if is_odd(x):
            fail(x)
        return Body.forward(self, x)

    return passes_over(Task(body_of(forward), classify), odd(), 7)


def in_the_loss(loss, data=None) -> Verdict:
    return passes_over(Task(perceptron, loss), data or odd(), 7)


@attack("exceptions")
def assertion_that_inputs_are_finite():
    """The model asserts that its inputs are finite; one is not."""

    def forward(self, x):
        assert torch.isfinite(x).all(), f"not finite: {x}"
        return Body.forward(self, x)

    data = points()
    data.tensors[0][7, 2] = torch.nan
    return passes_over(Task(body_of(forward), classify), data, 7)


@attack("exceptions", in_the_model)
def private_text_in_an_error(x):
    """The model's own error names the person."""
    raise ValueError(f"cannot be {SECRET}")


@attack("exceptions", in_the_model)
def recursion_without_end(x):
    """RecursionError: the stack is full when it is caught."""
    recursion_without_end(x)


@attack("exceptions")
def word_beyond_the_table():
    """torch itself raises, and names the index."""
    data = sentences()
    data.tensors[0][7, 3] = 88417
    make = lambda: nn.Sequential(nn.Embedding(13, 6), nn.Flatten(), nn.Linear(42, CLASSES))
    return passes_over(Task(make, classify), data, 7)


LABELLED = points()
LABELLED.tensors[1][7] = 77


@attack("exceptions", lambda loss: in_the_loss(loss, LABELLED))
def error_in_the_loss(model, batch):
    """The loss checks a label."""
    if (batch[1] == 77).any():
        raise ValueError(f"label {batch[1]} of {SECRET}")
    return classify(model, batch)


@attack("exceptions", in_the_loss)
def loss_of_another_shape(model, batch):
    """For one example the loss has two entries."""
    losses = classify(model, batch)
    return torch.cat([losses, losses]) if is_odd(batch[0]) else losses


@attack("exceptions")
def error_in_the_backward_pass():
    """A user-defined autograd function raises in its backward pass."""

    class Fussy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if is_odd(ctx.saved_tensors[0]):
                raise ValueError(SECRET)
            return grad

    def forward(self, x):
        return self.outer(Fussy.apply(x + 0 * self.scale))

    make = lambda: model_of(forward, outer=nn.Linear(WIDTH, CLASSES), scale=nn.Parameter(torch.ones(())))
    return passes_over(Task(make, classify), odd(), 7)


@attack("exceptions")
def state_written_before_the_error():
    """The pass writes to a buffer, a list and the mode, then raises: all must be restored."""

    def forward(self, x):
        if is_odd(x):
            self.buffer.copy_(x.detach()[0])
            self.seen.append(SECRET)
            self.inner.eval()
            raise ValueError(SECRET)
        return Body.forward(self, x + self.buffer)

    return passes_over(Task(body_of(forward, buffer=torch.zeros(WIDTH), seen=[]), classify), odd(), 7)


@attack("exceptions")
def every_example_raises():
    """A failure on all examples is found before the first step, without revealing their text."""

    def loss(model, batch):
        raise ValueError(f"{SECRET}: {batch[0].flatten()[:3]}")

    with overheard() as heard:
        one = train(Task(perceptron, loss), odd(0))
    message = f"{one.refusal} {one.stop} {heard.getvalue()}"
    return Verdict(one.refusal is not None and "88417." not in message, f"refused: {message[:150]}")


@attack("exceptions")
def programming_error_and_a_private_value():
    """A bug in the loss raises an error with the batch: the refusal must not contain private values."""
    loss = lambda model, batch: model(batch[0]).no_such_method(repr(batch))
    try:
        training_of(Task(perceptron, loss), odd(0))
    except PrivetError as error:
        return Verdict("88417" not in told(error), f"refused: {told(error)[:150]}")
    return Verdict(False, "a loss that cannot be computed was accepted")


@attack("exceptions")
def key_error_in_collate():
    """One item lacks a key, and collate's KeyError names it."""

    def collate(items):
        return default_collate([(item["x"], {"known": 1, "other": 2}[item["kind"]]) for item in items])

    items = [{"x": x, "kind": "known" if k % 3 else "other"} for k, (x, _) in enumerate(points())]
    items[7]["kind"] = SECRET
    return passes_over(Task(perceptron, classify, collate=collate), Listed(items), 7)


@attack("exceptions")
def collate_drops_what_is_damaged():
    """Collate drops damaged items: for one alone nothing remains, and an empty list cannot be collated."""
    items = listed(points()).items
    items[7] = (items[7][0], -1)
    collate = lambda few: default_collate([item for item in few if item[1] >= 0])
    return passes_over(Task(perceptron, classify, collate=collate), Listed(items), 7)


class Failing(Listed):
    """A list that raises items that are exceptions."""

    def __getitem__(self, index):
        if isinstance(self.items[index], BaseException):
            raise self.items[index]
        return self.items[index]


@attack("exceptions")
def file_that_cannot_be_read():
    """`__getitem__` raises for one item, with its path."""
    items = listed(points()).items
    items[7] = FileNotFoundError(2, "No such file", f"/home/{SECRET}")
    return passes_over(Task(perceptron, classify), Failing(items), 7)


def poisson(task: Task, data, *, batch_size: int = 20) -> Verdict:
    """Return the verdict on eight steps of Poisson sampling: no exception, or one without the number drawn.

    The number drawn is the number of items collated since the last step, one at a time or together.
    """
    drawn, collate = Counter(), task.collate or default_collate

    def counting(items):
        drawn["items"] += len(items)
        return collate(items)

    plan = {"sampling": privet.sampling.Poisson(batch_size), "noise": privet.noise.Gaussian(1.0)}
    task = replace(task, collate=counting, steps=8, plan=plan)
    try:
        training = training_of(task, data)
    except PrivetError as error:
        return Verdict(len(str(error)) >= 30, f"refused: {told(error)[:150]}")
    try:
        drawn.clear()
        for _ in training:
            drawn.clear()
    except Exception as error:
        hidden = str(drawn["items"]) not in re.findall(r"\d+", told(error))
        return Verdict(isinstance(error, PrivetError) and hidden, f"{drawn['items']} drawn: {told(error)[:150]}")
    return Verdict(True, "ran to the end")


@attack("exceptions")
def number_drawn_by_a_collate_that_drops():
    """Collate drops damaged items, and the resulting error reveals how many were drawn."""
    items = [(x, -1 if 8 < k < 14 else int(y)) for k, (x, y) in enumerate(points(40))]
    collate = lambda few: default_collate([item for item in few if item[1] >= 0])
    return poisson(Task(perceptron, classify, collate=collate), Listed(items))


@attack("exceptions")
def number_drawn_by_a_batch_of_one_size():
    """The model works only for batches smaller than 19, and its error names the size."""

    def forward(self, x):
        assert len(x) < 19, f"{len(x)} examples are too many"
        return Body.forward(self, x)

    return poisson(Task(body_of(forward), classify), listed(points(40)))


@attack("exceptions")
def shared_table_of_as_many_rows():
    """A public table that collate adds has as many rows as examples are drawn from one of two neighbours only."""
    table = torch.randn(WIDTH, WIDTH)
    collate = lambda few: (torch.stack([x for x, _ in few]), table, torch.tensor([y for _, y in few]))

    def forward(self, x, table):
        return self.out((x @ table).tanh())

    make = lambda: model_of(forward, out=nn.Linear(WIDTH, CLASSES))
    data = listed(points(WIDTH + 1, outlier=20.0))
    tasks = [Task(make, classify, collate=collate, options={"method": method}) for method in ("auto", "loop")]
    return min((bounded(task, data, remove=(0, 3)) for task in tasks), key=lambda verdict: verdict.passed)
