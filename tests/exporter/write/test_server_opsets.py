"""Models that an older server's onnxruntime would not load are refused, and no others."""

import onnx
import onnxruntime
import polars as pl
import pytest
from onnx import TensorProto, helper
from onnx_networks import matrix
from typer.testing import CliRunner

from exporter import ExportError, ServingOptions, export_ensemble
from exporter.command_line.app import make_app
from exporter.plan.server_opsets import newest_opsets
from workflow import Workflow

COLUMNS = ["hour", "price"]
ROWS = pl.DataFrame({"hour": [0, 5, 23], "price": [1.0, 2.0, 3.5]})


@pytest.fixture(scope="module")
def workflow():
    return Workflow(COLUMNS).fit(ROWS)


def export(network, workflow, folder, **options):
    options = ServingOptions(columns={"features": COLUMNS}, **options)
    return export_ensemble(network, workflow, "clicks", folder, serving=options)


@pytest.mark.parametrize(("runtime", "model"), [("onnx", "clicks_onnx"), ("fused_onnx", "clicks")])
def test_an_opset_beyond_the_servers_is_refused_with_both(runtime, model, workflow, tmp_path):
    newer = matrix(2, opset=22)
    with pytest.raises(
        ExportError,
        match=rf"of {model} up to opset 21 of ai\.onnx, .*onnxruntime 1\.18\. Received: opset 22\.",
    ):
        export(newer, workflow, tmp_path / "models", runtime=runtime, onnxruntime="1.18")
    assert not (tmp_path / "models").exists()
    for network, server in ((newer, "1.21"), (newer, None), (matrix(2, opset=9), "1.17.0")):
        export(network, workflow, tmp_path / "models", runtime=runtime, onnxruntime=server)


def test_the_command_takes_a_version_that_looks_like_a_number(workflow, tmp_path):
    """1.20 would be 1.2."""
    workflow.save(tmp_path / "workflow")
    onnx.save(matrix(2, opset=22), tmp_path / "clicks.onnx")
    given = ["--workflow", tmp_path / "workflow", "--model", tmp_path / "clicks.onnx"]
    options = [f"columns={{'features': {COLUMNS}}}", "onnxruntime=1.20"]
    words = ["export", "clicks", *given, "--repository", tmp_path / "models", "--prove", "process"]
    words += [word for option in options for word in ("--option", option)]
    result = CliRunner().invoke(make_app(), [*map(str, words)], env={"COLUMNS": "300"})
    assert result.exit_code != 0
    assert "the newest of the server's onnxruntime 1.20. Received: opset 22" in result.output


def loads(domain, version):
    """Whether the onnxruntime here loads a model of a version of operations."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "copy", [x], [y])
    opsets = [helper.make_opsetid(*each) for each in ({"": 13} | {domain: version}).items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # noqa: BLE001 - onnxruntime raises errors of several types
        return False
    return True


def test_the_table_says_what_onnxruntime_loads():
    """`make test-versions` asks the oldest that this package admits."""
    for domain, newest in newest_opsets(onnxruntime.__version__).items():
        assert (loads(domain, newest), loads(domain, newest + 1)) == (True, False)
    assert newest_opsets("1.999") == {}
