"""`privet check` answers any file with a finding (status 0 or 1), or one line and status 2."""

import pytest
from fuzzing import bomb, command, damaged, fuzzed
from hypothesis import given
from hypothesis import strategies as st

from privet.audit._mechanism import whitebox

HEADER = """
import privet, torch
from torch import nn
from torch.nn import functional as F
"""
PLAN = """
plan = privet.Plan(
    examples=30, sampling=privet.sampling.Poisson(6), steps=5, clipping={clipping}, delta=1e-3, noise={noise},
)
"""


def model(body, method="forward(self, x)"):
    return f"class Own(nn.Linear):\n    def {method}:\n        {body}\nmodel = Own(5, 3)"


def loss(body, arguments="model, batch"):
    return f"def loss_fn({arguments}):\n    {body}"


def data(body, length="30"):
    methods = f"    def __len__(self):\n        return {length}\n    def __getitem__(self, k):\n        {body}"
    return f"class Own:\n{methods}\ndataset = Own()"


WELL = {
    "model": "model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))",
    "loss_fn": loss("return F.cross_entropy(model(batch[0]), batch[1], reduction='none')"),
    "dataset": "dataset = torch.utils.data.TensorDataset(torch.randn(30, 5), torch.arange(30) % 3)",
    "plan": PLAN.format(clipping="privet.clipping.Flat(0.7)", noise="privet.noise.Gaussian(1.7)"),
}
# What a part may be in place of a right one.
OTHERS = {
    "model": [
        "model = nn.Linear(5, 3).half()",
        "model = nn.Linear(5, 3).to(torch.bfloat16)",
        "model = nn.Linear(5, 3).double()",
        "model = nn.Linear(5, 3, dtype=torch.complex64)",
        "model = nn.Linear(5, 3, device='meta')",
        "model = nn.Linear(4, 3)",
        "model = nn.Linear(5, 0)",
        "model = nn.LazyLinear(3)",
        "model = nn.Identity()",
        "model = nn.Linear(5, 3).requires_grad_(False)",
        "model = nn.Linear",
        "model = lambda x: x",
        "model = torch.jit.script(nn.Linear(5, 3))",
        "model = nn.DataParallel(nn.Linear(5, 3))",
        "model = torch.compile(nn.Linear(5, 3), backend='eager')",
        "model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))",
        "model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))",
        "model = nn.Linear(5, 3)\nmodel.weight.data.fill_(float('nan'))",
        "model = nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))",
        "model = nn.Linear(5, 3)\nmodel.register_parameter('unused', nn.Parameter(torch.zeros(0)))",
        model("raise RuntimeError('two\\nlines')"),
        model("raise TypeError('no copies')", "__deepcopy__(self, memo)"),
        model("return super().forward(x).detach()"),
        model("return [super().forward(x)]"),
        model("return super().forward(x).numpy()"),
        model("return super().forward(x - x.mean(0))"),
        model("self.seen = x; return super().forward(x)"),
        model("import sys; sys.exit(5)"),
    ],
    "loss_fn": [
        "loss_fn = F.cross_entropy",
        "loss_fn = 3",
        "loss_fn = nn.CrossEntropyLoss()",
        loss("return F.cross_entropy(model(batch[0]), batch[1])"),
        loss("return model(batch[0])"),
        loss("return None"),
        loss("return [0.0] * len(batch[0])"),
        loss("return model(batch[0]).sum(1).long()"),
        loss("return model(batch[0]).sum(1) * float('nan')"),
        loss("return model(batch[0]).sum(1).detach()"),
        loss("return model(batch['x']).sum(1)"),
        loss("assert False"),
        loss("raise SystemExit(4)"),
        loss("pass", ""),
        loss("batch[0].zero_(); return model(batch[0]).sum(1)"),
        loss("return torch.autograd.grad(model(batch[0]).sum(), model.weight)[0]"),
        "async def loss_fn(model, batch):\n    return model(batch[0]).sum(1)",
        loss("return model(batch[0]).sum(1) * torch.rand(())"),
    ],
    "dataset": [
        "dataset = []",
        "dataset = range(30)",
        "dataset = [(torch.randn(5), 0)]",
        "dataset = [(torch.randn(5 + k % 2), 0) for k in range(30)]",
        "dataset = [None] * 30",
        "dataset = 'abc' * 10",
        "dataset = [(torch.randn(5), torch.tensor(7))] * 30",
        "dataset = [(torch.full((5,), float('nan')), torch.tensor(1))] * 30",
        "dataset = [(torch.randn(5, dtype=torch.complex64), torch.tensor(1))] * 30",
        "dataset = [(torch.randn(5).half(), torch.tensor(1))] * 30",
        "dataset = [{'x': torch.randn(5), 'y': 1}] * 30",
        "dataset = iter([1, 2])",
        "dataset = torch.utils.data.TensorDataset(torch.randn(29, 5), torch.arange(29) % 3)",
        "batch = (torch.randn(4, 5), torch.arange(4) % 3)",
        "batch = (torch.randn(1, 5), torch.zeros(1, dtype=torch.long))",
        "batch = (torch.randn(0, 5), torch.zeros(0, dtype=torch.long))",
        "batch = (torch.randn(4, 5), torch.arange(3) % 3)",
        "batch = {'x': torch.randn(4, 5)}",
        "batch = 3",
        "batch = torch.tensor(3.0)",
        data("return torch.randn(5), 0", "10**30"),
        data("raise OSError(5, 'disk')"),
        data("exit(3)"),
        WELL["dataset"] + "\ncollate = 3",
        WELL["dataset"] + "\ncollate = lambda rows: rows",
        WELL["dataset"] + "\ncollate = lambda rows: None",
        WELL["dataset"] + "\ndef collate(rows):\n    raise ValueError('no\\nrows')",
    ],
    "plan": [
        "",
        "plan = 3",
        "plan = privet.Plan",
        "plan = {'examples': 30}",
        *(
            PLAN.format(clipping=f"privet.clipping.{rule}", noise=f"privet.noise.{noise}")
            for rule, noise in [
                ("Flat(1e-30)", "Gaussian(1e-30)"),
                ("Flat(1e30)", "Gaussian(1.3)"),
                ("Flat(0.7)", "Gaussian(0.0)"),
                ("Layerwise({'nothing': privet.clipping.Flat(0.7)})", "Gaussian(1.7)"),
                ("Layerwise({'.*': privet.clipping.Flat(0.7)})", "Gaussian(0.4)"),
                ("Projected(0.7, projections=3)", "Gaussian(1.7)"),
                ("AdaptiveQuantile(0.7, quantile=0.5)", "Gaussian(1.7)"),
            ]
        ),
    ],
}  # fmt: skip
ENDINGS = ["", "\nexit(3)", "\nraise SystemExit", "\n1 / 0", "\nimport nowhere", "\n\0", "\n(((("]


