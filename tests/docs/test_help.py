"""`help` and `repr` of every public class show what its user calls, in few lines."""

import inspect
import pydoc

import keras
import numpy as np
import polars as pl
import pytest
from public_names import public_names

import exporter
import loader
import serving
import training
import workflow
from loader import KerasSequenceLoader, KerasSequenceValidater, LoaderCheckpoint
from serving import AsyncEnsembleClient, ParityReport, SkewMonitor
from serving.contract import Contract
from serving.prove.report import OutputParity
from training import layers
from workflow import Workflow, ops
from workflow.wire.format import WireColumn

CLASSES = {
    f"{path}.{name}": value
    for module in (workflow, loader, training, exporter, serving)
    for path, name, value in public_names(module)
    # A named tuple has the names of every tuple.
    if inspect.isclass(value) and not issubclass(value, Exception | tuple)
}
MACHINERY = ("__dataclass_fields__", "__match_args__", "__delattr__", "__abstractmethods__")
# What Keras, TensorFlow and `str` add to the classes that derive from theirs.
OF_LIBRARIES = (
    "as_numpy_iterator",
    "add_weight",
    "on_predict_batch_end",
    "learning_rate",
    "removeprefix",
)


@pytest.mark.parametrize("name", CLASSES)
def test_help_shows_no_machinery(name):
    text = pydoc.render_doc(CLASSES[name], renderer=pydoc.plaintext)
    described = text.partition("Method resolution order")[2] or text
    for hidden in (*MACHINERY, *OF_LIBRARIES):
        assert f" |  {hidden}" not in described
    assert len(text.splitlines()) < 280
    assert inspect.getdoc(CLASSES[name]).splitlines()[0] in text


def test_help_shows_methods_properties_and_settings():
    text = pydoc.render_doc(KerasSequenceLoader, renderer=pydoc.plaintext)
    for shown in (
        "get_state(self)",
        "map(self",
        "batch_size",
        "peek(self)",
        "KerasSequenceLoader(",
    ):
        assert shown in text
    assert "network_instances = 1" in pydoc.render_doc(
        exporter.ServingOptions, renderer=pydoc.plaintext
    )
    assert "call(self" in pydoc.render_doc(layers.CrossNetwork, renderer=pydoc.plaintext)


def test_classes_of_a_user_show_their_own_names_beside_ours():
    class Cross(layers.CrossNetwork):
        def mine(self): ...

    assert {"mine", "call"} <= set(dir(Cross))
    assert "add_weight" in dir(Cross()), "an object has all that it can do"


@pytest.fixture
def data(tmp_path):
    pl.DataFrame({"a": np.arange(8.0), "y": [0, 1] * 4}).write_parquet(tmp_path / "rows.parquet")
    with KerasSequenceLoader(
        tmp_path / "rows.parquet", 4, label_names=["y"], cont_names=["a"]
    ) as data:
        yield data


def test_callbacks_are_one_line(data, tmp_path):
    checkpoint = LoaderCheckpoint(data, tmp_path / "kept", save_freq=1000)
    assert repr(checkpoint) == (
        f"LoaderCheckpoint({str(tmp_path / 'kept')!r}, saves after each epoch and 1,000 batches)"
    )
    assert repr(KerasSequenceValidater(data)) == f"KerasSequenceValidater({data!r})"
    assert isinstance(checkpoint, keras.callbacks.Callback)


def test_a_monitor_and_a_client_that_is_not_entered_are_one_line():
    workflow = Workflow(["a"] >> ops.Normalize()).fit({"a": [1.0, 2.0]})
    client = AsyncEnsembleClient("127.0.0.1:1", "shop")
    assert repr(client) == "AsyncEnsembleClient('127.0.0.1:1', 'shop', not entered)"

    class Known:
        contract = Contract((WireColumn("a", "float64"),), (), (), "", {})
        model_name = "shop"

    assert repr(SkewMonitor(workflow, Known())) == "SkewMonitor('shop': a)"


def test_a_report_of_many_outputs_is_one_line():
    outputs = [OutputParity(f"c{n}", "feature", 9, int(n == 3), 0.5, None) for n in range(100)]
    report = ParityReport("shop", "5f1d", 9_000, 1e-5, tuple(outputs))
    assert repr(report) == "ParityReport('shop', FAILED: 9,000 rows, 1 of 100 outputs differ)"
