"""`import exporter` and the help of `ensemble` import no library that takes long to."""

import subprocess
import sys

import onnx
import pytest
from onnx_networks import matrix

import exporter

# Each takes a tenth of a second to several seconds.
HEAVY = {
    *("numpy", "polars", "pyarrow", "pandas", "tensorflow", "keras", "onnx", "onnxruntime"),
    *("grpc", "tritonclient", "google", "rich", "pydantic"),
}
HELP = """
from exporter.command_line import main
sys.argv = ["ensemble", "--help"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""
EXPORT = """
from exporter import ServingOptions, export_ensemble
from workflow import Workflow

workflow = Workflow(["age", "price"]).fit({{"age": [1.0], "price": [2.0]}})
options = ServingOptions(columns={{"features": ["age", "price"]}})
export_ensemble("{folder}/clicks.onnx", workflow, "clicks", "{folder}/models", serving=options)
"""


def imported(code):
    """The top-level packages that a new process imports."""
    program = (
        f"import sys\n{code}\n"
        "print('imported', *{n.partition('.')[0] for n, module in sys.modules.items() if module})"
    )
    command = [sys.executable, "-c", program]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(text.splitlines()[-1].split())


@pytest.mark.parametrize("code", ["import exporter", HELP], ids=["import", "help"])
def test_nothing_heavy_is_imported(code):
    found = imported(code)
    assert "exporter" in found
    assert found & HEAVY == set()


def test_the_repository_is_verified_without_tensorflow():
    found = imported("from exporter import ServingOptions, rollback, verify")
    assert {"tensorflow", "keras"} & found == set()


def test_an_onnx_network_is_exported_without_tensorflow(tmp_path):
    onnx.save(matrix(2), tmp_path / "clicks.onnx")
    absent = "sys.modules['tensorflow'] = None"
    found = imported(f"{absent}\n{EXPORT.format(folder=str(tmp_path))}")
    assert "onnxruntime" in found
    assert {"tensorflow", "keras"} & found == set()


def test_a_name_is_the_object_of_its_module():
    from exporter.export import export_ensemble, export_tensorflow_ensemble
    from exporter.plan.options import ServingOptions
    from exporter.report.parity_page import parity_page
    from exporter.report.report import ExportReport
    from exporter.repository.verify import verify
    from exporter.repository.versions import rollback
    from training.network.nearest_items import NearestItems

    exports = [export_ensemble, export_tensorflow_ensemble]
    named = [ExportReport, NearestItems, ServingOptions, *exports, parity_page, rollback, verify]
    names = [made.__name__ for made in named]
    assert [getattr(exporter, name) for name in names] == named
    assert {*names, "ExportError"} == set(exporter.__all__) == set(dir(exporter))
    with pytest.raises(AttributeError, match="module 'exporter' has no attribute 'missing'"):
        _ = exporter.missing
