import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError, LedgerError
from privet.noise import FixedSource, Gaussian, SecureSource, Token, release
from privet.noise.noised_sum import NoisedSum

SIGMA, C = 2.3, 0.7
GRID = 2.0 ** (math.floor(math.log2(SIGMA * C)) - 30)


def clipped(sensitivity=C, **tensors):
    return ClippedSum(tensors, sensitivity, torch.zeros(0, dtype=torch.float64))


def noised(source, step=1, sigma=SIGMA, **tensors):
    return release(clipped(**tensors), Token(step, sigma), source)


def standardised(out, **sums):
    return [((out.tensors[name].double() - total.double()) / (SIGMA * C)).flatten().numpy() for name, total in sums.items()]


def p_of_correlation(first, second):
    return 2 * stats.norm.sf(abs(float(np.dot(first, second))) / math.sqrt(len(first)))


def p_of_deviation(x):
    return 2 * min(stats.chi2.cdf((x**2).sum(), len(x)), stats.chi2.sf((x**2).sum(), len(x)), 0.5)


def test_noise_is_normal_with_deviation_multiplier_times_sensitivity_and_independent(holds_twice):
    source, steps, size = SecureSource(), 60, 2000

    def experiment():
        generator = torch.Generator().manual_seed(1)
        sums = {
            "w": torch.randn(size // 50, 50, generator=generator),
            "zero": torch.zeros(size),
            "b": 3 * torch.randn(size, generator=generator),
        }
        drawn = np.array(
            [standardised(noised(source, step, **sums), **sums) for step in range(steps)]
        )  # step × parameter × coordinate
        x = drawn.ravel()
        return {
            "deviation": p_of_deviation(x),
            "distribution": stats.kstest(x, "norm").pvalue,
            "steps": p_of_correlation(drawn[1:].ravel(), drawn[:-1].ravel()),
            "steps in groups of 16": p_of_correlation(drawn[16:].ravel(), drawn[:-16].ravel()),
            "parameters": p_of_correlation(drawn[:, 0].ravel(), drawn[:, 1].ravel()),
            "neighbouring coordinates": p_of_correlation(drawn[:, :, 1:].ravel(), drawn[:, :, :-1].ravel()),
            "far coordinates": p_of_correlation(drawn[:, :, : size // 2].ravel(), drawn[:, :, size // 2 :].ravel()),
            # Every step and every parameter is noised as much as any other.
            "quietest step": min(1.0, steps * min(p_of_deviation(step.ravel()) for step in drawn)),
            **{f"deviation of {name}": p_of_deviation(drawn[:, i].ravel()) for i, name in enumerate(sums)},
            "one coordinate over steps": stats.kstest(drawn.sum(0).ravel() / math.sqrt(steps), "norm").pvalue,
        }

    holds_twice(experiment)


@pytest.mark.parametrize("share", [0.97, 1.03])
def test_three_per_cent_too_little_or_too_much_would_be_noticed(share):
    out = noised(SecureSource(), sigma=SIGMA * share, w=torch.zeros(360_000))
    assert p_of_deviation(standardised(out, w=torch.zeros(360_000))[0]) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_release_lies_on_the_public_grid(dtype):
    size = 1 << 20
    sums = {"none": torch.zeros(size), "one": torch.full((size,), C), "odd": torch.rand(size) * 1e-3}
    out = noised(SecureSource(), **{name: total.to(dtype) for name, total in sums.items()})
    for name, tensor in out.tensors.items():
        x = tensor.double()
        assert (tensor.dtype, int((x != (x / GRID).round() * GRID).sum())) == (dtype, 0), name


def test_tensors_with_very_different_noise_levels_lie_on_separate_grids():
    """On one grid, as fine as the smallest needs, the others' sums of cells would be beyond what float64 holds exactly."""
    scales = {"tiny": 1e-9, "common": 1.0, "huge": 3e9}
    sums = {name: 7.7 * scale * torch.randn(1 << 16, dtype=torch.float64) for name, scale in scales.items()}
    out = release(ClippedSum(sums, C, torch.zeros(0), noise_scales=scales), Token(1, SIGMA), SecureSource())
    for name, scale in scales.items():
        grid = 2.0 ** (math.floor(math.log2(SIGMA * C * scale)) - 30)
        cells = out.tensors[name] / grid
        assert torch.equal(cells, cells.round()), name
        assert cells.abs().max() < 2**52
        deviation = (out.tensors[name] - sums[name]).std().item()
        assert deviation == pytest.approx(SIGMA * C * scale, rel=0.03)
    assert C < out.sensitivity < C * (1 + 1e-5)


def test_the_grid_costs_next_to_nothing():
    out = noised(SecureSource(), w=torch.zeros(10**6))
    assert C + GRID * math.sqrt(10**6) <= out.sensitivity < C * (1 + 1e-5)
    assert out.standard_deviation == SIGMA * out.sensitivity


@pytest.mark.parametrize("sensitivity", [1e-12, 0.7, 1e12])
@pytest.mark.parametrize("sigma", [1e-3, 2.3, 1e6])
def test_noise_has_the_right_size_for_every_scale(sigma, sensitivity):
    size = 20_000
    out = release(clipped(sensitivity, w=torch.zeros(size, dtype=torch.float64)), Token(1, sigma), SecureSource())
    assert out.standard_deviation == sigma * out.sensitivity >= sigma * sensitivity
    assert out.tensors["w"].std().item() == pytest.approx(out.standard_deviation, rel=0.05)


def test_shapes_dtypes_and_the_sum_itself_are_kept_whatever_its_strides():
    strided = torch.arange(12.0).view(3, 4).t() * 1e6
    sums = {"scalar": torch.tensor(1.0), "none": torch.zeros(0, 3), "double": torch.zeros(2, 3, 4).double(), "strided": strided}
    before = {name: tensor.clone() for name, tensor in sums.items()}
    out = noised(SecureSource(), **sums)
    assert isinstance(out, NoisedSum)
    for name, tensor in out.tensors.items():
        assert (tensor.shape, tensor.dtype) == (sums[name].shape, sums[name].dtype)
        assert torch.equal(sums[name], before[name])
    assert (out.tensors["strided"] - strided).abs().max() < 20


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_on_another_device_is_noised_there_alike(dtype):
    total = torch.randn(70, 1000, dtype=dtype)
    here, there = (noised(FixedSource(), w=tensor).tensors["w"] for tensor in (total, total.cuda()))
    assert there.device.type == "cuda"
    assert torch.equal(here, there.cpu())


def test_multiplier_zero_adds_nothing():
    total = torch.randn(100)
    out = noised(SecureSource(), sigma=0.0, w=total)
    assert torch.equal(out.tensors["w"], total)
    assert out.standard_deviation == 0


@pytest.mark.parametrize("divisor", [0.37, 2.0, -5.0, 1e6])
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_a_release_is_divided_by_a_public_number_as_afterwards(divisor, sigma):
    total = clipped(w=torch.randn(5000), b=torch.randn(3, dtype=torch.float64))
    divided = release(total, Token(1, sigma), FixedSource(), divisor)
    expected = release(total, Token(1, sigma), FixedSource()) / divisor
    assert (divided.sensitivity, divided.standard_deviation) == (expected.sensitivity, expected.standard_deviation)
    for name, found in divided.tensors.items():
        torch.testing.assert_close(found, expected.tensors[name], rtol=2 * torch.finfo(found.dtype).eps, atol=0)


def test_a_token_is_good_for_one_release():
    token, source = Token(5, SIGMA), SecureSource()
    assert not token._spent
    release(clipped(w=torch.zeros(2)), token, source)
    assert token._spent
    with pytest.raises(LedgerError, match="step 5 is already spent"):
        release(clipped(w=torch.zeros(2)), token, source)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_token_of_another_process_is_refused():
    token = Token(5, SIGMA)
    if not (child := os.fork()):
        try:
            token.spend()
        except LedgerError as error:
            os._exit(7 if "a fork cannot spend it" in str(error) else 8)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert token.spend() == SIGMA


@pytest.mark.parametrize("value", [
    torch.zeros(3), {"w": torch.zeros(3)}, NoisedSum({"w": torch.zeros(3)}, C, SIGMA * C), None,
    SimpleNamespace(**vars(clipped(w=torch.zeros(3)))),
], ids=["tensor", "mapping", "noised", "none", "look-alike"])  # fmt: skip
def test_only_a_clipped_sum_is_noised_and_a_refusal_spends_nothing(value):
    token = Token(1, SIGMA)
    with pytest.raises(TypeError, match="noise can only be added to a ClippedSum"):
        release(value, token, SecureSource())
    with pytest.raises(TypeError, match="takes a public number"):
        release(clipped(w=torch.zeros(2)), token, FixedSource(), torch.tensor(2.0))
    assert not token._spent
    for other in (None, 1, SIGMA):
        with pytest.raises(TypeError, match="needs a Token from a ledger"):
            release(clipped(w=torch.zeros(3)), other, SecureSource())


BAD = {
    "multiplier": [-1, math.nan, math.inf, True, "1.0", 1e-4, 1e7, torch.tensor(1.0), 0],
    "source": ["Secure", None, 0, SecureSource],
    "non_private": [1, None, "yes"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_arguments_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^noise\.{name} is"):
        Gaussian(**{"multiplier": SIGMA, name: value})


def test_a_source_of_its_tier_is_made_anew_and_no_noise_is_requested_explicitly():
    for source, kind in (("secure", SecureSource), ("fixed", FixedSource)):
        gaussian = Gaussian(SIGMA, source=source)
        assert type(gaussian.make_source()) is kind
        assert gaussian.make_source() is not gaussian.make_source()
    assert Gaussian(0.0, non_private=True).multiplier == 0
    with pytest.raises(InvalidArgumentError, match=r"^noise\.source is 'fast'.* slower than 'secure'"):
        Gaussian(SIGMA, source="fast")
    with pytest.raises(InvalidArgumentError, match="set non_private=True"):
        Gaussian(0.0)


def masked_sum(density, size=40_000, **changes):
    generator = torch.Generator().manual_seed(4)
    masks = {
        "w": torch.rand(size // 100, 100, generator=generator) < density,
        "b": torch.rand(size, generator=generator) < density,
    }
    tensors = {"w": torch.randn(size // 100, 100), "b": torch.randn(size), "clipping:count": torch.tensor([3.0])}
    return ClippedSum(tensors, C, torch.zeros(0, dtype=torch.float64), support=masks, **changes)


@pytest.mark.parametrize("density", [0.1, 0.7])
def test_noise_is_on_the_support_and_nowhere_else(density, holds_twice):
    source = SecureSource()

    def experiment():
        total = masked_sum(density)
        out = release(total, Token(1, SIGMA), source)
        outside = [out.tensors[name][~mask] for name, mask in total.support.items()]
        assert all(bool((part == 0).all()) for part in outside)
        drawn = {
            name: ((out.tensors[name] - total.tensors[name])[mask].double() / (SIGMA * C)).numpy()
            for name, mask in total.support.items()
        }
        everything = np.concatenate(list(drawn.values()))
        statistic = float(out.tensors["clipping:count"].double() - 3) / (SIGMA * C)
        assert statistic != 0
        return {
            **{f"deviation of {name}": p_of_deviation(x) for name, x in drawn.items()},
            "distribution": stats.kstest(everything, "norm").pvalue,
            "neighbours": p_of_correlation(everything[1:], everything[:-1]),
            "statistic": 2 * stats.norm.sf(abs(statistic)),
        }

    holds_twice(experiment)


def test_statistics_have_the_full_deviation_with_a_mask(holds_twice):
    source = SecureSource()

    def experiment():
        drawn = [release(masked_sum(0.1, 100), Token(1, SIGMA), source).tensors["clipping:count"].item() for _ in range(400)]
        return {"deviation": p_of_deviation((np.array(drawn) - 3) / (SIGMA * C))}

    holds_twice(experiment)


def test_what_a_sum_holds_outside_its_support_is_not_released():
    """Also if whoever made the sum forgot to mask it, and also without noise."""
    for sigma in (SIGMA, 0.0):
        total = masked_sum(0.2)
        out = release(total, Token(1, sigma), SecureSource())
        assert all(bool((out.tensors[name][~mask] == 0).all()) for name, mask in total.support.items())
        assert out.support is total.support
        assert (out / 3.0).support is total.support
    nothing = ClippedSum({"w": torch.ones(9)}, C, torch.zeros(0), support={"w": torch.zeros(9, dtype=torch.bool)})
    assert not release(nothing, Token(1, SIGMA), SecureSource()).tensors["w"].any()


def test_only_the_support_is_drawn_for_and_rounded(monkeypatch):
    source, asked = SecureSource(), []
    drawn = source.normals
    monkeypatch.setattr(source, "normals", lambda size: asked.append(size) or drawn(size))
    total = masked_sum(0.1)
    size = 1 + sum(int(mask.sum()) for mask in total.support.values())
    assert release(total, Token(1, SIGMA), source).sensitivity == C + GRID * math.sqrt(size)
    assert asked == [size]


def test_dense_noise_is_everywhere():
    out = release(masked_sum(0.1).with_dense_noise(), Token(1, SIGMA), SecureSource())
    assert all(float((tensor != 0).double().mean()) > 0.999 for tensor in out.tensors.values())
    assert out.support is None
