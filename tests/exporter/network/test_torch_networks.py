"""Networks of PyTorch, as both exporters of `torch.onnx` write them; `make test-torch` runs these."""

import os
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from exporter import ExportError, ServingOptions, export_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

PYTHON = os.environ.get("TORCH_PYTHON")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="`make test-torch` has PyTorch")
DENSE = ["price", "hour"]
ROWS = pl.DataFrame(
    {
        "user": ["a", "b", None, "c", "a", "d"],
        "hour": [0.0, 5.0, 23.0, None, 7.0, 1.0],
        "price": [1.0, None, 3.5, -2.0, 10.0, 0.25],
    }
)


@pytest.fixture(scope="module")
def workflow():
    dense = DENSE >> ops.FillMissing(0.5) >> ops.Normalize()
    return Workflow((["user"] >> ops.Categorify()) + dense).fit(ROWS)


@pytest.fixture(scope="module")
def folder(workflow, tmp_path_factory):
    path = tmp_path_factory.mktemp("torch")
    made = workflow.transform(ROWS).collect()
    np.save(path / "ids.npy", made.select("user").to_numpy().astype(np.int64))
    np.save(path / "dense.npy", made.select(DENSE).to_numpy().astype(np.float32))
    script = Path(__file__).parents[1] / "torch_network.py"
    subprocess.run([PYTHON, "-W", "ignore", script, path], check=True, capture_output=True)
    return path


def test_they_are_served_as_pytorch_answers(folder, workflow, tmp_path):
    expected = np.load(folder / "clicks.npy")
    cases = {
        f"{kind}_{runtime}": (folder / f"{kind}.onnx", runtime)
        for kind in ("program", "traced")
        for runtime in ("onnx", "fused_onnx")
    }
    for name, (path, runtime) in cases.items():
        options = ServingOptions(runtime=runtime, columns={"ids": "user", "dense": DENSE})
        export_ensemble(path, workflow, name, tmp_path, serving=options)
    with TritonServer(tmp_path) as server:
        for name, (path, _) in cases.items():
            with EnsembleClient(server.grpc_url, name) as client:
                np.testing.assert_allclose(client.predict(ROWS)["click"], expected, atol=1e-6)
                report = check_parity(client, workflow, path, ROWS)
            assert report.passed, f"\n{report}"


def test_a_number_of_rows_that_is_fixed(folder, workflow, tmp_path):
    with pytest.raises(
        ExportError, match=r"any number of rows, k columns\. Received: \[6, 1\]\. .*dynamic_shapes"
    ):
        export_ensemble(folder / "fixed.onnx", workflow, "fixed", tmp_path)
