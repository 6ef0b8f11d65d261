import oracle
import pytest
import torch
from recording import cover
from torch import nn
from torch.utils.checkpoint import checkpoint

from privet._utils.randomness import preserve_generators
from privet.gradients import per_example_gradients, per_example_norms
from privet.gradients.core.examples import split_batch, stack
from privet.gradients.core.randomness import Draws, draw_torch_seed
from privet.gradients.engine import Engine
from privet.gradients.methods import ghost
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.loop import differentiate
from privet.gradients.parameters import trainable
from rounding import assert_equal_up_to_rounding


def test_writes_to_an_input_are_discarded():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    before = x.clone()
    for method in ("ghost", "loop"):
        per_example_gradients(model, lambda m, x: m(x.mul_(2)).sum(1), x, method=method)
        assert torch.equal(x, before)


def test_writes_to_an_input_are_discarded_at_the_next_parameters():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    past = ((0.5, {name: value.detach().clone() for name, value in model.named_parameters()}),)
    found, expected = (cover(model, loss, x, "loop", past=past).gradients["weight"] for loss in (
        lambda m, x: m(x.mul_(2)).sum(1), lambda m, x: m(x * 2).sum(1),
    ))  # fmt: skip
    assert torch.equal(found, expected)


def test_writes_to_examples_that_privet_read_are_discarded():
    """A pass that fails after the write is repeated by the loop, and every step may use the batch again."""

    def loss(m, x):
        x.mul_(2).add_(1)
        return m(x).sum(1)

    model, examples = nn.Linear(3, 2), stack(list(torch.randn(4, 1, 3)))
    before = examples.leaves[0].clone()
    for method in ("ghost", "loop"):
        engine = Engine(model, loss, trainable(model), method)
        for _ in range(2):
            with preserve_generators():
                found = torch.cat([tape.gradients()["weight"] for _, tape in engine.tapes(examples)])
            assert_equal_up_to_rounding(found, (2 * before + 1).expand(4, 2, 3))
            assert torch.equal(examples.leaves[0], before)


def test_the_loop_repeats_the_random_numbers_of_a_pass():
    """The check compares a pass with the loop at equal random numbers, so only gradients can differ."""
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.4), nn.Tanh(), nn.Linear(5, 1)), torch.randn(4, 6)

    def loss(m, x):
        return (m(x + 0.1 * torch.randn_like(x)) * torch.rand(1)).sum(1)

    program, examples, draws = Program(model, loss, trainable(model)), split_batch(x), Draws(4, draw_torch_seed)
    with preserve_generators():
        together = ghost.record(program, examples, draws).gradients()
        for position in range(4):
            where = torch.tensor([position])
            alone = differentiate(program, examples.select(where), draws.restart(where), 0).gradients()
            for name, value in alone.items():
                assert torch.allclose(value[0], together[name][position], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*use_reentrant.*")
def test_grad_is_unchanged_although_a_reentrant_checkpoint_fills_it():
    inner, outside = nn.Linear(3, 3).double(), nn.Parameter(torch.ones(3).double())
    teacher, model = nn.Linear(3, 3).double(), nn.Sequential(inner, nn.Linear(3, 1).double())
    tensors = [*model.parameters(), *teacher.parameters(), outside]
    for tensor in tensors:
        tensor.grad = torch.full_like(tensor, 7.0)

    def run(checkpointed):
        def loss(m, x):
            h = checkpoint(m[0], x.requires_grad_(), use_reentrant=True) if checkpointed else m[0](x)
            return ((m[1](h) - teacher(x) * outside).square()).sum(1)

        return loss

    x = torch.randn(4, 3, dtype=torch.float64)
    covered = cover(model, run(True), x)
    assert covered.looped == 4
    assert oracle.relative_error_per_example(covered.gradients, oracle.plain_gradients(model, run(False), x)) <= 1e-5
    for method in ("ghost", "loop"):
        cover(model, run(False), x, method)
    assert all(bool((tensor.grad == 7.0).all()) for tensor in tensors)


def test_sparse_gradients_are_made_dense():
    model, x = nn.Embedding(5, 3, sparse=True), torch.tensor([[1, 1], [2, 4]])
    found = per_example_gradients(model, lambda m, x: m(x).square().sum((1, 2)), x, method="loop")["weight"]
    dense = nn.Embedding.from_pretrained(model.weight.detach(), freeze=False)
    assert_equal_up_to_rounding(found, cover(dense, lambda m, x: m(x).square().sum((1, 2)), x, "loop").gradients["weight"])


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("method", ["auto", "loop"])
def test_hooks_that_wait_for_a_gradient_do_not_run_and_stay(method):
    """Reentrant checkpoints need a backward pass that fills `.grad`, whose effects are undone."""
    model, seen = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), []

    def losses(model, x):
        return model[1](checkpoint(model[0], x.clone().requires_grad_(), use_reentrant=True).tanh()).square().sum(1)

    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: pytest.fail("the gradient of an example is seen"))
    per_example_norms(model, losses, torch.randn(3, 3), method=method)
    model[1].weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.norm()))
    model[0].weight._post_accumulate_grad_hooks.clear()
    losses(model, torch.randn(3, 3)).sum().backward()
    assert len(seen) == 1
