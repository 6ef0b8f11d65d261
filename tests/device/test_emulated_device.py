"""The emulated device refuses what a GPU refuses, and counts what it does."""

import ctypes
import os
import signal
from pathlib import Path

import emulated_cuda
import pytest
import torch
from torch.nn import functional as F

HERE = Path(__file__).parent


def read_by_the_host():
    x = torch.ones(3, device="cuda")
    child = os.fork()
    if not child:
        ctypes.string_at(x.data_ptr(), 4)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def test_the_host_cannot_read_its_memory(on_device):
    assert on_device(read_by_the_host) == signal.SIGSEGV


def numpy_of_it():
    return torch.ones(3, device="cuda").numpy()


def test_an_array_of_it_is_refused(on_device):
    with pytest.raises(AssertionError, match="can't convert cuda:0 device type tensor to numpy"):
        on_device(numpy_of_it)


def mixed(how):
    here, there = torch.ones(3, 3), torch.ones(3, 3, device="cuda")
    number = torch.tensor(2.0)
    return {
        "sum": lambda: there + here,
        "product": lambda: here @ there,
        "choice": lambda: torch.where(there > 0, there, here),
        "written": lambda: here.add_(there),
        "joined": lambda: torch.cat([here, there]),
        "indices": lambda: there.index_select(0, torch.tensor([1])),
        "number by position": lambda: there.index_select(0, torch.tensor(1)),
        "scaled by a number": lambda: (there * number).sum().item(),
        "rows by a list of the host": lambda: there[torch.tensor([0, 2])].sum().item(),
        "copied": lambda: here.copy_(there).sum().item(),
    }[how]()


@pytest.mark.parametrize("how", ["sum", "product", "choice", "written", "joined", "indices", "number by position"])
def test_tensors_of_two_devices_do_not_mix(how, on_device):
    with pytest.raises(AssertionError, match="Expected all tensors to be on the same device"):
        on_device(mixed, how)


@pytest.mark.parametrize(("how", "value"), [("scaled by a number", 18.0), ("rows by a list of the host", 6.0), ("copied", 9.0)])
def test_numbers_indices_and_copies_of_the_host_are_taken(how, value, on_device):
    assert on_device(mixed, how) == value


def without_a_kernel():
    return torch.ops.aten.mkldnn_linear(torch.ones(1, 2, device="cuda"), torch.ones(3, 2, device="cuda"))


def test_what_has_no_kernel_on_a_gpu_raises(on_device):
    with pytest.raises(AssertionError, match="NotImplementedError"):
        on_device(without_a_kernel)


def traced():
    x, weight = torch.randn(3, 4, device="cuda"), torch.randn(4, 5, device="cuda", requires_grad=True)
    pinned = torch.zeros(3).pin_memory()
    with emulated_cuda.Trace(HERE) as trace:
        F.relu(x @ weight).sum().backward()
        x.sum().item()
        x[x > 0]
        x.cpu()
        torch.zeros(5).cuda()
        torch.zeros(5).to("cuda", torch.float64)
        pinned.to("cuda", non_blocking=True)
    return sorted((*key[:2], key[2].function, times, trace.bytes[key]) for key, times in trace.times.items())


def test_launches_waits_copies_and_bytes_are_counted_by_place(on_device):
    found = on_device(traced)
    assert ("launch", "aten::mm", "traced", 1, 4 * (12 + 20 + 15)) in found
    assert ("launch", "aten::mm", "", 1, 4 * (12 + 20 + 15)) in found  # of the backward pass
    assert [each for each in found if "launch" not in each[0]] == [
        ("to device", "copy", "traced", 1, 20),
        ("to device", "copy", "traced", 1, 40),  # in float64
        ("to device", "copy, asynchronous", "traced", 1, 12),
        ("to host", "copy", "traced", 1, 48),
        ("wait", "aten::_local_scalar_dense", "traced", 1, 0),
        ("wait", "aten::index.Tensor", "traced", 1, 0),
    ]


def memory():
    before = torch.cuda.memory_allocated()
    x = torch.ones(1 << 20, device="cuda")
    held = torch.cuda.memory_allocated() - before
    copy = torch._lazy_clone(x)
    shared = torch.cuda.memory_allocated() - before
    copy.add_(1.0)
    del copy
    return held, shared, torch.cuda.max_memory_allocated() - before, x.sum().item()


def test_memory_is_counted_and_copies_on_write_are_kept_apart(on_device):
    held, shared, peak, total = on_device(memory)
    assert (held, shared, total) == (4 << 20, 4 << 20, 1 << 20)
    assert peak >= 8 << 20


def sparse():
    values = torch.ones(2, 3, device="cuda")
    rows = torch.sparse_coo_tensor(torch.tensor([[0, 2]], device="cuda"), values, (4, 3), is_coalesced=True)
    there = rows.cpu().to("cuda")
    assert there.is_cuda
    assert rows._values().data_ptr() == values.data_ptr()
    return (rows + there).to_dense().cpu()


def test_sparse_tensors_are_on_the_device_too(on_device):
    assert on_device(sparse).sum(1).tolist() == [6.0, 0.0, 6.0, 0.0]


def drawn(device):
    torch.manual_seed(7)
    return [torch.rand(3, device=device).tolist(), torch.randn(3, device=device).tolist()]


def test_a_seed_gives_the_numbers_of_the_cpu(on_device):
    assert on_device(drawn, "cuda") == on_device(drawn, "cpu")


def test_this_process_has_no_device(on_device):
    assert on_device(torch.cuda.is_available)
    assert not torch.cuda.is_available()


def test_another_version_of_torch_is_skipped(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.14.0+cpu")
    assert "written for torch" in emulated_cuda.reason_to_skip()


def test_a_machine_without_a_compiler_is_skipped(monkeypatch):
    emulated_cuda.built_file.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert emulated_cuda.reason_to_skip() == "the emulated device cannot be built: there is no compiler on PATH"
