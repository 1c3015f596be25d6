"""A column of weights is the third member of each batch, and neither feature nor label."""

import numpy as np
import polars as pl
import pytest

from loader import ArrayLoader, KerasSequenceLoader, LoaderError
from workflow import ColumnSchema, Schema, Tags

ROWS = np.arange(1000)
FRAME = pl.DataFrame(
    {
        "user": ROWS,
        "genres": [list(range(number % 4)) for number in ROWS],
        "price": (ROWS / 10).astype(np.float32),
        "label": (ROWS % 2).astype(np.int8),
        "other": (ROWS % 3).astype(np.int8),
        "weight": ROWS * 2.0,
        "name": ["a"] * 1000,
    }
)
COLUMNS = {
    "label_names": ["label"],
    "cat_names": ["user", "genres"],
    "cont_names": ["price"],
    "sample_weight": "weight",
    "seed": 7,
}


@pytest.fixture
def folder(tmp_path):
    FRAME.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path


def load(face, folder, **options):
    return face(folder, batch_size=64, **(COLUMNS | {"device": "cpu"} | options))


@pytest.mark.parametrize("face", [KerasSequenceLoader, ArrayLoader])
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_each_row_has_its_weight(face, shuffle, folder):
    with load(face, folder, shuffle=shuffle) as loader:
        users = []
        for x, y, weight in loader:
            row = np.asarray(x["user"])
            assert [*x] == ["user", "genres", "price"]
            assert np.asarray(weight).dtype == np.float64
            np.testing.assert_array_equal(weight, row * 2.0)
            np.testing.assert_array_equal(y, row % 2)
            users += row[:, 0].tolist()
        assert (users == ROWS.tolist()) == (not shuffle)
        assert sorted(users) == ROWS.tolist()
        assert loader.sample_weight == "weight"
        assert len(loader.peek()) == 3


def test_a_resumed_loader_and_a_worker_have_the_weights_of_their_rows(folder):
    with load(KerasSequenceLoader, folder) as loader, load(ArrayLoader, folder) as again:
        batches = iter(loader)
        next(batches)
        again.set_state(loader.get_state())
        for (_, _, expected), (_, _, weight) in zip(batches, again, strict=True):
            np.testing.assert_array_equal(weight, expected)
    with load(ArrayLoader, folder, global_size=2, global_rank=1) as loader:
        for x, _, weight in loader:
            np.testing.assert_array_equal(weight, x["user"] * 2.0)


def test_datasets_made_of_a_loader_have_weights(folder):
    options = {"label_names": ["label", "other"], "sparse_names": ["genres"]}
    options |= {"sparse_max": {"genres": 3}, "sparse_as_dense": True}
    loader = load(KerasSequenceLoader, folder, **options)
    for data in (loader.repeat(2), loader.map(lambda x, y, w: (x, y, w)), loader.prefetch(1)):
        for x, y, weight in data:
            assert [*y] == ["label", "other"]
            np.testing.assert_array_equal(weight, x["user"].numpy() * 2.0)


def test_tags_and_order_leave_the_weights_out(folder):
    tagged = [("user", Tags.CATEGORICAL), ("weight", Tags.CONTINUOUS), ("label", Tags.TARGET)]
    tagged = [
        ColumnSchema(name, str(FRAME.schema[name]).lower(), tags=(tag,)) for name, tag in tagged
    ]
    given = {"sample_weight": "weight", "schema": Schema(tagged), "shuffle": False}
    with ArrayLoader(folder, 64, **given) as loader:
        x, _, _ = next(loader)
        assert [*x] == ["user"]
        assert loader.input_schema.names == ["user", "label", "weight"]
        assert loader.input_schema.tagged(Tags.CONTINUOUS).names == []
        assert "weight" in repr(loader)
    with pytest.raises(LoaderError, match=r"label_names beside sample_weight=.label.,"):
        ArrayLoader(folder, 64, **given | {"sample_weight": "label"})


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt8, pl.Boolean, pl.Float32])
def test_weights_have_the_dtype_of_the_file(dtype):
    frame = FRAME.with_columns(weight=pl.col("user").gt(5).cast(dtype))
    with load(ArrayLoader, frame, shuffle=False) as loader:
        _, _, weight = next(loader)
    assert weight.dtype == frame["weight"].to_numpy().dtype
    np.testing.assert_array_equal(weight[:, 0], frame["weight"][:64].to_numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": "nope"}, "Expected the column 'nope' in"),
        (
            {"sample_weight": "price"},
            "sample_weight. Received twice: price.*a copy with another name",
        ),
        ({"sample_weight": "label"}, "sample_weight. Received twice: label"),
        ({"sample_weight": ["weight"]}, r"the name of a column. Received: \['weight'\]"),
        ({"sample_weight": np.ones(3)}, "the name of a column. Received: array"),
        ({"label_names": []}, "label_names beside sample_weight=.weight., .* Received: no label"),
        ({"sample_weight": "genres", "cat_names": ["user"]}, "'genres' as one number a row."),
        ({"sample_weight": "name"}, "'name' as one number a row. Received: string"),
    ],
)
def test_other_weights_are_refused(options, message, folder):
    with pytest.raises(LoaderError, match=message):
        load(ArrayLoader, folder, **options)


def test_a_null_is_refused_where_no_tensor_holds_it():
    frame = FRAME.with_columns(weight=pl.when(pl.col("user") > 5).then(pl.col("user")))
    with (
        load(ArrayLoader, frame, shuffle=False) as loader,
        pytest.raises(LoaderError, match=r"weight.*null|null.*weight"),
    ):
        next(loader)
