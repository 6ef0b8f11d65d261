"""Plans, configurations and recipes from damaged files are accepted or refused by name, without other errors or side effects."""

import json
from functools import partial

import pytest
from fuzzing import altered, command, damaged, fuzzed
from hypothesis import given
from hypothesis import strategies as st

import plans
import privet
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet_experiments.recipe import read

a_plan = partial(
    plans.plan, examples=40, sampling=privet.sampling.Poisson(5.0), steps=3, delta=1e-3, noise=privet.noise.Gaussian(1.7)
)
FLAT = privet.clipping.Flat(0.7)
PLANS = [
    a_plan(),
    a_plan(clipping=privet.clipping.Layerwise({"a.*": FLAT, ".*": FLAT}, noise=(1.0, 2.0))),
    a_plan(clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Layerwise(FLAT, by="module"), quantile=0.7)),
    a_plan(clipping=privet.clipping.Projected(FLAT, 30)),
    a_plan(
        clipping=privet.clipping.PSASC(0.7, scale=0.3), bound_schedule=privet.schedules.Geometric(),
        sampling=privet.sampling.FixedSize(5), adjacency="replace-one",
    ),
    a_plan(
        noise=privet.noise.Gaussian(1.7, schedule=privet.schedules.Table((1.0, 1.5, 2.0)), deviation="fixed"),
        bound_schedule=privet.schedules.Linear(), sampling=privet.sampling.BallsInBins(5.0),
        sparsification=privet.sparsification.Random(0.5), momentum=privet.momentum.InnerOuter(0.9, 0.1, 2),
    ),
    a_plan(sampling=privet.sampling.FullBatch(), momentum=privet.momentum.PerExample(0.5), unit="one user"),
]  # fmt: skip
RECIPE = {
    "title": "t", "source": "s", "data": "digits", "task": "classification", "metrics": ["accuracy"], "seeds": 2,
    "common": {
        "model": "mlp", "learning_rate": 0.5, "epsilon": 3.0,
        "plan": {k: v for k, v in PLANS[0].to_dict().items() if v is not None and k not in ("format", "examples")},
    },
    "arms": [
        {"name": "one", "settings": {"plan": {"delta": 1e-4}}, "reported": {"accuracy": 0.9}, "at": {"x": 1.0}},
        {"name": "two", "settings": {"momentum": 0.5}, "at": {"x": 2.0}},
    ],
    "charts": [{"name": "c", "kind": "sweep", "metric": "accuracy", "x": "x"}],
}  # fmt: skip
OPTIONS = {
    "data": "nowhere.npz", "classes": "a,b", "test": "nowhere.npz",
    "epsilon": 3.0, "steps": 2, "batch-size": 5, "clipping": "flat", "bound": 0.3, "quiet": True,
    "optimizer-options": {"weight_decay": 0.1}, "seed": 1, "model": "mlp",
}  # fmt: skip


def text(value):
    """JSON, also of what is no Unicode: surrogates are escaped."""
    return json.dumps(value)


def toml(value):
    """TOML on one line; what TOML has no word for is left to be refused."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case float():
            return str(value)
    return json.dumps(value)


def toml_document(value):
    if not isinstance(value, dict):
        return toml(value)
    return "".join(f"{json.dumps(str(key))} = {toml(item)}\n" for key, item in value.items())


def taken_or_refused(make):
    """What was made, None if it was refused in one line."""
    try:
        return make()
    except InvalidArgumentError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


@fuzzed(40)
@given(st.sampled_from(PLANS).flatmap(lambda plan: altered(plan.to_dict())))
def test_a_plan_with_other_fields_is_a_plan_or_refused(value):
    plan = taken_or_refused(lambda: Plan.from_json(text(value)))
    if plan is not None:
        assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()


@fuzzed(10)
@given(damaged(PLANS[1].to_json(indent=2).encode()))
def test_a_damaged_plan_file_is_audited_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_bytes(content)
    # The rule goes by patterns, so that there is no audit without the model's names: whatever is taken is refused then.
    assert command("audit", "--plan", path, "--observations", "10000", "--quiet") == 2
    assert [one.name for one in path.parent.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(("ending", "written"), [("toml", toml_document), ("json", text)])
def test_options_from_a_file_are_taken_or_refused(tmp_path_factory, monkeypatch, ending, written):
    @fuzzed(12)
    @given(st.one_of(
        altered(OPTIONS).map(lambda value: written(value).encode("utf-8", "surrogatepass")),
        altered({**OPTIONS, "plan": PLANS[0].to_dict()}).map(lambda value: written(value).encode("utf-8", "surrogatepass")),
        damaged(written(OPTIONS).encode()),
    ))  # fmt: skip
    def hold(content):
        folder = tmp_path_factory.mktemp("config")
        monkeypatch.chdir(folder)
        (folder / f"config.{ending}").write_bytes(content)
        assert command("train", "--config", f"config.{ending}", "--data", "nowhere.npz") == 2  # if only for its data
        assert [one.name for one in folder.iterdir()] == [f"config.{ending}"]

    hold()


@fuzzed(40)
@given(st.one_of(
    altered(RECIPE).map(lambda value: toml_document(value).encode("utf-8", "surrogatepass")),
    damaged(toml_document(RECIPE).encode()),
))  # fmt: skip
def test_a_recipe_is_one_or_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("recipe") / "mine.toml"
    path.write_bytes(content)
    recipe = taken_or_refused(lambda: read(path))
    if recipe is not None:
        assert recipe.arms


def test_the_undamaged_files_are_valid(tmp_path):
    for plan in PLANS:
        assert Plan.from_json(text(plan.to_dict())) == plan
    (tmp_path / "mine.toml").write_text(toml_document(RECIPE), encoding="utf-8")
    assert [arm.name for arm in read(tmp_path / "mine.toml").arms] == ["one", "two"]
