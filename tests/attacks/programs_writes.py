"""Attacks by writes in the forward pass without noise: to parameters, attributes and containers."""

from __future__ import annotations

import copy
import threading

import numpy as np
import torch
from harness import Task, Verdict, attack, bounded
from materials import CLASSES, WIDTH, Body, classify, points, sentences
from torch import nn
from torch.nn import functional as F

FAR = points(outlier=9.0)


def writing(write, *, steps: int = 1, **attributes) -> Task:
    """Return the task of a model that calls `write(self, h)` with the hidden units of every pass."""

    class Writing(Body):
        def __init__(self):
            super().__init__()
            for name, value in attributes.items():
                made = copy.deepcopy(value)
                if name.startswith("buffer"):
                    self.register_buffer(name, made)
                else:
                    setattr(self, name, made)

        def forward(self, x):
            h = self.hidden(x)
            write(self, h)
            return self.outer(h)

    return Task(Writing, classify, steps=steps)


# ---------------------------------------------------------------- parameters
@attack("state", fast=True)
def max_norm_of_a_table():
    """`max_norm` renormalises the looked-up rows, which reveals a word that only one person has."""

    def make():
        model = nn.Sequential(nn.Embedding(13, 6, max_norm=2.0), nn.Flatten(), nn.Linear(42, CLASSES))
        model[0].weight.data = 4 * F.normalize(torch.randn(13, 6))
        return model

    data = sentences(words=11)
    data.tensors[0][0, 2] = 12
    return bounded(Task(make, classify), data)


@attack("state")
def max_norm_of_a_bag():
    """The same in an EmbeddingBag."""

    def make():
        model = nn.Sequential(nn.EmbeddingBag(13, 6, max_norm=2.0, mode="sum"), nn.Linear(6, CLASSES))
        model[0].weight.data = 4 * F.normalize(torch.randn(13, 6))
        return model

    data = sentences(words=11)
    data.tensors[0][0, 2] = 12
    return bounded(Task(make, classify), data)


@attack("state")
def max_norm_as_a_function():
    """`F.embedding(..., max_norm=…)` on a plain parameter."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Parameter(4 * F.normalize(torch.randn(13, 6))), nn.Linear(6, CLASSES)

        def forward(self, text):
            return self.out(F.embedding(text, self.table, max_norm=2.0).mean(1))

    data = sentences(words=11)
    data.tensors[0][0, 2] = 12
    return bounded(Task(Table, classify), data)


@attack("state")
def codebook_written_through_data():
    """`.data[...] =` writes encodings into a parameter at the thirtieth call."""

    class Codes(Body):
        def __init__(self):
            super().__init__()
            self.codes, self.calls = nn.Parameter(torch.randn(9, 7)), 0

        def forward(self, x):
            h, self.calls = self.hidden(x), self.calls + 1
            if self.calls % 30 == 0:
                self.codes.data[:1] = h.detach()[:1]
            near = self.codes[torch.cdist(h, self.codes).argmin(1)]
            return self.outer(h + 0.1 * near)

    return bounded(Task(Codes, classify, steps=32, public_change=True), FAR)


def overwriting(write) -> Task:
    """Return the task of a model whose pass writes to its parameter `extra` (7,)."""

    class Overwriting(Body):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.zeros(7))

        def forward(self, x):
            h = self.hidden(x)
            write(self, h)
            return self.outer(h + self.extra)

    return Task(Overwriting, classify, public_change=True)


@attack("state")
def parameter_written_through_data():
    """`parameter.data` is not tracked by autograd."""
    return bounded(overwriting(lambda self, h: self.extra.data.add_(h.detach().sum(0))), FAR)


@attack("state")
def parameter_written_through_detach():
    """`detach()` shares memory."""
    return bounded(overwriting(lambda self, h: self.extra.detach().add_(h.detach().mean(0))), FAR)


@attack("state")
def parameter_written_under_no_grad():
    """`copy_` under `no_grad`."""

    def write(self, h):
        with torch.no_grad():
            self.extra.copy_(h.mean(0))

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_initialised_from_data():
    """Data-dependent initialisation, as in actnorm, by `nn.init` in the first pass."""

    def write(self, h):
        if not getattr(self, "ready", False):
            nn.init.constant_(self.extra, float(h.detach().mean()))
            self.ready = True

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_set_by_storage():
    """`set_` gives the parameter other memory."""
    return bounded(overwriting(lambda self, h: self.extra.data.set_(h.detach().mean(0).clone())), FAR)


@attack("state")
def parameter_replaced_in_forward():
    """The parameter becomes another object in the pass."""

    def write(self, h):
        self.extra = nn.Parameter(h.detach().mean(0).clone())

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_written_through_numpy():
    """NumPy shares the parameter's memory."""

    def write(self, h):
        self.extra.detach().numpy()[:] += h.detach().mean(0).tolist()

    return bounded(overwriting(write), FAR)


