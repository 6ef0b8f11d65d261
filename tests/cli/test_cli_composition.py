import pytest
from asked import ask, succeed

from privet.accounting import Event, LaplaceEvent, edgeworth, tradeoff
from privet.accounting.queries import composed_epsilon

EVENTS = [Event(0.01, 1.1, 300), LaplaceEvent(1.0, 20.0)]


def values(capsys, *words):
    return succeed(capsys, "epsilon", *words)


def test_epsilon_rho_and_the_trade_off_curve(capsys, inputs):
    found = values(capsys, "--composition", inputs / "mixture.toml")
    assert found["epsilon"] == composed_epsilon(EVENTS, delta=1e-6)
    assert (found["delta"], found["adjacency"], found["releases"]) == (1e-6, "add-remove", 301)
    assert found["rho"] == pytest.approx(300 / 1.1**2 / 2 + 0.05**2 / 2)
    curve = found["trade_off"]
    privacy = tradeoff.profile(EVENTS, delta=1e-6)
    expected = tradeoff.false_negative_rate(privacy, curve["false_positive_rate"])
    assert curve["false_negative_rate"] == pytest.approx(expected.tolist())
    assert curve["false_positive_rate"][0] == 0.0
    assert curve["false_positive_rate"][-1] == 1.0
    said = ask(capsys, "epsilon", "--composition", inputs / "mixture.toml")[1]
    assert "301 releases" in said
    assert "ρ = " in said


def test_options_override_the_file(capsys, inputs):
    found = values(capsys, "--composition", inputs / "mixture.toml", "--delta", "1e-3", "--adjacency", "zero-out")
    assert (found["delta"], found["adjacency"]) == (1e-3, "zero-out")
    assert found["epsilon"] == composed_epsilon(EVENTS, delta=1e-3, adjacency="zero-out")
    by_rdp = values(capsys, "--composition", inputs / "mixture.toml", "--accountant", "rdp")
    assert by_rdp["epsilon"] > composed_epsilon(EVENTS, delta=1e-6)


def test_accountants_that_cover_all_releases_are_compared(capsys, inputs):
    rows = values(capsys, "--composition", inputs / "mixture.toml", "--compare")["comparison"]
    assert [row["accountant"] for row in rows] == ["pld", "rdp", "moments"]
    rows = values(capsys, "--composition", inputs / "sampled.json", "--delta", "0.05", "--compare")["comparison"]
    assert [row["accountant"] for row in rows][-2:] == ["edgeworth", "gdp"]


def test_the_edgeworth_accountant_comes_with_its_interval(capsys, inputs):
    asked = ("--composition", inputs / "sampled.json", "--delta", "0.05", "--accountant", "edgeworth")
    found = values(capsys, *asked)
    low, high = found["interval"]
    assert (low, high) == pytest.approx(edgeworth.interval([Event(0.01, 5.0, 10**5)], 0.05, "add-remove"))
    assert low < found["epsilon"] < high
    assert "too small" in found["direction"]
    assert "finite-sample" in ask(capsys, "epsilon", *asked)[1]


def test_the_curve_is_drawn(capsys, inputs):
    found = values(capsys, "--composition", inputs / "mixture.toml", "--figure", inputs / "curve.svg")
    drawn = (inputs / "curve.svg").read_text()
    assert found["figure"] == str(inputs / "curve.svg")
    assert "false negative rate" in drawn
    assert drawn.startswith("<?xml")
