"""A study observes only when called, does not change training, and marks its file and figures."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from privet.clipping import AdaptiveQuantile, Flat
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import Poisson
from privet.schedules import Linear
from privet_experiments import studies
from privet_experiments.studies import Mechanism, Study, read_observations


@pytest.fixture
def plan():
    return privet.Plan(
        examples=24, sampling=Poisson(batch_size=6), steps=16, delta=1e-3, clipping=Flat(0.3), noise=Gaussian(1.7),
        bound_schedule=Linear(),
    )  # fmt: skip


@pytest.fixture
def study_of(plan, model, loss_fn, batch):
    """Run a training with a study of it, and return the study."""

    def run(**options):
        study = Study(plan, model, loss_fn, batch, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for step in privet.Training(plan, model, loss_fn, optimizer, TensorDataset(*batch)):
            study.look(step.number)
        return study

    return run


def test_it_observes_every_few_steps_with_the_mechanism_of_that_step(study_of, plan, loss_fn, batch, model):
    study = study_of(every=4)
    assert [one.step for one in study.observations] == [4, 8, 12, 16]
    last = Mechanism.of(plan, 16)
    assert last.rule.bound == pytest.approx(0.3 * plan.bound_factors()[-1])
    assert last.deviation == pytest.approx(1.7 * last.rule.bound / 6)
    assert study.observations[-1] == studies.observe(model, loss_fn, batch, last, step=16, seed=16)


def test_last_epochs_are_those_of_the_plan(study_of):
    assert [one.step for one in study_of(every=2).of_last_epochs(1.5)] == [12, 14, 16]  # an epoch has 4 steps


def test_training_is_the_same_with_a_study(plan, model, loss_fn, batch):
    plan = privet.Plan.from_dict(plan.to_dict() | {"noise": {"kind": "Gaussian", "multiplier": 1.7, "source": "fixed"}})
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def trained(look):
        model.load_state_dict(start)
        study = Study(plan, model, loss_fn, batch)
        for step in privet.Training(plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.3), TensorDataset(*batch)):
            if look:
                study.look(step.number)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    assert torch.equal(trained(look=True), trained(look=False))


def test_its_file_is_marked_and_restores_the_observations(study_of, tmp_path):
    study = study_of(every=5)
    content = json.loads(study.save(tmp_path).read_text(encoding="utf-8"))
    assert (content["private"], content["warning"]) == (False, studies.WARNING)
    assert read_observations(content) == tuple(study.observations)
    assert repr(study).startswith("NOT PRIVATE")


def test_adaptive_rules_and_empty_probes_are_refused(plan, model, loss_fn, batch):
    adaptive = privet.Plan(
        examples=24, sampling=plan.sampling, steps=16, delta=1e-3, noise=Gaussian(1.7),
        clipping=AdaptiveQuantile(Flat(0.3), quantile=0.5),
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="known ahead"):
        Study(adaptive, model, loss_fn, batch)
    with pytest.raises(InvalidArgumentError, match="probe"):
        Study(plan, model, loss_fn, (batch[0][:0], batch[1][:0]))
    with pytest.raises(InvalidArgumentError, match="from 1 to 16"):
        Mechanism.of(plan, 17)


KINDS = [studies.NormDisplay, studies.SimilarityDisplay, studies.TrendDisplay, studies.WeightDisplay]


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_marked(study_of, kind):
    display = kind(study_of(every=4).observations).plot()
    assert "NOT PRIVATE" in display.ax_.get_title()
    assert np.isfinite(display.ax_.get_xlim()).all()


def test_figures_of_masks_and_deviations_are_marked(model, loss_fn, batch):
    effect = studies.sparsification_effect(model, loss_fn, batch, Flat(0.2), rates=(0.2, 0.8), masks=2)
    cloud = studies.deviations(model, loss_fn, batch)
    for display in (studies.SparsificationDisplay(effect), studies.DeviationDisplay(cloud)):
        assert "NOT PRIVATE" in display.plot().ax_.get_title()
