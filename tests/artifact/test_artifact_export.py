import json

import numpy as np
import pytest
import torch

import privet
from privet.errors import InvalidArgumentError, PrivetError


def inputs_of(model, rows):
    shape = model.description.architecture.input_shape
    return torch.from_numpy(np.random.default_rng(0).normal(size=(rows, *shape)).astype(np.float32))


@pytest.mark.parametrize("kind", ["table_model", "image_model", pytest.param("number_model", marks=pytest.mark.slow)])
def test_onnx_gives_the_outputs_of_the_network(kind, request, tmp_path):
    pytest.importorskip("onnxscript", reason="an extra: pip install 'privet[export]'")
    runtime = pytest.importorskip("onnxruntime", reason="what reads the file")
    model = privet.load(request.getfixturevalue(kind))
    path = model.export(tmp_path / "network.onnx")
    session = runtime.InferenceSession(str(path))
    for rows in (1, 7):
        inputs = inputs_of(model, rows)
        (outputs,) = session.run(["outputs"], {"inputs": inputs.numpy()})
        assert np.allclose(outputs, model.module(inputs).detach(), atol=1e-5)
    described = json.loads(session.get_modelmeta().custom_metadata_map["model.json"])
    assert described == json.loads(model.description.to_json())


@pytest.mark.parametrize("kind", ["table_model", "number_model", "image_model"])
def test_torch_export_gives_the_outputs_of_the_network(kind, request, tmp_path):
    model = privet.load(request.getfixturevalue(kind))
    path = model.export(tmp_path / "network.pt2")
    extra = {"model.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    for rows in (1, 7):
        inputs = inputs_of(model, rows)
        assert torch.allclose(program(inputs), model.module(inputs), atol=1e-5)
    assert json.loads(extra["model.json"]) == json.loads(model.description.to_json())


def test_the_format_is_named_or_follows_from_the_ending(table_model, tmp_path):
    model = privet.load(table_model)
    assert model.export(tmp_path / "network.bin", "torch-export").exists()
    with pytest.raises(InvalidArgumentError, match=r"ends in \.onnx or \.pt2"):
        model.export(tmp_path / "network.tflite")
    with pytest.raises(InvalidArgumentError, match="one of 'onnx', 'torch-export'"):
        model.export(tmp_path / "network.onnx", "pickle")


def test_a_missing_package_is_named_with_the_command_that_installs_it(table_model, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(PrivetError, match=r"pip install 'privet\[export\]'"):
        privet.load(table_model).export(tmp_path / "network.onnx")
    assert not list(tmp_path.glob("*.onnx"))
