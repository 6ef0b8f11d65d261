"""Files that `privet check` must refuse, and files that it must accept."""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
from pathlib import Path

from harness import Verdict, attack, valid

_BEGINNING = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, TensorDataset, default_collate
torch.manual_seed(3)
N, WIDTH, CLASSES = 80, 5, 4

class Items(Dataset):
    def __init__(self, items):
        self.items = list(items)
    def __len__(self):
        return len(self.items)
    def __getitem__(self, index):
        return self.items[index]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)
    def hidden(self, x):
        return self.inner(x).tanh()
    def forward(self, x):
        return self.outer(self.hidden(x))

def loss_fn(model, batch):
    return F.cross_entropy(model(*batch[:-1]), batch[-1], reduction="none")

x, y = torch.randn(N, WIDTH), torch.randint(CLASSES, (N,))
items = [(a, int(b)) for a, b in zip(x, y)]
dataset, model = TensorDataset(x, y), Net()
"""


def status(text: str) -> tuple[int, str]:
    """Return the exit status of `privet check` on a file, and its output."""
    from privet.cli import main  # as slow as all other programs together

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(_BEGINNING + text)
        said, code = io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main(["check", str(file), "--observations", "10000", "--quiet"])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, " ".join(said.getvalue().split())[:160]


def broken(text: str) -> Verdict:
    """Return the verdict on a file that must fail, while the same file without its fault passes."""
    code, said = status(text)
    return Verdict(code != 0 and _plain_file_passes(), f"status {code}: {said}")


@functools.cache
def _plain_file_passes() -> bool:
    return status("")[0] == 0


def sound(text: str) -> Verdict:
    """Return the verdict on a file that must pass."""
    code, said = status(text)
    return Verdict(code == 0, f"status {code}: {said}")


@attack("check", fast=True)
def file_that_pads_to_the_longest():
    """Padding by collate, and a mean over time."""
    return broken("""
dataset = Items((torch.randn(int(torch.randint(2, 40, ())), WIDTH), b) for _, b in items)
def collate(items):
    return pad_sequence([a for a, _ in items], batch_first=True), torch.tensor([b for _, b in items])
class Mean(Net):
    def forward(self, x):
        return self.outer(self.hidden(x).mean(1))
model = Mean()
""")


@attack("check")
def file_with_statistics_in_a_buffer():
    """A buffer tracks the standard deviation of hidden units over the batch, undefined for a single example."""
    return broken("""
class Following(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("spread", torch.ones(7))
    def forward(self, x):
        h = self.hidden(x)
        if self.training and len(x) > 1:
            self.spread.lerp_(h.detach().std(0), 0.2)
        return self.outer(h)
model = Following()
""")


@attack("check")
def file_with_batch_norm():
    """Batch norm in training mode."""
    return broken("model = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))")


@attack("check")
def file_with_mixup_in_collate():
    """Inputs and labels of partners are mixed."""
    return broken("""
dataset = Items(items)
def collate(items):
    a, b = default_collate(items)
    b = F.one_hot(b, CLASSES).float()
    return (a + a.roll(1, 0)) / 2, (b + b.roll(1, 0)) / 2
""")


@attack("check")
def file_that_standardises_in_collate():
    """The mean of the batch is subtracted."""
    return broken("""
dataset = Items(items)
def collate(items):
    a, b = default_collate(items)
    return a - a.mean(0), b
""")


@attack("check")
def file_that_standardises_in_the_model():
    """The same in the forward pass."""
    return broken("""
class Centring(Net):
    def forward(self, x):
        h = self.hidden(x)
        return self.outer(h - h.mean(0, keepdim=True))
model = Centring()
""")


@attack("check")
def file_that_sorts_labels_in_collate():
    """Labels are sorted and inputs are not."""
    return broken("""
dataset = Items(items)
def collate(items):
    a, b = default_collate(items)
    return a, b.sort().values
""")


@attack("check")
def file_with_negatives_from_the_batch():
    """A contrastive loss."""
    return broken("""
def loss_fn(model, batch):
    z = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(z @ z.t() / 0.1, torch.arange(len(z)), reduction="none")
""")


@attack("check")
def file_with_one_mean_for_all():
    """The loss is a mean over the batch, repeated."""
    return broken("""
def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1]).expand(len(batch[1]))
""")


@attack("check")
def file_that_trims_to_the_longest():
    """The model truncates padding to the longest example of the batch."""
    return broken("""
