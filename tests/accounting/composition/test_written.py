import json

import pytest
from made import MIXTURE

from privet.accounting import (
    BallsInBinsEvent,
    Composition,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    ShuffledEvent,
    TruncatedPoissonEvent,
    read_composition,
)
from privet.accounting.composition.written import MECHANISMS, parse_composition
from privet.accounting.queries import composed_delta, composed_epsilon
from privet.errors import InvalidArgumentError

WRITTEN = Composition((Event(0.01, 1.1, 300), LaplaceEvent(1.0, 20.0)), "zero-out", 1e-6)


def test_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "mixture.toml").write_text(f'adjacency = "zero-out"\n{MIXTURE}')
    content = {
        "delta": 1e-6,
        "adjacency": "zero-out",
        "releases": [
            {"mechanism": "gaussian", "noise_multiplier": 1.1, "sampling_rate": 0.01, "count": 300},
            {"mechanism": "laplace", "noise_multiplier": 20},
        ],
    }
    (tmp_path / "mixture.json").write_text(json.dumps(content))
    assert read_composition(tmp_path / "mixture.toml") == read_composition(str(tmp_path / "mixture.json")) == WRITTEN
    assert WRITTEN.number == 301


def test_its_epsilon_and_delta_are_those_of_its_releases():
    asked = {"adjacency": "zero-out"}
    assert WRITTEN.epsilon() == composed_epsilon(WRITTEN.releases, delta=1e-6, **asked)
    assert WRITTEN.epsilon("rdp", delta=1e-3) == composed_epsilon(WRITTEN.releases, delta=1e-3, accountant="rdp", **asked)
    assert WRITTEN.delta_at(1.0) == composed_delta(WRITTEN.releases, epsilon=1.0, **asked)
    with pytest.raises(InvalidArgumentError, match=r"^delta is None"):
        Composition((Event(0.1, 1.0),)).epsilon()


EVERY = [
    ({"mechanism": "gaussian", "noise_multiplier": 2}, Event(1.0, 2.0)),
    ({"mechanism": "gaussian", "noise_multiplier": 2, "sampling_rate": 0.1, "projections": 30}, Event(0.1, 2.0, projections=30)),
    ({"mechanism": "gaussian-fixed-size", "noise_multiplier": 2, "sampling_rate": 0.1}, FixedSizeEvent(0.1, 2.0)),
    (
        {
            "mechanism": "gaussian-truncated-poisson", "noise_multiplier": 2, "sampling_rate": 0.1, "examples": 100,
            "largest_batch": 30,
        },
        TruncatedPoissonEvent(0.1, 2.0, examples=100, largest_batch=30),
    ),
    ({"mechanism": "gaussian-shuffled", "noise_multiplier": 2, "count": 3}, ShuffledEvent(2.0, 3)),
    ({"mechanism": "gaussian-balls-in-bins", "noise_multiplier": 2, "steps": 9}, BallsInBinsEvent(2.0, steps=9)),
    ({"mechanism": "laplace", "noise_multiplier": 2.5, "count": 4}, LaplaceEvent(1.0, 2.5, 4)),
    ({"mechanism": "randomized-response", "truthful": 0.75}, RandomizedResponseEvent(0.75)),
    ({"mechanism": "epsilon-delta", "epsilon": 1, "delta": 0}, EpsilonDeltaEvent(1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("table", "event"), EVERY, ids=[table["mechanism"] for table, _ in EVERY])
def test_every_mechanism_can_be_written(table, event):
    found = parse_composition({"releases": [table], "adjacency": event.adjacencies[0]})
    assert found.releases == (event,)
    assert {table["mechanism"] for table, _ in EVERY} == set(MECHANISMS)


@pytest.mark.parametrize(("content", "message"), [
    ([], r"^composition is \[\]; it must be a table"),
    ({}, r"^releases is None"),
    ({"releases": []}, r"^releases is \[\]; it must be at least one"),
    ({"releases": [], "epsilon": 1}, r"^composition is 'epsilon'"),
    ({"releases": [3]}, r"^releases\[1\] is 3"),
    ({"releases": [{"mechanism": "lap"}]}, r"^releases\[1\]\.mechanism is 'lap'.*'laplace'"),
    ({"releases": [{}]}, r"^releases\[1\]\.mechanism is None"),
    ({"releases": [{"mechanism": "laplace"}]}, r"^releases\[1\] is .*noise_multiplier"),
    (
        {"releases": [{"mechanism": "laplace", "scale": 1}]},
        r"^releases\[1\] is 'scale'.*sampling_rate, noise_multiplier, count",
    ),
    ({"releases": [EVERY[0][0], {"mechanism": "laplace", "noise_multiplier": -1}]}, r"^releases\[2\]\.noise_multiplier is"),
    ({"releases": [{"mechanism": "laplace", "noise_multiplier": "1"}]}, r"^releases\[1\]\.noise_multiplier is"),
    ({"releases": [{"mechanism": "laplace", "noise_multiplier": 1, "count": 1.5}]}, r"^releases\[1\]\.steps is"),
    ({"releases": [EVERY[0][0]], "delta": 2}, r"^delta is 2"),
    ({"releases": [EVERY[0][0]], "adjacency": "other"}, r"^adjacency is 'other'"),
    ({"releases": [EVERY[7][0]]}, r"^adjacency is 'add-remove'"),
])  # fmt: skip
def test_errors_name_the_release_and_the_key(content, message):
    with pytest.raises(InvalidArgumentError, match=message):
        parse_composition(content)


@pytest.mark.parametrize(("name", "text"), [("x.toml", "a = ["), ("x.json", "{"), ("missing.toml", None)])
def test_an_unreadable_file_is_refused_by_name(tmp_path, name, text):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"composition is .*(TOML|readable)"):
        read_composition(tmp_path / name)
