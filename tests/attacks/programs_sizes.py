"""Attacks by coinciding sizes: B equals the length, the width, the number of classes or of rows of tables."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, bounded, exact
from materials import CLASSES, Body, Listed, classify, model_of, points
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset, default_collate

SIZE = 6


def cube(size: int = SIZE, outlier: float = 30.0) -> TensorDataset:
    """Return (B, T, d) with B = T = d, and class labels."""
    x = torch.randn(size, size, size, generator=torch.Generator().manual_seed(5))
    x[0] *= outlier
    return TensorDataset(x, torch.arange(size) % CLASSES)


def square_data(size: int = SIZE, outlier: float = 30.0) -> TensorDataset:
    """Return (B, d) with B = d."""
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(5))
    x[0] *= outlier
    return TensorDataset(x, torch.arange(size) % CLASSES)


def on_cube(forward, data=None, **parts) -> Verdict:
    """Return the verdict on a forward pass over a cube, with layers `a` and `b` of that size and `out`."""
    make = lambda: model_of(
        forward,
        a=nn.Linear(SIZE, SIZE), b=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES),
        **{name: part() for name, part in parts.items()},
    )  # fmt: skip
    return exact(Task(make, classify), data or cube(), remove=(0, 2))


@attack("sizes", fast=True)
def transposed_where_all_sizes_are_equal():
    """Time and width are swapped between two layers; a wrong axis would have the same shape."""
    return on_cube(lambda self, x: self.out(self.b(self.a(x).tanh().transpose(1, 2)).tanh().sum(1)))


@attack("sizes")
def time_first_where_all_sizes_are_equal():
    """The layer sees (T, B, d)."""
    return on_cube(lambda self, x: self.out(self.a(x.transpose(0, 1)).tanh().sum(0)))


@attack("sizes")
def width_first_where_all_sizes_are_equal():
    """All three axes are rotated, and rotated back."""
    return on_cube(lambda self, x: self.out(self.a(x.permute(2, 0, 1)).tanh().permute(1, 2, 0).sum(1)))


@attack("sizes")
def transposed_twice_around_a_weight():
    """The weight multiplies from the left, over time."""
    return on_cube(lambda self, x: self.out((self.a.weight @ x).tanh().sum(1)))


@attack("sizes")
def einsum_with_every_order():
    """Einsum products that contract weights over time, width or both."""

    def forward(self, x):
        one = torch.einsum("bti,oi->bto", x, self.a.weight)
        other = torch.einsum("bti,ot->boi", x, self.b.weight)
        return self.out((one + other).tanh().sum(1))

    return on_cube(forward)


@attack("sizes")
def recurrence_with_time_first():
    """A recurrent layer without `batch_first`, applied to (B, T, d) transposed."""

    def forward(self, x):
        return self.out(self.rnn(x.transpose(0, 1))[0][-1])

    return on_cube(forward, rnn=lambda: nn.GRU(SIZE, SIZE))


@attack("sizes")
def recurrence_with_batch_and_time_confused():
    """The user forgot `batch_first`: time runs over examples."""

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])

    make = lambda: model_of(forward, rnn=nn.GRU(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES))
    return bounded(Task(make, classify), cube(), remove=(0, 2))


@attack("sizes")
def attention_with_time_first():
    """MultiheadAttention without `batch_first`."""

    def forward(self, x):
        h = x.transpose(0, 1)
        return self.out(self.attention(h, h, h)[0].sum(0))

    return on_cube(forward, cube(outlier=3.0), attention=lambda: nn.MultiheadAttention(SIZE, 2))


@attack("sizes")
def table_of_positions_as_long_as_the_batch():
    """Positional embeddings (T, d) are added, where T = B."""
    return on_cube(
        lambda self, x: self.out(self.a(x + self.place).tanh().sum(1)), place=lambda: nn.Parameter(torch.randn(SIZE, SIZE))
    )


@attack("sizes")
def buffer_with_a_row_for_each_example():
    """A public table in a buffer has B rows: each example sees all rows."""
    return on_cube(lambda self, x: self.out(self.a(x @ self.table).tanh().sum(1)), table=lambda: torch.randn(SIZE, SIZE))


@attack("sizes")
def parameter_with_a_row_for_each_example():
    """A learned table of B rows is added along the width of every example."""

    def forward(self, x):
        return self.out((self.a(x) @ self.table.t()).tanh())

    make = lambda: model_of(
        forward, a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES), table=nn.Parameter(torch.randn(SIZE, SIZE))
    )
    return exact(Task(make, classify), square_data(), remove=(0, 2))


@attack("sizes")
def parameter_added_row_by_row():
    """A learned table (B, d) is added to the batch: row i to example i, if there are B of them."""

    def forward(self, x):
        return self.out((x + self.table[: len(x)]).tanh())

    make = lambda: model_of(forward, out=nn.Linear(SIZE, CLASSES), table=nn.Parameter(torch.zeros(SIZE, SIZE)))
    return bounded(Task(make, classify), square_data(), remove=(0, 2))


@attack("sizes")
def prototypes_as_many_as_examples():
    """Distances to B learned prototypes."""

    def forward(self, x):
        return self.out(-torch.cdist(x, self.prototypes))

    make = lambda: model_of(forward, out=nn.Linear(SIZE, CLASSES), prototypes=nn.Parameter(torch.randn(SIZE, SIZE)))
    return exact(Task(make, classify), square_data(outlier=3.0), remove=(0, 2))


@attack("sizes")
def classes_as_many_as_examples():
    """Logits are (B, B), and the label of example i is i."""
    make = lambda: model_of(lambda self, x: self.a(x).log_softmax(1), a=nn.Linear(SIZE, SIZE))
    loss = lambda model, batch: F.nll_loss(model(batch[0]), batch[1], reduction="none")
    data = square_data()
    return exact(Task(make, loss), TensorDataset(data.tensors[0], torch.arange(SIZE)), remove=(0, 2))


@attack("sizes")
def logits_taken_from_the_diagonal():
    """The diagonal of (B, B) logits instead of each label's: entry i of example i."""
    make = lambda: nn.Linear(SIZE, SIZE)
    loss = lambda model, batch: -model(batch[0]).log_softmax(1).diagonal()
    return bounded(Task(make, loss), square_data(), remove=(0, 2))


