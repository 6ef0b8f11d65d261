import pytest
from asked import ask, refused, succeed, told
from made import IDS

from privet import models
from privet.cli._verbs import bench
from privet.cost import peak_is_measurable


@pytest.fixture(scope="module")
def brief_runs():
    """Nothing is left out: some networks here are refused by the check before the first step."""


def answered(capsys, *words):
    return succeed(capsys, "bench", *words, "--rounds", 2)


def check_numbers(row):
    assert row["plain_ms"] > 0
    assert row["ratios"].keys() == {"clipped", "private"}
    assert all(ratio > 0 for ratio in row["ratios"].values())


def test_networks_of_privet(capsys):
    found = answered(capsys, "--model", "logistic", "--model", "mlp", "--shape", "4,5", "--batch-size", 30, "--no-memory")
    assert [(row["model"], row["parameters"], row["batch_size"]) for row in found["results"]] == [
        (name, sum(one.numel() for one in models.build(name, (4, 5), 10).parameters()), 30) for name in ("logistic", "mlp")
    ]
    assert found["rounds"] == 2
    assert all(row["peak_mb"] == {} for row in found["results"])
    for row in found["results"]:
        check_numbers(row)


@pytest.mark.parametrize(("asked", "taken"), [((), 40), (("--batch-size", 11), 11)], ids=["all there is", "as many as asked"])
def test_a_model_from_a_file(asked, taken, capsys, inputs):
    (row,) = answered(capsys, inputs / "ids.py", *asked, "--clipping", "psac", "--style", "module", "--no-memory")["results"]
    assert (row["model"], row["parameters"], row["batch_size"]) == ("ids.py", 239, taken)
    check_numbers(row)


def test_a_model_that_needs_realistic_values_is_checked_with_the_probe_batch_of_its_file(capsys, tmp_path):
    file = tmp_path / "mine.py"
    strict = """
def loss_fn(model, batch):
    if (batch["ids"] < 7).any():
        raise ValueError("these ids are reserved")
    return F.cross_entropy(model(batch["ids"]), batch["label"], reduction="none")


dataset = [{"ids": row["ids"].clamp(min=7), "label": row["label"]} for row in dataset]
"""
    file.write_text(IDS + strict, encoding="utf-8")
    assert "probe_batch" in refused(capsys, "bench", file, "--rounds", 1, "--no-memory")
    probe = 'probe_batch = {"ids": torch.randint(7, 50, (4, 3)), "label": torch.arange(4) % 3}\n'
    file.write_text(IDS + strict + probe, encoding="utf-8")
    (row,) = answered(capsys, file, "--no-memory")["results"]
    check_numbers(row)


def test_a_batch_can_stand_in_for_a_data_set(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(IDS + "\nbatch = torch.utils.data.default_collate(dataset[:9])\ndel dataset\n", encoding="utf-8")
    assert answered(capsys, file, "--no-memory")["results"][0]["batch_size"] == 9


@pytest.mark.skipif(not peak_is_measurable(), reason="this system does not report peak memory")
def test_memory_is_measured_in_subprocesses_with_the_same_arguments(capsys, tmp_path, monkeypatch):
    commands = []

    def peak(command):
        commands.append(command)
        return float(len(commands))

    monkeypatch.setattr(bench.cost, "peak_elsewhere", peak)
    file = tmp_path / "mine.py"
    file.write_text(f"{IDS}\nprint('hello')", encoding="utf-8")
    (row,) = answered(capsys, file, "--batch-size", 12, "--clipping", "psac")["results"]
    assert row["peak_mb"] == {"plain": 1.0, "clipped": 2.0, "private": 3.0}
    asked = ["bench", str(file), "--batch-size", "12", "--clipping", "psac", "--style", "flat", "--peak-of"]
    assert [command[3:] for command in commands] == [[*asked, kind] for kind in ("plain", "clipped", "private")]
    code, out, err = ask(capsys, *commands[1][3:])
    assert (code, "hello" in err) == (0, True)
    assert 0 <= float(out) < 1000


def test_people_get_a_table(capsys):
    words = ("--model", "logistic", "--shape", 6, "--batch-size", 8, "--rounds", 1, "--no-memory")
    lines = told(capsys, "bench", *words).splitlines()
    assert lines[-2].split() == ["parameters", "examples", "plain", "step", "clipped", "private"]
    assert lines[-1].split()[:3] == ["logistic", "70", "8"]
