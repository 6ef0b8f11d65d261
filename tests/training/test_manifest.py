"""A run is resumed with the parts that it was started with, or refused before anything is restored or spent."""

import copy
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, SequentialLR, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import privet
from privet.clipping import Flat, Layerwise, NormRule
from privet.errors import InvalidArgumentError, LedgerError
from privet.ledger import read_history
from privet.plan import PARTS
from privet.training.manifest import fingerprint
from privet.training.manifest.description import describe_function, name_of, numbers_of
from privet.training.manifest.fingerprint import Fingerprint

N, STEPS = 20, 6


def plan(clipping=None):
    return privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(5.0), steps=STEPS, delta=1e-5,
        clipping=clipping or Flat(0.7), noise=privet.noise.Gaussian(1.3),
    )  # fmt: skip


def loss_fn(model, batch):
    return model(batch[0])[:, 0].square()


DATA = TensorDataset(torch.randn(N, 3))


def other_loss(model, batch):
    return model(batch[0])[:, 0].abs()


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
    return torch.optim.Adam(model.parameters(), lr=0.1)


def adam_of_trained(model):
    return torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)


def frozen(name):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    chosen = model.get_submodule(name).requires_grad_(False)
    nn.init.eye_(chosen.weight), nn.init.zeros_(chosen.bias)  # the same in every session, as checkpoints do not hold them
    return model


def parts(optimizer=adam, scheduler=None, average=None, model=lambda: nn.Linear(3, 1), loss=loss_fn, data=DATA, collate=None):
    made = model()
    stepping = optimizer(made)
    options = {
        "scheduler": scheduler and scheduler(stepping),
        "average": average and average(made),
        "collate": collate,
    }
    return (made, loss, stepping, data), options


def begun(directory, steps=2, the_plan=None, **how):
    arguments, options = parts(**how)
    training = privet.Training(the_plan or plan(), *arguments, directory, **options)
    for step in training:
        if step.number == steps:
            break
    training.close()
    return training


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
    "another kind of learning rate": (
        {}, {"optimizer": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.125))}, r"lr: 0\.1 → tensor 0\.125\n",
    ),
    "no scheduler": (RATE, {}, r"scheduler: .*StepLR → none\n"),
    "a scheduler too many": ({}, RATE, r"scheduler: none → .*StepLR\n"),
    "another scheduler": (RATE, {"scheduler": lambda o: ExponentialLR(o, 0.9)}, "StepLR → .*ExponentialLR"),
    "other settings of the scheduler": (
        RATE, {"scheduler": lambda o: StepLR(o, 1, gamma=0.25)}, r"scheduler\.settings\.gamma: 0\.5 → 0\.25\n",
    ),
    "other settings of a scheduler within another": (
        {"scheduler": lambda o: SequentialLR(o, [StepLR(o, 1, gamma=0.5), ExponentialLR(o, 0.9)], [3])},
        {"scheduler": lambda o: SequentialLR(o, [StepLR(o, 1, gamma=0.5), ExponentialLR(o, 0.8)], [3])},
        r"scheduler\.settings\.schedulers\[1\]\.settings\.gamma: 0\.9 → 0\.8\n",
    ),
    "no average": ({"average": AveragedModel}, {}, "average: .*AveragedModel → none"),
    "an average too many": ({}, {"average": AveragedModel}, "average: none → .*AveragedModel"),
    "another decay of the average": (
        {"average": lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))},
        {"average": lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.99))},
        r"average\.settings\.multi_avg_fn\.calls\[0\]\.numbers\[0\]: 0\.9 → 0\.99\n",
    ),
    "other groups": (
        {}, {"optimizer": lambda m: torch.optim.Adam([{"params": [m.weight]}, {"params": [m.bias]}], lr=0.1)},
        r"groups\[0\]\.parameters\[1\]: bias → none",
    ),
    "another order": (
        {}, {"optimizer": lambda m: torch.optim.Adam([m.bias, m.weight], lr=0.1)}, r"parameters\[0\]: weight → bias\n",
    ),
    "another shape": (
        {}, {"model": lambda: nn.Linear(3, 2)},
        r"model\.parameters\.weight: float32 \(1, 3\), trained → float32 \(2, 3\), trained\n",
    ),
    "another type": ({}, {"model": lambda: nn.Linear(3, 1).double(), "data": TensorDataset(DATA.tensors[0].double())}, "float64"),
    "another model": (
        {}, {"model": lambda: nn.Sequential(nn.Linear(3, 1))}, r"model\.modules\.\(model\): .*Linear → .*Sequential\n",
    ),
    "another activation": (
        {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.ReLU())},
        {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.Tanh())},
        r"model\.modules\.1: .*ReLU → .*Tanh\n",
    ),
    "other frozen parameters": (
        {"model": lambda: frozen("0"), "optimizer": adam_of_trained},
        {"model": lambda: frozen("2"), "optimizer": adam_of_trained},
        r"model\.parameters\.0\.weight: float32 \(3, 3\), frozen → float32 \(3, 3\), trained",
    ),
    "another loss": ({}, {"loss": other_loss}, r"loss: .*\.loss_fn → .*\.other_loss\n"),
    "another lambda": (
        {"loss": lambda m, b: m(b[0])[:, 0].square()},
        {"loss": lambda m, b: m(b[0])[:, 0].abs()},
        r"loss\.code: \w+ → \w+\n",
    ),
    "another function in the loss": (
        {"loss": weighted(loss_fn, 2.0)},
        {"loss": weighted(other_loss, 2.0)},
        r"loss\.calls\[0\]: .*loss_fn → .*other_loss\n",
    ),
    "another number in the loss": (
        {"loss": weighted(loss_fn, 2.0)}, {"loss": weighted(loss_fn, 3.5)}, "loss: the numbers .* → other numbers\n",
    ),
    "another collate": ({}, {"collate": torch.utils.data.default_collate}, "collate: none → .*default_collate"),
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


