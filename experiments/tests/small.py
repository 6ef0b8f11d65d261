"""A recipe that takes a second, on digits, and what the catalogue's data look like without them."""

from privet import clipping
from privet.data import catalogue
from privet.plan.mechanism import epochs
from privet.sampling import Poisson
from privet_experiments import Arm, Chart, Recipe

ENTRIES = {entry.name: entry for entry in catalogue()}


def recipe(**changes):
    settings = {
        "name": "small",
        "title": "A small experiment",
        "source": "nobody",
        "data": "digits",
        "task": "classification",
        "common": {
            "plan": {"sampling": Poisson(32), "steps": epochs(0.3), "delta": 1e-5},
            "epsilon": 4.0,
            "model": "logistic",
            "learning_rate": 0.7,
        },
        "arms": (
            Arm("flat", {"plan": {"clipping": clipping.Flat(0.6)}}, {"accuracy": 0.25}, {"bound": 0.6, "rule": "flat"}),
            Arm(
                "normalised", {"plan": {"clipping": clipping.Normalize(0.3)}, "momentum": 0.5}, at={"bound": 0.3, "rule": "other"}
            ),
        ),
        "metrics": ("accuracy", "negative_log_likelihood"),
        "seeds": 2,
        "points": 3,
        "charts": (
            Chart("arms", "arms", "accuracy"),
            Chart("sweep", "sweep", "accuracy", x="bound", series="rule"),
            Chart("curve", "curve", "negative_log_likelihood", x="epsilon"),
        ),
    }
    return Recipe(**settings | changes)