lengths = torch.randint(2, 40, (N,))
mask = torch.arange(40) < lengths[:, None]
dataset = TensorDataset(torch.randn(N, 40, WIDTH) * mask[..., None], mask, y)
class Trimming(Net):
    def forward(self, x, mask):
        return self.outer(self.hidden(x[:, : int(mask.sum(1).max())]).mean(1))
model = Trimming()
""")


@attack("check")
def file_with_centres_in_the_loss():
    """The loss has parameters of its own."""
    return broken("""
centres = nn.Parameter(torch.zeros(CLASSES, CLASSES))
def loss_fn(model, batch):
    z = model(batch[0])
    return F.cross_entropy(z, batch[1], reduction="none") + (z - centres[batch[1]]).square().sum(1)
""")


@attack("check")
def file_with_an_example_twice():
    """A data set joined with itself."""
    return broken("""
from torch.utils.data import ConcatDataset
dataset = ConcatDataset([dataset, dataset])
""")


@attack("check")
def file_with_max_norm():
    """A table whose rows are renormalised at lookup."""
    return broken("""
model = nn.Sequential(nn.Embedding(30, 6, max_norm=1.0), nn.Flatten(), nn.Linear(24, CLASSES))
with torch.no_grad():
    model[0].weight.mul_(5)
dataset = TensorDataset(torch.randint(30, (N, 4)), y)
""")


@attack("check")
def file_with_neighbours_in_getitems():
    """`__getitems__` uses all requested examples."""
    return broken("""
class Centred(Items):
    def __getitems__(self, indices):
        mean = torch.stack([self.items[k][0] for k in indices]).mean(0)
        return [(self.items[k][0] - mean, self.items[k][1]) for k in indices]
dataset = Centred(items)
""")


@attack("check")
def file_that_writes_a_parameter():
    """The pass writes encodings into a parameter."""
    return broken("""
class Writing(Net):
    def forward(self, x):
        h = self.hidden(x)
        self.inner.bias.data.lerp_(h.detach().mean(0), 0.1)
        return self.outer(h)
model = Writing()
""")


@attack("check")
def file_whose_data_change_when_read():
    """A read changes what later reads return: two reads of one index differ."""
    return broken("""
class Growing(Items):
    def __getitem__(self, index):
        a, b = self.items[index]
        a.add_(1.0)
        return a.clone(), b
dataset = Growing(items)
""")


# ---------------------------------------------------------------- files that pass
@valid()
def file_with_two_layers():
    """Nothing special."""
    return sound("")


@valid()
def file_with_dropout_and_a_seed():
    """Dropout in training mode, seeded by the user."""
    return sound("torch.manual_seed(0)\nmodel = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))")


@valid()
def file_with_group_norm_and_convolution():
    """A small convolutional network."""
    return sound("""
dataset = TensorDataset(torch.randn(N, 2, 6, 6), y)
model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES))
""")


@valid()
def file_with_masked_padding_of_equal_lengths():
    """Padding to a public length, and a masked mean."""
    return sound("""
def collate(items):
    a = torch.stack([F.pad(t, (0, 12 - len(t))) for t, _ in items])
    return a, torch.tensor([b for _, b in items])
dataset = Items((torch.randint(1, 20, (2 + k % 9,)), k % CLASSES) for k in range(N))
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 6), nn.Linear(6, CLASSES)
    def forward(self, text):
        mask = (text != 0).float()[..., None]
        return self.out((self.table(text) * mask).sum(1) / mask.sum(1).clamp(min=1))
model = Text()
""")


@valid()
def file_with_an_lstm():
    """A recurrent classifier."""
    return sound("""
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(WIDTH, 6, batch_first=True), nn.Linear(6, CLASSES)
    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])
model, dataset = Recurrent(), TensorDataset(torch.randn(N, 4, WIDTH), y)
""")
