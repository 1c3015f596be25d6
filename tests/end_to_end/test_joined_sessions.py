"""Requests of sessions of different lengths are joined by the server, and answered as each alone."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import polars as pl
import pytest
from tritonclient import grpc as tritonclient

from exporter import ServingOptions, export_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer
from training import models, train
from workflow import Workflow, ops

LENGTH, ITEMS, CLIENTS, ROWS = 6, 30, 16, 4
# What joins requests: the models that have a queue of their own.
QUEUES = {
    "tensorflow": ("tensorflow_nvt", "tensorflow_tf"),
    "onnx": ("onnx_nvt", "onnx_onnx"),
    "fused_onnx": ("fused_onnx",),
    "fused_tensorflow": ("fused_tensorflow",),
}


def sessions(lengths, seed):
    """A row for each length, of which a negative one is no list."""
    random = np.random.default_rng(seed)
    recent = [None if n < 0 else random.integers(0, ITEMS, n).tolist() for n in lengths]
    return pl.DataFrame(
        {
            "recent": pl.Series(recent, dtype=pl.List(pl.Int64)),
            "item": random.integers(0, ITEMS + 3, len(lengths)),
            "bought": random.integers(0, 2, len(lengths)),
        }
    )


def requests():
    """One for each client: its longest list is longer than those of the client before."""
    lengths = ([number, number // 2, 0, -1 if number else 0] for number in range(CLIENTS))
    return [sessions(each, seed=number).drop("bought") for number, each in enumerate(lengths)]


def by_hand(seen, rows):
    """The network's inputs: ids by frequency after those of padding, null and unknown; the last items."""
    values = [item for row in seen["recent"].to_list() for item in row or ()]
    counts = Counter(values + seen["item"].to_list())
    ranked = sorted(counts, key=lambda item: (-counts[item], item))
    ids = {item: 3 + rank for rank, item in enumerate(ranked)}
    recent = np.zeros((rows.height, LENGTH), "int64")
    for row, items in enumerate(rows["recent"].to_list()):
        kept = [ids.get(item, 2) for item in (items or [])[-LENGTH:]]
        recent[row, : len(kept)] = kept
    target = [[ids.get(item, 2)] for item in rows["item"].to_list()]
    return {"recent": recent, "item": np.array(target)}


@pytest.fixture(scope="module")
def seen():
    return sessions(np.random.default_rng(0).integers(-1, 12, 512), seed=99)


@pytest.fixture(scope="module")
def workflow(seen):
    ids = [["recent", "item"]] >> ops.Categorify(encode_type="joint")
    recent = ids["recent"] >> ops.ListSlice(-LENGTH, pad=True)
    return Workflow(recent + ids["item"] + (["bought"] >> ops.AddTags(["target"]))).fit(seen)


@pytest.fixture(scope="module")
def network(workflow, seen, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    workflow.transform_to_parquet(seen, folder)
    keras.utils.set_random_seed(1)
    model = models.bst(
        workflow.output_schema,
        sequence="recent",
        target="item",
        embedding_dim=8,
        heads=2,
        hidden=(8,),
    )
    loader = KerasSequenceLoader(folder, 128, sparse_names=["recent"], sparse_as_dense=True, seed=1)
    train(model, loader, optimizer=keras.optimizers.Adam(0.05))
    return model


@pytest.fixture(scope="module")
def server(workflow, network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for runtime in QUEUES:
        # All requests fill a batch, which goes then; a server under load waits for the last of them.
        options = ServingOptions(
            runtime=runtime, max_batch_size=CLIENTS * ROWS, max_queue_delay_us=10_000_000
        )
        export_ensemble(network, workflow, runtime, folder, serving=options)
    with TritonServer(folder, [*QUEUES], startup_timeout=600) as server:
        yield server


def executions(server, model):
    """The number of runs of a model, and of their rows."""
    with tritonclient.InferenceServerClient(server.grpc_url) as client:
        (stats,) = client.get_inference_statistics(model).model_stats
    return np.array([stats.execution_count, stats.inference_count])


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
@pytest.mark.parametrize("runtime", QUEUES)
def test_lists_of_different_lengths_are_joined(runtime, server, network, seen):
    tables = requests()
    longest = [table["recent"].list.len().max() for table in tables]
    assert len(set(longest)) == CLIENTS
    before = {model: executions(server, model) for model in QUEUES[runtime]}
    with (
        EnsembleClient(server.grpc_url, runtime, timeout=120) as client,
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        answers = list(threads.map(client.predict, tables))
    for model, counts in before.items():
        runs, rows = executions(server, model) - counts
        assert rows == CLIENTS * ROWS
        # No two requests have one shape: a run of several is one of several shapes.
        assert runs < CLIENTS, model
    served = pl.concat(answers)["output"].to_numpy()
    expected = network.predict(by_hand(seen, pl.concat(tables)), verbose=0)
    np.testing.assert_allclose(served, expected[:, 0], atol=1e-5)
    assert np.ptp(expected) > 0.01