@pytest.mark.parametrize(("right", "wrong", "says"), WRONG.values(), ids=list(WRONG))
def test_a_run_is_not_resumed_with_other_parts(right, wrong, says, tmp_path):
    """Nothing is restored, written or spent, and the right parts resume the run afterwards."""
    begun(tmp_path, **right)
    before = contents(tmp_path)
    (model, *others), options = parts(**wrong)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(LedgerError, match=says) as caught:
        privet.Training.resume(tmp_path, model, *others, **options)
    assert "(before → now)" in str(caught.value)
    assert contents(tmp_path) == before
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    again = resumed(tmp_path, **right)
    again.run()
    assert (again.steps_spent, read_history(tmp_path / "ledger")[0].spent) == (STEPS, STEPS)


SAME = {
    "momentum": {"optimizer": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)},
    "state from the constructor": {"optimizer": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1)},
    "a cycle of rates": {"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, STEPS)},
    "functions of the step": {"scheduler": lambda o: LambdaLR(o, lambda step: 0.5**step)},
    "an average": {"average": lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))},
    "a lambda": {"loss": lambda m, b: m(b[0])[:, 0].square() * (1 if b[0].dim() in {1, 2} else 2)},
    "a partial": {"loss": partial(weighted, loss_fn)(2.0)},
    "a subset": {"data": Subset(TensorDataset(torch.arange(90.0).view(30, 3)), range(5, 25))},
    "pieces": {"data": ConcatDataset([Subset(DATA, range(10)), Subset(DATA, range(10, 20))])},
    "a data set of one's own": {"data": Items(N)},
}


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


OLD = {
    "format": 1,
    "optimizer": {
        "class": "torch.optim.adam.Adam",
        "groups": [{"parameters": ["weight", "bias"], "options": {"lr": 9.0, "an option of then": True}}],
    },
    "scheduler": {"class": "torch.optim.lr_scheduler.StepLR"},
    "average": None,
    "loss": f"{__name__}.loss_fn",
}