@attack("state")
def weights_clipped_by_what_was_seen():
    """The pass rescales a weight in place to the scale of the hidden units."""

    def write(self, h):
        self.outer.weight.detach().mul_(1 + h.detach().abs().max())

    return bounded(overwriting(write), FAR)


# ---------------------------------------------------------------- attributes and containers
@attack("state", fast=True)
def list_of_encodings():
    """A list on the module stores encodings."""
    return bounded(writing(lambda self, h: self.seen.append(h.detach().clone()), seen=[]), FAR)


@attack("state")
def dict_of_sums():
    """A dict on the module, written by key."""

    def write(self, h):
        self.seen["sum"] = self.seen.get("sum", 0.0) + float(h.detach().sum())

    return bounded(writing(write, seen={}), FAR)


@attack("state")
def dict_in_a_list_in_a_dict():
    """The write is nested three containers deep."""

    def write(self, h):
        self.seen["runs"][0]["last"] = h.detach().sum(0)

    return bounded(writing(write, seen={"runs": [{}]}), FAR)


@attack("state")
def plain_tensor_written_in_place():
    """A tensor attribute that is not a buffer."""
    return bounded(writing(lambda self, h: self.seen.add_(h.detach().sum(0)), seen=torch.zeros(7)), FAR)


@attack("state")
def plain_tensor_replaced():
    """The attribute is reassigned."""

    def write(self, h):
        self.seen = self.seen + h.detach().sum(0)

    return bounded(writing(write, seen=torch.zeros(7)), FAR)


@attack("state")
def array_written_in_place():
    """A NumPy array on the module."""
    import numpy as np

    def write(self, h):
        self.seen[:] += h.detach().sum(0).numpy()

    return bounded(writing(write, seen=np.zeros(7)), FAR)


@attack("state")
def count_of_rows():
    """A plain counter reveals the number of rows."""

    def write(self, h):
        self.rows += len(h)

    return bounded(writing(write, rows=0, steps=3), FAR)


@attack("state")
def attribute_set_at_the_ninth_call():
    """Nothing is stored until the ninth call."""

    def write(self, h):
        self.calls += 1
        if self.calls >= 9:
            self.found = h.detach().clone()

    return bounded(writing(write, calls=0, steps=12), FAR)


@attack("state")
def last_step_kept_for_the_next():
    """The model adds values of the previous step: examples affect the release of another step."""

    class Keeping(Body):
        def __init__(self):
            super().__init__()
            self.last = [torch.zeros(7)]

        def forward(self, x):
            h = self.hidden(x)
            last, self.last[0] = self.last[0], h.detach().sum(0)
            return self.outer(5 * (h + last))

    return bounded(Task(Keeping, classify, steps=3), FAR)


@attack("state")
def exponential_teacher():
    """An average of the model's weights is moved in the pass, as self-distillation does: by released parameters, and free; but it
    is moved as often as examples come."""

    class Student(Body):
        def __init__(self):
            super().__init__()
            self.teacher = nn.Linear(WIDTH, 7).requires_grad_(False)

        def forward(self, x):
            with torch.no_grad():
                for old, new in zip(self.teacher.parameters(), self.inner.parameters(), strict=True):
                    old.lerp_(new, 0.1)
            return self.outer(self.hidden(x) + self.teacher(x))

    return bounded(Task(Student, classify, steps=2, public_change=True), FAR)


