"""Training releases what the plan says at every step, whatever the batch, and stops, saves and resumes by the ledger."""

import json
import math
import os
import threading
import time
from itertools import pairwise

import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import privet
from privet.errors import InvalidArgumentError, LedgerError, UnsupportedModelError
from privet.ledger import read_history

N, D, SIGMA, BOUND, RATE = 60, 40, 2.3, 0.7, 0.31


class Probe(nn.Module):
    """Loss ⟨w, x⟩: an example's gradient is the example itself."""

    def __init__(self, width=D):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return (x * self.w).sum(1)


def linear_loss(model, batch):
    return model(batch[0])


def plan(batch_size=20.0, steps=3, multiplier=SIGMA, source="secure", examples=N, **options):
    return privet.Plan(
        examples=examples,
        sampling=privet.sampling.Poisson(batch_size),
        steps=steps,
        clipping=options.pop("clipping", privet.clipping.Flat(BOUND)),
        delta=1e-5,
        noise=privet.noise.Gaussian(multiplier, source=source, non_private=multiplier == 0),
        **options,
    )


def setup(the_plan, x, directory=None, model=None, **options):
    model = model or Probe(x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return privet.Training(the_plan, model, linear_loss, optimizer, TensorDataset(x), directory, **options)


def released(training):
    """The mean gradient that the last step released, times the divisor: the noisy sum."""
    before = training.model.w.detach().clone()
    next(iter(training))
    return (before - training.model.w.detach()) / RATE * training.plan.divisor


def test_full_batch_without_noise_releases_the_clipped_sum():
    x = torch.randn(N, D) * torch.logspace(-2, 2, N)[:, None]
    training = setup(plan(batch_size=N, multiplier=0.0), x)
    norms = x.norm(dim=1, keepdim=True)
    expected = (x * (BOUND / norms).clamp(max=1)).sum(0)
    torch.testing.assert_close(released(training), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", [privet.clipping.Flat(BOUND), privet.clipping.Automatic(BOUND, 0.05)])
@pytest.mark.parametrize("size", [1, 7, N])
def test_one_example_moves_the_release_by_at_most_the_bound(rule, size):
    """Neighbours: the same data with one example set to contribute nothing; full batch, no noise."""
    x = torch.randn(N, D) * 100
    without = x.clone()
    without[13] = 0.0
    sums = [released(setup(plan(N, multiplier=0.0, clipping=rule), data, physical_batch_size=size)) for data in (x, without)]
    assert float((sums[0] - sums[1]).norm()) <= BOUND * (1 + 1e-4)  # float32 rounding of two parameters of this size


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_an_example_that_is_not_finite_changes_nothing_and_raises_nothing(bad):
    x = torch.randn(N, D)
    x[5] = 0.0
    clean = released(setup(plan(N, multiplier=0.0), x))
    x[5] = bad
    spoilt = released(setup(plan(N, multiplier=0.0), x))
    limit = BOUND * (1 + 1e-4) if bad == 3e38 else 1e-5
    assert float((clean - spoilt).norm()) <= limit


@pytest.mark.parametrize("size", [1, 7, N])
def test_the_release_does_not_depend_on_the_physical_batch_size(size):
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(1))
    runs = []
    for physical in (N, size):
        training = setup(plan(source="fixed"), x, physical_batch_size=physical)
        training.run()
        runs.append(training.model.w.detach().clone())
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-5, atol=1e-6)


def drawing_threads():
    return [thread for thread in threading.enumerate() if thread.name == "privet-noise"]


@pytest.mark.parametrize(("width", "multiplier", "expected"), [(60_000, SIGMA, 1), (D, SIGMA, 0), (60_000, 0.0, 0)])
@pytest.mark.parametrize("steps", [2, 3])
def test_noise_is_drawn_ahead_for_large_models_and_only_while_training_runs(monkeypatch, width, multiplier, expected, steps):
    monkeypatch.setattr(privet.noise.sources, "_cores", lambda: 2)
    training = setup(plan(multiplier=multiplier), torch.zeros(N, width))
    for step in training:
        assert len(drawing_threads()) == expected
        if step.number == steps:
            break
    assert drawing_threads() == []


def test_noise_drawn_ahead_is_what_the_plan_says_at_every_step(monkeypatch, holds_twice):
    monkeypatch.setattr(privet.noise.sources, "_cores", lambda: 2)
    width, steps = 70_001, 4

    def experiment():
        training = setup(plan(steps=steps), torch.zeros(N, width))
        start = training.model.w.detach().clone()
        values = [start, *(training.model.w.detach().clone() for _ in training)]
        noise = (
            torch.stack([before - after for before, after in pairwise(values)]) / RATE * training.plan.divisor / (SIGMA * BOUND)
        )
        correlation = (noise[1:] * noise[:-1]).sum().item() / math.sqrt((steps - 1) * width)
        return {
            "steps": 2 * stats.norm.sf(abs(correlation)),
            **{f"step {i}": stats.kstest(step.numpy(), "norm").pvalue for i, step in enumerate(noise)},
        }

    holds_twice(experiment)