@attack("sizes")
def labels_one_hot_and_transposed():
    """Soft labels (B, K) with B = K are transposed by mistake."""
    make = lambda: nn.Linear(SIZE, SIZE)

    def loss(model, batch):
        return -(model(batch[0]).log_softmax(1) * F.one_hot(batch[1], SIZE).t()[: len(batch[1])]).sum(1)

    return bounded(Task(make, loss), square_data(), remove=(0, 2))


@attack("sizes")
def weights_of_classes_as_many_as_examples():
    """The loss has public class weights, as many as examples."""
    weight = torch.linspace(0.5, 2.0, SIZE)
    make = lambda: nn.Linear(SIZE, SIZE)
    loss = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], weight=weight, reduction="none")
    return exact(Task(make, loss), square_data(), remove=(0, 2))


@attack("sizes")
def loss_multiplied_by_a_public_table():
    """A public vector of B weights multiplies the losses, and is shared by all examples."""
    weight = torch.linspace(1.0, 200.0, SIZE)

    def loss(model, batch):
        return classify(model, batch) * weight[: len(batch[1])]

    return bounded(Task(lambda: nn.Linear(SIZE, CLASSES), loss), square_data(), remove=(0, 5))


@attack("sizes")
def collate_adds_a_public_table():
    """A leaf of the batch has B rows and is shared."""
    table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(9))

    def collate(items):
        return default_collate([x for x, _ in items]), table, torch.tensor([y for _, y in items])

    make = lambda: model_of(lambda self, x, table: self.out((x @ table.t()).tanh()), out=nn.Linear(SIZE, CLASSES))
    data = Listed((x, int(y)) for x, y in square_data())
    return bounded(Task(make, classify, collate=collate), data, remove=(0, 2))


