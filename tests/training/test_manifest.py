import copy
import json
import os
import shutil
import stat
from dataclasses import dataclass, field
from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, SequentialLR, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import one_layer
import privet
from privet._utils.registry import PARTS
from privet.clipping import Flat, NormRule
from privet.errors import InvalidArgumentError, LedgerError
from privet.ledger import read_history
from privet.training import manifest
from privet.training.manifest import digest_data, name_of

N, STEPS = 20, 3


def plan(clipping=None):
    return one_layer.plan(5.0, STEPS, examples=N, clipping=clipping or Flat(0.7))


def loss_fn(model, batch):
    return model(batch[0])[:, 0].square()


DATA = TensorDataset(torch.randn(N, 3))


def other_loss(model, batch, scale=1.0):
    return scale * model(batch[0])[:, 0].abs()


def weighted(loss, weight):
    return lambda model, batch: weight * loss(model, batch)


class Items(Dataset):
    """A data set of one's own, whose contents nothing but its own code knows."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return (torch.full((3,), float(index)),)


def adam(model):
    return torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)


def frozen(name):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    chosen = model.get_submodule(name).requires_grad_(False)
    nn.init.eye_(chosen.weight), nn.init.zeros_(chosen.bias)  # the same in every session, as checkpoints do not hold them
    return model


def parts(optimizer=adam, scheduler=None, average=None, model=lambda: nn.Linear(3, 1), loss=loss_fn, data=DATA):
    made = model()
    stepping = optimizer(made)
    options = {"scheduler": scheduler and scheduler(stepping), "average": average and average(made)}
    return (made, loss, stepping, data), options


def begun(directory, **how):
    arguments, options = parts(**how)
    one_layer.stop_after(privet.Training(plan(), *arguments, directory, **options), 2)


def resumed(directory, **how):
    arguments, options = parts(**how)
    return privet.Training.resume(directory, *arguments, **options)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


RATE = {"scheduler": lambda o: StepLR(o, 1, gamma=0.5)}
WRONG = {
    "another optimizer": (
        {}, {"optimizer": lambda m: torch.optim.SGD(m.parameters(), lr=0.1)},
        r"\n  optimizer: torch\.optim\.adam\.Adam → torch\.optim\.sgd\.SGD\n",
    ),
    "another learning rate": (
        {}, {"optimizer": lambda m: torch.optim.Adam(m.parameters(), lr=0.2)},
        r"optimizer\.groups\[0\]\.options\.lr: 0\.1 → 0\.2\n",
    ),
    "no scheduler": (RATE, {}, r"scheduler: .*StepLR → none\n"),
    "other settings of a scheduler within another": (
        {"scheduler": lambda o: SequentialLR(o, [StepLR(o, 1, gamma=0.5), ExponentialLR(o, 0.9)], [3])},
        {"scheduler": lambda o: SequentialLR(o, [StepLR(o, 1, gamma=0.5), ExponentialLR(o, 0.8)], [3])},
        r"scheduler\.settings\.schedulers\[1\]\.settings\.gamma: 0\.9 → 0\.8\n",
    ),
    "no average": ({"average": AveragedModel}, {}, "average: .*AveragedModel → none"),
    "other groups": (
        {}, {"optimizer": lambda m: torch.optim.Adam([{"params": [m.weight]}, {"params": [m.bias]}], lr=0.1)},
        r"groups\[0\]\.parameters\[1\]: bias → none",
    ),
    "another shape": (
        {}, {"model": lambda: nn.Linear(3, 2)},
        r"model\.parameters\.weight: float32 \(1, 3\), trained → float32 \(2, 3\), trained\n",
    ),
    "another activation": (
        {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.ReLU())},
        {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.Tanh())},
        r"model\.modules\.1: .*ReLU → .*Tanh\n",
    ),
    "other frozen parameters": (
        {"model": lambda: frozen("0")},
        {"model": lambda: frozen("2")},
        r"model\.parameters\.0\.weight: float32 \(3, 3\), frozen → float32 \(3, 3\), trained",
    ),
    "another loss": ({}, {"loss": other_loss}, r"loss: .*\.loss_fn → .*\.other_loss\n"),
    **{
        f"another {name}": ({kind: one}, {kind: other}, "loss, .*: the functions and numbers .* → others\n")
        for name, kind, one, other in (
            ("decay", "average", *(lambda m, d=d: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(d)) for d in (0.9, 0.99))),
            ("lambda", "loss", lambda m, b: m(b[0])[:, 0].square(), lambda m, b: m(b[0])[:, 0].abs()),
            ("function in the loss", "loss", weighted(loss_fn, 2.0), weighted(other_loss, 2.0)),
            ("number in the loss", "loss", weighted(loss_fn, 2.0), weighted(loss_fn, 3.5)),
            ("argument of the loss", "loss", partial(other_loss, scale=2.0), partial(other_loss, scale=3.5)),
        )
    },
    "other data": ({}, {"data": TensorDataset(DATA.tensors[0].flip(0))}, "data: the contents .* → other contents\n"),
    "one other row": (
        {}, {"data": TensorDataset(DATA.tensors[0].index_fill(0, torch.tensor([7]), 0.0))},
        "data: the contents .* → other contents\n",
    ),
    "another kind of data set": ({}, {"data": Items(N)}, r"data: .*TensorDataset → .*Items\n"),
    "other columns": (
        {}, {"data": TensorDataset(DATA.tensors[0], torch.ones(N))},
        r"data\.items\[0\]: float32 \(3,\) → float32 \(3,\) and float32 \(\)\n",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def run_with(tmp_path_factory):
    """A function of parts that returns the directory of a run with them, which has taken two steps."""

    @cache
    def make(*right):
        directory = tmp_path_factory.mktemp("run")
        begun(directory, **dict(right))
        return directory

    return lambda right: make(*right.items())


@pytest.mark.product
@pytest.mark.parametrize(("right", "wrong", "says"), WRONG.values(), ids=list(WRONG))
def test_a_run_is_not_resumed_with_other_parts(right, wrong, says, run_with):
    """Nothing is restored, written or spent, and the right parts resume the run afterwards."""
    directory = run_with(right)
    before = contents(directory)
    (model, *others), options = parts(**wrong)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(LedgerError, match=says) as caught:
        privet.Training.resume(directory, model, *others, **options)
    assert "(before → now)" in str(caught.value)
    assert contents(directory) == before
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    with resumed(directory, **right) as again:
        assert (again.steps_spent, read_history(directory / "ledger")[0].spent) == (2, 2)


SAME = {
    "state from the constructor": {"optimizer": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1)},
    "functions of the step": {"scheduler": lambda o: LambdaLR(o, lambda step: 0.5**step)},
    "an average": {"average": lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))},
    "a lambda": {"loss": lambda m, b: m(b[0])[:, 0].square() * (1 if b[0].dim() in {1, 2} else 2)},
    "a partial": {"loss": partial(other_loss, scale=2.0)},
    "a subset": {"data": Subset(TensorDataset(torch.arange(90.0).view(30, 3)), range(5, 25))},
    "pieces": {"data": ConcatDataset([Subset(DATA, range(10)), Subset(DATA, range(10, 20))])},
    "a data set of one's own": {"data": Items(N)},
}


@pytest.mark.product
@pytest.mark.parametrize("same", SAME.values(), ids=list(SAME))
def test_a_run_is_resumed_with_the_same_parts(same, tmp_path):
    """By parts that are made anew, and by the very objects that began, which have taken steps by now."""
    begun(tmp_path / "a", **same)
    resumed(tmp_path / "a", **same).run()
    (model, *others), options = parts(**same)
    with privet.Training(plan(), model, *others, tmp_path / "b", **options) as first:
        next(iter(first))
    privet.Training.resume(tmp_path / "b", model, *others, **options).run()


def test_how_a_step_is_computed_may_change(tmp_path):
    begun(tmp_path, optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.1, foreach=False))
    assert resumed(tmp_path, optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.1, fused=True)).steps_left == STEPS - 2


@pytest.mark.parametrize("wrong", [RATE, {"average": AveragedModel}], ids=["scheduler", "average"])
def test_without_a_manifest_the_checkpoint_tells(wrong, tmp_path):
    for name, right, other in (("more", {}, wrong), ("less", wrong, {})):
        begun(tmp_path / name, **right)
        (tmp_path / name / "manifest.json").unlink()
        with pytest.raises(LedgerError, match=r"holds .*state for (scheduler|average)"):
            resumed(tmp_path / name, **other)
        assert resumed(tmp_path / name, **right).steps_left == STEPS - 2


DAMAGED = [
    *(("manifest.json", text) for text in ("", "{", "[]", '{"format": 4}', '{"format": 2}')),
    *(("fingerprint.json", text) for text in ("", "[]", '{"format": 1, "key": "xy", "data": null}')),
]


@pytest.mark.parametrize(("name", "text"), DAMAGED)
def test_a_damaged_file_is_refused(name, text, tmp_path, run_with):
    shutil.copytree(run_with({}), tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(LedgerError, match=r"manifest|fingerprint\.json is damaged; restore it, or remove it"):
        resumed(tmp_path)


def test_what_an_earlier_version_did_not_describe_is_not_compared(tmp_path):
    begun(tmp_path, **RATE)
    (tmp_path / "manifest.json").write_text('{"format": 2, "optimizer": {"class": "another"}}')
    (tmp_path / "fingerprint.json").unlink()
    with pytest.raises(LedgerError, match="state for scheduler"):
        resumed(tmp_path)
    assert resumed(tmp_path, data=TensorDataset(torch.zeros(N, 3)), **RATE).steps_left == STEPS - 2


def test_a_long_diff_is_cut(tmp_path):
    def many(bias):
        return nn.Sequential(*(nn.Linear(3, 3, bias=bias) for _ in range(20)))

    begun(tmp_path, model=lambda: many(True))
    with pytest.raises(LedgerError, match=r"and \d+ more\nNothing was restored or spent") as caught:
        resumed(tmp_path, model=lambda: many(False))
    assert len(str(caught.value).splitlines()) == 11


def test_the_manifest_describes_what_trains(run_with):
    held = json.loads((run_with(RATE) / "manifest.json").read_text())
    group = "optimizer.groups[0]"
    assert held["parts"].items() >= {
        "model.parameters.weight": "float32 (1, 3), trained", "optimizer": "torch.optim.adam.Adam",
        f"{group}.parameters[0]": "weight", f"{group}.parameters[1]": "bias", f"{group}.options.lr": 0.1,
        f"{group}.options.betas[1]": 0.999, "scheduler.settings.gamma": 0.5, "loss": f"{__name__}.loss_fn",
        "data": "torch.utils.data.dataset.TensorDataset", "data.entries": N, "data.items[0]": "float32 (3,)",
    }.items()  # fmt: skip
    assert "average" not in held["parts"]


def test_no_readable_file_depends_on_the_contents_of_the_data(tmp_path):
    """Before the first step, two runs on unlike data have equal files, but for the ledger's times and the private file."""
    made = nn.Linear(3, 1)
    for name, value in (("a", 0.0), ("b", 1.0)):
        arguments, _ = parts(model=lambda: copy.deepcopy(made), data=TensorDataset(torch.full((N, 3), value)))
        privet.Training(plan(), *arguments, tmp_path / name).close()
    one, other = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert {name for name in one if one[name] != other[name]} <= {"ledger", "checkpoint.pt", "status.json", "fingerprint.json"}
    saved, *_ = states = [torch.load(tmp_path / name / "checkpoint.pt") for name in "ab"]
    assert all(torch.equal(saved["model"][name], state["model"][name]) for state in states for name in saved["model"])


