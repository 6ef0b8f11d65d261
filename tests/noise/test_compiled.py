import math

import pytest
import torch

from privet._utils import native
from privet._utils.native import UnavailableError
from privet.clipping.clipped_sum import ClippedSum
from privet.noise import FixedSource, Token, arithmetic, gaussian, reference, release
from privet.noise import compiled as kernels
from privet.noise.compiled import Arithmetic

IN_TORCH = Arithmetic(reference.box_muller, reference.add_noise, "torch")
SCALES = pytest.mark.parametrize(("sigma", "sensitivity"), [(2.3, 0.7), (1e-3, 1e-12), (0.6, 50.0), (1e6, 1e12)])


@pytest.fixture(scope="module")
def compiled():
    form = arithmetic()
    if not form.description.startswith("compiled"):
        pytest.skip(f"no kernels here: {form.description}")
    return form


def random_words(size):
    return torch.randint(-(2**63), 2**63 - 1, (size,)).view(torch.float64)


@pytest.mark.parametrize("size", [0, 2, 6, 62, 1_000_002])
def test_the_same_words_give_the_same_normals(compiled, size):
    expected = random_words(size)
    found = expected.clone()
    reference.box_muller(expected)
    compiled.box_muller(found)
    radius = expected.view(2, -1).norm(dim=0).repeat(2)
    assert ((found - expected).abs() <= 2.0**-49 * radius).all()


@pytest.mark.parametrize("form", ["torch", "compiled"])
def test_radii_span_the_whole_range_of_a_52_bit_uniform(form, request):
    box_muller = (IN_TORCH if form == "torch" else request.getfixturevalue("compiled")).box_muller
    largest, smallest, angle = 0, (1 << 52) - 1, 0
    block = torch.tensor([largest, smallest, -1, angle, angle, angle]).view(torch.float64)
    box_muller(block)
    assert block[0].item() == pytest.approx(math.sqrt(2 * 53 * math.log(2)), rel=1e-14)
    assert block[1].item() == block[2].item() == pytest.approx(2.0**-26, rel=1e-14)


@SCALES
@pytest.mark.parametrize("divisor", [1.0, 3.7])
def test_a_whole_release_is_the_same_in_both_forms(compiled, monkeypatch, sigma, sensitivity, divisor):
    strided = torch.randn(300, 500).t()
    sums = {
        "strided": strided, "every other": torch.randn(999)[::2], "expanded": torch.ones(1).expand(77),
        "scalar": torch.tensor(3.0), "none": torch.zeros(0, 4), "half": torch.randn(33).bfloat16(),
        "long": torch.randn(50_003), "double": torch.randn(70_001, dtype=torch.float64),
    }  # fmt: skip
    found = []
    for form in (compiled, IN_TORCH):
        monkeypatch.setattr(gaussian, "arithmetic", lambda form=form: form)
        clipped = ClippedSum(sums, sensitivity, torch.zeros(0))
        found.append(release(clipped, Token(1, sigma), FixedSource(), divisor).tensors)
    for name, total in sums.items():
        assert torch.equal(found[0][name], found[1][name]), name
        assert (found[0][name].shape, found[0][name].dtype) == (total.shape, total.dtype)


def test_a_release_is_what_the_definition_says(monkeypatch):
    """Written out for whole tensors at once, as the docstring of `release` has it."""
    sigma, c = 1.3, 0.4
    sums = {"w": torch.randn(90_000), "b": torch.randn(3, dtype=torch.float64)}
    out = release(ClippedSum(sums, c, torch.zeros(0)), Token(1, sigma), FixedSource())
    grid = 2.0 ** (math.floor(math.log2(sigma * c)) - 30)
    numbers = FixedSource().normal(90_003)
    for name, part in {"w": numbers[:90_000], "b": numbers[90_000:]}.items():
        cells = (part * (out.standard_deviation / grid)).round() + (sums[name].double() / grid).round()
        assert torch.equal(out.tensors[name], (cells * grid).to(sums[name].dtype))


def single_precision(block):
    reference.box_muller(block)
    block.copy_(block.float())


def mirrored(block):
    reference.box_muller(block)
    block.neg_()


def off_the_grid(total, numbers, cells, grid, unit, released):
    reference.add_noise(total, numbers, cells, grid, unit, released)
    released[5] += grid / 2


@pytest.mark.parametrize(("box_muller", "add_noise"), [
    (single_precision, reference.add_noise), (mirrored, reference.add_noise), (reference.box_muller, off_the_grid),
])  # fmt: skip
def test_a_wrong_kernel_is_detected(box_muller, add_noise):
    assert kernels.agree(IN_TORCH)
    assert not kernels.agree(Arithmetic(box_muller, add_noise, "wrong"))


@pytest.mark.parametrize("change", ["another function", "a function less"])
def test_wrong_kernels_are_not_used(compiled, monkeypatch, tmp_path, change):
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    wrong, source = tmp_path / "kernels.cpp", kernels._SOURCE.read_text(encoding="utf-8")
    if change == "another function":
        changed = source.replace("uniform(load(second), 4.0", "uniform(load(second), 2.0")
        assert changed != source
    else:
        changed = 'extern "C" void box_muller() {}'
    wrong.write_text(changed, encoding="utf-8")
    monkeypatch.setattr(kernels, "_SOURCE", wrong)
    form = arithmetic.__wrapped__()
    assert form.box_muller is reference.box_muller
    assert form.description.startswith("torch: ")
    assert form.description.endswith("do not agree with those in torch") is (change == "another function")


def test_the_torch_fallback_states_the_reason(monkeypatch):
    def none(source):
        raise UnavailableError("for this reason")

    monkeypatch.setattr(native, "compiled_library", none)
    assert arithmetic.__wrapped__() == Arithmetic(reference.box_muller, reference.add_noise, "torch: for this reason")