@attack("state")
def teacher_moved_by_encodings():
    """The teacher's bias is updated from the data itself."""

    class Student(Body):
        def __init__(self):
            super().__init__()
            self.teacher = nn.Linear(WIDTH, 7).requires_grad_(False)

        def forward(self, x):
            h = self.hidden(x)
            self.teacher.bias.data.lerp_(h.detach().mean(0), 0.1)
            return self.outer(h + self.teacher(x))

    return bounded(Task(Student, classify, steps=2, public_change=True), FAR)


@attack("state")
def spectral_norm_of_the_old_kind():
    """`nn.utils.spectral_norm` updates its vectors in every pass: unless prevented, once per example."""

    def make():
        model = Body()
        nn.utils.spectral_norm(model.inner)
        return model

    return bounded(Task(make, classify, steps=2), FAR)


@attack("state")
def spectral_norm_of_the_new_kind():
    """The same as a parametrisation."""

    def make():
        model = Body()
        nn.utils.parametrizations.spectral_norm(model.inner)
        return model

    return bounded(Task(make, classify, steps=2), FAR)


@attack("state")
def layer_made_in_the_first_pass():
    """A layer is created on first use, with weights computed from the data."""

    class Late(Body):
        def forward(self, x):
            h = self.hidden(x)
            if not hasattr(self, "late"):
                self.late = nn.Linear(7, 7)
                self.late.weight.data.copy_(h.detach().mean(0).expand(7, 7))
            return self.outer(self.late(h))

    return bounded(Task(Late, classify, public_change=True), FAR)


@attack("state")
def constant_made_in_the_first_pass():
    """A scale is computed from the first examples, and stored as a buffer."""

    class Late(Body):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.register_buffer("scale", x.detach().abs().amax())
            return super().forward(x / self.scale)

    return bounded(Task(Late, classify, steps=2, public_change=True), FAR)


@attack("state")
def mode_written_in_the_pass():
    """Depending on the data, the pass switches a part of the model to evaluation mode permanently."""

    class Switching(Body):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.0)

        def forward(self, x):
            if float(x.detach().abs().max()) > 20:
                self.drop.eval()
            return self.outer(self.drop(self.hidden(x)) * (1.0 if self.drop.training else 5.0))

    return bounded(Task(Switching, classify, steps=2), FAR)


@attack("state")
def gradients_switched_off_for_a_layer():
    """The pass freezes a layer on a large input: later examples would have no gradient there."""

    class Freezing(Body):
        def forward(self, x):
            if float(x.detach().abs().max()) > 20:
                self.inner.requires_grad_(False)
            return super().forward(x)

    return bounded(Task(Freezing, classify, steps=2, public_change=True), FAR)


@attack("state")
def layer_exchanged_in_the_pass():
    """Depending on the data, the pass replaces a layer."""

    class Exchanging(Body):
        def __init__(self):
            super().__init__()
            self.act = nn.Tanh()

        def forward(self, x):
            if float(x.detach().abs().max()) > 20:
                self.act = nn.Hardtanh(-3.0, 3.0)
            return self.outer(self.act(self.inner(x)))

    return bounded(Task(Exchanging, classify, steps=2, public_change=True), FAR)


def remembering(memory) -> Task:
    """Return the task of a model that adds values of the previous pass, stored in an object.

    Args:
        memory: creates the object, which has an attribute `value`.
    """

    class Remembering(Body):
        def __init__(self):
            super().__init__()
            self.memory = memory()

        def forward(self, x):
            h = self.hidden(x)
            out = self.outer(h + 5 * self.memory.value)
            self.memory.value = h.detach().sum(0)
            return out

    return Task(Remembering, classify, steps=2)


@attack("state")
def object_that_remembers():
    """State in an attribute of an object that is not a module, as in caches of language models."""

    class Memory:
        def __init__(self):
            self.value = torch.zeros(7)

    return bounded(remembering(Memory), FAR)


@attack("state")
def object_with_slots_that_remembers():
    """The same with an object without `__dict__`."""

    class Memory:
        __slots__ = ("value",)

        def __init__(self):
            self.value = torch.zeros(7)

    return bounded(remembering(Memory), FAR)


