"""Checks of an installed archive for `make dist`: it is complete, and its kernels are used and train what torch does.

    python smoke.py SOURCE

Run by the Python of a new environment, away from the repository. It starts itself again where there is no compiler to be found:
with PRIVET_KERNELS=0, and for every kind of processor up to this one that the wheel has kernels for.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

STEPS, EXAMPLES, WORDS = 20, 200, 50


def train() -> None:
    """Print which kernels are in use and what a model becomes with fixed noise, which is the same in every run."""
    import torch

    import privet
    from privet.gradients.layers.embedding import kernels as embedding
    from privet.gradients.masking import kernels as masking
    from privet.noise.compiled import arithmetic

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(torch.randint(WORDS, (EXAMPLES, 12)), torch.randint(3, (EXAMPLES,)))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.hidden, self.out = torch.nn.Embedding(WORDS, 64), torch.nn.Linear(64, 96), torch.nn.Linear(96, 3)

        def forward(self, words):
            return self.out(self.hidden(self.embedding(words).mean(1)).tanh())

    def loss_fn(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    plan = privet.Plan(
        examples=EXAMPLES, sampling=privet.sampling.Poisson(batch_size=50), steps=STEPS, delta=1e-5,
        clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=0.5, source="fixed"),
        sparsification=privet.sparsification.Random(final_rate=0.9),
    )  # fmt: skip
    model = Model()
    privet.Training(plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.5), data).run()
    forms = [form.description for form in (arithmetic(), embedding.load_kernels(), masking.load_kernels())]
    print(json.dumps({"forms": forms, "parameters": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()}))


def run(**environment: str) -> tuple[list[str], list[float]]:
    """Return what `train` prints in a process that finds no compiler."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "PATH": empty, "PRIVET_CACHE": empty, **environment}
        ended = subprocess.run([sys.executable, __file__, "train"], env=environment, check=True, capture_output=True, text=True)
    found = json.loads(ended.stdout)
    return found["forms"], found["parameters"]


def check_files(source: Path) -> None:
    """Refuse an archive that lacks a file of the source: what a rule of .gitignore matches is left out, packages too."""
    installed = distribution("privet")
    names = [path.relative_to(source) for path in sorted(source.glob("privet*/**/*")) if path.is_file()]
    names = [name for name in names if name.suffix != ".pyc" and not name.parts[0].endswith(".egg-info")]
    missing = [str(name) for name in names if not Path(str(installed.locate_file(name))).is_file()]
    assert names
    assert not missing, missing
    print(f"{len(names)} files of the source are there")


def main(source: Path) -> None:
    import torch

    check_files(source)
    installed = distribution("privet")
    package = Path(str(installed.locate_file("privet"))).resolve()
    # Where the wheel was built without a compiler, there are none.
    pure = "Root-Is-Purelib: true" in str(installed.read_text("WHEEL"))
    here = torch.backends.cpu.get_cpu_capability().lower()
    kinds = ["default", "avx2", "avx512"]
    kinds = kinds[: kinds.index(here) + 1] if here in kinds else [here]
    forms, expected = run(PRIVET_KERNELS="0")
    assert forms == ["torch: switched off by PRIVET_KERNELS=0"] * 3, forms
    for kind in kinds:
        forms, found = run(ATEN_CPU_CAPABILITY=kind)
        for form in forms:
            file = Path(form.removeprefix("compiled: "))
            assert form.startswith("torch: no compiler") if pure else form.startswith("compiled: "), form
            assert pure or (file.is_relative_to(package) and file.stem.endswith(kind if kind in kinds[1:] else "default")), form
        far = max(abs(one - other) for one, other in zip(found, expected, strict=True))
        which = "no kernels" if pure else f"kernels for {kind}"
        print(f"{which}: {len(found)} parameters after {STEPS} steps differ by at most {far:.1e} from those without kernels")
        assert far < 1e-4


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        main(Path(sys.argv[1]).resolve())
