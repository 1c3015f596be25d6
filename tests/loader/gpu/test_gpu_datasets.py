"""The GPU path as TensorFlow's datasets, run where there is no GPU: rows come from Polars here."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from gpu_rows import LAYOUT, PolarsReader, make_frame

from loader import KerasSequenceLoader, LoaderError
from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType
from loader.gpu.blocks import DeviceBlocks
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.transport import DeviceTransport
from loader.order.epoch_plan import Chunk, Piece
from loader.tensorflow.device_dataset import DeviceDataset
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry
from loader.tensorflow.sized_dataset import SizedDataset
from loader.tensorflow.sparse import SparseTransport
from training import TrainingError, train


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sparse_tensors_are_made_where_a_batch_is_used(dtype):
    lists = [[3, 0, 7], [], [5], [], [1, 2, 4, 0]]
    frame = pl.DataFrame({"tags": pl.Series(lists, dtype=pl.List(getattr(pl, dtype.title())))})
    column = BatchColumn("tags", ColumnType(dtype, is_list=True), width=4, is_sparse=True)
    layout = BatchLayout((column,), ())
    batch_format = BatchFormat(layout)
    # A name other than the host's own: what is to be made on a GPU.
    transport = SparseTransport(DeviceTransport(batch_format, "/device:CPU:0"), layout)

    def stream():
        blocks = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0")
        chunks = [[Chunk((Piece("f", 0, 0, 5, 0),))]]
        return (p for b in blocks.in_order(chunks, 2) for p in b.batches(2))

    functions = GeneratorFunctions(StreamRegistry(stream), transport)
    dataset = transport.finish(functions.dataset())
    rows = [row for x in dataset for row in tf.sparse.to_dense(x["tags"]).numpy().tolist()]
    assert rows == [(row + [0] * 4)[:4] for row in lists]
    assert next(iter(dataset))["tags"].dtype.name == dtype


@pytest.fixture
def parts():
    """A function that begins a pass over 200 rows in batches of 64, their number, and a transport."""
    batch_format = BatchFormat(LAYOUT)
    chunks = [[Chunk((Piece("f", 0, 0, 200, 0),))]]

    def stream():
        blocks = DeviceBlocks(PolarsReader(batch_format, make_frame(200)), batch_format, "/cpu:0")
        return (p for b in blocks.in_order(chunks, 64) for p in b.batches(64))

    return stream, 4, DeviceTransport(batch_format, "/cpu:0")


@pytest.fixture
def device_dataset(parts):
    """The dataset below those of a GPU, and the functions that keep it alive."""
    stream, size, transport = parts
    functions = GeneratorFunctions(StreamRegistry(stream), transport)
    yield SizedDataset(transport.finish(functions.dataset()), size)
    del functions


def test_a_loop_and_a_compiled_loop_see_the_same_rows(device_dataset):
    expected = make_frame(200)["id"].to_list()
    assert [i for x, _ in device_dataset for i in x["id"].numpy()[:, 0]] == expected

    @tf.function
    def total(iterator, steps):
        found = tf.zeros([], tf.int64)
        for _ in tf.range(steps):
            x, _ = next(iterator)
            found += tf.reduce_sum(tf.cast(x["id"], tf.int64))
        return found

    assert total(iter(device_dataset), 4).numpy() == sum(expected)


def test_iterators_of_one_dataset_do_not_share_a_stream(device_dataset):
    first, second = iter(device_dataset), iter(device_dataset)
    pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 4
    for (a, _), (b, _) in pairs:
        np.testing.assert_array_equal(a["id"], b["id"])


def test_batches_on_a_gpu_are_not_cut_for_replicas(device_dataset):
    """TensorFlow asks `tf.distribute`'s first question by this function."""
    with pytest.raises(LoaderError, match=r'several replicas.*Pass device="cpu"'):
        tf.compat.v1.data.get_output_shapes(device_dataset)


def test_a_loader_on_a_gpu_is_not_for_several_replicas(tmp_path):
    make_frame(8).write_parquet(tmp_path / "rows.parquet")
    loader = KerasSequenceLoader(tmp_path, 4, [], cat_names=["id"], device="cpu")
    loader.device = "gpu:0"
    with pytest.raises(LoaderError, match=r'Received: a loader on gpu:0. Pass device="cpu"'):
        loader.distribute(SimpleNamespace(num_replicas_in_sync=2))


