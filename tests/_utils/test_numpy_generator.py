"""NumPy's global generator is restored completely, by copying its memory and by NumPy's own functions."""

import numpy as np
import pytest

from privet._utils import numpy_generator
from privet._utils.numpy_generator import save_numpy_generator, watch_numpy_generator

GENERATORS = {"of NumPy's default": np.random.MT19937, "of another kind": np.random.PCG64}


@pytest.fixture(params=["memory", "public functions"])
def way(request, monkeypatch):
    """Restore by this way, and leave the generator of the process as it was."""
    if request.param == "public functions":
        monkeypatch.setattr(numpy_generator, "_memory_is_known", lambda: False)
    before, state = np.random.get_bit_generator(), np.random.get_state()
    yield request.param
    np.random.set_bit_generator(before)
    np.random.set_state(state)


def use(uniform, normal):
    """Draw numbers; an odd number of normal ones leaves half of a pair."""
    return [*np.random.rand(uniform).tolist(), *(np.random.randn() for _ in range(normal))]


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("before", [(0, 0), (3, 1), (700, 2), (0, 3)])
@pytest.mark.parametrize("inside", [(0, 0), (1, 0), (0, 1), (700, 1), (1300, 2)])
def test_what_follows_does_not_depend_on_what_is_drawn_inside(way, kind, before, inside):
    following = []
    for drawn in (None, inside):
        np.random.set_bit_generator(GENERATORS[kind](5))
        use(*before)
        if drawn is not None:
            restore = save_numpy_generator()
            np.random.seed(9)
            use(*drawn)
            restore()
        following.append(use(2, 3))
    assert following[0] == following[1]


def test_a_generator_that_is_replaced_inside_comes_back(way):
    np.random.seed(4)
    np.random.randn()
    mine, state = np.random.get_bit_generator(), np.random.get_state(legacy=False)
    restore = save_numpy_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    np.random.rand(2)
    restore()
    found = np.random.get_state(legacy=False)
    assert np.random.get_bit_generator() is mine
    assert found.pop("state")["key"].tolist() == state.pop("state")["key"].tolist()
    assert found == state


@pytest.mark.parametrize("kind", GENERATORS)
def test_inside_numpy_can_be_seeded(way, kind):
    np.random.set_bit_generator(GENERATORS[kind](5))
    restore = save_numpy_generator()
    np.random.seed(7)
    first = use(2, 1)
    np.random.seed(7)
    assert use(2, 1) == first
    restore()


DRAWS = {"nothing": (0, 0), "a number": (1, 0), "as many as are made at once": (312, 0), "a normal number": (0, 1)}


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("drawn", DRAWS)
def test_every_draw_is_noticed(way, kind, left, drawn):
    np.random.set_bit_generator(GENERATORS[kind](5))
    restore = save_numpy_generator()
    use(3, left)
    has_advanced = watch_numpy_generator()
    use(*DRAWS[drawn])
    assert has_advanced() == (drawn != "nothing")
    restore()


@pytest.mark.parametrize("normal", range(12))
def test_draws_after_the_seed_that_the_user_has_set_before_are_noticed(way, normal):
    """Saving and watching draw numbers, too: the same seed and as many draws must not lead to the same state."""
    np.random.seed(0)
    restore = save_numpy_generator()
    has_advanced = watch_numpy_generator()
    np.random.seed(0)
    use(0, normal)
    assert has_advanced()
    restore()


def test_a_replaced_generator_is_noticed(way):
    restore = save_numpy_generator()
    has_advanced = watch_numpy_generator()
    np.random.set_bit_generator(np.random.MT19937(5))
    assert has_advanced()
    restore()


def test_the_memory_is_that_of_the_public_state():
    """Where this fails, NumPy has changed, and restoring is slower and still right."""
    assert numpy_generator._memory_is_known()
