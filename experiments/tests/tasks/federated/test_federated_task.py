"""Recipes on the data of many users, on made-up files: who trains, at which level, and with which noise."""

import csv
import gzip
import json
import random
from dataclasses import replace

import pytest
import torch

from privet.clipping import Flat, Unclipped
from privet.data import DataUnavailableError
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sparsification import Random
from privet_experiments import RECIPES, Extent, Records, reproduce
from privet_experiments.tasks.federated.clients import clients, size, split
from privet_experiments.tasks.federated.files import FILES
from privet_experiments.tasks.federated.problems import PROBLEMS
from privet_experiments.tasks.federated.user_config import UserConfig
from privet_experiments.tasks.job import TaskExamples
from rounding import assert_equal_up_to_rounding

USERS = 60
NAMES = [name for name in RECIPES if name.startswith("federated-")]
NOT_PRIVATE = {"clipping": Unclipped(1.0, non_private=True), "noise": Gaussian(0.0, non_private=True)}


def rows(kind):
    draw = random.Random(1)
    for user in range(USERS):
        for _ in range(draw.randint(1, 6)):
            if kind == "sent140":
                yield {"user": user, "label": (label := draw.randint(0, 1)), "text": ["so sad", "so glad"][label]}
            elif kind == "shakespeare":
                yield {"user": user, "text": "the cat sat on the mat " * draw.randint(1, 5)}
            else:
                yield {"userId": user, "movieId": (film := draw.randint(1, 4)), "rating": film, "timestamp": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with all three files, one of them compressed."""
    found = tmp_path_factory.mktemp("users")
    with gzip.open(found / f"{FILES['sent140'].name}.gz", "wt", newline="") as file:
        write(file, rows("sent140"))
    with (found / FILES["movielens"].name).open("w", newline="") as file:
        write(file, rows("movielens"))
    (found / FILES["shakespeare"].name).write_text("".join(json.dumps(row) + "\n" for row in rows("shakespeare")))
    return found


def write(file, made):
    made = list(made)
    table = csv.DictWriter(file, made[0])
    table.writeheader()
    table.writerows(made)


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_every_arm_comes_to_a_row(name, folder, tmp_path):
    recipe = RECIPES[name]
    found = reproduce(recipe, tmp_path, Extent(seeds=1, epochs=1), folder=folder)
    assert [row.arm for row in found.rows] == [arm.name for arm in recipe.arms]
    units = {record.arm: (record.plan["unit"], record.plan["examples"]) for record in Records(tmp_path / "runs.jsonl")}
    held = clients(TaskExamples(recipe.data, str(folder)))
    assert units["DP-FedAvg, ε = 2"] == units["central, user level, ε = 2"] == ("one user", held.private.users)
    assert units["central, example level, ε = 2"] == ("one example", len(held.private.owners))
    for record in Records(tmp_path / "runs.jsonl"):
        asked = next(arm.settings.get("epsilon") for arm in recipe.arms if arm.name == record.arm)
        assert record.epsilon == float("inf") if asked is None else record.epsilon <= asked
        assert (record.metrics["bytes_up"] > 0) == ("FedAvg" in record.arm)


@pytest.mark.parametrize("data", PROBLEMS)
def test_parts_share_no_user_and_are_those_of_the_hash(data, folder):
    held = clients(TaskExamples(data, str(folder)))
    parts = {name: set(getattr(held, name.replace(" ", "_")).owners) for name in ("private", "held out", "public", "rehearsed")}
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == USERS
    assert all(split(user) == name for name, users in parts.items() for user in users)


def test_fewer_users_are_the_first(folder):
    examples = TaskExamples("sent140", str(folder), 7)
    private = sorted(user for user in range(USERS) if split(user) == "private")
    assert set(clients(examples).private.owners) == set(private[:7])
    assert size(examples) == 7
    with pytest.raises(InvalidArgumentError, match="at most"):
        size(replace(examples, number=USERS))


@pytest.mark.parametrize("data", PROBLEMS)
@pytest.mark.parametrize("where", [None, "empty"])
def test_a_missing_file_is_named_with_where_it_is_published(data, where, tmp_path):
    with pytest.raises(DataUnavailableError) as found:
        size(TaskExamples(data, None if where is None else str(tmp_path)))
    assert FILES[data].name in str(found.value)
    assert FILES[data].published in str(found.value)
    assert "--folder" in str(found.value)


@pytest.mark.product
@pytest.mark.parametrize(("data", "rate"), [("sent140", 50.0), ("shakespeare", 10.0), ("movielens", 1.0)])
@pytest.mark.parametrize("method", ["federated", "users", "examples"])
def test_without_noise_each_method_learns_what_a_constant_cannot(data, rate, method, folder, tmp_path):
    better = {"accuracy": 1, "root_mean_squared_error": -1}
    recipe = RECIPES[f"federated-{data}"]
    trivial = recipe.arms[-1]
    settings = {"method": method, "learning_rate": rate, "share": 1.0, "plan": {"steps": 20, **NOT_PRIVATE}, "local_rate": 1.0}
    arm = replace(recipe.arms[0], settings=settings)
    short = replace(recipe, arms=(arm, trivial), claims=(), charts=())
    trained, constant = (
        {name: found.mean for name, found in row.metrics.items()}
        for row in reproduce(short, tmp_path, Extent(seeds=1), folder=folder).rows
    )
    metric = recipe.metrics[0]
    assert better[metric] * trained[metric] > better[metric] * constant[metric]


def test_a_rehearsal_has_public_users_and_the_noise_of_the_private_training(folder, tmp_path):
    recipe = RECIPES["federated-sent140"]
    short = replace(recipe, arms=recipe.arms[:1], claims=(), charts=())
    rehearsed = replace(short, common={**recipe.common, "rehearsal": True})
    for number, one in enumerate((short, rehearsed)):
        reproduce(one, tmp_path / str(number), Extent(seeds=1), folder=folder)
    (real,), (found,) = (list(Records(tmp_path / str(number) / "runs.jsonl")) for number in range(2))
    held = clients(TaskExamples("sent140", str(folder)))
    assert (real.plan["examples"], found.plan["examples"]) == (held.private.users, held.public.users)
    noise = [plan["noise"]["multiplier"] / plan["sampling"]["batch_size"] for plan in (real.plan, found.plan)]
    assert noise[0] == pytest.approx(noise[1])
    assert found.epsilon > real.epsilon


def test_padding_of_a_piece_does_not_change_its_loss():
    problem, torch_ = PROBLEMS["shakespeare"], torch.Generator().manual_seed(0)
    model = problem.build()
    torch.nn.init.normal_(model.linear.weight, generator=torch_)
    inputs, after = torch.randint(0, 20, (2, 3, 10), generator=torch_)
    whole = problem.loss(model, (inputs, after))
    padded = problem.loss(model, (torch.nn.functional.pad(inputs, (0, 5)), torch.nn.functional.pad(after, (0, 5), value=-100)))
    assert_equal_up_to_rounding(whole, padded)


@pytest.mark.parametrize(
    "changes", [{"method": "median"}, {"learning_rate": None}, {"share": 0.0}, {"share": 1.5}, {"epsilon": -1.0}, {"cap": 0}]
)
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(InvalidArgumentError):
        UserConfig(**{"plan": {"steps": 3, "clipping": Flat(1.0)}, "learning_rate": 1.0} | changes)


def test_masks_belong_to_the_identity_of_a_run():
    dense = UserConfig({"steps": 3, "clipping": Flat(1.0)}, learning_rate=1.0)
    sparse = replace(dense, plan={**dense.plan, "sparsification": Random(0.9)})
    assert dense.described() != sparse.described()
    assert (dense.lasting(2).steps(0), dense.shortened(0.1).steps(0)) == (4, 1)