def test_map_is_applied_where_a_batch_is_used(parts):
    mapped = DeviceDataset(*parts, lambda x, y: ({"price": x["price"]}, y))
    weighted = mapped.map(lambda x, y: (x, y, tf.ones_like(x["price"])))
    assert len(weighted) == 4
    for x, _, weight in weighted:
        assert list(x) == ["price"]
        assert weight.shape == x["price"].shape


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_weights_of_rows_are_the_third_member(dtype):
    frame = make_frame(200).with_columns(weight=pl.col("small").cast(getattr(pl, dtype.title())))
    names = [("id", "int32"), ("label", "bool"), ("weight", dtype)]
    x, y, weight = (BatchColumn(name, ColumnType(kind)) for name, kind in names)
    batch_format = BatchFormat(BatchLayout((x,), (y,), (weight,)))

    def stream():
        blocks = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0")
        chunks = [[Chunk((Piece("f", 0, 0, 200, 0),))]]
        return (p for b in blocks.in_order(chunks, 64) for p in b.batches(64))

    data = DeviceDataset(stream, 4, DeviceTransport(batch_format, "/cpu:0"))
    expected = frame["weight"].to_numpy()
    found = [weight for _, _, weight in data]
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(np.concatenate(found)[:, 0], expected)
    doubled = data.map(lambda x, y, weight: (x, y, 2 * tf.cast(weight, tf.float32)))
    found = [weight for _, _, weight in doubled.take(2)]
    np.testing.assert_array_equal(np.concatenate(found)[:, 0], 2.0 * expected[:128])


def test_whole_batches_are_chosen_and_the_function_applied_after_them(parts):
    data = DeviceDataset(*parts)
    ids = [x["id"].numpy().tolist() for x, _ in data]
    passed = data.take(3).repeat(2).skip(1).prefetch(1)
    for _ in range(2):
        assert [x["id"].numpy().tolist() for x, _ in passed] == (ids[:3] * 2)[1:]
    assert len(passed) == 5
    mapped = passed.map(lambda x, _: x["id"] + 1)
    for late in (mapped, mapped.take(9), mapped.skip(0)):
        assert [x.numpy().tolist() for x in late] == [
            (np.array(b) + 1).tolist() for b in (ids[:3] * 2)[1:]
        ]
    endless = data.repeat()
    assert endless.cardinality() == endless.skip(2).cardinality() == tf.data.INFINITE_CARDINALITY
    assert [x["id"].numpy().tolist() for x, _ in endless.skip(2).take(3)] == [*ids[2:], *ids[:1]]


@pytest.mark.parametrize("count", [0, 1, 4, 5, -1])
def test_counts_are_those_of_tensorflow(parts, count):
    """Beside a dataset of the numbers of the batches."""
    data, numbers = DeviceDataset(*parts), tf.data.Dataset.range(4)
    first = [int(x["id"][0, 0]) for x, _ in data]
    kinds = ["take", "skip"] + ["repeat"] * (count >= 0)
    for kind in kinds:
        own, expected = (getattr(each, kind)(count) for each in (data, numbers))
        assert [int(x["id"][0, 0]) for x, _ in own] == [first[n] for n in expected]
        assert len(own) == len(expected)
    assert list(data.take(0).repeat()) == []


def test_a_count_that_only_a_graph_knows_is_refused(parts):
    data = DeviceDataset(*parts)

    @tf.function(autograph=False)
    def first(count):
        return data.take(count).cardinality()

    with pytest.raises(LoaderError, match=r'known outside of a tf.function.*device="cpu"'):
        first(tf.constant(2))


def test_what_reads_on_the_host_is_refused(parts):
    """TensorFlow takes the addresses of a GPU for the host's: the process would end."""
    data = DeviceDataset(*parts)
    for read in (
        lambda: data.filter(lambda _, y: tf.size(y) > 0),
        lambda: data.take(2).filter(lambda _, y: tf.size(y) > 0),
        lambda: tf.data.Dataset.map(data, lambda x, _: x),
        lambda: tf.data.Dataset.zip((data, tf.data.Dataset.range(4))),
        lambda: data.concatenate(data),
        data.enumerate,
        data.cache,
    ):
        with pytest.raises(
            LoaderError, match=r"map, repeat, take, skip or prefetch.*device=\"cpu\""
        ):
            read()


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_keras_fits_to_it(parts, steps_per_execution):
    numbers = lambda x, y: (  # noqa: E731
        {"price": x["price"], "id": tf.cast(x["id"] % 10, tf.int32)},
        tf.cast(y, tf.float32),
    )
    data = DeviceDataset(*parts, numbers)
    price = keras.Input((1,), name="price")
    ids = keras.Input((1,), name="id", dtype="int32")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10, 4)(ids))
    hidden = keras.layers.concatenate([price, embedded])
    model = keras.Model([price, ids], keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("sgd", "binary_crossentropy", steps_per_execution=steps_per_execution)
    history = model.fit(data, epochs=2, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
    first = next(iter(data))
    each = keras.losses.BinaryCrossentropy(reduction="sum")
    total = sum(float(each(y, model(x))) for x, y in data)
    assert model.evaluate(data, verbose=0) == pytest.approx(total / 200, rel=1e-5)
    assert first[0]["price"].shape == (64, 1)


def test_train_sees_its_columns(device_dataset):
    age = keras.Input((1,), name="age")
    model = keras.Model({"age": age}, keras.layers.Dense(1, "sigmoid")(age))
    with pytest.raises(TrainingError, match=r"Received: small, id, .*; missing: age"):
        train(model, device_dataset)
