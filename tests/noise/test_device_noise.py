"""Noise on a device: the definition against standards and laws, the kernel against the definition, and releases by either."""

import ast
import copy
import importlib.util
import math
import os
import re
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats
from torch.fx.experimental.proxy_tensor import make_fx

import privet
from privet.clipping.clipped_sum import ClippedSum
from privet.noise import FixedSource, SecureSource, Token, claim_of, gaussian, reference, release
from privet.noise import device as package
from privet.noise.device import definition, stream
from privet.noise.device.definition import NoisePart, add_noise_in_torch, chacha20, normals
from privet.noise.device.stream import DeviceStream, agree, own_stream, reason_against

HOST = torch.device("cpu")
SIGMA, C = 2.3, 0.7
WITH_TRITON = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def in_words(text):
    return struct.unpack(f"<{len(text) // 4}I", text)


def numbers_of(key, nonce, size):
    """Return standard normals as a release has them, in multiples of 2⁻⁴⁵."""
    drawn = torch.empty(size, dtype=torch.float64)
    place, *draw = nonce
    add_noise_in_torch(
        torch.tensor(key), tuple(draw), [NoisePart(place, torch.zeros(size, dtype=torch.float64), 2.0**45, 1.0, 2.0**-45, drawn)]
    )
    return drawn.numpy()


def test_the_words_are_those_of_the_standard():
    """RFC 8439, section 2.3.2."""
    key, nonce = in_words(bytes(range(32))), in_words(bytes.fromhex("000000090000004a00000000"))
    expected = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    expected += "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    found = chacha20(key, nonce, torch.tensor([1]))[:, 0].tolist()
    assert struct.pack("<16I", *found).hex() == expected


@pytest.mark.parametrize("first", [0, 1, 2**32 - 300])
@pytest.mark.parametrize("nonce", [(0, 0, 0), (3, 1, 0), (2**32 - 1, 2**31, 2**32 - 1)])
def test_the_words_are_those_of_another_implementation(first, nonce):
    key = os.urandom(32)
    cipher = Cipher(algorithms.ChaCha20(key, struct.pack("<4I", first, *nonce)), None).encryptor()
    found = chacha20(in_words(key), nonce, torch.arange(first, first + 300)).t()
    assert found.numpy().astype("<u4").tobytes() == cipher.update(bytes(64 * 300))


def test_normals_are_those_of_box_and_muller_also_at_the_edges():
    words = torch.randint(2**32, (16, 5000))
    ends = torch.tensor([0, 1, 2**20 - 1, 2**32 - 1])
    words[:4, :256] = torch.cartesian_prod(*[ends] * 4).t()
    found = normals(words)
    assert found.isfinite().all()
    for pair in range(4):
        high, low = words[4 * pair : 4 * pair + 4 : 2], words[4 * pair + 1 : 4 * pair + 4 : 2]
        block = ((high << 32) | low).reshape(-1).view(torch.float64).clone()
        reference.box_muller(block)
        expected = block.view(2, -1)
        radius = expected.norm(dim=0)
        assert ((found[2 * pair : 2 * pair + 2] - expected).abs() <= 2.0**-49 * radius).all()
    zero = torch.zeros(16, 1, dtype=torch.int64)
    assert normals(zero).max().item() == pytest.approx(math.sqrt(2 * 53 * math.log(2)), rel=1e-12)


