import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import models, optim
from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.plan import Plan
from privet.sampling import Poisson
from privet.tuning.defaults import choose_defaults, choose_learning_rate, choose_model

TASKS = ("classification", "regression")
examples = st.integers(2, 10**8)
epsilons = st.floats(1e-4, 100)


def plan_of(chosen, count, epsilon=None, multiplier=None):
    plan = Plan(
        examples=count, sampling=Poisson(chosen.batch_size), steps=chosen.steps, clipping=Flat(chosen.bound),
        delta=1 / (10 * count),
        noise=Gaussian(multiplier, non_private=multiplier == 0),
    )  # fmt: skip
    return plan if epsilon is None else plan.calibrate(epsilon)


def noise_at_the_end(plan, rate, momentum):
    """Return the standard deviation that the noise of all steps of constant size adds to a parameter."""
    return rate / (1 - momentum) * plan.noise_multiplier * plan.clipping.sensitivity / plan.divisor * math.sqrt(plan.total_steps)


@settings(max_examples=50)
@given(st.sampled_from(models.NAMES), examples, st.sampled_from(TASKS), epsilons)
def test_choices_are_settings_that_a_plan_takes(model, count, task, epsilon):
    chosen = choose_defaults(model, count, task=task, epsilon=epsilon, delta=1 / (10 * count))
    plan = plan_of(chosen, count, multiplier=1.0)
    assert chosen.batch_size <= count
    assert chosen.steps >= 1
    assert choose_learning_rate(plan, model, task=task, momentum=chosen.momentum) > 0


@settings(max_examples=50)
@given(st.sampled_from(models.NAMES), examples, epsilons, st.floats(1, 1000))
def test_more_signal_never_means_fewer_steps(model, count, epsilon, factor):
    few = choose_defaults(model, count, epsilon=epsilon, delta=1e-6)
    many = choose_defaults(model, count, epsilon=factor * epsilon, delta=1e-6)
    assert many.steps >= few.steps


@settings(max_examples=50)
@given(st.sampled_from(models.NAMES), examples, st.floats(1e5, 1e8))
def test_a_limit_on_reads_makes_batches_smaller_and_leaves_the_steps(model, count, reads):
    free = choose_defaults(model, count, epsilon=1.0, delta=1e-6)
    limited = choose_defaults(model, count, epsilon=1.0, delta=1e-6, reads=reads)
    assert limited == replace(free, batch_size=limited.batch_size)
    assert limited.batch_size <= free.batch_size
    smallest = min(256, count)
    assert limited.steps * limited.batch_size <= max(reads, smallest * limited.steps) + limited.steps


@settings(max_examples=50)
@given(st.sampled_from(models.NAMES), st.sampled_from(TASKS), st.floats(1e-3, 1e4), st.floats(1.01, 100), st.integers(1, 10**5))
def test_the_learning_rate_falls_with_noise_and_with_steps(model, task, multiplier, factor, steps):
    chosen = replace(choose_defaults(model, 10_000, task=task, epsilon=1.0, delta=1e-6), steps=steps)
    rate = choose_learning_rate(plan_of(chosen, 10_000, multiplier=multiplier), model, task=task)
    noisier = choose_learning_rate(plan_of(chosen, 10_000, multiplier=factor * multiplier), model, task=task)
    longer = choose_learning_rate(plan_of(replace(chosen, steps=10 * steps), 10_000, multiplier=multiplier), model, task=task)
    assert noisier <= rate
    assert longer <= rate


@pytest.mark.parametrize(("model", "task"), [("logistic", "classification"), ("linear", "regression"), ("cnn", "classification")])
def test_the_noise_that_gathers_does_not_grow_with_the_steps(model, task):
    found = []
    for steps in (100, 1_000, 3_000):
        chosen = choose_defaults(model, 1_437, task=task, epsilon=1.0, delta=1 / 14_370, steps=steps)
        plan = plan_of(chosen, 1_437, epsilon=1.0)
        found.append(noise_at_the_end(plan, choose_learning_rate(plan, model, task=task), chosen.momentum))
    assert max(found) < 1
    assert found[2] == pytest.approx(found[1])


@settings(max_examples=50)
@given(st.sampled_from(models.NAMES), st.floats(1e-6, 1e6), st.floats(0, 0.999), st.floats(1e-3, 1e4))
def test_bound_and_momentum_rescale_the_learning_rate(model, bound, momentum, multiplier):
    chosen = choose_defaults(model, 1_000, epsilon=1.0, delta=1e-4)
    base = choose_learning_rate(plan_of(replace(chosen, bound=1.0), 1_000, multiplier=multiplier), model, momentum=0.0)
    other = choose_learning_rate(plan_of(replace(chosen, bound=bound), 1_000, multiplier=multiplier), model, momentum=momentum)
    assert other == pytest.approx(base * (1 - momentum) / bound)


