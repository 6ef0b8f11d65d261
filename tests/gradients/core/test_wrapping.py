"""A library's function is wrapped once, however often passes ask, and again after somebody else took the wrapper off."""

import types

import pytest

from privet.gradients.core.wrapping import wrap_for_good


@pytest.fixture
def library():
    return types.SimpleNamespace(function=lambda: ["plain"], number=3)


def add_layer(plain):
    return lambda: [*plain(), "wrapped"]


def test_wraps_once(library):
    for _ in range(3):
        wrap_for_good((library, "function", add_layer))
    assert library.function() == ["plain", "wrapped"]


def test_wraps_again_once_the_wrapper_was_taken_off(library):
    before = library.function
    wrap_for_good((library, "function", add_layer))
    library.function = before  # as a patch does that began before the wrapper
    wrap_for_good((library, "function", add_layer))
    assert library.function() == ["plain", "wrapped"]


def test_wraps_classes(library):
    library.function = type("Plain", (), {})
    plain = library.function
    for _ in range(2):
        wrap_for_good((library, "function", lambda found: type("Wrapper", (found,), {})))
    assert library.function.__bases__ == (plain,)


def test_what_a_version_lacks_is_left_out(library):
    wrap_for_good((library, "missing", add_layer))
    assert not hasattr(library, "missing")