def test_equal_data_have_unlike_digests_under_two_keys():
    """So nothing can be compared with a digest whose key is unknown, not even with the digest of another run."""
    one, other, same = b"k" * 32, b"l" * 32, TensorDataset(DATA.tensors[0].clone())
    assert digest_data(one, DATA) == digest_data(one, same) != digest_data(other, DATA)


def test_a_large_data_set_is_compared_in_part_and_at_both_ends(monkeypatch):
    monkeypatch.setattr(manifest, "_BYTES", 5 * 12)
    x = torch.randn(1000, 3)
    key = b"k" * 32
    before = digest_data(key, TensorDataset(x))
    for row in (0, 999):
        assert digest_data(key, TensorDataset(x.index_fill(0, torch.tensor([row]), 0.0))) != before
    assert digest_data(key, TensorDataset(x[:-1])) != before


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_tensors_of_every_type_are_compared(kind):
    x = torch.tensor([[0, 1], [1, 0], [0, 0]]).to(kind)
    key = b"k" * 32
    same, others = (x, x.clone(), x.t().contiguous().t()), (x.flip(1), x[:2])
    assert len({digest_data(key, TensorDataset(one)) for one in same}) == 1
    assert len({digest_data(key, TensorDataset(one)) for one in (x, *others)}) == 3