@pytest.mark.parametrize("given_values", [{"steps": 7}, {"batch_size": 3.5}, {"batch_size": 3.5, "steps": 7}])
def test_what_is_given_is_kept(given_values):
    chosen = choose_defaults("cnn", 50, epsilon=1.0, delta=1e-3, **given_values)
    assert {name: getattr(chosen, name) for name in given_values} == given_values


def test_small_batches_see_every_example_a_few_times():
    chosen = choose_defaults("logistic", 10_000, epsilon=1.0, delta=1e-5, batch_size=20)
    assert chosen.steps * chosen.batch_size >= 10 * 10_000
    chosen = choose_defaults("logistic", 1_000_000, epsilon=1.0, delta=1e-8, epochs=3.0)
    assert chosen.steps * chosen.batch_size == pytest.approx(3_000_000, rel=0.01)


@pytest.mark.parametrize("count", [2, 50, 1_437])
def test_few_examples_get_full_batches(count):
    for model in models.NAMES:
        assert choose_defaults(model, count, epsilon=3.0, delta=1e-3).batch_size == count


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 100.0, None])
@pytest.mark.parametrize("count", [2, 50, 10**8])
def test_extreme_facts_give_a_model_and_settings(count, epsilon):
    for task in TASKS:
        for shape in ((1,), (10_000,), (1, 28, 28), (3, 8, 8)):
            for schema in (False, True):
                model = choose_model(count, shape, task=task, schema=schema, epsilon=epsilon, delta=1 / (10 * count))
                models.build(model, shape, 2 if task == "classification" else 1)
                assert choose_defaults(model, count, task=task, epsilon=epsilon, delta=1 / (10 * count)).batch_size <= count


def test_a_hidden_layer_takes_more_signal():
    def chosen(epsilon, schema):
        return choose_model(1_437, (64,), task="classification", schema=schema, epsilon=epsilon, delta=7e-5)

    assert [chosen(epsilon, True) for epsilon in (0.1, 100.0)] == ["logistic", "table"]
    assert [chosen(epsilon, False) for epsilon in (0.1, 100.0)] == ["logistic", "mlp"]


def test_without_noise_only_the_length_of_a_step_limits_the_rate():
    chosen = choose_defaults("logistic", 1_000, epsilon=100.0, delta=1e-4)
    assert choose_learning_rate(plan_of(chosen, 1_000, multiplier=0.0), "logistic", momentum=0.9) == pytest.approx(3.0)


def test_optimizers_that_rescale_gradients_get_a_rate_that_falls_with_the_root_of_the_steps_and_not_with_the_noise():
    def rate(optimizer, multiplier, steps):
        chosen = choose_defaults("logistic", 1_000, epsilon=1.0, delta=1e-4, steps=steps)
        return choose_learning_rate(plan_of(chosen, 1_000, multiplier=multiplier), "logistic", optimizer=optimizer)

    for optimizer, share in {"adam": 1.0, "adamw": 1.0, "adam-uncorrected": 0.3, "rmsprop": 0.5}.items():
        for multiplier in (0.1, 100.0):
            assert rate(optimizer, multiplier, 100) == pytest.approx(share * 0.5 / 10)
            assert rate(optimizer, multiplier, 400) == pytest.approx(share * 0.5 / 20)
    assert rate("adam-bc", 1.0, 100) == 2e-3


def test_noise_that_the_default_rates_gather_is_what_the_family_allows():
    """Pure noise, in steps of the optimizers themselves."""
    steps, deviation = 100, 7.0
    for name, kind in {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad, "nag": optim.NAG}.items():
        chosen = replace(choose_defaults("logistic", 1_000, epsilon=1.0, delta=1e-4, steps=steps), batch_size=1_000)
        plan = plan_of(chosen, 1_000, multiplier=deviation * 1_000)
        weights = torch.nn.Parameter(torch.zeros(10_000))
        optimizer = kind([weights], choose_learning_rate(plan, "logistic", optimizer=name))
        for _ in range(steps):
            weights.grad = deviation * torch.randn(10_000)
            optimizer.step()
        assert 0.25 < float(weights.std()) < 1.0, name


@pytest.mark.parametrize("arguments", [
    {"steps": 5, "epochs": 1.0}, {"steps": 0}, {"epochs": -1.0}, {"batch_size": math.inf}, {"task": "ranking"},
    {"epsilon": 0.0}, {"delta": 1.5},
])  # fmt: skip
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InvalidArgumentError):
        choose_defaults("logistic", 100, **{"epsilon": 1.0, "delta": 1e-3} | arguments)