@attack("sizes")
def collate_puts_time_first():
    """Batches are (T, B, d), as older code has them, with B = T."""

    def collate(items):
        return torch.stack([x for x, _ in items], 1), torch.tensor([y for _, y in items])

    make = lambda: model_of(
        lambda self, x: self.out(self.a(x).tanh().sum(0)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    return bounded(Task(make, classify, collate=collate), Listed((x, int(y)) for x, y in cube()), remove=(0, 2))


@attack("sizes")
def one_neighbour_has_the_coincidence():
    """B = T for one of two neighbours only."""
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    data = cube()
    more = TensorDataset(
        torch.cat([data.tensors[0], data.tensors[0][1:2] * 2]), torch.cat([data.tensors[1], data.tensors[1][:1]])
    )
    return exact(Task(make, classify), more, remove=(0, SIZE))


@attack("sizes")
def two_examples_of_two_words_of_width_two():
    """The smallest coincidence."""
    x = torch.tensor([[[30.0, -20.0], [10.0, 4.0]], [[0.1, 0.2], [-0.3, 0.4]], [[1.0, 0.2], [0.3, -0.4]]])
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(2, 2), out=nn.Linear(2, 2)
    )
    return exact(Task(make, classify), TensorDataset(x, torch.tensor([0, 1, 0])), remove=(0, 2))


@attack("sizes")
def convolution_over_channels_as_many_as_examples():
    """(B, C, H, W) with all sizes equal, and channels and rows swapped in between."""
    x = torch.randn(4, 4, 4, 4, generator=torch.Generator().manual_seed(5))
    x[0] *= 20

    def forward(self, x):
        return self.out(self.b(self.a(x).tanh().transpose(1, 2)).flatten(1))

    make = lambda: model_of(forward, a=nn.Conv2d(4, 4, 3, padding=1), b=nn.Conv2d(4, 4, 3, padding=1), out=nn.Linear(64, CLASSES))
    return exact(Task(make, classify), TensorDataset(x, torch.arange(4)), remove=(0, 2))


@attack("sizes")
def grouped_rows_as_many_as_examples():
    """A reshape splits one example's entries into B groups."""

    def forward(self, x):
        return self.out(self.a(x.reshape(SIZE, -1, SIZE)).tanh().reshape(-1, SIZE, SIZE).sum(1))

    return on_cube(forward)


@attack("sizes")
def embedding_with_a_row_for_each_example():
    """A table of B rows, looked up by position and by word."""

    def forward(self, text):
        return self.out((self.words(text) + self.places(torch.arange(text.shape[1]))).sum(1))

    text = torch.randint(SIZE, (SIZE, SIZE), generator=torch.Generator().manual_seed(5))
    make = lambda: model_of(
        forward, words=nn.Embedding(SIZE, SIZE), places=nn.Embedding(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    return exact(Task(make, classify), TensorDataset(text, torch.arange(SIZE) % CLASSES), remove=(0, 2))


@attack("sizes")
def bias_of_each_example():
    """A bias (B, 1) is added where (1, B) was meant."""

    def forward(self, x):
        return self.out(x) + self.bias[: len(x)]

    make = lambda: model_of(forward, out=nn.Linear(CLASSES, CLASSES), bias=nn.Parameter(torch.zeros(CLASSES, 1)))
    x = torch.randn(CLASSES, CLASSES, generator=torch.Generator().manual_seed(5))
    x[0] *= 30
    return bounded(Task(make, classify), TensorDataset(x, torch.arange(CLASSES)), remove=(0, 2))


@attack("sizes")
def layer_norm_over_the_batch():
    """`layer_norm` of the transposed matrix normalises each column over examples."""

    class Wrong(Body):
        def forward(self, x):
            h = self.hidden(x)
            return self.outer(F.layer_norm(h.t(), (h.shape[0],)).t())

    return bounded(Task(Wrong, classify), points(7, outlier=30.0), remove=(0, 2))


@attack("sizes")
def physical_batches_as_long_as_the_sequence():
    """Physical batches have T examples, the last one fewer."""
    data = cube(SIZE)
    x = torch.cat([data.tensors[0]] + [data.tensors[0][1:] * factor for factor in (0.5, 2.0)])
    labels = torch.arange(len(x)) % CLASSES
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    return exact(Task(make, classify, options={"physical_batch_size": SIZE}), TensorDataset(x, labels), remove=(0, len(x) - 1))


@attack("sizes")
def data_sets_of_two_examples():
    """The smallest data sets that a plan accepts: three examples and two."""
    data = points(3, outlier=30.0)
    return exact(Task(Body, classify), data, remove=(0, 2))
