"""The order of a matrix's columns, where the network's file says it."""

import json

import lightgbm
import numpy as np
import onnx
import polars as pl
import pytest
from onnx import helper
from onnx_networks import matrix, model_of, named
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

from exporter import ExportError, ServingOptions, export_ensemble
from serving import ClientError, EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

ORDER = ["price", "hour", "user"]
ROWS = pl.DataFrame(
    {
        "user": ["a", "b", None, "c"] * 50,
        "price": [1.0, 7.5, 3.5, -2.0] * 50,
        "hour": np.arange(200) % 24,
        "clicked": np.arange(200) % 24 > 11,
    }
)


@pytest.fixture(scope="module")
def workflow():
    ids = ["user"] >> ops.Categorify()
    clicked = ["clicked"] >> ops.LambdaOp(lambda c: c.cast("int8"))
    return Workflow(ids + ["price", "hour"] + clicked).fit(ROWS)


@pytest.fixture
def export(workflow, tmp_path):
    def run(network, **options):
        serving = ServingOptions(**options)
        return export_ensemble(
            network, workflow, "clicks", tmp_path / "models", ["clicked"], serving=serving
        )

    return run


def saying(network, names):
    """The network, with metadata."""
    helper.set_model_props(network, {"feature_names": json.dumps(names)})
    return network


def joined(width=2):
    """A network of two matrices, each of so many columns."""
    add = helper.make_node("Add", ["left", "right"], ["sum"])
    inputs = {"left": ["N", width], "right": ["N", width]}
    return model_of([add], inputs, {"sum": ["N", width]})


@pytest.fixture(scope="module")
def trees(workflow):
    """Trees that know the names of their features, as a file that says them."""
    table = workflow.transform(ROWS).collect()
    model = lightgbm.LGBMRegressor(n_estimators=4, verbose=-1)
    features = table[ORDER].to_numpy().astype(np.float32)
    model.fit(features, table["clicked"].to_numpy(), feature_name=ORDER)
    network = convert_lightgbm(model, initial_types=[("features", FloatTensorType([None, 3]))])
    return model.booster_.predict(features), saying(network, model.feature_name_)


def test_another_order_is_refused_and_names_both(trees, export, tmp_path):
    with pytest.raises(
        ExportError,
        match=r"order in which its file has them.*: price, hour, user\. Received: hour, price, user\.",
    ):
        export(trees[1], columns={"features": ["hour", "price", "user"]})
    assert not (tmp_path / "models").exists()
    with pytest.raises(ExportError, match="differ from column 1 on, counted from 0"):
        export(trees[1], columns={"features": ["price", "user", "hour"]})


def test_the_order_of_the_file_is_that_of_the_server(trees, workflow, export):
    answers, network = trees
    report = export(network)
    assert "packed as features, in this order: price, hour, user" in str(report)
    with (
        TritonServer(report.repository) as server,
        EnsembleClient(server.grpc_url, "clicks") as client,
    ):
        served = client.predict(ROWS.drop("clicked"))
        parity = check_parity(client, workflow, network, ROWS)
        for other, reason in (
            (
                saying(matrix(3), ["hour", "price", "user"]),
                r"exported\. .*in the order .*: hour, price, user\. Received: price, hour, user",
            ),
            (matrix(2), r"Expected 2 columns for .*'features'.* Received: 3, price, hour, user"),
        ):
            with pytest.raises(ClientError, match=reason):
                check_parity(client, workflow, other, ROWS)
    np.testing.assert_allclose(served["variable"], answers, atol=1e-5)
    assert parity.passed, f"\n{parity}"


def test_names_are_no_part_of_what_is_served(trees, export):
    """A network is the same with them and without."""
    network = onnx.ModelProto()
    network.CopyFrom(trees[1])
    del network.metadata_props[:]
    columns = {"features": ORDER}
    for options in ({}, {"runtime": "fused_onnx"}):
        first, again = export(trees[1], **options), export(network, columns=columns, **options)
        assert (first.published, again.published) == (True, False)


def test_each_matrix_has_names_of_its_own(export):
    names = {"left": ["price", "hour"], "right": ["user", "again"]}
    with pytest.raises(
        ExportError, match=r"'left' .* has them.*: price, hour\. Received: hour, price"
    ):
        export(saying(joined(), names), columns={"left": ["hour", "price"]})
    with pytest.raises(ExportError, match="takes 'again', which the workflow does not make"):
        export(saying(joined(), names))
    with pytest.raises(ExportError, match=r"lists by input, since left and right .*Received: one"):
        export(saying(joined(), ORDER))


def test_a_list_beside_inputs_with_names_says_nothing_more(export):
    """Some tools list the features of every network."""
    report = export(saying(named(), ["hour", "price"]), columns={"user": "hour"})
    assert not report.matrices


def test_a_column_alone(export):
    one = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": ["N", 1]}, {"y": ["N", 1]})
    assert export(saying(one, ["price"])).matrices == {"x": ("price",)}
    with pytest.raises(ExportError, match=r"'x' .* has them.*: price\. Received: hour"):
        export(one, columns={"x": "hour"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "price,hour,user",
            r"as a JSON list of names, .*Received: price,hour,user\. .*json\.dumps",
        ),
        ("['price', 'hour', 'user']", "as a JSON list of names"),
        ("3", "as a JSON list of names"),
        ('["price", 3]', "as a JSON list of names"),
        ('{"features": "price"}', "as a JSON list of names"),
        ('{"other": ["price"]}', "for its inputs, features. Received: names for 'other'"),
        ('["price", "hour"]', r"Expected 3 columns for .*'features'.* Received: 2, price, hour"),
    ],
)
def test_metadata_that_says_no_order(text, reason, export):
    network = matrix(3)
    helper.set_model_props(network, {"feature_names": text})
    with pytest.raises(ExportError, match=reason):
        export(network)
