"""Attacks by what a pass writes without noise, or leaves until the next: in parameters, buffers, modes, hooks, attributes."""

import functools
import sys
import types

import torch
from harness import Task, Verdict, attack, bounded, compared, forward_pass, train, two_layers
from materials import CLASSES, WIDTH, Body, body_of, classify, perceptron, points, sentences, without
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

FAR = points(outlier=30.0)
UNUSUAL = 15.0  # one example is larger, and no other
assert (FAR.tensors[0].abs().amax(1) > UNUSUAL).tolist() == [index == 0 for index in range(len(FAR))]


passes = functools.partial(two_layers, "state", FAR)


def writes(**options):
    """Register a function (self, h) that a model calls with the hidden units of every pass."""

    def register(write):
        @functools.wraps(write)
        def forward(self, x):
            h = self.hidden(x)
            write(self, h)
            return self.outer(h + getattr(self, "extra", 0.0))

        return passes(**options)(forward)

    return register


# ---------------------------------------------------------------- parameters
RARE = sentences(words=11)
RARE.tensors[0][0, 2] = 12  # a word of one text alone


@attack("state")
def max_norm_of_a_table():
    """`max_norm` renormalises the looked-up rows, which reveals a word that only one person has."""

    def make():
        model = nn.Sequential(nn.Embedding(13, 6, max_norm=2.0), nn.Flatten(), nn.Linear(42, CLASSES))
        model[0].weight.data = 4 * F.normalize(torch.randn(13, 6))
        return model

    return bounded(Task(make, classify), RARE)


@forward_pass("state", RARE, bounded, (0,), table=lambda: nn.Parameter(4 * F.normalize(torch.randn(13, 7))))
def max_norm_as_a_function(self, text):
    """`F.embedding(..., max_norm=…)` on a plain parameter."""
    return self.out(F.embedding(text, self.table, max_norm=2.0).mean(1))


@writes(public_change=True, extra=nn.Parameter(torch.zeros(7)))
def parameter_written_through_data(self, h):
    """`parameter.data` is not tracked by autograd."""
    self.extra.data.add_(h.detach().sum(0))


@writes(public_change=True, extra=nn.Parameter(torch.zeros(7)))
def parameter_replaced_in_forward(self, h):
    """The parameter becomes another object in the pass."""
    self.extra = nn.Parameter(h.detach().mean(0).clone())


# ---------------------------------------------------------------- buffers
@writes(buffer=torch.zeros(()))
def largest_value_in_a_buffer(self, h):
    """A running maximum, as in quantisation observers, in training mode only."""
    if self.training:
        self.buffer.copy_(torch.maximum(self.buffer, h.detach().abs().max()))


@writes(buffer=torch.zeros(7))
def buffer_replaced_by_assignment(self, h):
    """The buffer is replaced instead of written to."""
    self.buffer = self.buffer + h.detach().sum(0)


@writes(buffer_queue=torch.zeros(32, 7), buffer_pointer=torch.zeros((), dtype=torch.long))
def memory_bank_in_a_buffer(self, h):
    """A queue of encodings with a pointer, as in momentum contrast."""
    start = int(self.buffer_pointer)
    places = (torch.arange(len(h)) + start) % len(self.buffer_queue)
    self.buffer_queue[places] = h.detach()
    self.buffer_pointer.fill_(int(places[-1] + 1) % len(self.buffer_queue))


@attack("state")
def batch_norm_of_features():
    """BatchNorm1d with running statistics."""
    make = lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))
    return bounded(Task(make, classify), FAR)


@passes(mean=torch.zeros(7))
def batch_norm_written_by_hand(self, x):
    """Mean and variance of the batch in plain operations, with plain tensor attributes as statistics."""
    h = self.hidden(x)
    self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
    return self.outer((h - h.mean(0)) / (h.var(0, correction=0) + 1e-3).sqrt())


@attack("state")
def instance_norm_with_statistics():
    """InstanceNorm2d normalises each image alone, but `track_running_stats` averages over the batch."""
    x = torch.randn(9, 2, 4, 4)
    x[0] *= 30
    make = lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(12, CLASSES)
    )
    return bounded(Task(make, classify), TensorDataset(x, torch.randint(CLASSES, (9,))))


@attack("state")
def mode_changes_between_steps():
    """The loop evaluates after the first step and goes back to train(); in train() a buffer is written."""

    def forward(self, x):
        h = self.hidden(x)
        if self.training:
            self.buffer.lerp_(h.detach().mean(0), 0.3)
        return self.outer(h - self.buffer)

    def take(training):
        for _ in training:
            training.model.train(not training.model.training)

    make = body_of(forward, buffer=torch.zeros(7))
    return bounded(Task(make, classify, steps=4, before=lambda model: model.eval(), take=take, public_change=True), FAR)


def between_steps(change) -> Verdict:
    """Return the verdict on a loop that calls `change(model)` after every step."""

    def take(training):
        for _ in training:
            change(training.model)

    return bounded(Task(Body, classify, steps=3, take=take, public_change=True), FAR)


@attack("state", between_steps)
def forward_replaced_between_steps(model):
    """After the first step, the instance's forward is replaced by one that couples examples."""
    model.forward = lambda x: model.outer(model.hidden(x) - model.hidden(x).mean(0))


@attack("state", between_steps)
def parameter_frozen_between_steps(model):
    """A trainable parameter is frozen after the first step: the release would differ from the plan."""
    model.inner.weight.requires_grad_(False)


