"""Correlated noise is C⁻¹Z in whole cells of a grid, whatever happens between the steps."""

import math

import numpy as np
import pytest
import torch

from privet.clipping.clipped_sum import ClippedSum
from privet.noise import Banded, BufferedToeplitz, Participation, SecureSource, Token, Tree, release

MULTIPLIER, C, STEPS = 2.3, 0.7, 24
ORDER = Participation(STEPS, times=3, separation=8, epoch=8)
CYCLE = Participation(STEPS, times=3, separation=8, rate=0.3)
KINDS = {
    "bands": (Banded(MULTIPLIER, bands=5), CYCLE),
    "bands in a fixed order": (Banded(MULTIPLIER, bands=12), ORDER),
    "given bands": (Banded(MULTIPLIER, bands=3, coefficients=(2.0, 0.3, 0.9)), CYCLE),
    "one band": (Banded(MULTIPLIER, bands=1), CYCLE),
    "buffers": (BufferedToeplitz(2, multiplier=MULTIPLIER), ORDER),
    "tree": (Tree(MULTIPLIER), ORDER),
}
EVERY = pytest.mark.parametrize("name", KINDS)


def fitted(name):
    kind, pattern = KINDS[name]
    return kind.fit(pattern, "Any"), pattern


class Known:
    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def normals(self, size):
        whole = next(self.numbers)
        for start in range(0, size, 7):  # pieces of odd lengths, which do not end where tensors do
            yield whole[start : min(start + 7, size)].clone()


def sums(step, size=40):
    generator = torch.Generator().manual_seed(step)
    return {"w": torch.randn(5, 4, generator=generator), "b": 0.01 * torch.randn(size - 20, generator=generator)}


def steps(noise, pattern, source, sizes=sums, number=STEPS, past=None, first=1, dtype=torch.float64, scales=None):
    """Return the releases of some steps, (T, d), less the sums."""
    past = past or noise.begin(pattern)
    gain, found = noise.gain(pattern), []
    for step in range(first, first + number):
        total = {name: tensor.to(dtype) for name, tensor in sizes(step).items()}
        clipped = ClippedSum(total, C, torch.zeros(0), noise_scales=scales or {})
        out = release(clipped, Token(step, MULTIPLIER * gain), source, past=past)
        found.append(torch.cat([(out.tensors[name].double() - total[name].double()).flatten() for name in total]))
    return torch.stack(found).numpy(), out


def inverse(noise, number):
    if isinstance(noise, Tree):
        return tree_matrix(noise.epoch, number)
    first = noise.strategy.solve(np.eye(1, number)[0])
    return np.array([np.r_[first[step::-1], np.zeros(number - step - 1)] for step in range(number)])