def law(key, size):
    """Return p-values of the law of the definition's numbers."""
    x = numbers_of(key, (0, 0, 0), size)
    blocks = x[: size // 1024 * 1024].reshape(-1, 8, 128).transpose(1, 0, 2).reshape(8, -1)
    pairs = np.corrcoef(blocks)[np.triu_indices(8, 1)]
    squares = np.corrcoef(blocks**2)[np.triu_indices(8, 1)]
    rare = size * stats.norm.sf(4.5)
    beyond = {"right": int((x > 4.5).sum()), "left": int((x < -4.5).sum())}
    return {
        "mean": 2 * stats.norm.sf(abs(x.mean()) * math.sqrt(size)),
        "variance": 2 * stats.norm.sf(abs((x**2).mean() - 1) * math.sqrt(size / 2)),
        "skewness": 2 * stats.norm.sf(abs((x**3).mean()) * math.sqrt(size / 15)),
        "kurtosis": 2 * stats.norm.sf(abs((x**4).mean() - 3) * math.sqrt(size / 96)),
        "distribution": stats.kstest(x, "norm", method="asymp").pvalue,
        "chi-square of cells": stats.chisquare(np.bincount((stats.norm.cdf(x) * 1024).astype(int), minlength=1024)).pvalue,
        "lag 1": 2 * stats.norm.sf(abs(float(x[1:] @ x[:-1])) / math.sqrt(size)),
        "numbers of a block": min(1.0, 28 * 2 * stats.norm.sf(np.abs(pairs).max() * math.sqrt(len(blocks[0])))),
        "squares within a block": min(1.0, 28 * 2 * stats.norm.sf(np.abs(squares).max() * math.sqrt(len(blocks[0])))),
        **{
            f"{side} tail": 2 * min(stats.poisson.cdf(count, rare), stats.poisson.sf(count - 1, rare), 0.5)
            for side, count in beyond.items()
        },
    }


@pytest.mark.parametrize("size", [1 << 18, pytest.param(1 << 22, marks=pytest.mark.slow)])
def test_numbers_are_independent_and_standard_normal(size, holds_twice):
    holds_twice(lambda: law(in_words(os.urandom(32)), size))


def test_tensors_draws_and_keys_have_independent_numbers(holds_twice):
    size = 20_000

    def experiment():
        key, other = in_words(os.urandom(32)), in_words(os.urandom(32))
        streams = {
            "first": (key, (0, 0, 0)), "next tensor": (key, (1, 0, 0)), "next draw": (key, (0, 1, 0)),
            "draw of the high word": (key, (0, 0, 1)), "other key": (other, (0, 0, 0)),
        }  # fmt: skip
        drawn = {name: numbers_of(*each, size) for name, each in streams.items()}
        first = drawn.pop("first")
        return {name: 2 * stats.norm.sf(abs(float(first @ x)) / math.sqrt(size)) for name, x in drawn.items()}

    holds_twice(experiment)


def test_a_tensor_has_the_same_numbers_in_however_many_pieces():
    key = in_words(os.urandom(32))
    whole = numbers_of(key, (0, 3, 0), 20_000)
    assert len(np.unique(whole)) == 20_000
    for size in (0, 1, 1023, 8 * 1024, 8 * 1024 + 1):
        assert np.array_equal(numbers_of(key, (0, 3, 0), size), whole[:size])


def recorder(seen):
    """Return a form of `add_noise` that notes key, draw and place of each tensor, and adds nothing."""

    def add_noise(key, draw, parts):
        seen.extend((tuple(key.tolist()), *draw, part.place) for part in parts)

    return add_noise


def made_up(*sizes):
    return [NoisePart(place, torch.zeros(size), 2.0**30, 1.0, 1.0, torch.zeros(size)) for place, size in enumerate(sizes)]


def test_nonces_never_repeat_over_tensors_draws_streams_and_forks():
    seen = []
    streams = [DeviceStream(recorder(seen)) for _ in range(3)]
    for _ in range(50):
        for each in streams:
            each.add_noise(made_up(3, 0, 7))
    assert len(set(seen)) == len(seen) == 3 * 50 * 3
    keys = {key for key, *_ in seen}
    assert len(keys) == 3
    assert all(0 <= word < 2**32 for key in keys for word in key)
    streams[0]._draws = 2**32 - 1  # the count goes on in the second word
    seen.clear()
    for _ in range(2):
        streams[0].add_noise(made_up(1))
    assert [each[1:] for each in seen] == [(2**32 - 1, 0, 0), (0, 1, 0)]


def test_draws_of_several_threads_differ():
    seen = []
    shared, start = DeviceStream(recorder(seen)), threading.Barrier(8)

    def draw():
        start.wait()
        for _ in range(100):
            shared.add_noise(made_up(1))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen) == 800


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_fork_has_another_stream_and_cannot_use_an_old_one(with_definition):
    def key():
        return own_stream()._key.tolist()

    before, old = key(), own_stream()
    assert own_stream() is old
    read, write = os.pipe()
    if not (child := os.fork()):
        message = "it drew"
        try:
            old.add_noise(made_up(1))
        except RuntimeError as error:
            message = str(error)
        os.write(write, repr((message, key(), own_stream()._draws)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    message, inside, draws = ast.literal_eval(os.read(read, 10_000).decode())
    os.close(read)
    assert "does not go on in a fork" in message
    assert inside != before == key()
    assert draws == 0


def test_a_stream_is_not_copied_and_draws_in_no_recording():
    each = DeviceStream(add_noise_in_torch)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(each)

    def step(total):
        each.add_noise([NoisePart(0, total, 2.0**30, 1.0, 1.0, total)])
        return total

    with pytest.raises(RuntimeError, match="must not be recorded"):
        make_fx(step)(torch.zeros(9))
    assert (step(torch.zeros(9)) != 0).all()


@pytest.fixture
def with_definition(monkeypatch):
    """Let releases of the secure source take the device's way, with the definition for the kernel."""
    monkeypatch.setitem(sys.modules, "privet.noise.device.kernel", SimpleNamespace(add_noise_by_kernel=add_noise_in_torch))
    monkeypatch.setattr(
        gaussian, "noised_on_device", lambda source, total, past: past is None and isinstance(source, SecureSource)
    )
    own_stream.cache_clear()
    yield
    own_stream.cache_clear()


def clipped(sensitivity=C, **tensors):
    return ClippedSum(tensors, sensitivity, torch.zeros(0, dtype=torch.float64))


class Replay(FixedSource):
    """Gives numbers that were drawn elsewhere."""

    def __init__(self, drawn):
        super().__init__()
        self.drawn = drawn

    def normals(self, size):
        assert size == len(self.drawn)
        return iter([self.drawn])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divisor", [1.0, -0.37])
def test_a_release_is_the_hosts_to_the_last_bit_given_its_numbers(with_definition, dtype, divisor):
    sums = {
        "w": torch.randn(70, 300, dtype=dtype), "b": 1e5 * torch.randn(9, dtype=dtype), "none": torch.zeros(0, 3, dtype=dtype),
        "strided": torch.randn(20, 4, dtype=dtype)[:, 1],
    }  # fmt: skip
    scales = {"b": 3e4}
    total = ClippedSum(sums, C, torch.zeros(0), noise_scales=scales)
    kept = {name: tensor.clone() for name, tensor in sums.items()}
    found = release(total, Token(1, SIGMA), SecureSource(), divisor)
    used = own_stream()
    key, draws = tuple(used._key.tolist()), used._draws
    assert draws == 1
    drawn = []
    for place, tensor in enumerate(sums.values()):  # the numbers themselves, not in cells
        tiles = -(-tensor.numel() // definition.TILE)
        z = normals(chacha20(key, (place, 0, 0), torch.arange(tiles * definition.BLOCKS)))
        drawn.append(z.view(8, tiles, definition.BLOCKS).transpose(0, 1).reshape(-1)[: tensor.numel()])
    expected = release(total, Token(1, SIGMA), Replay(torch.cat(drawn)), divisor)
    assert (found.sensitivity, found.standard_deviation) == (expected.sensitivity, expected.standard_deviation)
    assert found.sensitivity * abs(divisor) > C  # with the term for rounding
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
        assert (found.tensors[name].shape, found.tensors[name].dtype) == (sums[name].shape, dtype)
        assert torch.equal(sums[name], kept[name])


def test_a_release_lies_on_the_public_grid_with_the_right_deviation(with_definition):
    grid, size = 2.0 ** (math.floor(math.log2(SIGMA * C)) - 30), 100_000
    total = torch.rand(size, dtype=torch.float64) * 1e-3
    out = release(clipped(w=total), Token(1, SIGMA), SecureSource())
    assert torch.equal(out.tensors["w"], (out.tensors["w"] / grid).round() * grid)
    assert out.sensitivity == C + grid * math.sqrt(size)
    assert out.tensors["w"].std().item() == pytest.approx(out.standard_deviation, rel=0.03)


def test_a_release_may_reuse_the_memory_of_the_sum(with_definition):
    total = torch.zeros(5000)
    out = release(clipped(w=total), Token(1, SIGMA), SecureSource(), reuse=True)
    assert out.tensors["w"].data_ptr() == total.data_ptr()
    assert len(total.unique()) > 4990


def test_sums_on_both_sides_get_noise_where_they_are(with_definition, monkeypatch):
    monkeypatch.setattr(gaussian, "noised_on_device", lambda source, total, past: len(total) == 300)
    source, asked = SecureSource(), []
    drawn = source.normals
    monkeypatch.setattr(source, "normals", lambda size: asked.append(size) or drawn(size))
    sums = {"a": torch.zeros(200), "b": torch.zeros(300), "c": torch.zeros(77)}
    out = release(clipped(**sums), Token(1, SIGMA), source).tensors
    assert asked == [277]
    assert own_stream()._draws == 1
    assert all(bool((tensor != 0).all()) for tensor in out.values())


def test_correlated_noise_and_other_sources_stay_on_the_host():
    class OnDevice(torch.Tensor):
        is_cuda = True

    total = torch.zeros(3).as_subclass(OnDevice)
    assert not gaussian.noised_on_device(FixedSource(), total, None)
    assert not gaussian.noised_on_device(SecureSource(), torch.zeros(3), None)
    past = object()
    assert not gaussian.noised_on_device(SecureSource(), total, past)


def test_the_statement_names_the_source_that_is_used(with_definition):
    source, sums = SecureSource(), [torch.zeros(3)]
    assert claim_of(source, sums, None) == package.CLAIM
    assert "ChaCha20 on the device" in package.CLAIM
    assert claim_of(source, sums, object()) == claim_of(source, [], None) == SecureSource.claim
    assert claim_of(FixedSource(), sums, None) == FixedSource.claim


def test_a_training_draws_once_a_step_and_its_statement_says_where(with_definition):
    data, model = torch.utils.data.TensorDataset(torch.randn(60, 3), torch.randn(60)), torch.nn.Linear(3, 1)
    plan = privet.Plan(
        examples=60, sampling=privet.sampling.Poisson(batch_size=20), steps=4, delta=1e-5,
        clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=2.0),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = privet.Training(plan, model, lambda model, batch: (model(batch[0])[:, 0] - batch[1]).square(), optimizer, data)
    training.run()
    assert own_stream()._draws == 4
    assert training.guarantee().random_source == package.CLAIM


def test_a_kernel_is_used_if_it_gives_the_bits_of_the_definition(monkeypatch):
    def off_by_one_cell(key, draw, parts):
        add_noise_in_torch(key, draw, parts)
        parts[0].released[-1] += parts[0].unit

    assert agree(add_noise_in_torch, HOST)
    assert not agree(off_by_one_cell, HOST)
    reason_against.cache_clear()
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "privet.noise.device.kernel", raising=False)
    assert "triton" in reason_against(HOST)
    assert not stream.serves(torch.zeros(3))
    reason_against.cache_clear()
    monkeypatch.setenv("PRIVET_KERNELS", "0")
    assert "switched off" in reason_against(HOST)
    reason_against.cache_clear()


INTERPRETED = """
import os, torch
from privet.noise.device.definition import NoisePart, add_noise_in_torch
from privet.noise.device.kernel import add_noise_by_kernel
key = torch.tensor([int.from_bytes(os.urandom(4), "little") for _ in range(8)])
for dtype, draw in ((torch.float32, (5, 0)), (torch.float64, (2**32 - 1, 2**31))):
    strided = torch.randn(700, 2, dtype=dtype)[:, 1]
    sums = [1e3 * torch.randn(1500, dtype=dtype), torch.zeros(0, dtype=dtype), 1e7 * strided]
    sums[0][:4] = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0])
    found = []
    for add_noise in (add_noise_in_torch, add_noise_by_kernel):
        parts = [NoisePart(7 * i, x, 1.7 * 2.0**30, 2.0**-31, 0.3 * 2.0**-31, torch.empty(len(x), 2, dtype=dtype)[:, 0])
                 for i, x in enumerate(sums)]
        add_noise(key, draw, parts)
        found.append(torch.cat([part.released for part in parts]))
    assert torch.equal(found[0].nan_to_num(), found[1].nan_to_num())
print("equal")
"""


@WITH_TRITON
@pytest.mark.slow
def test_the_kernel_gives_the_bits_of_the_definition():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True, env=environment)
    assert done.stdout == "equal\n", done.stderr


COMPILED = """
import triton, sys
from triton.backends.compiler import GPUTarget
from privet.noise.device import kernel
for number in ("fp32", "fp64"):
    signature = {"total": f"*{number}", "released": f"*{number}", "key": "*i64", "row": "*i64"}
    source = triton.compiler.ASTSource(fn=kernel._release, signature=signature, constexprs={})
    print(triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options={"enable_fp_fusion": False}).asm["ptx"])
"""


@WITH_TRITON
@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_the_kernel_compiles_for_devices_that_are_not_here_and_rounds_as_ieee_says(architecture):
    """No product and sum is fused, and quotients and roots are rounded to nearest."""
    done = subprocess.run([sys.executable, "-c", COMPILED, str(architecture)], capture_output=True, text=True)
    if done.returncode and "GPUTarget" in done.stderr:
        pytest.skip("this Triton does not compile without a device")
    assert done.returncode == 0, done.stderr
    used = set(
        re.findall(r"^\s+(?:@\S+ )?((?:fma|mad|mul|add|sub|div|sqrt|rcp|ex2|lg2|sin|cos)\S*\.f(?:32|64))\s", done.stdout, re.M)
    )
    assert used == {f"{name}.rn.f64" for name in ("mul", "add", "sub", "div", "sqrt")}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_secure_noise_is_added_on_a_device_where_triton_runs(dtype):
    total = torch.zeros(70, 1000, dtype=dtype, device="cuda")
    if reason_against(total.device):
        pytest.skip(reason_against(total.device))
    draws = own_stream()._draws
    out = release(clipped(w=total), Token(1, SIGMA), SecureSource())
    assert own_stream()._draws == draws + 1
    assert out.tensors["w"].std().item() == pytest.approx(out.standard_deviation, rel=0.03)
