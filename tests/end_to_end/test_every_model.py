"""Every model of `training.models`, trained for a moment, is served as it is; a tower alone too."""

import keras
import numpy as np
import polars as pl
import pytest

from exporter import ServingOptions, export_tensorflow_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import models, train
from workflow import Workflow, ops

QUERY, CANDIDATE = ["user", "age"], ["item", "genres"]
MAKE = {
    "mlp": lambda schema: models.mlp(schema, hidden=(16,)),
    "dlrm": lambda schema: models.dlrm(schema, embedding_dim=8, bottom=(8,), top=(16,)),
    "dcn": lambda schema: models.dcn(schema, cross_layers=2, rank=4, hidden=(16,)),
    "wide_and_deep": lambda schema: models.wide_and_deep(schema, hidden=(16,)),
    "two_tower": lambda schema: models.two_tower(
        schema, query=QUERY, candidate=CANDIDATE, width=8, hidden=(16,)
    ),
    "in_16_bits": lambda schema: in_16_bits(lambda: models.mlp(schema, hidden=(16,))),
}


def in_16_bits(make):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return make()
    finally:
        keras.config.set_dtype_policy(policy)


def raw(rows, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 4, rows)
    frame = pl.DataFrame(
        {
            "user": random.integers(0, 60, rows),
            "item": [f"item {number}" for number in random.integers(0, 40, rows)],
            "genres": [[f"g{n}" for n in random.integers(0, 6, length)] for length in lengths],
            "age": random.normal(40, 12, rows),
            "clicked": random.integers(0, 2, rows),
        }
    )
    lost = pl.Series(random.random(rows) < 0.1)
    return frame.with_columns(pl.when(~lost).then(name).alias(name) for name in ("user", "age"))


@pytest.fixture(scope="module")
def workflow():
    ids = ["user", "item", "genres"] >> ops.Categorify()
    age = ["age"] >> ops.FillMissing(40.0) >> ops.Normalize()
    label = ["clicked"] >> ops.AddTags(["target"])
    return Workflow(ids + age + label).fit(raw(500, seed=0))


@pytest.fixture(scope="module")
def loader(workflow, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    workflow.transform_to_parquet(raw(256, seed=1), folder / "train")
    return KerasSequenceLoader(folder / "train", batch_size=128, seed=0)


@pytest.fixture(scope="module")
def networks(workflow, loader):
    keras.utils.set_random_seed(0)
    made = {name: make(workflow.output_schema) for name, make in MAKE.items()}
    for network in made.values():
        train(network, loader, optimizer=keras.optimizers.Adam(0.01))
    return made


def tower(network, side, names):
    vector = network.get_layer(f"{side}_vector").output
    return keras.Model({name: network.input[name] for name in names}, vector)


@pytest.fixture(scope="module")
def server(workflow, networks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    # The runtime that takes a network apart; a SavedModel of each is compared in tests/training.
    options = ServingOptions(runtime="fused_onnx")
    for name, network in networks.items():
        export_tensorflow_ensemble(network, workflow, name, folder, serving=options)
    users = tower(networks["two_tower"], "query", QUERY)
    export_tensorflow_ensemble(users, workflow, "users", folder)
    with TritonServer(folder, [*MAKE, "users"], startup_timeout=600) as server:
        yield server


@pytest.mark.parametrize("name", MAKE)
def test_the_server_answers_as_the_network_does(name, server, workflow, networks):
    with EnsembleClient(server.grpc_url, name) as client:
        report = check_parity(client, workflow, networks[name], raw(100, seed=2))
    assert report.passed, f"\n{report}"
    assert report.tolerance == (2e-2 if name == "in_16_bits" else 1e-5)


def test_retrieval_by_the_vectors_of_two_towers(server, workflow, networks, tmp_path):
    """Candidates go to a file, queries to the server; together they rank as the model does."""
    model = networks["two_tower"]
    rows = raw(60, seed=3)
    workflow.transform_to_parquet(rows, tmp_path / "rows")
    items = KerasSequenceLoader(
        tmp_path / "rows", 16, [], cat_names=CANDIDATE, cont_names=[], shuffle=False
    )
    np.save(tmp_path / "items.npy", tower(model, "candidate", CANDIDATE).predict(items, verbose=0))
    with EnsembleClient(server.grpc_url, "users") as client:
        assert {column.name for column in client.contract.inputs} == set(QUERY)
        queries = client.predict(rows.select(QUERY))["query_vector"].to_numpy()
    cosines = (queries * np.load(tmp_path / "items.npy")).sum(axis=1)
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, rtol=1e-5)
    whole = KerasSequenceLoader(tmp_path / "rows", 16, [], shuffle=False)
    scores = model.predict(whole, verbose=0)[:, 0]
    weight, bias = (value.numpy().item() for value in model.get_layer("output").weights)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-(cosines * weight + bias))), atol=1e-5)
