"""What a step costs over another: ratios of what is measured, with nothing said about how fast anything is."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import small
import torch
from torch.utils.data import TensorDataset

from privet import clipping
from privet.cost import peak_is_measurable
from privet.data import DataSet
from privet.noise import Gaussian
from privet.plan.mechanism import epochs
from privet_experiments.tasks import cost
from privet_experiments.tasks.metrics import OF_THE_RUN

DATA = DataSet("made up", TensorDataset(torch.zeros(64, 1, 8, 8), torch.zeros(64, dtype=torch.int64)), None, 10, "")


def asked(rule):
    """Return a job and a plan of the small recipe, with another rule."""
    recipe = small.recipe()
    settings = recipe.settings(recipe.arms[0])
    changed = replace(settings, plan={**settings.plan, "clipping": rule, "steps": epochs(1), "noise": Gaussian(1.5)})
    return SimpleNamespace(settings=settings), changed.plan_for(64)


@pytest.mark.parametrize("rule", [clipping.Flat(0.5), clipping.Projected(clipping.Flat(0.5), 10)], ids=["exact", "estimated"])
def test_every_measured_number_is_a_positive_ratio(rule):
    job, plan = asked(rule)
    assert OF_THE_RUN["noise_multiplier"](job, plan, DATA, "ghost") == 1.5
    assert OF_THE_RUN["time_ratio"](job, plan, DATA, "ghost") > 0


@pytest.mark.slow
@pytest.mark.skipif(not peak_is_measurable(), reason="this system does not tell peak memory")
def test_memory_is_the_peak_of_a_step_in_a_fresh_process():
    job, plan = asked(clipping.Flat(0.5))
    narrow, wide = (
        cost._peak_elsewhere(
            {**cost._described(job, plan, DATA, "ghost"), "model": "mlp", "options": {"width": width}}, private=True
        )
        for width in (16, 2048)
    )
    assert wide - narrow > 17  # MB: the gradient of 4.3 million parameters, at least
