import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from privet import audit
from privet.audit._one_run import membership
from privet.clipping import AdaptiveQuantile, Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet.noise.noised_sum import NoisedSum
from privet.reading.rows import join_rows
from privet.sampling import FullBatch, Poisson
from privet.training import loop

EXAMPLES, CANARIES, CLASSES = 60, 200, 3


@pytest.fixture
def data():
    inputs = torch.randn(EXAMPLES, 5)
    return TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def run(data, canaries, sampling=None, steps=1, epsilon=6.0, clipping=None, number=CANARIES):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    plan = privet.Plan(
        examples=EXAMPLES + number, sampling=sampling or FullBatch(), steps=steps, clipping=clipping or Flat(0.5), delta=1e-5
    ).calibrate(epsilon)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return audit.one_run(plan, model, loss_fn, optimizer, data, canaries, physical_batch_size=100)


def test_gradient_canaries_are_detected_as_by_an_ideal_adversary(data):
    found = run(data, CANARIES)
    assert found.passed
    for bounds in (found.white_box, found.black_box):
        assert bounds.epsilon == pytest.approx(found.expected.epsilon, abs=1.2)
        assert 0.3 < bounds.epsilon <= bounds.epsilon_f_dp < found.epsilon_claimed
    assert "200 canaries" in str(found)
    assert json.loads(found.to_json())["passed"] is True


@pytest.mark.parametrize("kind", ["mislabelled", "noise"])
@pytest.mark.parametrize("clipping", [Flat(0.5), Layerwise(Flat(0.5))], ids=str)
def test_examples_as_canaries_prove_no_more_than_is_claimed(data, kind, clipping):
    added = audit.canaries(data, 40, classes=CLASSES, kind=kind)
    found = run(data, added, Poisson(30), steps=5, epsilon=4.0, clipping=clipping, number=40)
    assert found.passed
    assert found.white_box.canaries == 40


def test_training_without_noise_is_detected(data, monkeypatch):
    monkeypatch.setattr(loop, "release", unnoised)
    found = run(data, CANARIES, epsilon=1.0)
    assert not found.passed
    assert found.white_box.epsilon > 1.0
    assert found.white_box.correct >= 0.9 * found.white_box.guesses
    assert str(found).startswith("FAILED")


def unnoised(clipped, token, source, divisor, *past, **_):
    return NoisedSum(clipped.tensors, clipped.sensitivity, token.spend() * clipped.sensitivity) / divisor


def test_an_excluded_canary_contributes_nothing(data):
    added = audit.canaries(data, 4, classes=CLASSES)
    plan = privet.Plan(examples=EXAMPLES + 4, sampling=FullBatch(), steps=1, clipping=Flat(0.5), delta=1e-5).calibrate(3.0)
    model = nn.Linear(5, CLASSES)
    _, loss, mixed, _ = membership.add_example_canaries(plan, model, loss_fn, data, added)
    batch = join_rows([mixed.read(np.array([index])) for index in range(EXAMPLES + 4)])
    found = privet.per_example_gradients(model, loss, batch)["weight"].flatten(1).norm(dim=1)
    assert ((found > 0).numpy() == np.concatenate([np.ones(EXAMPLES, dtype=bool), mixed.coins])).all()


def test_mislabelled_canaries_have_a_wrong_label(data):
    inputs, labels = data.tensors
    found, wrong = audit.canaries(data, 50, classes=CLASSES).tensors
    own = torch.stack([labels[(inputs == one).all(1)][0] for one in found])
    assert (own != wrong).all()
    assert 0 <= int(wrong.min()) <= int(wrong.max()) < CLASSES


@pytest.mark.parametrize(("change", "says"), [
    ({"clipping": AdaptiveQuantile(Flat(0.5))}, "clipping is"),
    ({"clipping": Layerwise(Flat(0.5))}, "canaries is 200"),
    ({"number": 150}, "plan.examples is 210"),
])  # fmt: skip
def test_plans_that_cannot_be_audited_are_refused(data, change, says):
    with pytest.raises(InvalidArgumentError, match=says):
        run(data, CANARIES, **change)


def test_a_refused_canary_is_named(data):
    for change in ({"number": 1}, {"classes": 1}, {"kind": "yellow"}):
        with pytest.raises(InvalidArgumentError, match=f"^{next(iter(change))} is"):
            audit.canaries(data, **({"number": 3, "classes": CLASSES} | change))
    assert replace(run(data, 20, number=20), confidence=0.9).confidence == 0.9
