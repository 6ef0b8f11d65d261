"""A recipe is data: arms merge into what they share, nothing unknown passes, and the catalogue's are complete."""

from pathlib import Path

import pytest
import small
import torch

from privet import models
from privet.clipping import AdaptiveQuantile, Flat
from privet.errors import InvalidArgumentError
from privet.models import networks
from privet.plan.mechanism import Epochs
from privet.runs.config import OPTIMIZERS
from privet.schedules import ToZero
from privet_experiments import RECIPES, Arm, ArmConfig, Chart, Claim, PublishedNumber, find, read
from privet_experiments.features.catalogue import NORMALISED
from privet_experiments.recipe import CHARTS
from privet_experiments.tasks.federated.user_config import UserConfig
from privet_experiments.tasks.metrics import VERDICTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "recipes.md"
TRAINING = [recipe for recipe in RECIPES.values() if recipe.data is not None]
ARMS = [pytest.param(recipe, arm, id=f"{recipe.name}: {arm.name}") for recipe in TRAINING for arm in recipe.arms]
OF_USERS = [each for each in ARMS if isinstance(each.values[0].settings(each.values[1]), UserConfig)]
OF_NETWORKS = [each for each in ARMS if each not in OF_USERS]
# Features → the shape of one example with them.
SHAPES = {
    "scattering": (81, 7, 7), "efficientnet": (1280,), "efficientnet before its last block": (192, 3, 3), "minilm": (384,),
    "minilm tokens": (48,), "minilm before its last layer": (48, 384), **dict.fromkeys(NORMALISED, (81, 7, 7)),
}  # fmt: skip
PRETRAINED = ("efficientnet-last-block", "minilm-last-layer", "minilm-lora")
TOML = """
title = "Bounds"
source = "mine"
data = "digits"
task = "classification"
metrics = ["accuracy"]

[common]
model = "mlp"
model_options = { width = 16 }
learning_rate = 0.5
epsilon = 3.0

[common.plan]
sampling = { kind = "Poisson", batch_size = 64 }
steps = { kind = "Epochs", epochs = 2.0 }
delta = 1e-5

[[arms]]
name = "small"
settings = { plan = { clipping = { kind = "Flat", bound = 0.2 } } }
reported = { accuracy = 0.9 }
at = { bound = 0.2 }

[[arms]]
name = "large"
settings = { learning_rate = 0.05, plan = { clipping = { kind = "Flat", bound = 2.0 } } }
at = { bound = 2.0 }

[[charts]]
name = "bounds"
kind = "sweep"
metric = "accuracy"
x = "bound"
logarithmic = true

[[claims]]
statement = "The large bound is better"
metric = "accuracy"
arm = ["large", "small"]
direction = "higher"
baseline = "small"
size = 0.01

[[published]]
value = 0.95
method = "a network"
epsilon = 2.5
source = "somebody"
arm = "large"
"""


def test_an_arm_adds_to_what_is_shared_and_to_its_plan_field_by_field():
    recipe = small.recipe()
    settings = recipe.settings(recipe.arms[1])
    assert (settings.momentum, settings.learning_rate) == (0.5, 0.7)
    plan = settings.plan_for(1437)
    assert (plan.clipping.bound, plan.sampling.batch_size, plan.delta, plan.examples) == (0.3, 32, 1e-5, 1437)


def test_a_batch_is_at_most_all_examples_and_a_length_can_be_replaced():
    recipe = small.recipe()
    settings = recipe.settings(recipe.arms[0]).lasting(7.0)
    assert settings.plan_for(20).sampling.batch_size == 20
    assert settings.plan_for(20).steps == Epochs(7.0)
    assert recipe.settings(recipe.arms[0]).lasting(None).plan_for(1437).steps == Epochs(0.3)


