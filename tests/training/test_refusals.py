import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import privet
from one_layer import D, N, Probe, plan, setup
from privet.errors import InvalidArgumentError, UnsupportedModelError


def test_a_data_set_of_another_size_is_refused():
    with pytest.raises(InvalidArgumentError, match="exactly the plan's size, 60"):
        setup(plan(), torch.randn(N + 1, D))


def test_a_parameter_that_is_frozen_or_added_mid_run_is_refused():
    training = setup(plan(), torch.randn(N, D))
    steps = iter(training)
    next(steps)
    training.model.later = nn.Parameter(torch.zeros(3))
    with pytest.raises(UnsupportedModelError, match="changed after"):
        next(steps)


@pytest.mark.parametrize("change", [
    lambda model: model.double(), lambda model: model.bfloat16(), lambda model: setattr(model.w, "data", model.w.data[:7]),
], ids=["double", "bfloat16", "shorter"])  # fmt: skip
def test_a_parameter_of_another_kind_is_refused_before_anything_is_spent(change):
    training = setup(plan(), torch.randn(N, D))
    steps = iter(training)
    next(steps)
    before = training.model.w.data
    change(training.model)
    with pytest.raises(UnsupportedModelError, match=r"parameter w was torch\.float32 of shape \(40,\) on cpu when"):
        next(steps)
    assert training.steps_spent == 1
    training.model.w.data = before
    next(iter(training))


def test_a_model_that_opacus_wrapped_is_refused_and_its_own_module_trains():
    opacus = pytest.importorskip("opacus")
    wrapped = opacus.GradSampleModule(Probe())
    with pytest.raises(UnsupportedModelError, match=r"contains a GradSampleModule.*pass model\.to_standard_module"):
        setup(plan(), torch.randn(N, D), model=wrapped)
    training = setup(plan(), torch.randn(N, D), model=wrapped.to_standard_module())
    training.run()
    assert training.steps_spent == 3


def test_inference_mode_around_a_step_is_refused_before_anything_is_spent():
    training = setup(plan(), torch.randn(N, D))
    with torch.inference_mode():
        with pytest.raises(InvalidArgumentError, match="left before gradients are computed"):
            next(iter(training))
        with pytest.raises(InvalidArgumentError, match="left before gradients are computed"):
            setup(plan(), torch.randn(N, D))
    assert training.steps_spent == 0
    next(iter(training))
    assert training.steps_spent == 1


WATCHES = {
    "a device": lambda: torch.device("cpu"),
    "a counter": lambda: FlopCounterMode(display=False),
    "a profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
}


@pytest.mark.parametrize("name", WATCHES)
def test_what_only_watches_a_run_is_allowed(name):
    training = setup(plan(), torch.randn(N, D))
    with WATCHES[name]():
        next(iter(training))
    assert training.steps_spent == 1
    assert training.method == setup(plan(), torch.randn(N, D)).method


@pytest.mark.parametrize(
    ("name", "value"),
    [("physical_batch_size", 0), ("physical_batch_size", 2.0), ("method", "magic"), ("reading", 3), ("reading", privet.Reading)],
)
def test_bad_options_are_named(name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        setup(plan(), torch.randn(N, D), **{name: value})


def test_a_statement_says_when_the_check_was_switched_off():
    x = torch.randn(N, D)
    assert "switched off" in str(setup(plan(), x, reading=privet.Reading(probe=False)).guarantee())
    assert "switched off" not in str(setup(plan(), x).guarantee())


@pytest.mark.parametrize("started", ["group", "torchrun"])
def test_one_of_several_processes_is_refused_before_anything_is_spent(tmp_path, monkeypatch, started):
    """Each would train on the whole data set, and spend ε on its own."""
    if started == "group":
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    else:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setenv("WORLD_SIZE", "1")
        setup(plan(steps=1), torch.randn(N, D)).run()
        monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match=r"world is 'one process of 2'; it must be all.*without torchrun"):
        setup(plan(), torch.randn(N, D), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_schedule_by_which_the_bound_of_a_group_leaves_its_range_is_refused_before_the_first_step():
    """One rule is split among the groups of the model, which the plan does not know."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    rule = privet.clipping.Layerwise(privet.clipping.Flat(1e-11))
    the_plan = plan(clipping=rule, steps=10, bound_schedule=privet.schedules.Geometric(rate=0.5, final=0.11))
    with pytest.raises(InvalidArgumentError, match=r"clipping\.bound is 7\.7.*e-13"):
        setup(the_plan, torch.randn(N, 3), model=model)
