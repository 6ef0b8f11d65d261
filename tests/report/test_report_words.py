import math

import pytest

from privet.report import numbers, setting_rows
from privet.report.page import to_markup


@pytest.mark.parametrize(("value", "shown"), [
    (2.999, "2.999"), (2.9990001, "3.000"), (3.0, "3.0"), (12.34501, "12.35"), (0.00123451, "0.001235"), (0.0, "0.0"),
    (math.inf, "∞"), (0.00001, "10⁻⁵"),
])  # fmt: skip
def test_epsilon_is_never_rounded_down(value, shown):
    assert numbers.format_epsilon(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(1e-5, "10⁻⁵"), (2.5e-6, "2.5 × 10⁻⁶"), (1 / 4, "2.5 × 10⁻¹"), (0.0, "0")])
def test_delta_is_shown_exactly(value, shown):
    assert numbers.format_power_of_ten(value) == shown


@pytest.mark.parametrize(("value", "shown"), [
    (60000, "60,000"), (128.0, "128"), (1.401659574547237, "1.40166"), (1e-5, "10⁻⁵"), (0.0, "0"), (True, "yes"),
    (None, "none"), ("x", "x"), ([1, "a"], "1, a"), ([], "none"),
])  # fmt: skip
def test_setting_is_shown_with_at_most_six_digits(value, shown):
    assert numbers.format_value(value) == shown


def test_settings_are_flattened_with_kinds_as_values_usual_names_and_without_what_is_off():
    off = {"format": 1, "momentum": None, "average": False, "options": {}, "views": [], "folder": ""}
    nested = {"noise": {"kind": "Gaussian", "multiplier": 1.1}, "groups": [{"bound": 1}, {"bound": 2}], "kind": "x"} | off
    assert list(setting_rows.flatten(nested)) == [
        ("noise", "Gaussian"),
        ("noise multiplier", "1.1"),
        ("groups · 1 · bound", "1"),
        ("groups · 2 · bound", "2"),
        ("kind", "x"),
    ]


def test_settings_that_nobody_gave_say_so_and_those_of_a_damaged_file_are_none():
    for damaged in (2147483648, [3, "learning_rate"], None, "learning_rate"):
        assert setting_rows.list_defaults({"defaults": damaged}) == frozenset()
    setup = {"learning_rate": 0.5, "seed": 0, "defaults": {"learning_rate": 0.5, "bound": 1.0}}
    defaults = setting_rows.list_defaults(setup)
    assert dict(setting_rows.flatten({"clipping": {"kind": "Flat", "bound": 1.0}}, defaults))["clipping bound"] == "1 (default)"
    assert dict(setting_rows.flatten(setup, defaults))["learning rate"] == "0.5 (default)"
    assert dict(setting_rows.flatten(setup, defaults))["seed"] == "0"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.68, "0.7 s"), (2.0, "2.0 s"), (59.4, "59 s"), (120.0, "2 min"), (3599.9, "1 h"), (7500, "2 h 5 min")],
)
def test_times_have_their_two_largest_units(seconds, shown):
    assert numbers.format_duration(seconds) == shown


@pytest.mark.parametrize(("words", "markup"), [
    ("one\ntwo\n\nthree", "<p>one two</p>\n<p>three</p>"),
    ("list:\n- a\n  b\n- c\n\nend", "<p>list:</p>\n<ul><li>a b</li><li>c</li></ul>\n<p>end</p>"),
    ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
    ("## head\ntext", "<h3>head</h3>\n<p>text</p>"),
    ("`a<b` and **c**", "<p><code>a&lt;b</code> and <strong>c</strong></p>"),
    ("-1 is a number, * is not", "<p>-1 is a number, * is not</p>"),
    ("", ""),
])  # fmt: skip
def test_prose_keeps_paragraphs_and_lists(words, markup):
    assert to_markup(words) == markup
