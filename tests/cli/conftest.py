"""Runs draw no report, which takes longer than training here, unless a test is about it."""

import numpy as np
import pytest
from asked import ask
from made import IDS, MIXTURE, SAMPLED, SCHEMA, write_people

from privet import Plan, Training
from privet.clipping import Flat
from privet.runs import Setup, run
from privet.sampling import Poisson

WRITE = run.report.write


@pytest.fixture(scope="module", autouse=True)
def no_report(brief_runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.report, "write", lambda directory: None)
        yield


@pytest.fixture(autouse=True)
def report_if_marked(request, monkeypatch):
    if "with_report" in request.keywords:
        monkeypatch.setattr(run.report, "write", WRITE)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with a table of 30 users, public test data, schemas, images, compositions, programs and runs to scale from."""
    folder = tmp_path_factory.mktemp("inputs")
    write_people(folder / "private.csv", 150)
    write_people(folder / "public.csv", 40, seed=1)
    generator = np.random.default_rng(3)
    for name, number, side in (("images", 240, 14), ("plain", 240, 14), ("few", 8, 14), ("wide", 30, 15), ("others", 30, 14)):
        images, labels = generator.integers(0, 256, (number, side, side), dtype=np.uint8), generator.integers(0, 3, number)
        users = {"user_train": [f"user {one % 60}" for one in range(number)]} if name == "images" else {}
        np.savez(folder / f"{name}.npz", x_train=images, y_train=labels, **users)
    target = '[target]\ncolumn = "left"\ntask = "regression"\nlower = -3\nupper = 3\n'
    texts = {
        "users.toml": SCHEMA,
        "bigger.toml": SCHEMA.replace('who = "user"\n', ""),
        "left.toml": f'{target}[columns]\nright = {{ kind = "number", lower = -3, upper = 3 }}\n',
        "mixture.toml": MIXTURE,
        "sampled.json": SAMPLED,
        "ids.py": IDS,
        "coupled.py": IDS.replace("nn.Flatten(),", "nn.Flatten(), nn.BatchNorm1d(12),"),
        "unlike.py": f"{IDS}\nloss_fn = 0.5\n",
        "on_fire.py": "raise OSError('disk on fire')",
        "wrong.py": "model = 1\n",
        "no_model.py": "dataset = range(40)\n",
        "odd.py": "model = 3\ndataset = [1, 2]\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    plan = Plan(examples=1437, sampling=Poisson(90), steps=3, clipping=Flat(0.2), delta=1e-5).calibrate(2)
    for optimizer, momentum in (("sgd", 0.5), ("adam", 0.0)):
        setup = Setup("digits", "logistic", 0.7, optimizer=optimizer, momentum=momentum)
        (folder / optimizer).mkdir()
        for name, text in (run.initial_files(setup, plan) | {"plan.json": plan.to_json()}).items():
            (folder / optimizer / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def prepared(capsys, monkeypatch):
    """Return a function of the words of a training command that returns settings and plan of the run that it does not begin."""
    found = []
    for verb in ("train", "federate"):
        monkeypatch.setattr(f"privet.cli._verbs.{verb}.start_run", lambda given, *made: found.append(made[:2]))

    def prepare(*words, verb="train"):
        code, _, error = ask(capsys, verb, *words)
        assert code == 0, error
        return found.pop()

    return prepare


@pytest.fixture
def interrupt_once(monkeypatch):
    """Return a function that lets the next training stop, as by Ctrl-C, in this step."""
    take = Training._take

    def interrupt(number):
        stopped = iter([True])

        def interrupted(training, update):
            for step in take(training, update):
                if step.number == number and next(stopped, False):
                    raise KeyboardInterrupt
                yield step

        monkeypatch.setattr(Training, "_take", interrupted)

    return interrupt
