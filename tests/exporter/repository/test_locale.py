"""Exports by a process whose locale has another encoding than UTF-8."""

import os
import subprocess
import sys

from exporter.plan.config_pbtxt import read_config

EXPORT = """
import sys

import onnx
from onnx import TensorProto, helper

from exporter import ServingOptions, export_ensemble, verify
from workflow import Workflow, ops

ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ends[:1], ends[1:])
network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
workflow = Workflow(["gr\\u00f6\\u00dfe"] >> ops.FillMissing(0.0)).fit({"gr\\u00f6\\u00dfe": [1.5, 2.0]})
for version in (1, 2):
    export_ensemble(
        network, workflow, "sizes", sys.argv[1], version=version,
        serving=ServingOptions(columns={"x": "gr\\u00f6\\u00dfe"}, progress=False),
    )
    verify(sys.argv[1], "sizes")
"""


def test_configs_are_in_utf_8_whatever_the_locale(tmp_path):
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", EXPORT, str(tmp_path / "models")]
    done = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    config = read_config(tmp_path / "models" / "sizes" / "config.pbtxt")
    assert [tensor.name for tensor in config.input] == ["größe"]
