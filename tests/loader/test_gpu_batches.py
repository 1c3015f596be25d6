"""What the GPU path does behind cuDF, run where there is no GPU: rows come from Polars here."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader.errors import DamagedError, LoaderError
from loader.files import ColumnType
from loader.generator_dataset import GeneratorFunctions, StreamRegistry
from loader.gpu.batch_spec import MappedDataset
from loader.gpu.blocks import DeviceBlocks
from loader.gpu.decoder import check_gpu_lives
from loader.gpu.packing import Packing, Rows, carrier, widened
from loader.gpu.transport import DeviceTransport
from loader.layout import BatchColumn, Layout
from loader.plan import Chunk, Piece
from loader.sized_dataset import SizedDataset
from loader.sparse import SparseTransport
from training import TrainingError, train

LAYOUT = Layout(
    (
        BatchColumn("small", ColumnType("int8")),
        BatchColumn("id", ColumnType("int32")),
        BatchColumn("long", ColumnType("int64")),
        BatchColumn("genres", ColumnType("int32", is_list=True)),
        BatchColumn("price", ColumnType("float32")),
        BatchColumn("exact", ColumnType("float64")),
        BatchColumn("tags", ColumnType("int64", is_list=True), width=3),
    ),
    (BatchColumn("label", ColumnType("bool")),),
)


def make_frame(rows: int) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    lists = lambda low, high, most: [  # noqa: E731
        random.integers(low, high, n).tolist() for n in random.integers(0, most + 1, rows)
    ]
    return pl.DataFrame(
        {
            "small": random.integers(-128, 128, rows).astype(np.int8),
            # Bit patterns that are NaN to the float that carries them.
            "id": random.integers(-(2**31), 2**31, rows).astype(np.int32),
            "long": random.integers(-(2**63), 2**63 - 1, rows),
            "genres": pl.Series(lists(-(2**31), 2**31, 5), dtype=pl.List(pl.Int32)),
            "price": random.standard_normal(rows).astype(np.float32),
            "exact": random.standard_normal(rows),
            "tags": pl.Series(lists(-(2**63), 2**63 - 1, 3), dtype=pl.List(pl.Int64)),
            "label": random.random(rows) < 0.5,
        }
    )


def carried(values, dtype: str) -> np.ndarray:
    return np.asarray(values).astype(widened(dtype)).view(carrier(dtype))


class PolarsReader:
    """Gives the rows that cuDF would."""

    order_by = "polars"

    def __init__(self, packing: Packing, frame: pl.DataFrame) -> None:
        self.packing = packing
        self.frame = frame

    def read(self, chunks, seed):
        assert seed is None
        parts = [self.frame[p.start : p.start + p.rows] for c in chunks for p in c.pieces]
        return self.rows(pl.concat(parts))

    def rows(self, part: pl.DataFrame) -> Rows:
        matrices = [
            np.stack(
                [
                    carried(part[m.name].list.len() if m.is_lengths else part[m.name], m.dtype)
                    for m in members
                ],
                axis=1,
            )
            for members in self.packing.matrices.values()
        ]
        padded = []
        for column in self.packing.padded:
            dense = np.zeros((len(part), column.width), column.type.dtype)
            for row, values in enumerate(part[column.name].to_list()):
                dense[row, : len(values)] = values
            padded.append(dense.view(carrier(column.type.dtype)))
        values = [
            carried(part[c.name].explode(empty_as_null=False), c.type.dtype)[:, None]
            for c in self.packing.ragged
        ]
        return Rows(*(tuple(map(tf.constant, found)) for found in (matrices, padded, values)))


def batches_of(frame: pl.DataFrame, chunk_rows: list[int], batch_size: int):
    packing = Packing(LAYOUT)
    ends = list(itertools.accumulate(chunk_rows))
    chunks = [
        Chunk((Piece("f", n, end - size, size, n),))
        for n, (end, size) in enumerate(zip(ends, chunk_rows, strict=True))
    ]
    blocks = DeviceBlocks(PolarsReader(packing, frame), packing, "/cpu:0")
    transport = DeviceTransport(packing, "/cpu:0")
    groups = [group for group in (chunks[:2], chunks[2:]) if group]
    for block in blocks.blocks(groups, batch_size, None):
        for parts in block.batches(batch_size):
            for part, expected in zip(parts, packing.specs, strict=True):
                assert part.dtype == expected.dtype
                assert part.shape.is_compatible_with(expected.shape)
            yield transport.to_batch(parts)


@pytest.mark.parametrize(
    ("chunk_rows", "batch_size"),
    [([100], 100), ([64, 64, 64], 64), ([7, 5, 90], 32), ([3, 4, 5, 6], 64), ([1, 200, 1], 50)],
)
def test_batches_hold_every_row_in_order_bit_for_bit(chunk_rows, batch_size):
    rows = sum(chunk_rows)
    frame = make_frame(rows)
    batches = list(batches_of(frame, chunk_rows, batch_size))
    sizes = [len(y) for _, y in batches]
    assert sizes == [batch_size] * (rows // batch_size) + (
        [rows % batch_size] if rows % batch_size else []
    )
    start = 0
    for (x, y), size in zip(batches, sizes, strict=True):
        part = frame[start : start + size]
        start += size
        assert list(x) == [column.name for column in LAYOUT.features]
        for name in ("small", "id", "long", "price", "exact"):
            assert x[name].dtype.name == str(part[name].to_numpy().dtype)
            np.testing.assert_array_equal(x[name].numpy()[:, 0], part[name].to_numpy())
        np.testing.assert_array_equal(y.numpy()[:, 0], part["label"].to_numpy())
        values, lengths = x["genres"]
        assert lengths.dtype == tf.int32
        np.testing.assert_array_equal(lengths.numpy()[:, 0], part["genres"].list.len().to_numpy())
        expected = part["genres"].explode(empty_as_null=False).to_numpy()
        np.testing.assert_array_equal(values.numpy()[:, 0], expected)
        dense = [(row + [0, 0, 0])[:3] for row in part["tags"].to_list()]
        np.testing.assert_array_equal(x["tags"].numpy(), dense)


@pytest.mark.parametrize(("columns", "batch_size"), [(1, 64), (8, 1), (2, 64)])
def test_batches_are_no_views_of_what_cudf_takes_back(columns, batch_size):
    names = [f"c{number}" for number in range(columns)]
    layout = Layout(tuple(BatchColumn(name, ColumnType("int64")) for name in names), ())
    packing = Packing(layout)

    class Reader(PolarsReader):
        def read(self, chunks, seed):
            self.given = super().read(chunks, seed)
            return self.given

    reader = Reader(packing, pl.DataFrame({name: range(192) for name in names}))
    blocks = DeviceBlocks(reader, packing, "/cpu:0")
    chunk = Chunk((Piece("f", 0, 0, 192, 0),))
    for block in blocks.blocks([[chunk]], batch_size, None):
        for (part,) in block.batches(batch_size):
            memory = [np.from_dlpack(tensor) for tensor in (part, reader.given.matrices[0])]
            assert not np.shares_memory(*memory)


def test_a_compiled_function_gets_the_same_batch():
    packing = Packing(LAYOUT)
    frame = make_frame(40)
    rows = PolarsReader(packing, frame).rows(frame)
    (block,) = DeviceBlocks(PolarsReader(packing, frame), packing, "/cpu:0").blocks(
        [[Chunk((Piece("f", 0, 0, 40, 0),))]], 40, None
    )
    (parts,) = block.batches(40)
    spec = DeviceTransport(packing, "/cpu:0").element_spec
    eager = spec._from_components(parts)
    compiled = tf.function(lambda *parts: spec._from_components(parts))
    tf.nest.map_structure(np.testing.assert_array_equal, eager, compiled(*parts))
    assert rows.count == 40


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sparse_tensors_are_made_where_a_batch_is_used(dtype):
    lists = [[3, 0, 7], [], [5], [], [1, 2, 4, 0]]
    frame = pl.DataFrame({"tags": pl.Series(lists, dtype=pl.List(getattr(pl, dtype.title())))})
    column = BatchColumn("tags", ColumnType(dtype, is_list=True), width=4, is_sparse=True)
    layout = Layout((column,), ())
    packing = Packing(layout)
    # A name other than the host's own: what is to be made on a GPU.
    transport = SparseTransport(DeviceTransport(packing, "/device:CPU:0"), layout)

    def stream():
        blocks = DeviceBlocks(PolarsReader(packing, frame), packing, "/cpu:0")
        chunks = [[Chunk((Piece("f", 0, 0, 5, 0),))]]
        return PartsStream(p for b in blocks.blocks(chunks, 2, None) for p in b.batches(2))

    functions = GeneratorFunctions(StreamRegistry(stream), transport)
    dataset = transport.finish(functions.dataset())
    rows = [row for x in dataset for row in tf.sparse.to_dense(x["tags"]).numpy().tolist()]
    assert rows == [(row + [0] * 4)[:4] for row in lists]
    assert next(iter(dataset))["tags"].dtype.name == dtype


@pytest.mark.parametrize("dtype", ["string", "float16"])
def test_what_a_gpu_does_not_carry_is_named(dtype):
    layout = Layout((BatchColumn("city", ColumnType(dtype)),), ())
    with pytest.raises(LoaderError, match=r"column 'city'.*device=\"cpu\""):
        Packing(layout)


class PartsStream:
    """Gives the parts of batches, as an epoch's stream does."""

    def __init__(self, parts):
        self.parts = iter(parts)

    def __next__(self):
        return next(self.parts)

    def close(self):
        self.parts = iter(())


