"""A program that ends while the loop over its steps is open: no traceback, and all that was spent counts."""

import subprocess
import sys

from privet.ledger import read_history

PROGRAM = """
import sys, privet, torch

data = torch.utils.data.TensorDataset(torch.randn(40, 5))
model = torch.nn.Linear(5, 1)
plan = privet.Plan(
    examples=40, sampling=privet.sampling.Poisson(6), steps=50, clipping=privet.clipping.Flat(0.7), delta=1e-3,
    noise=privet.noise.Gaussian(1.7),
)
loss_fn = lambda model, batch: model(batch[0])[:, 0].square()
optimizer, reading = torch.optim.SGD(model.parameters(), lr=0.3), privet.Reading(probe=False)
steps = iter(privet.Training(plan, model, loss_fn, optimizer, data, sys.argv[1], reading=reading))
next(steps), next(steps)
"""


def test_a_loop_left_open_ends_in_silence(tmp_path):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "run"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert read_history(tmp_path / "run" / "ledger")[0].spent >= 2
