"""`privet audit` and `privet check`: output, exit status and errors."""

from __future__ import annotations

import json

import pytest
import torch
from asked import ask_json
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.audit import federated_rounds
from privet.cli import main
from privet.clipping import Flat, Layerwise
from privet.clipping.clipped_sum import ClippedSum
from privet.federated import Federated, LocalSteps, Simulation
from privet.federated.messages import sum_messages
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
    settings = {"clipping": Flat(0.7), "noise": Gaussian(1.7)} | changes
    return privet.Plan(examples=300, sampling=Poisson(30), steps=50, delta=1e-4, **settings)


def test_a_plan_is_audited(capsys, tmp_path):
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "audit", "--plan", tmp_path / "plan.json", "--out", tmp_path / "found.json")
    assert (status, found["passed"]) == (0, True)
    assert 0 < found["epsilon_lower_bound"] <= found["epsilon_claimed"]
    kept = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert kept["epsilon_lower_bound"] == found["epsilon_lower_bound"]


@pytest.mark.parametrize("place", ["model/model.safetensors", "model.safetensors"], ids=["run", "old run"])
def test_a_run_keeps_its_certificate(capsys, tmp_path, place):
    from safetensors.torch import save_file
    from torch import zeros

    layerwise = plan(clipping=Layerwise({"body.*": Flat(0.7), ".*": Flat(0.2)}))
    (tmp_path / "plan.json").write_text(layerwise.to_json(), encoding="utf-8")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    save_file({"body.weight": zeros(2), "head.weight": zeros(2)}, tmp_path / place)
    status, found = ended(capsys, "audit", tmp_path)
    assert (status, found["passed"]) == (0, True)
    assert json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))["passed"] is True


@pytest.mark.parametrize("of_clients", [True, False])
def test_a_federated_run_is_audited_with_clients_for_canaries(of_clients, capsys, tmp_path, monkeypatch):
    model, rows = nn.Linear(3, 1), torch.zeros(300, 3)
    optimizer, by_name = torch.optim.SGD(model.parameters(), lr=1.0), Layerwise({".*weight": Flat(0.7), ".*": Flat(0.2)})
    if of_clients:
        people = Simulation(model, outputs, rows[:, None], LocalSteps.fed_sgd())
        run = Federated(plan(unit="one user", clipping=by_name), model, people, optimizer, tmp_path / "run")
    else:
        run = privet.Training(plan(clipping=by_name), model, outputs_of_rows, optimizer, TensorDataset(rows), tmp_path / "run")
    run.close()
    held = []
    monkeypatch.setattr(federated_rounds, "sum_messages", lambda *given: held.append(given) or sum_messages(*given))
    status, found = ended(capsys, "audit", tmp_path / "run")
    assert (status, found["passed"]) == (0, True)
    assert bool(held) == of_clients


def test_a_plan_is_audited_as_a_federated_one_if_asked_to(capsys, tmp_path):
    (tmp_path / "plan.json").write_text(plan(unit="one user").to_json(), encoding="utf-8")
    status, found = ended(capsys, "audit", "--federated", "--plan", tmp_path / "plan.json")
    assert (status, found["passed"]) == (0, True)
    assert 0 < found["epsilon_lower_bound"] <= found["epsilon_claimed"]


def test_a_failed_audit_ends_with_status_1(capsys, tmp_path, monkeypatch):
    release = loop.release

    def quieter(clipped, *arguments):
        return release(ClippedSum(clipped.tensors, clipped.sensitivity / 3, clipped.norms), *arguments)

    monkeypatch.setattr(loop, "release", quieter)
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "audit", "--plan", tmp_path / "plan.json")
    assert (status, found["passed"]) == (1, False)
    assert found["epsilon_lower_bound"] > found["epsilon_claimed"]


@pytest.mark.parametrize(("layer", "passes"), [("nn.Tanh()", True), ("nn.BatchNorm1d(8)", False)])
def test_a_model_is_checked(layer, passes, capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", layer), encoding="utf-8")
    status, found = ended(capsys, "check", file, "--out", tmp_path / "found.json")
    assert (status, found["passed"]) == (int(not passes), passes)
    assert found["mechanism"]["passed"]
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["passed"] is passes


def test_a_model_that_training_would_refuse_ends_with_status_1_and_a_reason(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", "nn.Tanh()") + "\nmodel.requires_grad_(False)\n", encoding="utf-8")
    status, found = ended(capsys, "check", file)
    assert (status, found["passed"]) == (1, False)
    assert "trainable" in next(check["finding"] for check in found["checks"] if check["name"] in found["failed"])


def test_output_of_the_users_file_goes_to_standard_error(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", "nn.Tanh()") + "\nprint('hello')\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(["check", str(file), "--observations", "10000", "--json"])
    told = capsys.readouterr()
    assert stop.value.code == 0
    assert json.loads(told.out)["passed"]
    assert "hello" in told.err


def test_a_batch_and_a_plan_are_enough(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODEL.replace("LAYER", "nn.Tanh()") + "\nbatch = dataset[:6]\ndel dataset, plan\n", encoding="utf-8")
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    status, found = ended(capsys, "check", file, "--plan", tmp_path / "plan.json")
    assert (status, found["passed"]) == (0, True)


@pytest.mark.parametrize(("words", "file", "says"), [
    (["audit"], "", "RUN"),
    (["audit", "nowhere"], "", "plan.json"),
    (["audit", "--plan", "nowhere.json"], "", "--plan"),
    (["audit", "--plan", "mine.py"], "no plan", "plan"),
    (["audit", "--federated"], "", "RUN"),
    (["check", "nowhere.py"], "", "MODEL.py"),
    (["check", "mine.py"], "raise OSError('disk on fire')", "disk on fire"),
    (["check", "mine.py"], "model = 3\ndataset = [1, 2]\n", "no plan|dataset|model"),
    (["check", "mine.py"], "dataset = range(40)\n", "defines no model"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_line(words, file, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(file, encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert any(word in error for word in says.split("|"))