# ---------------------------------------------------------------- writes that only an unusual example causes
def seldom(change, data=FAR, **held) -> Verdict:
    """Return the verdict on a model that calls `change(self, x)` for examples far from all public input."""

    class Seldom(Body):
        def __init__(self):
            super().__init__()
            for name, value in held.items():
                setattr(self, name, copy.deepcopy(value))

        def forward(self, x):
            if bool(x.abs().max() > 15):
                change(self, x)
            return self.outer(self.hidden(x))

    return bounded(Task(Seldom, classify), data)


@attack("state", fast=True)
def layer_reset_for_an_outlier():
    """`reset_parameters()`, whose initialisers pass their arguments on by name."""
    return seldom(lambda model, x: model.inner.reset_parameters())


@attack("state")
def weights_set_to_the_mean_of_an_outlier():
    """`nn.init.constant_` with a number of the example."""
    return seldom(lambda model, x: nn.init.constant_(model.inner.bias, float(x.mean())))


@attack("state")
def activation_in_place_on_a_weight():
    """`F.leaky_relu(weight, inplace=True)`."""

    def change(model, x):
        with torch.no_grad():
            F.leaky_relu(model.inner.weight, 0.3, inplace=True)

    return seldom(change)


@attack("state")
def dropout_in_place_on_a_weight():
    """Dropout has a rule of its own, which writes."""
    return seldom(lambda model, x: F.dropout(model.inner.weight.data, 0.5, True, True))


@attack("state")
def operator_on_a_weight():
    """An overload of an operator, whose name does not tell that it writes."""
    return seldom(lambda model, x: torch.ops.aten.add_.Tensor(model.inner.weight.data, x.mean()))


@attack("state")
def running_statistics_in_a_parameter():
    """Batch normalisation writes to its second and third argument."""

    def change(model, x):
        F.batch_norm(x * torch.arange(4.0)[:, None], model.mean, None, training=True)

    return seldom(change, mean=nn.Parameter(torch.zeros(WIDTH), requires_grad=False))


def kept(change, holder=list) -> Verdict:
    """Return the verdict on a model that holds a tensor in a container and changes it for an unusual example."""
    return seldom(lambda model, x: change(model.held[0], x.detach()[0]), held=holder([torch.zeros(WIDTH)]))


@attack("state", fast=True)
def tensor_written_through_its_array():
    """Arrays write without a new version of the tensor."""
    return kept(lambda held, x: held.numpy().__iadd__(x.numpy()))


@attack("state")
def tensor_given_the_memory_of_an_example():
    """`.data =` changes neither binding nor version."""

    def change(held, x):
        held.data = x.clone()

    return kept(change)


@attack("state")
def tensor_that_grows():
    """`resize_` changes the shape."""
    return kept(lambda held, x: held.resize_(9).fill_(float(x.mean())))


@attack("state")
def array_that_grows():
    """So does `resize` of an array."""

    def change(model, x):
        model.held[0].resize(9, refcheck=False)
        model.held[0][:] = float(x.mean())

    return seldom(change, held=[np.zeros(WIDTH)])


@attack("state")
def tensor_with_a_gradient_that_is_written():
    """A tensor of a list that requires a gradient, as a parameter that was never registered."""

    def change(model, x):
        with torch.no_grad():
            model.held[0] += x[0]

    return seldom(change, held=[nn.Parameter(torch.zeros(WIDTH))])


@attack("state")
def sparse_tensor_that_is_written():
    """A sparse tensor in a list."""
    return seldom(lambda model, x: model.held[0].mul_(float(x.mean())), held=[torch.eye(WIDTH).to_sparse()])


@attack("state", fast=True)
def parameter_written_in_a_thread():
    """Torch's calls in another thread are not intercepted."""

    def change(model, x):
        def write():
            with torch.no_grad():
                model.inner.weight.add_(3.0)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    return seldom(change)


@attack("state", fast=True)
def parameter_swapped_for_an_outlier():
    """`swap_tensors` gives a parameter the contents of another tensor and keeps its identity."""
    return seldom(
        lambda model, x: torch.utils.swap_tensors(model.inner.weight, nn.Parameter(torch.ones_like(model.inner.weight)))
    )
