"""The memory of an instance: a process that has a TensorFlow of its own, without Keras and pandas."""

import os
from pathlib import Path

import keras
import polars as pl
import pytest

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import TritonServer
from workflow import Workflow, ops

# `import tensorflow` alone is more than 200 MB that no other process shares, and the modules of its
# sessions in Python 35 MB.
MOST = 80_000_000
ROWS = {"small": 5_000, "large": 150_000}
WIDTH = 128


def instances(model):
    """The processes of this test's servers that hold instances of a model."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if any(word.startswith(f"{model}_0".encode()) for word in words):
            found.append(folder)
    return [folder for folder in found if is_mine(int(folder.name))]


def is_mine(process):
    while process > 1 and process != os.getpid():
        status = Path(f"/proc/{process}/status").read_text()
        process = int(status.partition("PPid:")[2].split()[0])
    return process == os.getpid()


def unshared(folder):
    """The bytes of a process that are in no file."""
    lines = (folder / "smaps_rollup").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Pss_Anon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.long
@pytest.mark.usefixtures("server")
def test_an_instance_of_the_tensorflow_backend_takes_what_a_session_needs():
    (instance,) = instances("sums")
    assert b"tensorflow" in (instance / "maps").read_bytes()
    assert unshared(instance) < MOST


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Exports of a small and a large embedding table, as two steps and as one ONNX model, served."""
    repository, made = tmp_path_factory.mktemp("tables"), {}
    for size, rows in ROWS.items():
        data = pl.DataFrame({"item": pl.int_range(rows, eager=True).cast(pl.String) + " of many"})
        workflow = Workflow(["item"] >> ops.Categorify()).fit(data)
        item = keras.Input((1,), name="item", dtype="int64")
        vector = keras.layers.Flatten()(keras.layers.Embedding(rows + 3, WIDTH)(item))
        network = keras.Model({"item": item}, keras.layers.Dense(1, name="score")(vector))
        for runtime in ("tensorflow", "fused_onnx"):
            made[size, runtime] = export_tensorflow_ensemble(
                network,
                workflow,
                f"{size}_{runtime}",
                repository,
                serving=ServingOptions(runtime=runtime),
            )
    with TritonServer(repository):
        yield made


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_the_report_says_what_an_instance_takes(reports, size, runtime):
    report = reports[size, runtime]
    assert report.memory.keys() == {model.name for model in report.plan.models if model.instances}
    for name, memory in report.memory.items():
        (instance,) = instances(name)
        assert unshared(instance) / 2 < memory.own < unshared(instance) * 2
        assert f"{memory} for {name}" in " ".join(str(report).split())
        assert f"{memory} for {name}" in report.to_html()


def test_weights_that_onnxruntime_maps_are_told_apart(reports):
    (memory,) = reports["large", "fused_onnx"].memory.values()
    # A hundredth more: the vectors of joined lists, which are a table of their own.
    assert memory.mapped == pytest.approx(ROWS["large"] * WIDTH * 4, rel=0.02)
    assert str(memory).endswith("and 78 MB of weights from files")