@st.composite
def files(draw):
    """The text of a file in which a part or two are others, or its end is."""
    parts = dict(WELL)
    for name in draw(st.lists(st.sampled_from(list(parts)), max_size=2)):
        parts[name] = draw(st.sampled_from([*OTHERS[name], "", None]))
    return HEADER + "\n".join(part for part in parts.values() if part is not None) + draw(st.sampled_from([*[""] * 8, *ENDINGS]))


def checked(folder, content):
    (folder / "mine.py").write_bytes(content)
    return command("check", folder / "mine.py", "--observations", "10", "--quiet", failing=(1,))


def test_what_is_right_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", 25)
    assert checked(tmp_path, (HEADER + "\n".join(WELL.values())).encode()) == 2  # too few observations
    assert command("check", tmp_path / "mine.py", "--observations", "10000", "--quiet") == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", list(OTHERS))
def test_every_odd_part_is_answered(part, tmp_path):
    for other in OTHERS[part]:
        checked(tmp_path, (HEADER + "\n".join((WELL | {part: other}).values())).encode())


def test_files_of_other_parts_are_answered(tmp_path):
    @fuzzed(8)
    @given(files())
    def hold(text):
        checked(tmp_path, text.encode())

    hold()


def test_damaged_files_are_answered(tmp_path):
    @fuzzed(8)
    @given(damaged((HEADER + "\n".join(WELL.values())).encode()))
    def hold(content):
        checked(tmp_path, content)

    hold()


def test_a_pickle_that_is_called_a_model_is_never_read(tmp_path):
    marker = tmp_path / "executed"
    assert checked(tmp_path, bomb(marker)) == 2
    assert not marker.exists()
