"""Data-dependent control flow and shapes: each example must be computed as if it were alone."""

import torch
from harness import forward_pass
from materials import WIDTH, points, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

FAR = points(outlier=20.0)


def flow(data=FAR, **parts):
    """Register a forward pass over points with layers `a` and `b`."""
    return forward_pass("flow", data, a=lambda: nn.Linear(WIDTH, 7), b=lambda: nn.Linear(7, 7), **parts)


@flow()
def branch_on_any_of_the_batch(self, x):
    """A layer is used for all if any example is large."""
    h = self.a(x).tanh()
    if bool((x.abs() > 20).any()):
        h = self.b(h).tanh()
    return self.out(h)


@flow()
def early_exit_by_confidence(self, x):
    """Adaptive computation: the second block runs unless all are confident."""
    h = self.a(x).tanh()
    first = self.out(h)
    if first.softmax(1).max(1).values.min() > 0.4:
        return first
    return self.out(self.b(h).tanh())


@flow()
def numpy_in_the_middle(self, x):
    """NumPy computes a scale from detached values."""
    scale = float(abs(x.detach().cpu().numpy()).max())
    return self.out(self.a(x / (1 + scale)).tanh())


@flow()
def sorted_inputs_of_each(self, x):
    """`sort` within an example, and the order used by `gather`."""
    ordered, order = x.sort(1)
    return self.out(self.a(ordered + x.flip(1).gather(1, order)).tanh())


@flow()
def scatter_by_predicted_class(self, x):
    """Hidden units are scattered by `argmax` within an example."""
    h = self.a(x)
    best = h.argmax(1, keepdim=True)
    return self.out(torch.zeros_like(h).scatter(1, best, h.gather(1, best)) + self.b(h).tanh())


@flow(series())
def mask_only_if_some_are_padded(self, x, lengths):
    """`mask.all()` determines whether a mask is used, as in transformers models."""
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    h = self.a(x)
    allowed = None if mask.all() else mask[:, None]
    return self.out(F.scaled_dot_product_attention(h, h, h, attn_mask=allowed).mean(1))


@flow(series())
def split_by_lengths(self, x, lengths):
    """`split` with a list of lengths, then a loop over pieces."""
    pieces = [self.a(row[: int(k)]).tanh().mean(0) for row, k in zip(x, lengths, strict=True)]
    return self.out(torch.stack(pieces))


@flow(series(), rnn=lambda: nn.LSTM(WIDTH, 7, batch_first=True))
def packed_and_unpacked(self, x, lengths):
    """Packing, a recurrent layer, unpacking, and a maximum over time."""
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
    return self.out(h.amax(1))


@flow(sentences(10), table=lambda: nn.Embedding(13, 7), cell=lambda: nn.GRUCell(7, 7))
def steps_until_a_word(self, text):
    """A loop over time that stops when every text has ended."""
    h, done = torch.zeros(len(text), 7), torch.zeros(len(text), dtype=torch.bool)
    for step in range(text.shape[1]):
        h = torch.where(done[:, None], h, self.cell(self.table(text[:, step]), h))
        done = done | (text[:, step] == 5)
        if done.all():
            break
    return self.out(h)


NOTHING = points()
NOTHING.tensors[0][:, 0] = 1.0
NOTHING.tensors[0][5] = -5.0


@flow(NOTHING, each=lambda: nn.Linear(1, 7))
def layer_applied_to_nothing(self, x):
    """A mask selects the inputs of a layer; for one example it selects none."""
    rows, columns = (x > -1.0).nonzero(as_tuple=True)
    h = self.each(x[rows, columns][:, None]).tanh()
    return self.out(torch.zeros(len(x), 7).index_add(0, rows, h))
