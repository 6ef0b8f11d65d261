"""Time of a query for ε: by Privet, by dp-accounting as its documentation shows, and by Opacus' PRV accountant.

    python -m benchmarks.accounting

Seconds are processor time of one thread, the best of several runs. Privet starts with empty caches unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

from privet.accounting import BallsInBinsEvent, Event, noise_multiplier, pld, rdp
from privet.accounting.guarantee.verification import dp_accounting_epsilon
from privet.accounting.pld import (
    composition,
    decay,
    discrete_loss,
    event_losses,
    grid_selection,
    random_allocation,
    sampled_gaussian,
    transforms,
)
from privet.accounting.queries import composed_epsilon, composed_multiplier

DELTA = 1e-5
RATE, MULTIPLIER, STEPS, OFTEN = 0.01, 1.0, 10_000, 8
# Distinct multipliers that the others handle in seconds; their cost grows in proportion.
FEW, MANY = 20, 1000
# Random plans, the same in every run.
PLANS, SEED, MOST_EVENTS = 200, 0, 4

Answer = Callable[[], float]


def timed(ask: Answer, times: int, cold: bool = True) -> tuple[float, float]:
    """Return the answer and the least processor time; Privet starts with empty caches if `cold`."""
    found, best = 0.0, float("inf")
    for _ in range(times):
        if cold:
            forget()
        start = time.process_time()
        found = ask()
        best = min(best, time.process_time() - start)
    return found, best


def forget() -> None:
    """Empty all caches."""
    pld.accountant._COMPOSER = composition.Composer(event_losses.losses)
    pld_parts = (
        composition, decay, discrete_loss, event_losses, grid_selection, random_allocation, sampled_gaussian, transforms
    )  # fmt: skip
    for module in (*pld_parts, pld.accountant, rdp):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def ours(events: list[Event] | list[BallsInBinsEvent], delta: float = DELTA) -> Answer:
    return lambda: composed_epsilon(events, delta=delta)


def dp_accountings(history: list[tuple[float, float, int]], width: float = 1e-4, delta: float = DELTA) -> Answer:
    def ask() -> float:
        accountant = PLDAccountant(value_discretization_interval=width)
        for sigma, q, steps in history:
            accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)), steps)
        return float(accountant.get_epsilon(delta))

    return ask


def opacus(history: list[tuple[float, float, int]]) -> Answer:
    from opacus.accountants import PRVAccountant

    def ask() -> float:
        accountant = PRVAccountant()
        accountant.history = history
        return float(accountant.get_epsilon(DELTA))

    return ask


def calibrated() -> float:
    return noise_multiplier(epsilon=3.0, sampling_rate=RATE, steps=STEPS, delta=DELTA)


def calibrated_schedule() -> float:
    return composed_multiplier(
        lambda sigma: [Event(RATE, sigma * float(factor), 10) for factor in np.geomspace(0.8, 1.6, MANY)],
        epsilon=3.0,
        delta=DELTA,
    )


def dp_calibrated() -> float:
    found = dp_accounting.calibrate_dp_mechanism(
        PLDAccountant,
        lambda sigma: dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(sigma)), STEPS
        ),
        target_epsilon=3.0,
        target_delta=DELTA,
    )
    return float(found)


def opacus_calibrated() -> float:
    from opacus.accountants.utils import get_noise_multiplier

    found = get_noise_multiplier(target_epsilon=3.0, target_delta=DELTA, sample_rate=RATE, steps=STEPS, accountant="prv")
    return float(found)


def every_step() -> float:
    """Return the mean seconds of a query for ε after each step of a training."""
    forget()
    start = time.process_time()
    for step in range(1, STEPS + 1):
        composed_epsilon([Event(RATE, MULTIPLIER, step)], delta=DELTA)
    return (time.process_time() - start) / STEPS


def random_plans() -> list[tuple[list[Event], float]]:
    """Return plans of one to four kinds of steps, and δ, that dp-accounting covers too."""
    draw = random.Random(SEED)
    return [
        (
            [
                Event(10 ** draw.uniform(-4, -0.3), draw.uniform(0.6, 6.0), draw.randint(1, 1500))
                for _ in range(draw.randint(1, MOST_EVENTS))
            ],
            10 ** draw.uniform(-7, -3),
        )
        for _ in range(PLANS)
    ]


def show_random_plans(times: int) -> None:
    """Print the distribution of times over random plans, and the first plans' difference from dp-accounting's ε."""
    plans = random_plans()
    answers = [timed(ours(events, delta), times) for events, delta in plans]
    seconds = sorted(spent for _, spent in answers)
    print(
        f"{f'{PLANS} random plans of up to {MOST_EVENTS} events':56} median {1e3 * statistics.median(seconds):.1f} ms, 90 % "
        f"{1e3 * seconds[int(0.9 * PLANS)]:.1f} ms, most {1e3 * seconds[-1]:.1f} ms"
    )
    ratios, theirs = [], []
    for (events, delta), (found, _) in list(zip(plans, answers, strict=True))[:FEW]:
        history = [(event.noise_multiplier, event.sampling_rate, event.count) for event in events]
        theirs.append(timed(dp_accountings(history, delta=delta), 1)[1])
        # Its usual grid is too coarse for the smallest ε.
        ratios.append(found / dp_accounting_epsilon(events, delta=delta) - 1)
    print(
        f"{f'the first {FEW} of them by dp-accounting':56} median {1e3 * statistics.median(theirs):.0f} ms; ours is "
        f"{min(ratios):+.1e} to {max(ratios):+.1e} from its epsilon on a finer grid"
    )


def row(name: str, mine: tuple[float, float], others: dict[str, tuple[float, float]]) -> None:
    text = f"{name:56} {mine[0]:9.5f} {mine[1]:9.5f} s"
    for label, (found, seconds) in others.items():
        text += f"   {label} {found:9.5f} {seconds:8.3f} s ({seconds / mine[1]:6.0f}x)"
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    logging.disable(logging.WARNING)
    with suppress(OSError):
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    once = [(MULTIPLIER, RATE, STEPS)]
    row(
        f"epsilon, q={RATE} sigma={MULTIPLIER} T={STEPS}",
        timed(ours([Event(RATE, MULTIPLIER, STEPS)]), OFTEN * times),  # milliseconds: on a busy machine, few runs are undisturbed
        {
            "dp-accounting": timed(dp_accountings(once), times),
            "at 1e-3": timed(dp_accountings(once, 1e-3), times),
            "PRV": timed(opacus(once), times),
        },
    )
    row("epsilon of one release", timed(ours([Event(RATE, MULTIPLIER)]), OFTEN * times), {
        "dp-accounting": timed(dp_accountings([(MULTIPLIER, RATE, 1)]), times)
    })  # fmt: skip
    show_random_plans(times)
    row(
        "noise for epsilon=3",
        timed(calibrated, times),
        {"dp-accounting": timed(dp_calibrated, 1), "PRV": timed(opacus_calibrated, 1)},
    )
    few = [(float(sigma), RATE, 10) for sigma in np.geomspace(0.8, 1.6, FEW)]
    row(
        f"{FEW} distinct multipliers",
        timed(ours([Event(q, sigma, steps) for sigma, q, steps in few]), times),
        {"dp-accounting": timed(dp_accountings(few, 1e-3), 1), "PRV": timed(opacus(few), 1)},
    )
    many = [Event(RATE, float(sigma), 10) for sigma in np.geomspace(0.8, 1.6, MANY)]
    row(f"{MANY} distinct multipliers", timed(ours(many), 1), {})
    row(f"noise for epsilon=3 with {MANY} distinct ones", timed(calibrated_schedule, 1), {})
    row("one step more of them", timed(ours([*many, Event(RATE, 1.0)]), 1, cold=False), {})
    most = [Event(RATE, float(sigma)) for sigma in np.geomspace(0.8, 1.6, 10 * MANY)]
    row(f"{10 * MANY} distinct multipliers", timed(ours(most), 1), {})
    allocated = ours([BallsInBinsEvent(0.5, steps=1000)], 1e-6)
    row("random allocation, 1,000 steps, sigma=0.5, delta=1e-6", timed(allocated, times), {})
    print(f"{'epsilon after each of 10,000 steps':56} {'':9} {every_step():9.6f} s a step")


if __name__ == "__main__":
    main()
