"""Python's global generator is read and restored completely, by copying its memory and by Python's own functions."""

import random

import pytest

from privet._utils import python_generator
from privet._utils.python_generator import read_python_generator, write_python_generator


@pytest.fixture(params=["memory", "public functions"], autouse=True)
def way(request, monkeypatch):
    """Restore by this way, and leave the generator of the process as it was."""
    state = random.getstate()
    if request.param == "public functions":
        monkeypatch.setattr(python_generator, "_memory_is_known", lambda: False)
    yield request.param
    random.setstate(state)


def use(uniform, normal):
    """Draw numbers; an odd number of normal ones leaves half of a pair."""
    return [*(random.random() for _ in range(uniform)), *(random.gauss() for _ in range(normal))]


@pytest.mark.parametrize("before", [(0, 0), (3, 1), (700, 2), (0, 3)])
@pytest.mark.parametrize("inside", [(0, 0), (1, 0), (0, 1), (700, 1), (1300, 2)])
def test_what_follows_does_not_depend_on_what_is_drawn_inside(before, inside):
    following = []
    for drawn in (None, inside):
        random.seed(5)
        use(*before)
        if drawn is not None:
            state = read_python_generator()
            random.seed(9)
            use(*drawn)
            write_python_generator(state)
        following.append(use(700, 3))
    assert following[0] == following[1]


@pytest.mark.parametrize("drawn", [(1, 0), (0, 1), (624, 0)])
def test_every_draw_changes_the_state(drawn):
    random.seed(4)
    before = read_python_generator()
    assert read_python_generator() == before
    use(*drawn)
    assert read_python_generator() != before


def test_the_second_half_of_a_pair_changes_the_state():
    random.gauss()
    before = read_python_generator()
    random.gauss()
    assert read_python_generator() != before


def test_a_state_is_not_changed_by_later_draws():
    random.seed(4)
    before = read_python_generator()
    use(3, 1)
    random.seed(4)
    assert read_python_generator() == before


def test_the_memory_is_that_of_the_public_state(way):
    """Where this fails, Python has changed, and restoring is slower and still right."""
    assert python_generator._memory_is_known() == (way == "memory")