def tree_matrix(epoch, number):
    """Return the differences of prefixes in terms of the noise of nodes, in the order of its drawing, by the definition."""
    prefixes = [(step // epoch * epoch, step + 1) for step in range(number)]
    columns = [(level, end) for start, end in prefixes for level in range(9) if (end - start) % (1 << level) == 0]

    def estimate(level, end):
        found = np.array([float(column == (level, end)) for column in columns])
        if not level:
            return found
        children = estimate(level - 1, end - (1 << (level - 1))) + estimate(level - 1, end)
        weight = 2**level / (2 ** (level + 1) - 1)
        return weight * found + (1 - weight) * children

    values = []
    for start, end in prefixes:
        total, at = np.zeros(len(columns)), start
        for level in range((end - start).bit_length() - 1, -1, -1):
            if (end - start) >> level & 1:
                at += 1 << level
                total += estimate(level, at)
        values.append(total)
    return np.array([value - (values[step - 1] if step % epoch else 0.0) for step, value in enumerate(values)])


@EVERY
@pytest.mark.parametrize("scales", [None, {"b": 1e-3}], ids=["shared", "per group"])
def test_noise_is_what_the_matrix_makes_of_fresh_noise(name, scales):
    noise, pattern = fitted(name)
    matrix = inverse(noise, STEPS)
    fresh = torch.randn(matrix.shape[1], 40, dtype=torch.float64).clamp(-6, 6)
    found, out = steps(noise, pattern, Known(fresh), scales=scales)
    deviation = out.standard_deviation * np.r_[np.ones(20), np.full(20, 1.0 if scales is None else 1e-3)]
    np.testing.assert_allclose(found / deviation, matrix @ fresh.numpy(), atol=1e-5)
    assert out.standard_deviation == pytest.approx(MULTIPLIER * noise.gain(pattern) * C, rel=1e-4)
    assert C < out.sensitivity < C * (1 + 1e-4)
    np.testing.assert_allclose(noise.spread(STEPS), np.linalg.norm(matrix, axis=1), rtol=1e-9)
    assert noise.error(STEPS) == pytest.approx(np.linalg.norm(matrix.sum(0)), rel=1e-9)


@EVERY
def test_the_multiplier_is_that_of_the_mechanism_for_its_worst_example(name):
    """The whitened shift of an example's contributions, over the noise, is 1 over the multiplier for each of its releases."""
    noise, pattern = fitted(name)
    matrix = inverse(noise, STEPS)
    precision = np.linalg.inv(matrix @ matrix.T) / noise.gain(pattern) ** 2
    if pattern.rate < 1 or isinstance(noise, Tree):  # one release for every participation
        worst = precision.diagonal().max()
    else:
        worst = max(precision[np.ix_(taken, taken)].sum() for taken in (list(range(first, STEPS, 8)) for first in range(8)))
    assert worst <= 1 + 1e-9
    assert worst > (0.55 if isinstance(noise, Tree) else 0.99 if name != "given bands" else 0.8)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_releases_lie_on_the_public_grid(name, dtype):
    noise, pattern = fitted(name)
    past, size = noise.begin(pattern), 1 << 14
    grid = 2.0 ** (math.floor(math.log2(MULTIPLIER * noise.gain(pattern) * C)) - past.log2)
    for step in range(1, 13):
        total = {"none": torch.zeros(size, dtype=dtype), "one": torch.full((size,), C, dtype=dtype)}
        out = release(
            ClippedSum(total, C, torch.zeros(0)), Token(step, MULTIPLIER * noise.gain(pattern)), SecureSource(), past=past
        )
        for tensor in out.tensors.values():
            assert tensor.dtype == dtype
            assert not (tensor.double() / grid).frac().any()
    assert past.log2 >= 22  # rounding adds less than 1e-3 to the sensitivity of ten million coordinates


CHANGES = {
    "new draws": lambda step: (MULTIPLIER, 1 if step < 7 else 7, step),
    "a gap": lambda step: (MULTIPLIER, 1, step if step < 7 else step + 1),
    "a repeated step": lambda step: (MULTIPLIER, 1, step if step < 7 else step - 1),
    "another scale": lambda step: (MULTIPLIER if step < 7 else 3.1 * MULTIPLIER, 1, step),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [*(("bands", change) for change in CHANGES), ("buffers", "new draws"), ("buffers", "a gap"), ("tree", "new draws")],
)
def test_noise_starts_afresh_where_the_mechanism_ends(name, change):
    """Something changes before the seventh of twelve steps."""
    noise, pattern = fitted(name)
    past, total, gain = noise.begin(pattern), {"w": torch.zeros(40)}, noise.gain(pattern)
    fresh, found = torch.randn(200, 40, dtype=torch.float64), []
    source, fresh = Known(fresh), fresh.numpy()
    for step in range(1, 13):
        multiplier, first, number = CHANGES[change](step)
        out = release(ClippedSum(total, C, torch.zeros(0)), Token(number, multiplier * gain), source, past=past, first=first)
        found.append(out.tensors["w"].double().numpy() / out.standard_deviation)
    if name == "tree":  # six steps take ten draws; the first of a tree takes one
        np.testing.assert_allclose(found[6], fresh[10], atol=1e-4)
        return
    found = np.array(found)
    np.testing.assert_allclose(found[:6], inverse(noise, 6) @ fresh[:6], atol=1e-4)
    np.testing.assert_allclose(found[6:], inverse(noise, 6) @ fresh[6:12], atol=1e-4)


@pytest.mark.parametrize("name", ["bands", "buffers", "tree"])
def test_an_interrupted_step_leaves_no_state_of_half_a_step(name):
    noise, pattern = fitted(name)
    past, gain = noise.begin(pattern), noise.gain(pattern)

    class Broken(SecureSource):
        def normals(self, size):
            yield from super().normals(20)
            raise KeyboardInterrupt

    for step, source in ((1, SecureSource()), (2, SecureSource())):
        release(ClippedSum(sums(step), C, torch.zeros(0)), Token(step, MULTIPLIER * gain), source, past=past)
    with pytest.raises(KeyboardInterrupt):
        release(ClippedSum(sums(3), C, torch.zeros(0)), Token(3, MULTIPLIER * gain), Broken(), past=past)
    fresh = torch.randn(1, 40, dtype=torch.float64)
    total = {name: torch.zeros_like(tensor) for name, tensor in sums(4).items()}
    out = release(ClippedSum(total, C, torch.zeros(0)), Token(4, MULTIPLIER * gain), Known(fresh), past=past)
    found = torch.cat([tensor.double().flatten() for tensor in out.tensors.values()])
    np.testing.assert_allclose(found / out.standard_deviation, fresh[0], atol=1e-4)


def test_no_noise_is_kept_for_a_step_without_noise():
    noise, pattern = fitted("bands")
    total = {"w": torch.ones(3)}
    out = release(ClippedSum(total, C, torch.zeros(0)), Token(1, 0.0), SecureSource(), past=noise.begin(pattern))
    assert torch.equal(out.tensors["w"], total["w"])


@pytest.mark.parametrize("bands", [2, 8])
def test_the_state_of_bands_fits_into_as_many_gradients(bands):
    """Eight bands of a float32 gradient are 8·4 bytes per coordinate; the state, and what is drawn ahead, is no more."""
    noise = Banded(MULTIPLIER, bands=bands).fit(CYCLE, "Any")
    past, size = noise.begin(CYCLE), 1000
    release(ClippedSum({"w": torch.zeros(size)}, C, torch.zeros(0)), Token(1, MULTIPLIER), SecureSource(), past=past)
    held = sum(tensor.nbytes for tensors in vars(past).values() if isinstance(tensors, list) for tensor in tensors
               if isinstance(tensor, torch.Tensor))  # fmt: skip
    drawn_ahead = 4 * size
    assert 0 < held + drawn_ahead <= 1.2 * bands * 4 * size


def test_noise_never_leaves_its_32_bits():
    """The longest normal numbers in the worst signs stay within the cells of the state."""
    for name in ("bands", "given bands", "buffers"):
        noise, pattern = fitted(name)
        last = inverse(noise, STEPS)[-1]
        signs = np.sign(last)
        fresh = torch.from_numpy(np.repeat(8.58 * signs[:, None], 40, axis=1))
        found, out = steps(noise, pattern, Known(fresh))
        np.testing.assert_allclose(found[-1] / out.standard_deviation, 8.58 * np.abs(last).sum(), rtol=1e-4)
