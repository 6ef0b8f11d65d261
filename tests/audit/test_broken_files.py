"""Files that must fail `privet check`, each for a different reason, and files that must pass."""

import pytest

from privet.audit._program import guarantee
from privet.audit._program.program import AuditedProgram
from privet.cli.definitions import load_definitions

BEGINNING = """
import privet, torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import ConcatDataset, Dataset, TensorDataset, default_collate

torch.manual_seed(5)
N, WIDTH, CLASSES = 40, 4, 3


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
        self.inner, self.outer = nn.Linear(WIDTH, 6), nn.Linear(6, CLASSES)

    def hidden(self, x):
        return self.inner(x).tanh()

    def forward(self, x):
        return self.outer(self.hidden(x))


class Mean(Net):
    def forward(self, x):
        return self.outer(self.hidden(x).mean(1))


def loss_fn(model, batch):
    return F.cross_entropy(model(*batch[:-1]), batch[-1], reduction="none")


def padded(items):
    return pad_sequence([x for x, _ in items], batch_first=True), torch.tensor([y for _, y in items])


x, y = torch.randn(N, WIDTH), torch.randint(CLASSES, (N,))
items = [(a, int(b)) for a, b in zip(x, y)]
ragged = Items((torch.randn(int(torch.randint(2, 12, ())), WIDTH), int(b)) for b in y)
words = Items((torch.randint(1, 20, (int(torch.randint(2, 9, ())),)), int(b)) for b in y)
dataset, model = TensorDataset(x, y), Net()
plan = privet.Plan(
    examples=N, sampling=privet.sampling.Poisson(8), steps=30, clipping=privet.clipping.Flat(0.7), delta=1e-3,
    noise=privet.noise.Gaussian(1.7),
)
"""

BROKEN = {
    "padding to the longest and a mean over time": "dataset, collate, model = ragged, padded, Mean()",
    "statistics of the batch in a buffer": """
class Following(Net):
    def forward(self, x):
        h = self.hidden(x)
        if self.training and len(x) > 1:
            self.spread.lerp_(h.detach().std(0), 0.2)
        return self.outer(h)
model = Following()
model.register_buffer("spread", torch.ones(6))
""",
    "statistics in a buffer, checked in evaluation mode": """
class Counting(Net):
    def forward(self, x):
        h = self.hidden(x)
        if self.training:
            self.seen.add_(h.detach().sum(0))
        return self.outer(h)
model = Counting().eval()
model.register_buffer("seen", torch.zeros(6))
""",
    "labels beyond the classes": "dataset = TensorDataset(x, y + 2)",
    "mixup in collate": """
dataset = Items(items)
def collate(items):
    a, b = default_collate(items)
    return (a + a.roll(1, 0)) / 2, (F.one_hot(b, CLASSES).float() + F.one_hot(b.roll(1, 0), CLASSES)) / 2
""",
    "mixup in collate of examples of several lengths": """
dataset = ragged
def collate(items):
    a, b = padded(items)
    return (a + a.roll(1, 0)) / 2, b
class Last(Net):
    def forward(self, x):
        return self.outer(self.hidden(x).sum(1))
model = Last()
""",
    "labels sorted in collate": """
dataset = Items(items)
def collate(items):
    a, b = default_collate(items)
    return a, b.sort().values
""",
    "negatives from the batch": """
def loss_fn(model, batch):
    z = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(z @ z.t() / 0.1, torch.arange(len(z)), reduction="none")
""",
    "a data set whose reads change later items": """
class Growing(Items):
    def __getitem__(self, index):
        self.items[(index + 1) % N][0].add_(0.1)
        return super().__getitem__(index)
dataset = Growing((a.clone(), b) for a, b in items)
""",
    "a cache of activations that the next example uses": """
class Cache:
    last = None
class Remembering(Net):
    def forward(self, x):
        h = self.hidden(x)
        before, Cache.last = Cache.last, h.detach()
        return self.outer(h if before is None else h + before.mean(0))
model = Remembering()
""",
    "a running largest value in a list of the model": """
class Largest(Net):
    def forward(self, x):
        h = self.hidden(x)
        self.seen.append(float(h.detach().abs().max()))
        return self.outer(h / max(self.seen))
model = Largest()
model.seen = []
""",
    "a loss that is a mean": """
def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])
""",
    "a model that trims to the longest of the batch": """
mask = torch.arange(12) < torch.randint(2, 12, (N, 1))
dataset = TensorDataset(torch.randn(N, 12, WIDTH) * mask[..., None], mask, y)
class Trimming(Net):
    def forward(self, x, mask):
        return self.outer(self.hidden(x[:, : int(mask.sum(1).max())]).mean(1))
model = Trimming()
""",
    "a model with nothing to train": "model.requires_grad_(False)",
    "an example that is there twice": "dataset = ConcatDataset([TensorDataset(x[:20], y[:20])] * 2)",
    "a data set of another size than the plan's": "dataset = TensorDataset(x[:30], y[:30])",
}  # fmt: skip

