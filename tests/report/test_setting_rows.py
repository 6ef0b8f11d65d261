"""Names of the settings that nobody gave: those of a damaged file are none."""

from privet.report import setting_rows


def test_defaults_of_a_damaged_file_are_none():
    assert setting_rows.list_defaults({"defaults": 2147483648}) == frozenset()
    assert setting_rows.list_defaults({"defaults": [3, "learning_rate"]}) == {"learning rate"}