@pytest.fixture
def device_dataset():
    """A dataset as the GPU's, of 200 rows in batches of 64, and the functions that keep it alive."""
    packing = Packing(LAYOUT)
    chunks = [[Chunk((Piece("f", 0, 0, 200, 0),))]]

    def stream():
        blocks = DeviceBlocks(PolarsReader(packing, make_frame(200)), packing, "/cpu:0")
        return PartsStream(p for b in blocks.blocks(chunks, 64, None) for p in b.batches(64))

    functions = GeneratorFunctions(StreamRegistry(stream), DeviceTransport(packing, "/cpu:0"))
    yield SizedDataset(functions.dataset(), 4)
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


def test_map_is_applied_where_a_batch_is_used(device_dataset):
    mapped = MappedDataset(device_dataset, 4, "/cpu:0", lambda x, y: ({"price": x["price"]}, y))
    weighted = mapped.map(lambda x, y: (x, y, tf.ones_like(x["price"])))
    assert len(weighted) == 4
    for x, _, weight in weighted:
        assert list(x) == ["price"]
        assert weight.shape == x["price"].shape


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_keras_fits_to_it(device_dataset, steps_per_execution):
    numbers = lambda x, y: (  # noqa: E731
        {"price": x["price"], "id": tf.cast(x["id"] % 10, tf.int32)},
        tf.cast(y, tf.float32),
    )
    data = MappedDataset(device_dataset, 4, "/cpu:0", numbers)
    price = keras.Input((1,), name="price")
    ids = keras.Input((1,), name="id", dtype="int32")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10, 4)(ids))
    hidden = keras.layers.concatenate([price, embedded])
    model = keras.Model([price, ids], keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("sgd", "binary_crossentropy", steps_per_execution=steps_per_execution)
    history = model.fit(data, epochs=2, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
    first = next(iter(data))
    rows = [model.evaluate(x, y, verbose=0) * len(y) for x, y in data]
    assert model.evaluate(data, verbose=0) == pytest.approx(sum(rows) / 200, rel=1e-5)
    assert first[0]["price"].shape == (64, 1)


def test_train_sees_its_columns(device_dataset):
    age = keras.Input((1,), name="age")
    model = keras.Model({"age": age}, keras.layers.Dense(1, "sigmoid")(age))
    with pytest.raises(TrainingError, match=r"Received: small, id, .*; missing: age"):
        train(model, device_dataset)


def test_an_error_that_ends_the_gpu_is_no_damage_to_skip():
    pieces = [Piece("a.parquet", group, 0, 10, 0) for group in (3, 4)]
    check_gpu_lives(RuntimeError("CUDF failure at: reader_impl.cu:241: Parquet"), pieces)
    fatal = RuntimeError("Fatal CUDA error encountered at: error.hpp: illegal memory access")
    with pytest.raises(LoaderError, match=r"2 row groups from a\.parquet, row group 3") as caught:
        check_gpu_lives(fatal, pieces)
    assert not isinstance(caught.value, DamagedError)