SOUND = {
    "two layers": "",
    "dropout": "model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))",
    "spectral norm in training mode": """
from torch.nn.utils.parametrizations import spectral_norm
model = nn.Sequential(spectral_norm(nn.Linear(WIDTH, 8)), nn.Tanh(), nn.Linear(8, CLASSES))
""",
    "batch norm that is frozen": "model = nn.Sequential(nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES)).eval()",
    "padding that a mask leaves out": """
dataset, collate = words, padded
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 6), nn.Linear(6, CLASSES)
    def forward(self, text):
        mask = (text != 0).float()[..., None]
        return self.out((self.table(text) * mask).sum(1) / mask.sum(1).clamp(min=1))
model = Text()
""",
    "items sorted by length for packing": """
dataset = ragged
def collate(items):
    a, b = padded(items := sorted(items, key=lambda item: -len(item[0])))
    return a, torch.tensor([len(each) for each, _ in items]), b
probe_batch = torch.randn(3, 5, WIDTH), torch.full((3,), 5), torch.tensor([0, 1, 2])  # no length is zero
class Recurrent(Net):
    def forward(self, x, lengths):
        return self.outer(self.inner(pack_padded_sequence(x, lengths.cpu(), batch_first=True))[1][0])
model = Recurrent()
model.inner = nn.GRU(WIDTH, 6, batch_first=True)
""",
    "examples of several lengths, computed by themselves": "dataset, model = ragged, Mean()",
    "augmentation in the data set and in collate": """
class Noisy(Items):
    def __getitem__(self, index):
        a, b = self.items[index]
        return a + 0.1 * torch.randn(WIDTH), b
dataset = Noisy(items)
def collate(items):
    a, b = default_collate(items)
    return a + 0.1 * torch.randn(a.shape), b
""",
    "noise inside of the model": """
class Noisy(Net):
    def hidden(self, x):
        h = self.inner(x)
        return h + 0.1 * torch.randn_like(h)
model = Noisy()
""",
    "activations kept for inspection": """
class Shown(Net):
    def hidden(self, x):
        self.shown = self.inner(x).tanh()
        return self.shown
model = Shown()
""",
    "dicts with texts and arrays": """
dataset = Items({"x": a.numpy(), "name": f"example {number}", "y": b} for number, (a, b) in enumerate(items))
def loss_fn(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
""",
}  # fmt: skip


def failed_checks(text, tmp_path):
    """Return the failed checks of the first family with any."""
    file = tmp_path / "program.py"
    file.write_text(BEGINNING + text, encoding="utf-8")
    with load_definitions(file, "") as given:
        values = given.values
        subject = AuditedProgram(
            values["model"], values["loss_fn"], values["plan"], values["dataset"], values.get("collate"),
            probe_batch=values.get("probe_batch"),
        )  # fmt: skip
        for family in ("ISOLATION", "SENS", "ORACLE"):  # noise has its own tests
            found = guarantee.run_family(subject, family)
            if failed := guarantee.find_rejected(found):
                return {check.name: check.finding for check in found if check.name in failed}
    return {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_does_not_pass(name, tmp_path):
    assert failed_checks(BROKEN[name], tmp_path)


@pytest.mark.product
@pytest.mark.filterwarnings("ignore:the model changes its own state")
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_passes(name, tmp_path):
    assert not failed_checks(SOUND[name], tmp_path)


def test_the_check_that_fails_is_named(tmp_path):
    name = "ISOLATION: losses in a batch equal losses of each example alone"
    assert list(failed_checks(BROKEN["padding to the longest and a mean over time"], tmp_path)) == [name]