def test_a_run_of_users_is_not_resumed_with_others(tmp_path):
    loss = privet.units.grouped(lambda model, batch: model(batch[0]).square().flatten(1).sum(1))
    plan = one_layer.plan(examples=3, unit="one user", sampling=privet.sampling.FullBatch())
    divisions = [[number % 3 for number in range(N)], [min(number, 2) for number in range(N)]]

    def parts(ids, data=DATA):
        model = nn.Linear(DATA.tensors[0].shape[1], 1)
        return model, loss, torch.optim.SGD(model.parameters(), lr=0.1), privet.units.Users(data, ids, cap=2)

    with privet.Training(plan, *parts(divisions[0]), tmp_path / "run") as training:
        next(iter(training))
    with pytest.raises(LedgerError, match="the division into units"):
        privet.Training.resume(tmp_path / "run", *parts(divisions[1]))
    with pytest.raises(LedgerError, match="the contents that the run was started with"):
        privet.Training.resume(tmp_path / "run", *parts(divisions[0], TensorDataset(DATA.tensors[0].flip(0))))
    with privet.Training.resume(tmp_path / "run", *parts(divisions[0])) as training:
        assert training.steps_spent == 1


def test_names_of_losses():
    assert name_of(partial(partial(loss_fn), model=None)) == name_of(loss_fn)
    assert name_of(nn.MSELoss()) == "torch.nn.modules.loss.MSELoss"


