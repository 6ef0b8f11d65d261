"""Names of the settings that nobody gave: those of a damaged file are none."""

from privet.report import setting_rows


def test_defaults_of_a_damaged_file_are_none():
    assert setting_rows.list_defaults({"defaults": {"learning_rate": 0.5}}) == {"learning rate"}
    for damaged in (2147483648, [3, "learning_rate"], None, "learning_rate"):
        assert setting_rows.list_defaults({"defaults": damaged}) == frozenset()