# ---------------------------------------------------------------- hooks
def hooked(steps: int = 1, **options):
    """Register a function that changes a new model, such as by a hook."""
    return attack("state", lambda before: bounded(Task(Body, classify, steps=steps, before=before, **options), FAR))


@hooked()
def forward_hook_that_keeps(model):
    """A forward hook stores the output of a layer on it."""
    model.inner.register_forward_hook(lambda module, inputs, output: setattr(module, "output", output.detach().sum(0)))


@hooked()
def pre_hook_that_centres(model):
    """A hook before a layer subtracts the mean of the batch."""
    model.inner.register_forward_pre_hook(lambda module, inputs: (inputs[0] - inputs[0].mean(0),))


@hooked(public_change=True)
def hook_after_accumulation(model):
    """`register_post_accumulate_grad_hook` takes a step with the raw `.grad`."""
    model.outer.weight.register_post_accumulate_grad_hook(lambda parameter: parameter.data.sub_(parameter.grad))


@hooked()
def backward_hook_that_mixes(model):
    """A full backward hook gives every row the mean gradient of the batch."""
    model.outer.register_full_backward_hook(lambda module, ins, outs: (ins[0].mean(0, keepdim=True).expand_as(ins[0]),))


@hooked(steps=2)
def spectral_norm_of_the_old_kind(model):
    """`nn.utils.spectral_norm` updates its vectors in every pass: unless prevented, once per example."""
    nn.utils.spectral_norm(model.inner)


@attack("state", lambda loss: bounded(Task(perceptron, loss), FAR))
def loss_that_writes_to_the_model(model, batch):
    """The loss stores statistics on the model."""
    losses = classify(model, batch)
    model.total = getattr(model, "total", 0.0) + float(losses.detach().sum())
    return losses


@attack("state")
def momentum_from_raw_gradients():
    """SGD's momentum is set to the sum of raw gradients of its data set: the first step would apply it."""

    def task(data):
        def optimizer(parameters):
            model = Body()
            with torch.no_grad():
                for own, given in zip(model.parameters(), parameters, strict=True):
                    own.copy_(given)
            gradients = torch.autograd.grad(classify(model, data.tensors).sum(), list(model.parameters()))
            made = torch.optim.SGD(parameters, lr=1.0, momentum=0.9)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                made.state[parameter]["momentum_buffer"] = gradient.clone()
            return made

        return Task(Body, classify, optimizer=optimizer)

    return compared(task(FAR), *(train(task(data), data) for data in (FAR, without(FAR, 0))))


# ---------------------------------------------------------------- attributes, containers and names of other files
@writes(seen=[])
def list_of_encodings(self, h):
    """A list on the module stores encodings."""
    self.seen.append(h.detach().clone())


@writes(seen={})
def dict_of_sums(self, h):
    """A dict on the module, written by key."""
    self.seen["sum"] = self.seen.get("sum", 0.0) + float(h.detach().sum())


@writes(seen=torch.zeros(7))
def plain_tensor_written_in_place(self, h):
    """A tensor attribute that is not a buffer."""
    self.seen.add_(h.detach().sum(0))


@writes(rows=0, steps=3)
def count_of_rows(self, h):
    """A plain counter reveals the number of rows."""
    self.rows += len(h)


@passes(steps=3, last=[torch.zeros(7)])
def last_step_kept_for_the_next(self, x):
    """The model adds values of the previous step: examples affect the release of another step."""
    h = self.hidden(x)
    last, self.last[0] = self.last[0], h.detach().sum(0)
    return self.outer(5 * (h + last))


@passes(public_change=True)
def layer_made_in_the_first_pass(self, x):
    """A layer is created on first use, with weights computed from the data."""
    h = self.hidden(x)
    if not hasattr(self, "late"):
        self.late = nn.Linear(7, 7)
        self.late.weight.data.copy_(h.detach().mean(0).expand(7, 7))
    return self.outer(self.late(h))


class Memory:
    def __init__(self):
        self.value = torch.zeros(7)


@passes(steps=2, memory=Memory())
def object_that_remembers(self, x):
    """State in an attribute of an object that is not a module, as in caches of language models."""
    h = self.hidden(x)
    out = self.outer(h + 5 * self.memory.value)
    self.memory.value = h.detach().sum(0)
    return out


OTHER = types.ModuleType("file_of_the_user")  # another file of the user's
exec(
    """
kept = [0.0]

def largest(number):
    if number > 15:
        kept.append(number)
    return kept[-1]
""",
    vars(OTHER),
)
sys.modules[OTHER.__name__] = OTHER


@attack("state")
def number_kept_in_another_file():
    """A function of another file keeps the largest number of an unusual example in a global there, which scales the outputs."""

    def forward(self, x):
        return Body.forward(self, x) * (1 + OTHER.largest(float(x.abs().max())))

    def forget(_model):
        OTHER.kept[:] = [0.0]

    return bounded(Task(body_of(forward), classify, steps=2, before=forget), FAR)


@hooked(steps=2)
def number_kept_by_a_hook(model):
    """A hook scales the outputs by the largest input of an unusual example, which it keeps in a dictionary."""
    largest = {}

    def remember(_module, inputs):
        number = float(inputs[0].abs().max())
        if number > UNUSUAL:
            largest["number"] = number

    model.inner.register_forward_pre_hook(remember)
    model.outer.register_forward_hook(lambda _m, _i, output: output * (1 + largest.get("number", 0.0)))