@dataclass(frozen=True)
class Half(NormRule):
    def factor(self, norms):
        return 0.5 * (self.bound / norms).clamp(max=1.0)


def own_kind(name, factor):
    return dataclass(frozen=True)(type(name, (NormRule,), {"factor": factor, "__module__": __name__}))


def test_what_cannot_be_registered():
    @dataclass(frozen=True)
    class Other:
        x: int = 1

    @dataclass
    class Thawed(privet.schedules.Schedule):
        def factors(self, steps):
            return None

    impostor = own_kind("Flat", lambda self, norms: norms)
    for kind in (Other, Thawed, Half(0.7), 3):
        with pytest.raises(InvalidArgumentError, match="a frozen dataclass"):
            privet.register(kind)
    with pytest.raises(InvalidArgumentError, match=r"kind is 'Flat'.*rename"):
        privet.register(impostor)
    assert PARTS["Flat"] is Flat


def test_a_kind_that_is_defined_again_takes_the_place_of_the_first():
    privet.register(Half)
    again = own_kind("Half", Half.factor)
    privet.register(again)
    assert PARTS["Half"] is again


def test_a_value_that_json_changes_and_another_kind_of_a_known_name_are_refused(tmp_path):
    @privet.register
    @dataclass(frozen=True)
    class Odd(NormRule):
        extra: object = field(default_factory=lambda: lambda: None)

        def factor(self, norms):
            return norms * 0

    impostor = own_kind("Flat", lambda self, norms: norms * 0)
    for kind, says in ((Odd, "its JSON does not restore"), (impostor, r"plan\.clipping\.kind is 'Flat'")):
        arguments, _ = parts()
        with pytest.raises(InvalidArgumentError, match=says):
            privet.Training(plan(kind(0.7)), *arguments, tmp_path / "run")
        assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_only_the_owner_can_read_the_fingerprint(run_with):
    assert stat.S_IMODE((run_with({}) / "fingerprint.json").stat().st_mode) == 0o600