def test_a_run_of_an_earlier_version_is_resumed_by_what_it_noted(tmp_path):
    begun(tmp_path, **RATE)
    (tmp_path / "manifest.json").write_text(json.dumps(OLD))
    (tmp_path / "fingerprint.json").unlink()
    with pytest.raises(LedgerError, match=r"scheduler: .*StepLR → none"):
        resumed(tmp_path)
    other = TensorDataset(torch.zeros(N, 3))
    assert resumed(tmp_path, data=other, **RATE).steps_left == STEPS - 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 3}', '{"format": 2}', '{"format": 1, "optimizer": {"groups": [3]}}'])
def test_a_damaged_manifest_is_refused(text, tmp_path):
    begun(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LedgerError, match=r"manifest|optimizer"):
        resumed(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1, "key": "xy", "data": null, "numbers": ""}'])
def test_a_damaged_fingerprint_is_refused(text, tmp_path):
    begun(tmp_path)
    (tmp_path / "fingerprint.json").write_text(text)
    with pytest.raises(LedgerError, match=r"fingerprint\.json is damaged; restore it, or remove it"):
        resumed(tmp_path)
    (tmp_path / "fingerprint.json").unlink()
    assert resumed(tmp_path, data=TensorDataset(torch.zeros(N, 3))).steps_left == STEPS - 2


def test_a_long_diff_is_cut(tmp_path):
    def many(bias):
        return nn.Sequential(*(nn.Linear(3, 3, bias=bias) for _ in range(20)))

    begun(tmp_path, model=lambda: many(True))
    with pytest.raises(LedgerError, match=r"and \d+ more\nNothing was restored or spent") as caught:
        resumed(tmp_path, model=lambda: many(False))
    assert len(str(caught.value).splitlines()) == 11


def test_the_manifest_describes_what_trains(tmp_path):
    begun(tmp_path, **RATE)
    held = json.loads((tmp_path / "manifest.json").read_text())
    (group,) = held["optimizer"]["groups"]
    assert held["optimizer"]["class"] == "torch.optim.adam.Adam"
    assert group["parameters"] == ["weight", "bias"]
    assert (group["options"]["lr"], group["options"]["betas"]) == (0.1, [0.9, 0.999])
    assert held["scheduler"]["settings"]["gamma"] == 0.5
    assert held["average"] is None
    assert held["loss"]["name"].endswith("test_manifest.loss_fn")
    assert held["data"] == {"class": "torch.utils.data.dataset.TensorDataset", "entries": N, "items": ["float32 (3,)"]}


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


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_only_the_owner_can_read_the_fingerprint(tmp_path):
    begun(tmp_path)
    assert stat.S_IMODE((tmp_path / "fingerprint.json").stat().st_mode) == 0o600


def test_equal_data_have_unlike_fingerprints_under_two_keys():
    """So nothing can be compared with a digest whose key is unknown, not even with the digest of another run."""
    one, other = (Fingerprint.of(DATA, [1.0]) for _ in range(2))
    assert {one.data, one.numbers} & {other.data, other.numbers} == set()
    assert one == Fingerprint.of(TensorDataset(DATA.tensors[0].clone()), [1.0], one.key)
    assert Fingerprint.from_text(one.to_text(), "") == one


def test_a_large_data_set_is_compared_in_part_and_at_both_ends(monkeypatch):
    monkeypatch.setattr(fingerprint, "_BYTES", 5 * 12)
    x = torch.randn(1000, 3)
    key = b"k" * 32
    before = Fingerprint.of(TensorDataset(x), [], key)
    for row in (0, 999):
        assert Fingerprint.of(TensorDataset(x.index_fill(0, torch.tensor([row]), 0.0)), [], key).data != before.data
    assert Fingerprint.of(TensorDataset(x[:-1]), [], key).data != before.data


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_tensors_of_every_type_are_compared(kind):
    x = torch.tensor([[0, 1], [1, 0], [0, 0]]).to(kind)
    key = b"k" * 32
    same, others = (x, x.clone(), x.t().contiguous().t()), (x.flip(1), x[:2])
    assert len({Fingerprint.of(TensorDataset(one), [], key).data for one in same}) == 1
    assert len({Fingerprint.of(TensorDataset(one), [], key).data for one in (x, *others)}) == 3


