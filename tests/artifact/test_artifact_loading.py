import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from model_folders import CLASSES
from safetensors.torch import load_file, save, save_file

import privet
from privet.artifact import ModelDescription
from privet.errors import InvalidArgumentError


class Poison:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def rewrite(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def architecture(name, input_shape, outputs, options=None):
    return {"name": name, "input_shape": input_shape, "outputs": outputs, "options": options or {}}


def replace_weights(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    rewrite(folder, weights=hashlib.sha256(content).hexdigest())


def test_the_run_and_its_folder_are_the_same_model(table_model):
    rows = np.zeros((2, CLASSES.width), dtype=np.float32)
    of_run, of_folder = privet.load(table_model.parent), privet.load(str(table_model))
    assert np.array_equal(of_run.predict_proba(rows, encoded=True), of_folder.predict_proba(rows, encoded=True))
    assert of_run.description == of_folder.description


def test_a_copy_of_the_folder_alone_is_enough(image_model, tmp_path):
    images = np.random.default_rng(0).integers(0, 17, (4, 16, 16), dtype=np.uint8)
    expected = privet.load(image_model).predict(images).tolist()
    copied = shutil.copytree(image_model, tmp_path / "elsewhere")
    shutil.rmtree(image_model.parent)
    assert privet.load(copied).predict(images).tolist() == expected


def test_the_description_is_read_back_as_it_was(table_model, number_model, image_model):
    for folder in (table_model, number_model, image_model):
        text = (folder / "model.json").read_text(encoding="utf-8")
        assert ModelDescription.from_dict(json.loads(text)).to_json() == text


def test_loading_leaves_the_random_state_alone(table_model):
    before = torch.get_rng_state()
    privet.load(table_model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "README.md", "extra.pt"])
@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_poisoned_file_is_not_executed(table_model, tmp_path, name, write):
    poisoned = tmp_path / "poisoned"
    with (table_model / name).open("wb") as file:
        write(Poison(poisoned), file)
    if name == "model.safetensors":
        rewrite(table_model, weights=hashlib.sha256((table_model / name).read_bytes()).hexdigest())
    if name in ("model.safetensors", "model.json"):
        with pytest.raises(InvalidArgumentError, match="as it was written"):
            privet.load(table_model)
    else:
        privet.load(table_model)
    assert not poisoned.exists()


def test_arrays_of_objects_are_not_unpickled(image_model, tmp_path):
    poisoned = tmp_path / "poisoned"
    objects = np.array([Poison(poisoned)], dtype=object)
    np.save(tmp_path / "rows.npy", objects)
    np.savez(tmp_path / "rows.npz", x=objects)
    for name in ("rows.npy", "rows.npz"):
        with pytest.raises(InvalidArgumentError):
            privet.load(image_model).predict(tmp_path / name)
    assert not poisoned.exists()


@pytest.mark.parametrize(("changes", "message"), [
    ({"format": 3}, "^format is 3; it must be 1 or 2: .*A newer Privet may have written it: upgrade"),
    ({"format": None}, "format is None"),
    ({"format": "1"}, "format is '1'"),
    ({"code": "import os"}, "made of the fields"),
    ({"architecture": architecture("os.system", [13], 2)}, "name is 'os.system'"),
    ({"architecture": architecture("mlp", [13], 2, {"width": 2**30})}, "absent|shape"),
    ({"architecture": architecture("mlp", [13], 2, {"width": -1})}, "width is -1"),
    ({"architecture": architecture("mlp", [13], 2, {"weights": "x"})}, "option is 'weights'"),
    ({"architecture": architecture("logistic", [13], 2)}, "hidden1.bias"),
    ({"architecture": architecture("mlp", [14], 2)}, "the width of the schema"),
    ({"architecture": architecture("mlp", 13, 2)}, "not iterable"),
    ({"architecture": architecture("mlp", [13], 3)}, "outputs is 3"),
    ({"architecture": "mlp"}, "module is None; it must be the network whose weights the folder holds, a mlp"),
    ({"architecture": 3}, "of another kind"),
    ({"task": {"kind": "Number", "lower": 0, "upper": 1}}, "task.kind is 'Number'"),
    ({"task": {"kind": "Classification", "classes": ["a", "b"]}}, "the target of the schema"),
    ({"schema": {"kind": "Flat", "bound": 1}}, "schema.kind is 'Flat'"),
    ({"schema": 1}, "schema"),
    ({"preprocessing": {"kind": "eval"}}, "preprocessing is 'eval'"),
    ({"guarantee": {"epsilon": "low"}}, "GuaranteeSummary"),
    ({"weights": "0" * 64}, "SHA-256 is not the one in model.json"),
    ({"weights": "model.pt"}, "a SHA-256"),
], ids=str)  # fmt: skip
def test_other_descriptions_are_refused(table_model, changes, message):
    rewrite(table_model, **changes)
    with pytest.raises(InvalidArgumentError, match=message):
        privet.load(table_model)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": 1}', "1" * 10_000, "\ud800"], ids=repr)
def test_what_is_no_description_is_refused(table_model, text):
    (table_model / "model.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidArgumentError, match=r"model\.json"):
        privet.load(table_model)


def test_weights_of_another_network_are_refused(table_model):
    weights = load_file(table_model / "model.safetensors")
    name = "output.weight"
    for changed in (
        weights | {name: weights[name][:1]},
        weights | {name: weights[name].double()},
        weights | {"more": weights[name].clone()},
        {other: value for other, value in weights.items() if other != name},
    ):
        replace_weights(table_model, save({key: value.contiguous() for key, value in changed.items()}))
        with pytest.raises(InvalidArgumentError, match=f"{name}|more"):
            privet.load(table_model)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x10" + bytes(7) + b"{}" + b" " * 14], ids=repr)
def test_damaged_weights_are_refused(table_model, content):
    replace_weights(table_model, content)
    with pytest.raises(InvalidArgumentError, match=r"model\.safetensors"):
        privet.load(table_model)


def test_weights_that_changed_are_refused(table_model):
    path = table_model / "model.safetensors"
    save_file({name: value + 1 for name, value in load_file(path).items()}, path)
    with pytest.raises(InvalidArgumentError, match="Copy the whole folder again"):
        privet.load(table_model)
    path.unlink()
    with pytest.raises(InvalidArgumentError, match="No such file"):
        privet.load(table_model)


def test_a_place_without_a_model_says_what_is_missing(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"It does not exist\."):
        privet.load(tmp_path / "nowhere")
    files = {
        "": "It holds no run.", "plan.json": "fit again", "manifest.json": "Python program that began it",
        "estimator.json": "fit a new one", "run.json": "privet federate --resume", "guarantee.md": "It has no model",
        "model.safetensors": "older than the folder model",
    }  # fmt: skip
    for name, advice in files.items():
        if name:
            (tmp_path / name).write_text('{"command": "federate"}', encoding="utf-8")
        with pytest.raises(InvalidArgumentError, match=advice):
            privet.load(os.fspath(tmp_path))


def test_a_folder_of_the_first_format_is_read(table_model):
    description = json.loads((table_model / "model.json").read_text(encoding="utf-8"))
    guarantee = {name: value for name, value in description["guarantee"].items() if name not in ("summary", "purpose")}
    rewrite(table_model, format=1, guarantee=guarantee)
    assert privet.load(table_model).guarantee.summary == ""