def test_workers_and_collate_release_the_same():
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(1))

    class Listed(Dataset):
        def __len__(self):
            return N

        def __getitem__(self, index):
            return (x[index],)

    runs = []
    for dataset, options in ((TensorDataset(x), {}), (Listed(), {}), (Listed(), {"workers": 2, "physical_batch_size": 5})):
        model = Probe()
        training = privet.Training(
            plan(source="fixed"), model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), dataset, **options
        )
        training.run()
        runs.append(model.w.detach().clone())
    torch.testing.assert_close(runs[0], runs[1])
    torch.testing.assert_close(runs[0], runs[2], rtol=1e-5, atol=1e-6)


def test_noise_has_the_plans_standard_deviation_on_every_step():
    """Chi-square and KS on untouched coordinates; empty, small and full batches alike."""

    def p_values():
        found = []
        for batch_size in (1e-3, 3.0, float(N)):
            training = setup(plan(batch_size, steps=4), torch.zeros(N, 50_000))
            for _ in range(2):
                z = (released(training) / (SIGMA * BOUND)).double()
                statistic = float(z.square().sum())
                found.append(2 * min(stats.chi2.sf(statistic, z.numel()), stats.chi2.cdf(statistic, z.numel())))
                found.append(stats.kstest(z.numpy(), "norm").pvalue)
        return min(found)

    assert p_values() > 1e-6 or p_values() > 1e-6


def test_steps_have_independent_noise():
    training = setup(plan(1e-3, steps=3), torch.zeros(N, 50_000))
    first, second = released(training), released(training)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 6 / math.sqrt(50_000)


def test_training_draws_by_the_plans_sampling():
    """The number of contributions varies like Binomial(N, q), and every example takes part as often as q says."""
    q, steps = 20 / N, 400

    def as_planned():
        counted, seen = [], torch.zeros(N)

        def loss(model, batch):
            counted.append(len(batch[0]))
            seen.add_(batch[0].sum(0))
            return model(batch[0])

        model = Probe(N)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        data = TensorDataset(torch.eye(N))
        privet.Training(plan(20.0, steps=steps), model, loss, optimizer, data, probe=False, method="tape").run()
        # Six standard errors of a variance and of a count: a fixed batch has variance 0, and a slice leaves examples out.
        variance = torch.tensor(counted).double().var().item() / (N * q * (1 - q))
        shares = (seen - steps * q).abs().max().item()
        return abs(variance - 1) < 6 * math.sqrt(2 / steps) and shares < 6 * math.sqrt(steps * q * (1 - q))

    assert as_planned() or as_planned()


def test_empty_draws_are_steps_like_any_other():
    training = setup(plan(1e-6, steps=5), torch.randn(N, D))
    for _ in training:
        assert float(training.model.w.detach().norm()) > 0
    assert training.steps_spent == 5
    assert training.epsilon() == training.plan.epsilon()


def test_a_gradient_that_lies_around_is_not_mixed_in():
    training = setup(plan(N, multiplier=0.0), torch.zeros(N, D))
    training.model.w.grad = torch.full((D,), 1e6)
    assert float(released(training).abs().max()) == 0.0
    assert training.model.w.grad is None


def test_every_trainable_parameter_is_noised_also_when_unused():
    class Spare(Probe):
        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(100))

    training = setup(plan(), torch.randn(N, D), model=Spare())
    next(iter(training))
    assert float(training.model.unused.detach().abs().min()) > 0


def test_seeding_torch_does_not_repeat_the_noise():
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        training = setup(plan(), torch.zeros(N, D))
        training.run()
        runs.append(training.model.w.detach().clone())
    assert not torch.allclose(runs[0], runs[1])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop])
def test_plain_optimizers_and_schedulers_are_used_as_they_are(kind):
    model = Probe()
    optimizer = kind(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    training = privet.Training(plan(), model, linear_loss, optimizer, TensorDataset(torch.randn(N, D)), scheduler=scheduler)
    training.run()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**3)
    assert list(model.state_dict()) == ["w"]


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_data_set_of_another_size_is_refused():
    with pytest.raises(InvalidArgumentError, match="exactly the plan's size, 60"):
        setup(plan(), torch.randn(N + 1, D))


def test_an_uncalibrated_plan_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"noise\.multiplier"):
        setup(plan(multiplier=None), torch.randn(N, D))
    with pytest.raises(InvalidArgumentError, match="steps"):
        setup(plan(steps=None), torch.randn(N, D))


