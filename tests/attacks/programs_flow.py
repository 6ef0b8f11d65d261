"""Data-dependent control flow and shapes: each example must be computed as if it were alone."""

from __future__ import annotations

import torch
from harness import Task, attack, bounded, exact
from materials import CLASSES, WIDTH, classify, model_of, points, public, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

FAR = points(outlier=20.0)


def on_points(forward, *, alone: bool = True, data=FAR, **parts):
    """Return the verdict on a forward pass over points with layers `a`, `b` and `out`.

    Args:
        alone: whether examples are independent, so that the sum must equal a loop's.
    """
    make = lambda: model_of(
        forward,
        a=nn.Linear(WIDTH, 7),
        b=nn.Linear(7, 7),
        out=nn.Linear(7, CLASSES),
        **{name: part() for name, part in parts.items()},
    )
    return (exact if alone else bounded)(Task(make, classify, options=public(data)), data, remove=(0, 5))


@attack("flow")
def branch_on_any_of_the_batch():
    """A layer is used for all if any example is large."""

    def forward(self, x):
        h = self.a(x).tanh()
        if bool((x.abs() > 20).any()):
            h = self.b(h).tanh()
        return self.out(h)

    return on_points(forward)


@attack("flow")
def early_exit_by_confidence():
    """Adaptive computation: the second block runs unless all are confident."""

    def forward(self, x):
        h = self.a(x).tanh()
        first = self.out(h)
        if first.softmax(1).max(1).values.min() > 0.4:
            return first
        return self.out(self.b(h).tanh())

    return on_points(forward)


@attack("flow")
def numpy_in_the_middle():
    """NumPy computes a scale from detached values."""

    def forward(self, x):
        scale = float(abs(x.detach().cpu().numpy()).max())
        return self.out(self.a(x / (1 + scale)).tanh())

    return on_points(forward)


@attack("flow")
def sorted_inputs_of_each():
    """`sort` within an example, and the order used by `gather`."""

    def forward(self, x):
        ordered, order = x.sort(1)
        return self.out(self.a(ordered + x.flip(1).gather(1, order)).tanh())

    return on_points(forward)


@attack("flow")
def scatter_by_predicted_class():
    """Hidden units are scattered by `argmax` within an example."""

    def forward(self, x):
        h = self.a(x)
        best = h.argmax(1, keepdim=True)
        return self.out(torch.zeros_like(h).scatter(1, best, h.gather(1, best)) + self.b(h).tanh())

    return on_points(forward)


@attack("flow")
def mask_only_if_some_are_padded():
    """`mask.all()` determines whether a mask is used, as in transformers models."""

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        h = self.a(x)
        allowed = None if mask.all() else mask[:, None]
        return self.out(F.scaled_dot_product_attention(h, h, h, attn_mask=allowed).mean(1))

    return on_points(forward, data=series(), alone=True)


@attack("flow")
def split_by_lengths():
    """`split` with a list of lengths, then a loop over pieces."""

    def forward(self, x, lengths):
        pieces = [self.a(row[: int(k)]).tanh().mean(0) for row, k in zip(x, lengths, strict=True)]
        return self.out(torch.stack(pieces))

    return on_points(forward, data=series())


@attack("flow")
def packed_and_unpacked():
    """Packing, a recurrent layer, unpacking, and a maximum over time."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h.amax(1))

    return on_points(forward, data=series(), rnn=lambda: nn.LSTM(WIDTH, 7, batch_first=True))


@attack("flow")
def steps_until_a_word():
    """A loop over time that stops when every text has ended."""

    def forward(self, text):
        h, done = torch.zeros(len(text), 6), torch.zeros(len(text), dtype=torch.bool)
        for step in range(text.shape[1]):
            h = torch.where(done[:, None], h, self.cell(self.table(text[:, step]), h))
            done = done | (text[:, step] == 5)
            if done.all():
                break
        return self.last(h)

    make = lambda: model_of(forward, table=nn.Embedding(13, 6), cell=nn.GRUCell(6, 6), last=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), sentences(10), remove=(0, 5))


@attack("flow")
def layer_applied_to_nothing():
    """A mask selects the inputs of a layer; for one example it selects none."""

    def forward(self, x):
        rows, columns = (x > -1.0).nonzero(as_tuple=True)
        h = self.each(x[rows, columns][:, None]).tanh()
        return self.out(torch.zeros(len(x), 7).index_add(0, rows, h))

    data = points()
    data.tensors[0][:, 0] = 1.0
    data.tensors[0][5] = -5.0
    return on_points(forward, data=data, each=lambda: nn.Linear(1, 7))
