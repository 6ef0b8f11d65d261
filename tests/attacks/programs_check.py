"""Files that `privet check` must refuse, and files that it must accept."""

import contextlib
import functools
import io
import tempfile
from pathlib import Path
from unittest import mock

from harness import Verdict, attack, valid

from privet.audit import MechanismAudit, mechanism
from privet.audit._program import guarantee
from privet.plan import Plan

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


@functools.cache
def _audited(plan: Plan) -> MechanismAudit:
    """Return the audit of a plan: of one for all of these files, as they have equally many examples."""
    return mechanism(plan, observations=10_000)


@functools.cache
def _status(text: str) -> tuple[int, str]:
    """Return the exit status of `privet check` on a file, and its output."""
    from privet.cli import main  # as slow as all other programs together

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(guarantee, "mechanism", lambda plan, **_: _audited(plan)),
    ):
        file = Path(folder, "program.py")
        file.write_text(_BEGINNING + text)
        said, code = io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main(["check", str(file), "--quiet"])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, " ".join(said.getvalue().split())[:160]


def broken(text: str) -> Verdict:
    """Return the verdict on a file that must fail, while the same file without its fault passes."""
    code, said = _status(text)
    return Verdict(code != 0 and _status("")[0] == 0, f"status {code}: {said}")


def sound(text: str) -> Verdict:
    """Return the verdict on a file that must pass."""
    code, said = _status(text)
    return Verdict(code == 0, f"status {code}: {said}")


@attack("check")
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


# ---------------------------------------------------------------- files that pass
@valid()
def file_with_two_layers():
    """Nothing special."""
    return sound("")


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