def test_optimizers_that_do_not_fit_are_refused():
    data = TensorDataset(torch.randn(N, D))
    model, other = Probe(), Probe()
    used = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.w.grad = torch.ones(D)
    used.step()
    for optimizer, says in (
        (torch.optim.LBFGS(model.parameters()), "one gradient per step"),
        (torch.optim.SGD(other.parameters(), lr=0.1), "without w"),
        (torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1), "foreign"),
        (used, "state from earlier"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            privet.Training(plan(), model, linear_loss, optimizer, data)


def test_models_that_mix_examples_are_refused_before_the_first_step():
    class Centred(Probe):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    with pytest.raises(UnsupportedModelError, match="mixes examples"):
        setup(plan(), torch.randn(N, D), model=Centred())


def test_a_parameter_that_is_frozen_or_added_mid_run_is_refused():
    training = setup(plan(), torch.randn(N, D))
    steps = iter(training)
    next(steps)
    training.model.later = nn.Parameter(torch.zeros(3))
    with pytest.raises(UnsupportedModelError, match="changed after"):
        next(steps)


def test_a_collate_that_makes_one_example_many_is_refused():
    model = Probe()
    with pytest.raises(InvalidArgumentError, match="collate"):
        privet.Training(
            plan(), model, linear_loss, torch.optim.SGD(model.parameters(), lr=0.1), TensorDataset(torch.randn(N, D)),
            collate=lambda examples: (torch.cat([e[0][None] for e in examples] * 2),),
        )  # fmt: skip


def test_a_collate_that_does_so_for_some_examples_only_is_refused_when_it_does():
    def collate(examples):
        x = torch.stack([example[0] for example in examples])
        return (torch.cat([x, x]) if len(examples) > 3 else x,)

    model = Probe()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = privet.Training(plan(), model, linear_loss, optimizer, TensorDataset(torch.randn(N, D)), collate=collate)
    with pytest.raises(InvalidArgumentError, match="one entry per example"):
        training.run()


def test_a_branch_that_only_some_examples_take_neither_stops_the_run_nor_escapes_the_bound():
    class Branching(Probe):
        def forward(self, x):
            if bool((x > 50).any()):
                return x @ self.w  # a use that the tape does not follow
            return super().forward(x)

    x = torch.randn(N, D)
    x[7] = 100.0
    clean = released(setup(plan(N, multiplier=0.0), x))
    assert torch.allclose(clean, released(setup(plan(N, multiplier=0.0), x, model=Branching())), atol=1e-5)


def test_a_method_that_is_wrong_for_the_model_is_refused_also_when_asked_for():
    class Product(Probe):
        def forward(self, x):
            return x @ torch.zeros_like(self.w).copy_(self.w)

    for method in ("auto", "vectorised", "loop"):
        setup(plan(), torch.randn(N, D), model=Product(), method=method).run()
    with pytest.raises(UnsupportedModelError, match="tape: the tape does not follow"):
        setup(plan(), torch.randn(N, D), model=Product(), method="tape")


def test_a_statement_says_when_the_check_was_switched_off():
    x = torch.randn(N, D)
    assert "switched off" in str(setup(plan(), x, probe=False).guarantee())
    assert "switched off" not in str(setup(plan(), x).guarantee())


@pytest.mark.parametrize(
    ("name", "value"), [("physical_batch_size", 0), ("workers", -1), ("checkpoint_every", 0), ("method", "magic")]
)
def test_bad_options_are_named(name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        setup(plan(), torch.randn(N, D), **{name: value})


# Life cycle -----------------------------------------------------------------------------------------------------------


def test_a_directory_with_a_run_is_not_taken_over(tmp_path):
    training = setup(plan(), torch.randn(N, D), tmp_path / "run")
    training.close()
    with pytest.raises(LedgerError, match="holds a run already"):
        setup(plan(), torch.randn(N, D), tmp_path / "run")


def test_stopping_and_resuming_takes_every_step_once(tmp_path):
    x = torch.randn(N, D)
    training = setup(plan(steps=10), x, tmp_path)
    for step in training:
        if step.number == 4:
            break
    training.close()
    after_four = training.model.w.detach().clone()
    model = Probe()
    again = privet.Training.resume(tmp_path, model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), TensorDataset(x))
    assert again.steps_spent == 4
    assert torch.equal(model.w.detach(), after_four)
    assert [step.number for step in again] == list(range(5, 11))
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "trained"


def test_a_loop_that_ends_early_gives_back_what_it_did_not_use(tmp_path):
    training = setup(plan(steps=40), torch.randn(N, D), tmp_path)
    for step in training:
        if step.number == 4:
            break
    assert read_history(tmp_path / "ledger")[0].spent == 4  # before the training is closed, if it ever is


def test_a_checkpoint_from_another_run_is_refused(tmp_path):
    x = torch.randn(N, D)
    for name in ("a", "b"):
        with setup(plan(steps=10), x, tmp_path / name) as training:
            next(iter(training))
    os.replace(tmp_path / "a" / "checkpoint.pt", tmp_path / "b" / "checkpoint.pt")
    model = Probe()
    with pytest.raises(LedgerError, match="foreign"):
        privet.Training.resume(tmp_path / "b", model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), TensorDataset(x))


