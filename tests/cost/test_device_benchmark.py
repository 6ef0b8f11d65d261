import json

import pytest
import torch
from benchmarks.device import PARTS, TOLERANCES, Report, largest, main, noise, precision, right, table
from benchmarks.device_models import LARGE, SMALL, DeviceCase, adapt, llama, texts

from privet.clipping import Flat
from privet.noise import gaussian

CPU = torch.device("cpu")
EMBEDDING = SMALL[-1]


def run(folder, *arguments):
    code = main(["--small", "--device", "cpu", "--out", str(folder / "found.json"), *arguments])
    return code, json.loads((folder / "found.json").read_text())


def check_complete(found, cases):
    entries = {part: found[part] for part in PARTS}
    assert [name for part in entries.values() for name, entry in part.items() if "error" in entry] == []
    assert entries["right"].keys() == {f"{case.name}, {mode}" for case in cases for mode in TOLERANCES}
    assert entries["steps"].keys() == {f"{case.name}, {mode}" for case in cases for mode in ("bf16", "default")}
    assert len(entries["largest"]) == 2 * len(cases)
    assert all(entry["right"] for part in ("right", "noise", "training") for entry in entries[part].values())
    assert len(table(found)) == 1 + 2 * len(cases)


def test_every_part_runs_with_one_model(tmp_path, capsys):
    code, found = run(tmp_path, "--model", EMBEDDING.name)
    check_complete(found, [EMBEDDING])
    assert code == 0
    assert "failed or wrong: nothing" in capsys.readouterr().out


@pytest.mark.slow
def test_every_part_runs_with_every_model(tmp_path):
    code, found = run(tmp_path)
    check_complete(found, SMALL)
    assert code == 0


@pytest.mark.parametrize("mode", TOLERANCES)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_weight_is_noticed(factor, mode, monkeypatch):
    assert right(EMBEDDING, mode, CPU)["right"]
    true = Flat.factor
    monkeypatch.setattr(Flat, "factor", lambda self, norms: factor * true(self, norms))
    assert not right(EMBEDDING, mode, CPU)["right"]


def test_noise_that_is_too_small_or_repeats_is_noticed(monkeypatch):
    assert noise(torch.float32, CPU, 1 << 14)["right"]
    true = gaussian.release

    def shrunk(*given, **named):
        made = true(*given, **named)
        made.tensors["w"].sub_(3).mul_(0.9).add_(3)
        return made

    def repeated(*given, **named):
        made = true(*given, **named)
        made.tensors["w"][1::2] = made.tensors["w"][::2]
        return made

    for fault in (shrunk, repeated):
        monkeypatch.setattr("benchmarks.device.release", fault)
        assert not noise(torch.float32, CPU, 1 << 14)["right"]


def test_an_entry_that_fails_or_takes_too_long_leaves_its_error_and_the_others(tmp_path):
    def fails():
        raise torch.OutOfMemoryError("out of memory\nand many lines")

    def loops():
        while True:
            pass

    report = Report(tmp_path / "found.json", budget=60, limit=0.2)
    report.run("right", "fails", fails)
    report.run("right", "loops", loops)
    report.run("right", "is wrong", lambda: {"right": False})
    report.run("right", "works", lambda: {"right": True})
    report.budget = 0
    report.run("steps", "late", dict)
    found = json.loads(report.path.read_text())
    assert [entry.get("error") for entry in found["right"].values()] == [
        "OutOfMemoryError: out of memory", "OutOfTime: stopped", None, None,
    ]  # fmt: skip
    assert found["steps"]["late"]["error"] == "OutOfTime: not begun"
    assert report.failures() == ["right fails", "right loops", "right is wrong", "steps late"]
    assert "OutOfTime: not begun" in table(found)[1]


@pytest.mark.parametrize(
    ("name", "parameters", "trained"), [
        ("ViT-B/16", 86e6, 86e6), ("GPT-2 124M", 124e6, 124e6), ("GPT-2 124M LoRA", 124e6, 0.3e6),
        ("Llama 1B LoRA", 1.24e9, 0.7e6),
    ],
)  # fmt: skip
def test_large_models_have_the_published_sizes(name, parameters, trained):
    (case,) = (case for case in LARGE if case.name == name)
    with torch.device("meta"):
        sizes = [(each.numel(), each.requires_grad) for each in case.build().parameters()]
    assert sum(size for size, _ in sizes) == pytest.approx(parameters, rel=0.01)
    assert sum(size for size, trainable in sizes if trainable) == pytest.approx(trained, rel=0.07)


def test_frozen_weights_may_be_in_low_precision():
    case = DeviceCase("LoRA", lambda: adapt(llama(100, 64, 1, 4, 2, 64), torch.bfloat16), texts(8, 100), 4)
    found = right(case, "bf16", CPU)
    assert found["right"], found


def test_the_largest_pass_is_the_last_that_ran(monkeypatch):
    def arm(name, model, loss, batch):
        def step():
            if len(batch[0]) > 5 * EMBEDDING.examples:
                raise torch.OutOfMemoryError("CUDA out of memory")

        return step

    monkeypatch.setattr("benchmarks.device.arm", arm)
    found = largest(EMBEDDING, "default", CPU, "plain", 12)
    assert found == {"examples": 4 * EMBEDDING.examples, "ended by": "OutOfMemoryError: CUDA out of memory"}
    monkeypatch.setattr("benchmarks.device.arm", lambda *given: [].pop)
    assert largest(EMBEDDING, "default", CPU, "plain", 12)["error"] == "IndexError: pop from empty list"


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
def test_precision_on_a_device_is_set_and_restored():
    places = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [place.fp32_precision for place in places]
    for name in ("ieee", "tf32"):
        with precision(name, torch.device("cuda")):
            assert [place.fp32_precision for place in places] == [name, name]
        assert [place.fp32_precision for place in places] == before
