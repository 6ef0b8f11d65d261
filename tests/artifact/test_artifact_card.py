"""The model card states public facts: what the model predicts, its guarantee, and what was measured on public data."""

import math
from dataclasses import replace

import pytest
from model_folders import AMOUNT, CLASSES, GUARANTEE, describe

from privet.artifact.card import PublicMetric, format_card
from privet.data.preprocessing import Pixels
from privet.tables import Classification, Number, Schema

TABLE = describe("mlp", (CLASSES.width,), CLASSES.task, CLASSES, None, "0" * 64)
PRICE = describe("regression-mlp", (AMOUNT.width,), AMOUNT.task, AMOUNT, None, "0" * 64)
DIGITS = replace(
    describe("cnn", (1, 16, 16), Classification(tuple("0123456789")), None, Pixels(white=16), "0" * 64), data_set="digits"
)
ACCURACY = PublicMetric("accuracy", "Accuracy", 0.9361, (0.9139, 0.9639), "360 public test examples")


def metadata(card):
    yaml = pytest.importorskip("yaml", reason="what hubs read the metadata with")
    start, front, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(front)


@pytest.mark.parametrize(
    ("description", "task"),
    [(TABLE, "tabular-classification"), (PRICE, "tabular-regression"), (DIGITS, "image-classification")],
    ids=["classes", "number", "images"],
)
def test_the_metadata_are_yaml_for_a_hub(description, task):
    found = metadata(format_card(description))
    assert (found["library_name"], found["pipeline_tag"]) == ("privet", task)
    assert "differential-privacy" in found["tags"]
    assert "license" not in found
    assert "model-index" not in found


def test_a_licence_and_results_are_in_the_metadata_only_if_given():
    found = metadata(format_card(DIGITS, [ACCURACY], "apache-2.0"))
    assert found["license"] == "apache-2.0"
    (result,) = found["model-index"][0]["results"]
    assert result["dataset"] == {"name": "digits: 360 public test examples", "type": "digits"}
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9361, "name": "Accuracy"}]


def test_results_of_several_sources_are_told_apart():
    released = PublicMetric("accuracy", "Accuracy", 0.9, None, "40 held-out examples")
    results = metadata(format_card(TABLE, [ACCURACY, released]))["model-index"][0]["results"]
    assert [result["dataset"]["name"] for result in results] == [
        "custom: 360 public test examples",
        "custom: 40 held-out examples",
    ]
    assert [result["metrics"][0]["value"] for result in results] == [0.9361, 0.9]


def test_every_section_is_there_and_the_owners_part_is_marked():
    card = format_card(TABLE)
    for title in ("Intended use", "Training data", "Privacy guarantee", "What an attacker can learn", "Evaluation"):
        assert f"\n## {title}\n" in card
    assert "**To be completed by the owner of the model:**" in card
    assert "No number was measured on public test data or released under the guarantee." in card
    assert "(3.0, 1e-05)-differential privacy for one example" in card
    assert "1,437 examples" in card
    assert "Little." in card


def test_results_have_one_interval_and_their_source():
    assert "| Accuracy | 0.9361 | 0.9139 to 0.9639 | 360 public test examples |" in format_card(DIGITS, [ACCURACY])


def test_columns_are_listed_with_what_fits():
    card = format_card(TABLE)
    assert "| age | number | a number from 17 to 90 |" in card
    assert "| work | category | one of private, state |" in card
    assert "| id |" not in card  # it is not used


def test_names_that_look_like_markup_stay_in_their_cell():
    schema = Schema(columns=(("a|b\nc", Number(0, 1)),), target="y", task=CLASSES.task)
    card = format_card(describe("mlp", (1,), schema.task, schema, None, "0" * 64))
    assert r"| a\|b c | number |" in card


def test_a_model_without_privacy_says_so():
    card = format_card(replace(TABLE, guarantee=replace(GUARANTEE, epsilon=math.inf, attacks="")))
    assert "NO PRIVACY (ε = ∞)" in card
    assert "It was trained with differential privacy" not in card
    assert "differential-privacy" not in metadata(card)["tags"]


def test_many_columns_are_cut_short():
    schema = Schema(columns=tuple((f"c{i}", Number(0, 1)) for i in range(100)), target="y", task=CLASSES.task)
    card = format_card(describe("mlp", (100,), schema.task, schema, None, "0" * 64))
    assert "| c59 |" in card
    assert "40 further columns are in model.json" in card