def test_resuming_without_a_ledger_is_refused(tmp_path):
    x = torch.randn(N, D)
    setup(plan(steps=10), x, tmp_path).close()
    (tmp_path / "ledger").unlink()
    model = Probe()
    with pytest.raises(LedgerError, match="lost its ledger"):
        privet.Training.resume(tmp_path, model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), TensorDataset(x))


def test_an_exception_in_the_step_counts_the_step(tmp_path):
    pulled = False

    def loss(model, batch):
        if pulled:
            raise RuntimeError("cable pulled")
        return linear_loss(model, batch)

    model = Probe()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    training = privet.Training(plan(N, steps=10), model, loss, optimizer, TensorDataset(torch.randn(N, D)), tmp_path)
    pulled = True
    with pytest.raises(RuntimeError, match="cable"):
        training.run()
    assert training.steps_spent == 1


def test_the_fixed_source_promises_nothing():
    training = setup(plan(source="fixed"), torch.randn(N, D))
    training.run()
    assert math.isinf(training.epsilon())
    assert "NO PRIVACY" in str(training.guarantee())


def test_progress_shows_nothing_where_there_is_no_terminal(capsys):
    training = setup(plan(), torch.randn(N, D))
    training.run(progress=True)
    assert training.steps_left == 0
    assert threading.active_count() >= 1
    assert capsys.readouterr().err == ""


def test_a_step_says_nothing_about_the_data():
    training = setup(plan(), torch.randn(N, D))
    start = time.monotonic()
    assert [vars(step) for step in training] == [{"number": n, "total": 3} for n in (1, 2, 3)]
    assert time.monotonic() - start < 60


# --- schedules --------------------------------------------------------------------------------------------------------


def test_every_step_clips_to_its_own_bound():
    x = torch.randn(N, D) * torch.logspace(-2, 2, N)[:, None]
    scheduled = plan(N, steps=3, multiplier=0.0, bound_schedule=privet.schedules.Table((1.0, 0.6, 0.1)))
    training = setup(scheduled, x)
    norms = x.norm(dim=1, keepdim=True)
    for factor in (1.0, 0.6, 0.1):
        expected = (x * (factor * BOUND / norms).clamp(max=1)).sum(0)
        torch.testing.assert_close(released(training), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("deviation", "expected"), [("follows the bound", (1.0, 0.5, 0.75)), ("fixed", (1.0, 1.0, 3.0))])
def test_every_step_has_its_own_noise(deviation, expected):
    """Data of zeros: what is released is the noise; the deviations' ratio to σ·C is the schedules'."""
    made = privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(20), steps=3, clipping=privet.clipping.Flat(BOUND), delta=1e-5,
        bound_schedule=privet.schedules.Table((1.0, 0.5, 0.25)),
        noise=privet.noise.Gaussian(SIGMA, schedule=privet.schedules.Table((1.0, 1.0, 3.0)), deviation=deviation),
    )  # fmt: skip
    width = 5000
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], width) / width
    for _ in range(3):  # fresh randomness before failing
        training = setup(made, torch.zeros(N, width), probe=False)
        ratios = [float(released(training).square().mean()) / (factor * SIGMA * BOUND) ** 2 for factor in expected]
        if all(low < ratio < high for ratio in ratios):
            return
    pytest.fail(f"variances {ratios} outside [{low}, {high}]")


def test_a_resumed_run_goes_on_with_the_schedule(tmp_path):
    x = torch.randn(N, D)
    scheduled = plan(N, steps=4, multiplier=0.0, bound_schedule=privet.schedules.Table((1.0, 0.8, 0.3, 0.1)))
    first = setup(scheduled, x, tmp_path / "run")
    steps = iter(first)
    next(steps), next(steps)
    steps.close()
    first.close()
    model = Probe(D)
    resumed = privet.Training.resume(
        tmp_path / "run", model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), TensorDataset(x)
    )
    for factor in (0.3, 0.1):
        expected = (x * (factor * BOUND / x.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        torch.testing.assert_close(released(resumed), expected, rtol=1e-4, atol=1e-4)
