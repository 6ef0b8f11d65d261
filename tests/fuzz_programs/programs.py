"""Random programs: a model of several operations and its loss, as a user would write them, with random parameters and data."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import torch
from hypothesis import strategies as st
from operations import FLOATS, IMAGE, KINDS, LENGTHS, MASK, OPERATIONS, SEQUENCE, TOKENS, VECTOR, VOCABULARY, Sizes, Step
from torch import Tensor, nn

for _path in sorted(Path(__file__).parent.glob("operations_*.py")):
    importlib.import_module(_path.stem)  # which enters its operations

CONTENTS = ("plain", "zeros", "one of zeros", "repeated", "two alike", "outlier")


@dataclass(frozen=True)
class Line:
    """A line of a program: an operation, the names of its inputs, and the number of the module that it owns or shares."""

    operation: str
    inputs: tuple[str, ...]
    module: int


@dataclass(frozen=True)
class Program:
    """A model, its data and how its clipped sum is asked for; its repr is Python that makes it again.

    Args:
        sizes: the public sizes.
        lines: what the forward does; line k makes the tensor called "tk".
        seed: of the parameters and the data.
        contents: which data: one of CONTENTS.
        double: whether the model is in float64, else float32.
        part: physical batch size; None for all.
        bound: the clip bound over the median of the norms.
    """

    sizes: Sizes
    lines: tuple[Line, ...]
    seed: int = 0
    contents: str = "plain"
    double: bool = True
    part: int | None = None
    bound: float = 0.7

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of the model and of its data."""
        return torch.float64 if self.double else torch.float32

    def model(self) -> Model:
        """Return the model with fresh state."""
        owners = {line.module: line.operation for line in self.lines}
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(self.seed)  # `torch.manual_seed` takes a millisecond
            steps = {str(k): Step(OPERATIONS[name], self.sizes) for k, name in sorted(owners.items())}
            model = Model(self.lines, self.results(), steps)
            with torch.no_grad():
                for parameter in model.parameters():  # no gradient may vanish by a lucky initial value
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return model.to(self.dtype)

    def batch(self) -> dict[str, Tensor]:
        """Return those data that the program reads."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        everything = data(self.sizes, self.contents, generator)
        read = {name for line in self.lines for name in line.inputs}
        return {
            name: value.to(self.dtype) if value.is_floating_point() else value
            for name, value in everything.items()
            if name in read
        }

    def results(self) -> list[str]:
        """Return the names of what is computed and not used again."""
        used = {name for line in self.lines for name in line.inputs}
        made = {f"t{k}": OPERATIONS[line.operation].returns for k, line in enumerate(self.lines)}
        return [name for name, kind in made.items() if name not in used and kind in FLOATS]

    def without(self, k: int) -> Program:
        """Return the program without a line: who used its result takes data of the same kind."""
        kind = OPERATIONS[self.lines[k].operation].returns

        def renamed(name: str) -> str:
            number = int(name[1:]) if name[1:].isdigit() else -1
            return kind if number == k else f"t{number - 1}" if number > k else name

        kept = [line for number, line in enumerate(self.lines) if number != k]
        lines = tuple(replace(line, inputs=tuple(map(renamed, line.inputs))) for line in kept)
        return replace(self, lines=lines)

    def source(self) -> str:
        """Return the program in readable lines, with the source of its operations."""
        lines = [f"t{k} = m{line.module}.{line.operation}({', '.join(line.inputs)})" for k, line in enumerate(self.lines)]
        functions = {line.operation: inspect.getsource(OPERATIONS[line.operation].function) for line in self.lines}
        return "\n".join([*lines, f"loss of {', '.join(self.results())}", "", *functions.values()])

    @property
    def one_at_a_time(self) -> bool:
        """Return whether only its results for batches of one are meant."""
        return any(OPERATIONS[line.operation].one_at_a_time for line in self.lines)


class Model(nn.Module):
    """What a program computes: a dictionary of tensors in, a list of tensors out.

    Its code does not name the table of operations, so that a pass follows those of the program alone.
    """

    def __init__(self, lines: tuple[Line, ...], results: list[str], steps: dict[str, nn.Module]) -> None:
        super().__init__()
        self.lines, self.results, self.steps = lines, results, nn.ModuleDict(steps)

    def forward(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        found = dict(batch)
        for k, line in enumerate(self.lines):
            found[f"t{k}"] = self.steps[str(line.module)](*(found[name] for name in line.inputs))
        return [found[name] for name in self.results]


def loss_fn(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Return (B,) losses: smooth, with another slope for every number, and almost linear for large ones."""
    total = torch.zeros(
        len(next(iter(batch.values()))), dtype=next(model.parameters()).dtype if list(model.parameters()) else None
    )
    for result in model(batch):
        flat = result.flatten(1)
        weights = torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype)
        total = total + (((flat - 1).square() + 1).sqrt() * weights).mean(1)
    return total


