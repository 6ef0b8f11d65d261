import json

import pytest
from asked import ask

from privet import schedules
from privet._utils.registry import PARTS
from privet.cli.parts import schedule
from privet.clipping import AdaptiveQuantile, Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet.sparsification import Random

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")


def run(capsys, *arguments):
    return ask(capsys, "train", *arguments)


def test_tables_are_parts_of_the_plan_and_everything_else_keeps_its_default(prepared, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'model = "mlp"\nsteps = 3\nepsilon = 6\n'
        'sparsification = {kind = "Random", final_rate = 0.5, seed = 7}\n'
        'bound_schedule = {kind = "Piecewise", values = [1.0, 20.0], until = [0.5]}\n'
        'sampling = {kind = "Poisson", batch_size = 90}\n'
        '[clipping]\nkind = "Layerwise"\nnoise = "per group"\n'
        'rules = [["hidden.*", {kind = "Flat", bound = 0.1}], [".*", {kind = "Flat", bound = 0.05}]]\n', encoding="utf-8",
    )  # fmt: skip
    setup, plan = prepared("--data", "digits", "--config", tmp_path / "mine.toml", "--quiet")
    assert plan.clipping == Layerwise(rules=((r"hidden.*", Flat(0.1)), (".*", Flat(0.05))), noise="per group")
    assert plan.sparsification == Random(0.5, seed=7)
    assert plan.bound_schedule == schedules.Piecewise((1.0, 20.0), (0.5,))
    assert plan.sampling.batch_size == 90
    assert 5.9 < plan.epsilon() <= 6
    assert not {"bound", "batch_size"} & setup.defaults.keys()
    assert "learning_rate" in setup.defaults


def test_a_noise_table_gives_the_noise(prepared, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'model = "logistic"\nsteps = 3\nclipping = {kind = "AdaptiveQuantile", rule = {kind = "Flat", bound = 1.0}, '
        'quantile = 0.3, learning_rate = 0.1}\nnoise = {kind = "Gaussian", multiplier = 4.0}\n', encoding="utf-8",
    )  # fmt: skip
    _, plan = prepared("--data", "digits", "--config", tmp_path / "mine.toml", "--quiet")
    assert plan.noise_multiplier == 4.0
    assert plan.clipping == AdaptiveQuantile(Flat(1.0), quantile=0.3, learning_rate=0.1)


@pytest.mark.parametrize(("text", "expected"), [
    ("constant", schedules.Constant()),
    ("linear", schedules.Linear()),
    ("linear:2000", schedules.Linear(over=2000)),
    ("geometric", schedules.Geometric()),
    ("geometric:0.01", schedules.Geometric(0.01)),
    ("piecewise:1@0.95,200", schedules.Piecewise((1.0, 200.0), (0.95,))),
    ("piecewise:1@0.2,2@0.5,4", schedules.Piecewise((1.0, 2.0, 4.0), (0.2, 0.5))),
])  # fmt: skip
def test_a_schedule_is_a_name_with_a_setting(text, expected):
    assert schedule(text) == expected


@pytest.mark.parametrize(
    "text", ["constant:2", "linear:x", "linear:0", "geometric:2", "piecewise", "piecewise:1", "piecewise:1@2,3", "cosine"]
)
def test_schedules_that_cannot_be_read_are_refused(text):
    with pytest.raises(InvalidArgumentError, match=r"^--bound-schedule is"):
        schedule(text)


def test_the_schema_has_every_option_and_every_kind(capsys):
    code, text, _ = run(capsys, "--config-schema")
    assert code == 0
    schema = json.loads(text)
    assert {"data", "epsilon", "batch-size", "clipping", "plan", "sparsification", "$schema"} <= schema["properties"].keys()
    assert not {"resume", "config", "out-of-nowhere"} & schema["properties"].keys()
    assert schema["$defs"].keys() == PARTS.keys()
    assert all(option.get("description") for name, option in schema["properties"].items() if name not in ("$schema", "plan"))


GOOD = [
    {"$schema": "privet.schema.json", "data": "digits", "epsilon": 3, "batch-size": 100, "clipping": "psac"},
    {"clipping": {"kind": "Layerwise", "rules": [["w.*", {"kind": "Flat", "bound": 1}], [".*", {"kind": "PSAC", "bound": 1}]]}},
    {"sparsification": {"kind": "Random", "final_rate": 0.7, "seed": 4}, "optimizer-options": {"betas": [0.8, 0.9]}},
    {"plan": {
        "examples": 1437, "steps": 4, "delta": 1e-5, "sampling": {"kind": "Poisson", "batch_size": 100},
        "clipping": {"kind": "Flat", "bound": 0.2}, "noise": {"kind": "Gaussian", "multiplier": 2.5}, "momentum": None,
    }},
]  # fmt: skip
BAD = [
    {"epsilonn": 3},
    {"epsilon": "three"},
    {"clipping": {"kind": "Flt", "bound": 1}},
    {"clipping": {"kind": "Flat", "bound": "1"}},
    {"clipping": {"kind": "Flat", "bound": 1, "colour": "red"}},
    {"clipping": {"kind": "Poisson", "batch_size": 3}},
    {"plan": {"examples": 1437}},
]


def test_the_schema_accepts_what_is_right_and_refuses_what_is_wrong(capsys):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(run(capsys, "--config-schema")[1])
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for document in GOOD:
        assert not list(validator.iter_errors(document)), document
    for document in BAD:
        assert list(validator.iter_errors(document)), document
