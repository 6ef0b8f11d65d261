import json
import os
import platform
import subprocess
import sys

import pytest

from privet._utils import malloc

COUNT = """
import ctypes, json, resource, torch
from privet._utils import malloc

# No huge pages, of which some systems hand out one instead of 512: PR_SET_THP_DISABLE of prctl(2).
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)

# Of a few megabytes, and above the 32 MB from which on glibc maps every block by itself.
def step():
    tensors = [torch.ones(megabytes, 1 << 18) for megabytes in (1, 8, 48)]

def pages():
    # The heap takes its shape.
    for _ in range(8):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
print(json.dumps([pages(), malloc.keep_freed_memory(), pages()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_a_step_takes_the_memory_that_the_one_before_freed():
    """Else the system hands out pages again, which it counts."""
    undecided = {name: value for name, value in os.environ.items() if name not in malloc._DECIDED}
    for _ in range(3):  # in some processes one of the steps gets fresh pages for the largest tensor
        done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, env=undecided)
        usual, kept, fewer = json.loads(done.stdout)
        if not usual:
            pytest.skip("this system does not count the pages that it hands out")
        assert kept
        if 2 * fewer < usual:
            return
    pytest.fail(f"{fewer} pages instead of {usual}")


@pytest.mark.parametrize("variable", malloc._DECIDED)
def test_what_the_environment_has_decided_stays(variable, monkeypatch):
    monkeypatch.setenv(variable, "65536")
    assert malloc.keep_freed_memory() is False


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert malloc.keep_freed_memory() is False
