"""Gradient flow as a task: each seed is a problem, and nothing is asked that only a training has."""

import pytest

from privet.errors import InvalidArgumentError
from privet_experiments import Arm, Extent, Recipe, reproduce, tangent_kernel
from privet_experiments.tasks.gradient_flow import FlowConfig, flow
from privet_experiments.tasks.job import Job, TaskExamples

RECIPE = Recipe(
    name="flow", title="Flow", source="nobody", data=None, task="gradient flow", common={},
    arms=(Arm("none", {"clipping": "no clipping"}, {"monotone_loss": 1.0}),), metrics=("monotone_loss", "final_loss"), seeds=1,
)  # fmt: skip


def job(kind, seed):
    metrics = ("symmetric_kernel", "monotone_loss", "smallest_real_part", "final_loss")
    return Job("", "gradient flow", metrics, 1, TaskExamples(None), 0, kind, FlowConfig(kind), None, seed)


def test_a_run_says_of_its_problem_what_its_flow_shows():
    expected = tangent_kernel.flow_of("small bound, layerwise", tangent_kernel.problems()[1])
    found = flow(job("small bound, layerwise", 2), lambda steps: None).metrics
    assert found["final_loss"] == expected.losses[-1] / expected.losses[0] > 0.1
    assert found["smallest_real_part"] == min(kernel.smallest_real for kernel in expected.kernels) < 0
    assert (found["symmetric_kernel"], found["monotone_loss"]) == (0.0, float(expected.monotone))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [name for name, kind in tangent_kernel.KINDS.items() if kind.slower > 1 and "flat" in name])
def test_a_rule_with_one_positive_weight_an_example_keeps_the_eigenvalues_positive(kind):
    (problem,) = [problem for problem in tangent_kernel.problems() if problem.name == "opposed"]
    found = tangent_kernel.flow_of(kind, problem)
    assert tangent_kernel.PROPERTIES["positive in eigenvalues"](found)
    assert tangent_kernel.PROPERTIES["loss to zero"](found)


def test_a_table_without_data_has_no_columns_of_a_training(tmp_path):
    reproduce(RECIPE, tmp_path)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| none | 1/1 | yes | " in table
    assert not any(word in table for word in ("ε", "learning rate", "examples of"))


@pytest.mark.parametrize(
    ("extent", "message"),
    [({"examples": 5}, "examples and folder"), ({"epochs": 1.0}, "epochs is 1.0"), ({"seeds": 4}, "at most 3")],
)
def test_what_has_no_meaning_there_is_refused(tmp_path, extent, message):
    with pytest.raises(InvalidArgumentError, match=message):
        reproduce(RECIPE, tmp_path, Extent(**extent))


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidArgumentError, match="clipping is 'tiny'"):
        FlowConfig("tiny")
