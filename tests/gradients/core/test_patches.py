import contextlib
import threading

import pytest
import torch
import torch._dynamo
from recording import Seen, cover
from torch import nn
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from privet.gradients.core import patches
from privet.gradients.core.patches import forbid_user_code_on_physical_batch, force_eager, patch_recomputation
from privet.gradients.core.recorder import UntraceableError
from rounding import assert_equal_up_to_rounding

SEEN = Seen()


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.addmm.default:
            SEEN(args[1])
        return func(*args, **(kwargs or {}))


class Saving(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        super().__init__(lambda x: (None if x.shape == (3, 3) else SEEN(x), x)[1], lambda x: x)


OF_USERS = {"operators": Operators, "saved tensors": Saving}
OF_TORCH = {
    "save on cpu": torch.autograd.graph.save_on_cpu, "device": lambda: torch.device("cpu"),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(False),
    "profiler": lambda: torch.autograd.profiler.profile(record_shapes=True),
}  # fmt: skip


def run(around, inside):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.randn(4, 3)

    def loss(m, x):
        with inside():
            return m(x).square().sum(1)

    with around():
        found = cover(model, loss, x)
    expected = cover(model, lambda m, x: m(x).square().sum(1), x)
    assert all(torch.allclose(value, found.gradients[name], atol=1e-6) for name, value in expected.gradients.items())
    return found


@pytest.mark.parametrize(("around", "inside"), [
    *((contextlib.nullcontext, inside) for inside in OF_USERS.values()), (Saving, contextlib.nullcontext),
])  # fmt: skip
def test_user_code_inside_a_pass_sees_one_example(around, inside):
    SEEN.items.clear()
    assert run(around, inside).looped == 4
    assert {len(x) for x in SEEN.items} == {1}


@pytest.mark.parametrize("kind", OF_TORCH)
def test_what_is_torchs_own_stays_in_the_pass(kind):
    assert run(contextlib.nullcontext, OF_TORCH[kind]).looped == 0
    assert kind == "profiler" or run(OF_TORCH[kind], contextlib.nullcontext).looped == 0


def test_the_policy_of_a_selective_checkpoint_sees_one_example():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), torch.randn(4, 3)
    SEEN.items.clear()

    def policy(ctx, op, *args, **kwargs):
        if op is torch.ops.aten.tanh.default:
            SEEN(args[0])
        return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        return checkpoint.create_selective_checkpoint_contexts(policy)

    def loss(m, x):
        return checkpoint.checkpoint(m, x, use_reentrant=False, context_fn=contexts).square().sum(1)

    assert cover(model, loss, x).looped == 4
    assert {len(x) for x in SEEN.items} == {1}


def test_outside_the_pass_everything_is_allowed_again():
    with pytest.raises(UntraceableError), forbid_user_code_on_physical_batch(), Operators():
        pass
    for kind in OF_USERS.values():
        try:
            with kind():
                nn.Linear(3, 3)(torch.randn(2, 3)).sum().backward()
        except UntraceableError as error:
            pytest.fail(str(error))


@contextlib.contextmanager
def overlapping(first, second):
    """Enter two contexts, leave the first for the body, and the second after it, as threads may."""
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    yield
    second.__exit__(None, None, None)


def test_passes_of_several_threads_may_end_in_any_order():
    with (
        overlapping(forbid_user_code_on_physical_batch(), forbid_user_code_on_physical_batch()),
        pytest.raises(UntraceableError, match="enters a mode"),
    ):
        Operators().__enter__()
    SEEN.items.clear()
    with Operators(), Saving():
        nn.Linear(3, 2)(torch.randn(2, 3)).sum().backward()
    assert SEEN.items
    seen = []
    module = compiled(seen)
    with overlapping(force_eager(), force_eager()):
        module(torch.ones(1, 2))
    assert not seen
    module(torch.ones(1, 2))
    assert len(seen) == 1
    begun = []
    with overlapping(watch(begun, "first"), watch(begun, "second")):
        run_a_checkpoint()
    assert begun == ["second"]
    run_a_checkpoint()
    assert begun == ["second"]


# ---- compiled modules


@pytest.fixture(params=["by the variable", "by the public function"])
def way(request, monkeypatch):
    """Set the stance this way."""
    if request.param == "by the public function":
        monkeypatch.setattr(patches, "_set_stance", lambda frames: torch.compiler.set_stance("force_eager"))
    return request.param


def compiled(seen):
    """Return a compiled module whose backend notes that it was called."""

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    torch._dynamo.reset()  # modules that other tests have compiled count against its limit of recompilations
    return torch.compile(nn.Linear(2, 1), backend=backend)


@pytest.mark.parametrize("error", [None, ValueError])
def test_afterwards_modules_are_compiled_again(way, error):
    """Inside, nothing is."""
    seen = []
    module = compiled(seen)
    with contextlib.suppress(ValueError), force_eager():
        module(torch.ones(1, 2))
        if error:
            raise error
    assert not seen
    with torch.compiler.set_stance("force_eager"):  # the user's comes back
        with force_eager():
            pass
        module(torch.ones(1, 2))
    assert not seen
    module(torch.ones(1, 2))
    assert len(seen) == 1


def test_the_variable_is_the_one_that_the_public_function_sets():
    """Where this fails, torch has changed, and entering a pass is slower and still right, or `_set_stance` must change."""
    frames = torch._dynamo.eval_frame
    assert hasattr(frames, "DynamoStance")
    with torch.compiler.set_stance("force_eager"):
        assert frames._stance.stance == "force_eager"


# ---- checkpoints


def run_a_checkpoint():
    x = torch.ones(2, requires_grad=True)
    checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
    assert_equal_up_to_rounding(x.grad, x.detach().cos())


def watch(seen, name):
    """Return the context of a pass that notes its name when a part is checkpointed."""

    def begin():
        seen.append(name)
        return lambda part: part()

    return patch_recomputation(begin)


def test_a_part_belongs_to_the_pass_of_its_thread():
    seen, entered, done = [], threading.Event(), threading.Event()

    def other():
        with watch(seen, "other"):
            entered.set()
            done.wait(60)
            run_a_checkpoint()

    thread = threading.Thread(target=other)
    with watch(seen, "this"):
        thread.start()
        entered.wait(60)
        run_a_checkpoint()
        done.set()
        thread.join()
    assert seen == ["this", "other"]
