"""Random numbers of user code: uniform, separate, and without effect on the user's generators."""

import random

import numpy as np
import pytest
import torch
from scipy import stats

from privet._utils.randomness import Seeds, preserve_generators, seed_generators, watch_generators


def drawn():
    return torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.randn(2).tolist(), np.random.rand(3).tolist()


def test_numbers_are_uniform_and_those_of_a_position_do_not_depend_on_how_many_there_are(holds_twice):
    seeds = Seeds(bytes(range(32)))
    numbers = seeds.numbers(12)
    assert len(set(numbers)) == 12
    for start in range(9):
        assert seeds.after(start).numbers(3) == numbers[start : start + 3]
    assert seeds.after(2).for_rows(3).numbers(3) == numbers[6:9]
    assert seeds.numbers(0) == seeds.after(1).numbers(0) == []
    assert Seeds.draw().key != Seeds.draw().key

    def experiment():
        numbers = np.array(Seeds.draw().numbers(100_000), dtype="<u8").view(np.uint8).reshape(-1, 8)
        return {f"byte {place}": stats.chisquare(np.bincount(numbers[:, place], minlength=256)).pvalue for place in range(8)}

    holds_twice(experiment)


def test_a_number_is_all_that_the_generators_hold():
    with preserve_generators():
        seed_generators(2**63 + 5)
        first = drawn()
        for _ in range(3):
            drawn()
        seed_generators(2**63 + 5)
        assert drawn() == first
        seed_generators(2**62 + 6)
        other = drawn()
    assert not {str(part) for part in first} & {str(part) for part in other}


def test_small_numbers_seed_every_generator_differently():
    """Checks before the first step compare a few public seeds: were NumPy's the same, its draws would look constant."""
    with preserve_generators():
        seen = []
        for number in range(4):
            seed_generators(number)
            seen.append([str(part) for part in drawn()])
    assert all(len(set(part)) == 4 for part in zip(*seen, strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_the_generators_are_as_they_were(fails):
    torch.manual_seed(1), random.seed(2), np.random.seed(3)
    random.gauss(0, 1)  # half of a pair is left over
    expected = drawn(), drawn()
    torch.manual_seed(1), random.seed(2), np.random.seed(3)
    random.gauss(0, 1)
    assert drawn() == expected[0]
    try:
        with preserve_generators():
            seed_generators(7)
            drawn()
            torch.manual_seed(0), random.seed(0), np.random.seed(0)
            assert not fails
    except AssertionError:
        assert fails
    assert drawn() == expected[1]


def test_inside_of_another_one_nothing_is_put_back():
    """What a whole step does is put back once."""
    with preserve_generators():
        seed_generators(3)
        with preserve_generators():
            drawn()
        following = drawn()
        seed_generators(3)
        drawn()
        assert drawn() == following


def test_another_generator_of_numpys_is_kept_too():
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(5))
        expected = np.random.rand(4).tolist()
        np.random.set_bit_generator(np.random.PCG64(5))
        with preserve_generators():
            seed_generators(1)
            np.random.rand(3)
        assert np.random.rand(4).tolist() == expected
    finally:
        np.random.set_bit_generator(before)


def raw():
    """The lowest 24 bits of the next words of torch's generator, and of NumPy's."""
    words = (torch.rand(4) * 2**24).tolist()
    return words, (np.random.randint(0, 2**32, 4, dtype=np.uint32) % 2**24).tolist()


def test_torch_and_numpy_do_not_draw_the_same():
    """Seeded alike they would, as they run the same algorithm."""
    torch.manual_seed(5), np.random.seed(5)
    of_torch, of_numpy = raw()
    assert of_torch == of_numpy
    with preserve_generators():
        seed_generators(Seeds(bytes(32)).numbers(1)[0])
        of_torch, of_numpy = raw()
    assert of_torch != of_numpy


OF_NUMPY = [np.random.rand, np.random.randn, lambda: np.random.permutation(3), lambda: np.random.seed(3)]


@pytest.mark.parametrize("draw", [*OF_NUMPY, random.random, lambda: random.gauss(0, 1), lambda: random.seed(3)])
def test_a_draw_from_a_global_generator_is_noticed(draw):
    with preserve_generators():
        for used in (False, True):
            has_advanced = watch_generators()
            if used:
                draw()
            assert has_advanced() == used