def test_a_file_says_the_same_as_python(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text(TOML, encoding="utf-8")
    recipe = read(path)
    assert recipe == find(str(path))
    assert (recipe.name, [arm.name for arm in recipe.arms]) == ("bounds", ["small", "large"])
    assert recipe.settings(recipe.arms[1]).plan_for(1437).clipping == Flat(2.0)
    assert recipe.charts == (Chart("bounds", "sweep", "accuracy", x="bound", logarithmic=True),)
    statement = "The large bound is better"
    assert recipe.claims == (Claim(statement, "accuracy", ("large", "small"), "higher", "small", size=0.01),)
    assert recipe.published == (PublishedNumber(0.95, "a network", 2.5, "somebody", "large"),)


BAD_FILES = {
    "no TOML": ("= 3", "recipe is .* it must be a file that can be read: TOML"),
    "unknown field": (
        'colour = "red"\n' + TOML,
        r"^colour is no field: recipe is \['colour'\]; it must be made of the fields arms,",
    ),
    "unknown field of an arm": (TOML.replace("reported =", "report ="), r"arms is \['report'\]"),
    "unknown setting": (TOML.replace("epsilon = 3.0", "epsilons = 3.0"), r"the settings of 'small' is \['epsilons'\]"),
    "missing field": (TOML.replace('source = "mine"', ""), "recipe is .* it must be complete.*source"),
    "unknown model": (TOML.replace('"mlp"', '"resnet"'), "model is 'resnet'"),
    "unknown task": (TOML.replace('"classification"', '"clustering"'), "task is 'clustering'"),
    "metric nobody has": (TOML.replace('metric = "accuracy"', 'metric = "brier"'), "chart.metric is 'brier'"),
    "same arms": (TOML.replace('"large"', '"small"'), "arms is .* of different names"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=message):
        read(path)


@pytest.mark.parametrize("name", ["psasc-cifar", "nowhere.toml"])
def test_a_recipe_that_is_not_there_is_answered(name):
    with pytest.raises(InvalidArgumentError, match=r"one of psasc-mnist, .*|a file that can be read"):
        find(name)


@pytest.mark.parametrize(("changes", "message"), [
    ({"seeds": 0}, "seeds is 0"),
    ({"points": 0}, "points is 0"),
    ({"examples": 1}, "examples is 1"),
    ({"arms": ()}, "at least one of each"),
    ({"metrics": ()}, "at least one of each"),
    ({"trial": 1.5}, r"trial is 1.5; it must be in \(0, 1\]"),
    ({"metrics": ("negative_log_likelihood",), "charts": (), "tuned": True}, "led by 'accuracy'"),
    ({"arms": (Arm("one", {"features": "wavelets"}),)}, "features is 'wavelets'"),
    ({"arms": (Arm("one", {"epsilon": -1.0}),)}, "epsilon is -1"),
    ({"arms": (Arm("one", {"optimizer": "lion"}),)}, "optimizer is 'lion'"),
    ({"data": None}, "data is missing"),
    ({"studies": ("colours",)}, "study is 'colours'"),
    ({"studies": ("similarity",), "study_epochs": 0.0}, "study_epochs is 0"),
    ({"studies": ("similarity",), "charts": (Chart("one", "trace", "mean_weight"),)}, "chart.metric is 'mean_weight'"),
    ({"charts": (Chart("one", "histogram", "noised_similarity"),)}, "chart.metric is 'noised_similarity'"),
    (
        {"studies": ("norms",), "arms": (Arm("one", {"plan": {"clipping": AdaptiveQuantile(Flat(0.5), quantile=0.5)}}),)},
        "studies is 'one'; it must be of arms whose rule does not adapt",
    ),
    (
        {"metrics": ("accuracy", "time_ratio"), "charts": (Chart("one", "curve", "time_ratio"),)},
        "chart.metric is 'time_ratio'",
    ),
    ({"new_studies": ("colours",)}, "study is 'colours'"),
    (
        {"studies": ("norms",), "charts": (Chart("one", "histogram", "norm", against="round"),)},
        "chart.against is 'round'",
    ),
    ({"arms": (Arm("one", {"rate_schedule": 0.5}),)}, "rate_schedule is 0.5"),
    ({"arms": (Arm("one", {"rate_schedule": {"kind": "Cosine"}}),)}, "rate_schedule.kind is 'Cosine'"),
])  # fmt: skip
def test_impossible_values_are_refused_when_the_recipe_is_made(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        small.recipe(**changes)


def test_a_chart_of_another_kind_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"chart.kind is 'pie'"):
        Chart("one", "pie", "accuracy")


@pytest.mark.parametrize(("recipe", "arm"), OF_USERS)
def test_every_arm_on_users_has_a_plan(recipe, arm):
    settings = recipe.settings(arm)
    plan = settings.plan_for(recipe.examples or 500)
    assert plan.total_steps == settings.steps(plan.examples)
    assert plan.noise.multiplier is not None
    assert (settings.epsilon is None) == (plan.noise.multiplier == 0)
    assert (plan.unit == "one example") == (settings.method == "examples")


@pytest.mark.parametrize(("recipe", "arm"), OF_NETWORKS)
def test_every_arm_of_the_catalogue_has_a_plan_and_a_network_that_fit_its_data(recipe, arm):
    entry, settings = small.ENTRIES[recipe.data], recipe.settings(arm)
    plan = settings.plan_for(recipe.examples or entry.train)
    assert plan.total_steps > 0
    assert (settings.epsilon is None) == (plan.noise.multiplier is not None), "either ε or the noise is given, and not both"
    shape = SHAPES.get(settings.features, entry.input_shape)
    assert settings.optimizer in OPTIMIZERS
    if settings.model in PRETRAINED:  # whose weights need not be here
        assert networks._find(settings.model).fits(shape)
        return
    network = models.build(settings.model, shape, entry.classes or 1, **settings.model_options)
    assert network(torch.zeros(2, *shape)).shape == (2, entry.classes or 1)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_chart_of_the_catalogue_shows_arms(recipe):
    assert recipe.charts
    for chart in recipe.charts:
        assert chart.kind in CHARTS
        assert sum(map(chart.shows, recipe.arms)) >= (1 if chart.kind == "curve" else min(2, len(recipe.arms))), chart.name
        if chart.against is not None:
            assert chart.shows(next(arm for arm in recipe.arms if arm.name == chart.against))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_documentation_says_what_it_costs(recipe):
    (row,) = [
        line
        for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{recipe.name}` | {recipe.title}")
    ]
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[3].split()[0], cells[4]) == (str(recipe.runs), f"{recipe.hours:g}")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_reported_numbers_are_in_the_unit_of_their_metric(recipe):
    for arm in recipe.arms:
        for metric, number in arm.reported.items():
            assert number in (0, 1) if metric in VERDICTS else 0 < number < 1, arm.name


def test_the_description_of_settings_leaves_nothing_out_but_the_rate():
    settings = ArmConfig(plan={"clipping": Flat(0.5)}, model="mlp", learning_rate=0.3, average="ema")
    assert settings.described() == {
        "plan": {"clipping": {"kind": "Flat", "bound": 0.5}}, "model": "mlp", "epsilon": None, "model_options": {},
        "features": "as they are", "optimizer": "sgd", "momentum": 0.0, "average": "ema",
    }  # fmt: skip


def test_a_rate_schedule_is_part_of_the_description_whichever_way_it_was_given():
    common = {"plan": {"clipping": Flat(0.5)}, "model": "mlp", "learning_rate": 0.3}
    settings = [ArmConfig(**common, rate_schedule=schedule) for schedule in (ToZero(), {"kind": "ToZero"})]
    assert [one.described()["rate_schedule"] for one in settings] == [{"kind": "ToZero"}] * 2
    assert "rate_schedule" not in ArmConfig(**common).described(), "runs from before there were schedules would be orphans"


def test_a_curve_has_points_by_default():
    """A single evaluation at the end would be an empty figure."""
    assert small.recipe(points=None).evaluations >= 10
    assert small.recipe(points=None, charts=()).evaluations == 1
    assert small.recipe().evaluations == 3
    assert all(recipe.points for recipe in RECIPES.values() if any(chart.kind == "curve" for chart in recipe.charts))
