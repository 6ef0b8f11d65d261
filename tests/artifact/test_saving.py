import json

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import privet
from privet.errors import InvalidArgumentError, PrivetError
from privet.runs.tasks import cross_entropy
from privet.training import Storage

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.TensorDataset(X, (X[:, 0] > 0).long())
PLAN = privet.Plan(
    examples=60, sampling=privet.sampling.Poisson(20), steps=3, clipping=privet.clipping.Flat(1.0), delta=1e-3,
    noise=privet.noise.Gaussian(1.0),
)  # fmt: skip


class Tied(nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self, width=4):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(3, width), nn.Linear(3, width), nn.Linear(width, 2)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.out(torch.tanh(self.first(x) + self.second(x) * self.scale))


def train(model, directory, plan=PLAN, steps=3, **options):
    training = privet.Training(
        plan, model, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.5), DATA, directory, **options
    )
    for step in training:
        if step.number == steps:
            return training
    raise AssertionError


def equal(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_network_of_the_user_is_opened_with_the_users_code(tmp_path):
    training = train(Tied(), Storage(tmp_path / "run", purpose="to find a bed"))
    folder = privet.save(training, classes=["no", "yes"], license="mit")
    opened = privet.load(tmp_path / "run", Tied())
    assert equal(training.model, opened.module)
    assert not opened.module.training
    with torch.no_grad():
        expected = ["yes" if row[1] > row[0] else "no" for row in training.model(X)]
    assert opened.predict(X, encoded=True).tolist() == expected
    card = (folder / "README.md").read_text(encoding="utf-8")
    for words in ("to find a bed", "a Tied, built by your code", training.guarantee().summary, 'license: "mit"'):
        assert words in card
    assert opened.guarantee.purpose == "to find a bed"
    assert (folder / "guarantee.md").read_text(encoding="utf-8") == f"# Guarantee\n\n{training.guarantee()}\n"
    with pytest.raises(InvalidArgumentError, match=r"module is None; .* a Tied\. Build it"):
        privet.load(folder)
    with pytest.raises(InvalidArgumentError, match=r"^in .* \(5,\).*: module is 'Tied'; it must be built as for"):
        privet.load(folder, Tied(width=5))
    with pytest.raises(InvalidArgumentError, match=r"a network of privet\.models"):
        opened.export(tmp_path / "tied.pt2")


def test_a_network_of_privet_is_opened_without_any_and_an_average_is_what_is_saved(tmp_path):
    model = privet.models.build("mlp", (3,), 2, width=5)
    training = train(model, tmp_path / "run", average=AveragedModel(model))
    opened = privet.load(privet.save(training, tmp_path / "elsewhere"))
    assert equal(training.averaged_model.module, opened.module)
    assert not equal(model, opened.module)
    with pytest.raises(PrivetError, match="the meaning of the model's outputs is unknown"):
        opened.predict(X, encoded=True)
    opened.export(tmp_path / "model.pt2")


def test_a_changed_network_of_privet_is_the_users(tmp_path):
    model = privet.models.build("mlp", (3,), 2)
    model.output = nn.Sequential(model.output)
    folder = privet.save(train(model, tmp_path / "run"))
    assert isinstance(json.loads((folder / "model.json").read_text(encoding="utf-8"))["architecture"], str)


def test_a_training_that_stopped_early_is_saved_with_what_it_spent(tmp_path):
    """Into the folder `model` of its directory, whose own statement is that of the last step."""
    with train(Tied(), tmp_path / "run", steps=2) as training:
        folder = privet.save(training, tmp_path / "run")
    assert folder == tmp_path / "run" / "model"
    assert not (tmp_path / "run" / "guarantee.md").exists()
    assert json.loads((folder / "guarantee.json").read_text(encoding="utf-8"))["epsilon"] == PLAN.epsilon(steps=2)


def test_a_plan_with_a_schema_says_how_rows_are_encoded(tmp_path):
    columns = tuple((name, privet.tables.Number(-1, 1)) for name in "abc")
    schema = privet.tables.Schema(columns, "ill", privet.tables.Classification(("no", "yes")))
    training = train(Tied(), tmp_path / "run", privet.Plan.from_dict(PLAN.to_dict() | {"schema": schema.to_dict()}))
    opened = privet.load(privet.save(training), Tied())
    assert set(opened.predict({"a": [0.5], "b": [0.0], "c": [0.0]})) <= {"no", "yes"}
    with pytest.raises(InvalidArgumentError, match="left out with a schema"):
        privet.save(training, classes=["a", "b"])


def test_a_training_in_memory_needs_a_folder():
    with pytest.raises(InvalidArgumentError, match="folder is missing"):
        privet.save(train(Tied(), None))
