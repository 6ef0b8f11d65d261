import json

import pytest
import torch
from asked import ask_json
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet import audit
from privet.audit import production
from privet.audit._program import guarantee
from privet.clipping import Flat, Layerwise
from privet.clipping.clipped_sum import ClippedSum
from privet.federated import Federated, LocalSteps, Simulation
from privet.noise import Gaussian
from privet.sampling import Poisson
from privet.training import loop

MODEL = """
import privet, torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(nn.Linear(5, 8), LAYER, nn.Linear(8, 3))
dataset = torch.utils.data.TensorDataset(torch.randn(300, 5), torch.randint(0, 3, (300,)))
plan = privet.Plan(
    examples=300, sampling=privet.sampling.Poisson(30), steps=50, clipping=privet.clipping.Flat(0.7), delta=1e-4,
    noise=privet.noise.Gaussian(1.7),
)


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")
"""


def outputs(model, rows):
    return model(rows)[:, 0]


def outputs_of_rows(model, batch):
    return model(batch[0])[:, 0]


def ended(capsys, *words):
    return ask_json(capsys, *words, "--observations", 10000)[:2]


def plan(**changes):
    settings = {"clipping": Flat(0.7), "noise": Gaussian(1.7), "steps": 50} | changes
    return privet.Plan(examples=300, sampling=Poisson(30), delta=1e-4, **settings)


@pytest.fixture(scope="module")
def a_result():
    return audit.mechanism(plan(), observations=10_000)


@pytest.fixture
def asked_for(monkeypatch, a_result):
    """Plans, trainers and names of the audits that a command asks for; all have the result of the same audit."""
    found = []

    def mechanism(claim, trainer=production.train, *, names=None, **_):
        found.append((claim, trainer, names))
        return a_result

    for module in (audit, guarantee):
        monkeypatch.setattr(module, "mechanism", mechanism)
    return found


def test_a_plan_is_audited(capsys, tmp_path):
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "audit", "--plan", tmp_path / "plan.json", "--out", tmp_path / "found.json")
    assert (status, found["passed"]) == (0, True)
    assert 0 < found["epsilon_lower_bound"] <= found["epsilon_claimed"]
    kept = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert kept["epsilon_lower_bound"] == found["epsilon_lower_bound"]


@pytest.mark.parametrize("place", ["model/model.safetensors", "model.safetensors"], ids=["run", "old run"])
def test_a_run_keeps_its_certificate(capsys, tmp_path, place, asked_for):
    layerwise = plan(clipping=Layerwise({"body.*": Flat(0.7), ".*": Flat(0.2)}))
    (tmp_path / "plan.json").write_text(layerwise.to_json(), encoding="utf-8")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    save_file({"body.weight": torch.zeros(2), "head.weight": torch.zeros(2)}, tmp_path / place)
    status, found = ended(capsys, "audit", tmp_path)
    assert (status, found["passed"]) == (0, True)
    assert asked_for == [(layerwise, production.train, ["body.weight", "head.weight"])]
    assert json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))["passed"] is True


@pytest.mark.parametrize("asked", ["federated run", "run", "federated plan"])
def test_federated_rounds_are_audited_with_clients_for_canaries(asked, capsys, tmp_path, asked_for):
    model, rows, clipping = nn.Linear(3, 1), torch.zeros(300, 3), Layerwise({".*weight": Flat(0.7), ".*": Flat(0.2)})
    optimizer, words, claim = torch.optim.SGD(model.parameters(), lr=1.0), [tmp_path / "run"], plan(clipping=clipping)
    if asked == "federated plan":
        claim = plan(unit="one user")
        (tmp_path / "plan.json").write_text(claim.to_json(), encoding="utf-8")
        words = ["--federated", "--plan", tmp_path / "plan.json"]
    elif asked == "federated run":
        claim = plan(unit="one user", clipping=clipping)
        people = Simulation(model, outputs, rows[:, None], LocalSteps.fed_sgd())
        Federated(claim, model, people, optimizer, tmp_path / "run").close()
    else:
        privet.Training(claim, model, outputs_of_rows, optimizer, TensorDataset(rows), tmp_path / "run").close()
    assert ended(capsys, "audit", *words)[0] == 0
    names = None if asked == "federated plan" else ["weight", "bias"]
    assert asked_for == [(claim, production.train if asked == "run" else audit.hold_rounds, names)]


def test_a_failed_audit_ends_with_status_1(capsys, tmp_path, monkeypatch):
    release = loop.release

    def quieter(clipped, *arguments, **options):
        return release(ClippedSum(clipped.tensors, clipped.sensitivity / 3, clipped.norms), *arguments, **options)

    monkeypatch.setattr(loop, "release", quieter)
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "audit", "--plan", tmp_path / "plan.json")
    assert (status, found["passed"]) == (1, False)
    assert found["epsilon_lower_bound"] > found["epsilon_claimed"]


@pytest.mark.parametrize(("layer", "passes"), [("nn.Tanh()", True), ("nn.BatchNorm1d(8)", False)])
def test_a_model_is_checked(layer, passes, capsys, tmp_path, asked_for):
    file = tmp_path / "mine.py"
    (tmp_path / "its_neighbour.py").write_text("WORD = 'hello'\n", encoding="utf-8")
    own = "\nimport its_neighbour\nprint(its_neighbour.WORD)\n"
    file.write_text(MODEL.replace("LAYER", layer) + own, encoding="utf-8")
    words = ("check", file, "--out", tmp_path / "found.json", "--observations", 10000)
    status, found, error = ask_json(capsys, *words)
    assert (status, found["passed"]) == (int(not passes), passes)
    assert "hello" in error  # output of the user's file
    assert found["mechanism"]["passed"]
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["passed"] is passes


def test_a_model_that_training_would_refuse_ends_with_status_1_and_a_reason(capsys, tmp_path, asked_for):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", "nn.Tanh()") + "\nmodel.requires_grad_(False)\n", encoding="utf-8")
    status, found = ended(capsys, "check", file)
    assert (status, found["passed"]) == (1, False)
    assert "trainable" in next(check["finding"] for check in found["checks"] if check["name"] in found["failed"])


def test_a_batch_and_a_plan_are_enough(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", "nn.Tanh()") + "\nbatch = dataset[:6]\ndel dataset, plan\n", encoding="utf-8")
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "check", file, "--plan", tmp_path / "plan.json")
    assert (status, found["passed"]) == (0, True)