def data(sizes: Sizes, contents: str, generator: torch.Generator) -> dict[str, Tensor]:
    """Return a tensor of every kind, with some examples that are extreme or alike."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(sizes.B, *shape, generator=generator, dtype=torch.float64)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (sizes.B, *shape), generator=generator)

    mask = whole(2, sizes.T).bool()
    mask[torch.arange(sizes.B), whole(sizes.T)] = True
    made = {
        VECTOR: normal(sizes.d), SEQUENCE: normal(sizes.T, sizes.d), IMAGE: normal(sizes.C, sizes.H, sizes.W),
        TOKENS: whole(VOCABULARY, sizes.T), MASK: mask, LENGTHS: 1 + whole(sizes.T),
    }  # fmt: skip
    position = int(torch.randint(sizes.B, (), generator=generator))
    for name, value in made.items():
        match contents:
            case "zeros" if name in FLOATS:
                value.zero_()
            case "one of zeros" if name in FLOATS:
                value[position] = 0
            case "repeated":
                value[:] = value[position].clone()
            case "two alike":
                value[position] = value[0]
            case "outlier" if name in FLOATS:
                value[position] *= 1e3
    return made


def random_sizes(chance: Random) -> Sizes:
    """Return sizes from 1 to 5, so often alike that code which goes by sizes is led astray."""
    number = chance.randint(2, 5)
    others = [chance.randint(1, 5) for _ in range(6)]
    match chance.randrange(4):
        case 0:
            return Sizes(*[number] * 6)
        case 1:  # as many examples as positions
            return Sizes(number, number, *others[2:])
        case _:
            return Sizes(*others)


def random_program(chance: Random) -> Program:
    """Return a program of three to ten lines, the first one with parameters."""
    drawn = random_sizes(chance)
    possible = sorted(name for name, operation in OPERATIONS.items() if operation.needs(drawn))
    trainable = [name for name in possible if OPERATIONS[name].parts and OPERATIONS[name].returns in FLOATS]
    made: list[tuple[str, str]] = []  # name and kind, the latest first
    lines: list[Line] = []
    for k in range(chance.randint(3, 10)):
        if lines and chance.random() < 0.12:  # a tie
            earlier = chance.choice(lines)
            name, module = earlier.operation, earlier.module
        else:
            name, module = chance.choice(possible if lines else trainable), k
        operation = OPERATIONS[name]
        inputs = []
        for kind in operation.takes:
            candidates = [*(other for other, its in made if its == kind), kind]
            inputs.append(chance.choice(candidates[:3]))
        lines.append(Line(name, tuple(inputs), module))
        made.insert(0, (f"t{k}", operation.returns))
    return Program(
        sizes=drawn, lines=tuple(lines), seed=chance.randrange(2**20), contents=chance.choice(CONTENTS),
        double=chance.random() < 0.75, part=chance.choice([None, None, *range(1, drawn.B + 1)]),
        bound=chance.choice([0.05, 0.7, 1.5]),
    )  # fmt: skip


def programs(salt: int) -> st.SearchStrategy[Program]:
    """Return a choice of programs, all different, and others for another salt.

    One number stands for a program: where hypothesis draws every choice it repeats them, and tries half of the operations.
    """
    return st.integers(0, 2**64).map(lambda number: random_program(Random(f"{salt} {number}")))


def alone(name: str, drawn: Sizes) -> Program:
    """Return the smallest program of one operation: something with parameters before and after it."""
    operation = OPERATIONS[name]
    layers = {VECTOR: "linear", SEQUENCE: "linear_per_position", IMAGE: "conv2d"}
    lines: list[Line] = []
    inputs = []
    for kind in operation.takes:
        if kind in layers:
            inputs.append(f"t{len(lines)}")
            lines.append(Line(layers[kind], (kind,), len(lines)))
        else:
            inputs.append(kind)
    lines.append(Line(name, tuple(inputs), len(lines)))
    result = f"t{len(lines) - 1}"
    after = {TOKENS: ("embedding", ()), MASK: ("masked_mean", (SEQUENCE,)), LENGTHS: ("last_position", (SEQUENCE,))}
    if operation.returns in layers:
        lines.append(Line(layers[operation.returns], (result,), len(lines)))
    else:
        following, others = after[operation.returns]
        lines.append(Line(following, (*others, result), len(lines)))
        if following != "embedding":
            lines.append(Line("linear", (f"t{len(lines) - 1}",), len(lines)))
    return Program(sizes=drawn, lines=tuple(lines), seed=len(name))


assert all(OPERATIONS[name].returns in KINDS for name in OPERATIONS)
