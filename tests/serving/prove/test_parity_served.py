"""Parity of a real server with networks whose answers are no probabilities."""

import threading

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import ClientError, EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops


def rows():
    random = np.random.default_rng(0)
    area = random.gamma(2, 5000, 500)
    return pl.DataFrame({"house": random.integers(0, 50, 500), "area": area})


@pytest.fixture(scope="module")
def workflow():
    # Up to some 11,000, where the next float32 is 0.001 away.
    area = ["area"] >> ops.LambdaOp(lambda area: (area.log1p() * 1000.0).cast("float32"))
    return Workflow((["house"] >> ops.Categorify()) + area).fit(rows())


def make_network():
    keras.utils.set_random_seed(1)
    house = keras.Input((1,), name="house", dtype="int64")
    area = keras.Input((1,), name="area")
    known = keras.layers.Flatten()(keras.layers.Embedding(60, 16)(house))
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Concatenate()([known, area]))
    code = keras.layers.Lambda(tf.strings.as_string, output_shape=(1,), dtype="string")(house)
    return keras.Model([house, area], {"price": keras.layers.Dense(1)(hidden), "code": code})


@pytest.fixture(scope="module")
def network():
    return make_network()


@pytest.fixture(scope="module")
def client(workflow, network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    options = ServingOptions(runtime="onnx")
    export_tensorflow_ensemble(network, workflow, "houses", folder, serving=options)
    with TritonServer(folder) as server, EnsembleClient(server.grpc_url, "houses") as client:
        yield client


def test_large_floats_and_strings_are_proven(client, workflow, network):
    assert client.predict(rows())["price"].abs().min() > 100
    report = check_parity(client, workflow, network, rows())
    assert report.passed, f"\n{report}"
    assert {output.name for output in report.outputs} == {"house", "area", "price", "code"}


def test_rows_that_the_workflow_refuses_are_an_error_of_the_client(client, workflow, network):
    with pytest.raises(ClientError, match="PARITY: Expected column 'house' as int64"):
        check_parity(client, workflow, network, rows().with_columns(pl.col("house").cast(str)))


def test_a_nan_that_the_workflow_computes_is_reported(client, workflow, network):
    """TensorFlow may answer such a row with a plausible score, and another runtime with NaN."""
    below_minus_1 = pl.DataFrame({"house": [1, 2, 3], "area": [-5.0, 1.0, -2.0]})
    report = check_parity(client, workflow, network, below_minus_1)
    assert report.nan_rows == {"area": 2}
    assert "NaN or infinity reaches the network: area in 2 rows" in str(report)
    assert "NaN or infinity reaches the network: area in 2 rows" in report.to_html()
    above = below_minus_1.with_columns(pl.col("area").abs())
    clean = check_parity(client, workflow, network, above)
    assert clean.nan_rows == {}
    assert "NaN" not in str(clean)


def test_an_infinity_that_reaches_the_network_is_reported(client, workflow, network):
    """Layers make NaN of it, of which TensorFlow makes a plausible score."""
    report = check_parity(
        client, workflow, network, pl.DataFrame({"house": [1, 2], "area": [np.inf, 9.0]})
    )
    assert report.passed, f"\n{report}"
    assert report.nan_rows == {"area": 1}
    assert "infinity reaches the network: area in 1 rows" in str(report)


def test_the_network_of_another_workflow_is_named(client, workflow):
    given = keras.Input((1,), name="areaa")
    with pytest.raises(ClientError, match=r"the inputs areaa, .* Did you mean 'area'"):
        check_parity(client, workflow, keras.Model({"areaa": given}, given), rows())


def test_prices_that_are_a_little_off_are_found(client, workflow, network):
    weights = network.get_weights()
    other = make_network()
    # The last is added to each price.
    other.set_weights([*weights[:-1], weights[-1] + 0.5])
    report = check_parity(client, workflow, other, rows())
    assert [output.name for output in report.outputs if output.mismatches] == ["price"]


def test_progress_counts_the_rows_of_each_pass(client, workflow, network, stages):
    assert check_parity(client, workflow, network, rows(), batch_size=64)
    (parity,) = stages
    assert (parity.title, parity.total, parity.done) == ("parity", 500, 500)
    assert parity.works == [
        "the served features",
        "the served predictions",
        "the network in this process",
    ]


def test_progress_counts_models_that_answer(workflow, network, tmp_path, stages):
    options = ServingOptions(runtime="onnx", prove="process")
    export_tensorflow_ensemble(network, workflow, "houses", tmp_path, serving=options)
    (export,) = stages
    assert (export.title, export.total) == ("export", None)
    assert export.works == ["plan", "write the models", "answer golden rows"]
    stages.clear()
    with TritonServer(tmp_path):
        (server,) = stages
        assert (server.title, server.total, server.done) == ("server", 1, 1)
        assert server.works == ["the models are loaded", "houses"]
        # One line at a time, which has ended.
        assert "progress" not in {thread.name for thread in threading.enumerate()}