def test_users_are_compared_by_all_their_examples():
    """Which examples of a user are used is drawn when the data set is made, so it differs from session to session."""
    ids, key = [number % 3 for number in range(N)], b"k" * 32

    def found(data, wrap=lambda users: users):
        return Fingerprint.of(wrap(privet.units.Users(data, ids, cap=2)), [], key).data

    assert found(DATA) == found(DATA) == Fingerprint.of(DATA, [], key).data
    assert found(DATA) != found(TensorDataset(DATA.tensors[0].flip(0)))
    assert found(DATA, lambda users: Subset(users, [0, 2])) is None


def test_another_division_into_users_is_another_data_set():
    ids, key = [number % 3 for number in range(N)], b"k" * 32

    def found(ids, cap=2):
        return Fingerprint.of(privet.units.Users(DATA, ids, cap=cap), [], key).division

    assert found(ids) == found(ids) is not None
    assert len({found(ids), found(ids, cap=1), found([number // 3 for number in range(N)])}) == 3
    assert (
        Fingerprint.of(privet.units.Groups(DATA, 2), [], key).division
        != Fingerprint.of(privet.units.Groups(DATA, 3), [], key).division
    )
    assert Fingerprint.of(DATA, [], key).division is None


def test_a_run_of_users_is_not_resumed_with_others(tmp_path):
    loss = privet.units.grouped(lambda model, batch: model(batch[0]).square().flatten(1).sum(1))
    plan = privet.Plan(
        examples=3, unit="one user", sampling=privet.sampling.FullBatch(), steps=4, clipping=privet.clipping.Flat(0.3),
        delta=1e-3, noise=privet.noise.Gaussian(2.0),
    )  # fmt: skip
    divisions = [[number % 3 for number in range(N)], [min(number, 2) for number in range(N)]]

    def parts(ids):
        model = nn.Linear(DATA.tensors[0].shape[1], 1)
        return model, loss, torch.optim.SGD(model.parameters(), lr=0.1), privet.units.Users(DATA, ids, cap=2)

    with privet.Training(plan, *parts(divisions[0]), tmp_path / "run") as training:
        next(iter(training))
    with pytest.raises(LedgerError, match="the division into units"):
        privet.Training.resume(tmp_path / "run", *parts(divisions[1]))
    with privet.Training.resume(tmp_path / "run", *parts(divisions[0])) as training:
        assert training.steps_spent == 1


def test_items_of_an_unknown_data_set_are_not_read():
    class Secret(Items):
        def __getitem__(self, index):
            raise AssertionError("read")

    assert Fingerprint.of(Secret(5), [], b"k").data is None


def test_names_of_losses():
    assert name_of(partial(partial(loss_fn), model=None)) == name_of(loss_fn)
    assert name_of(nn.MSELoss()) == "torch.nn.modules.loss.MSELoss"


def test_a_description_tells_no_number_of_a_users_function():
    assert "numbers" not in describe_function(weighted(loss_fn, 2.5))
    assert numbers_of(partial(weighted(loss_fn, 2.5), 7)) == [7, 2.5]


def test_a_run_that_is_refused_leaves_no_manifest(tmp_path):
    budget = privet.Budget.create(tmp_path / "budget", epsilon=1e-3, delta=1e-5, examples=N)
    arguments, _ = parts()
    with pytest.raises(LedgerError):
        privet.Training(plan(), *arguments, privet.Storage(tmp_path / "run", budget=budget))
    assert list((tmp_path / "run").iterdir()) == []


# Kinds of one's own ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Half(NormRule):
    """Clips, and then halves."""

    def factor(self, norms):
        return 0.5 * (self.bound / norms).clamp(max=1.0)


def own_kind(name, factor):
    return dataclass(frozen=True)(type(name, (NormRule,), {"factor": factor, "__module__": __name__}))


@pytest.fixture
def registered():
    return privet.register(Half)


@pytest.mark.parametrize("rule", [Half(0.7), Layerwise(Half(0.7))], ids=["itself", "in another"])
def test_a_rule_that_could_not_be_read_back_is_refused_before_anything_is_made(rule, tmp_path):
    arguments, _ = parts()
    with pytest.raises(InvalidArgumentError, match=r"^plan\.clipping.*'Half'.*privet\.register\(Half\)"):
        privet.Training(plan(rule), *arguments, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    budget = privet.Budget.create(tmp_path / "budget", epsilon=30.0, delta=1e-5, examples=N)
    with pytest.raises(InvalidArgumentError, match=r"privet\.register\(Half\)"):
        privet.Training(plan(rule), *arguments, privet.Storage(budget=budget))
    assert budget.account().shares == {}
    privet.Training(plan(rule), *arguments).run()  # in memory, nothing is ever read back


@pytest.mark.parametrize(
    "wrap", [lambda rule: rule, Layerwise, privet.clipping.AdaptiveQuantile], ids=["itself", "layers", "moving"]
)
def test_a_run_with_a_registered_rule_is_resumed(wrap, registered, tmp_path):
    begun(tmp_path, the_plan=plan(wrap(Half(0.7))))
    again = resumed(tmp_path)
    assert again.plan == plan(wrap(Half(0.7)))
    again.run()
    assert again.steps_spent == STEPS


def test_a_kind_that_is_not_registered_is_named_with_the_rules_that_there_are():
    text = plan(Half(0.7)).to_json()
    with pytest.raises(InvalidArgumentError, match=r"^plan\.clipping\.kind is 'Half'.*'Flat'.*privet\.register") as caught:
        privet.Plan.from_json(text)
    assert "Poisson" not in str(caught.value)


def test_what_cannot_be_registered():
    class Plain(NormRule):
        def factor(self, norms):
            return norms

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


def test_another_kind_of_a_known_name_is_refused(tmp_path):
    impostor = dataclass(frozen=True)(
        type("Flat", (NormRule,), {"factor": lambda self, norms: norms * 0, "__module__": __name__})
    )
    arguments, _ = parts()
    with pytest.raises(InvalidArgumentError, match=r"plan\.clipping\.kind is 'Flat'"):
        privet.Training(plan(impostor(0.7)), *arguments, tmp_path / "run")


def test_a_kind_that_is_defined_again_takes_the_place_of_the_first(registered):
    again = own_kind("Half", Half.factor)
    privet.register(again)
    assert PARTS["Half"] is again


def test_a_value_that_json_changes_is_refused(tmp_path):
    @privet.register
    @dataclass(frozen=True)
    class Odd(NormRule):
        extra: object = field(default_factory=lambda: lambda: None)

        def factor(self, norms):
            return norms * 0

    try:
        arguments, _ = parts()
        with pytest.raises(InvalidArgumentError, match="its JSON does not restore"):
            privet.Training(plan(Odd(0.7)), *arguments, tmp_path / "run")
        assert not (tmp_path / "run").exists()
    finally:
        del PARTS["Odd"]


SCRIPT = """
import sys, torch, privet
from dataclasses import dataclass

class Mine(torch.optim.SGD):
    pass

@privet.register
@dataclass(frozen=True)
class Quarter(privet.clipping.NormRule):
    def factor(self, norms):
        return 0.25 * (self.bound / norms).clamp(max=1.0)

def loss(model, batch):
    return model(batch[0])[:, 0].square()

def parts():
    model = torch.nn.Linear(3, 1)
    return model, loss, Mine(model.parameters(), lr=0.1), torch.utils.data.TensorDataset(torch.ones(20, 3))

if __name__ == "__main__":
    plan = privet.Plan(
        examples=20, sampling=privet.sampling.Poisson(5.0), steps=6, delta=1e-5, clipping=Quarter(0.7),
        noise=privet.noise.Gaussian(1.3),
    )
    with privet.Training(plan, *parts(), sys.argv[1]) as training:
        next(iter(training))
"""


def test_what_a_script_defined_is_known_when_it_is_imported(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py", "run"], cwd=tmp_path, check=True)
    code = "import privet, script; t = privet.Training.resume('run', *script.parts()); t.run(); print(t.steps_spent)"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "6"
