"""Batches have every row once, columns in step and the documented shapes."""

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderError
from loader.read import chunks


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 64, 100, 999, 1000, 4096])
@pytest.mark.parametrize("parts_per_chunk", [1, 3])
def test_every_row_once_and_columns_in_step(
    make, batch_size, shuffle, parts_per_chunk, check_rows, users
):
    loader = make(batch_size=batch_size, shuffle=shuffle, parts_per_chunk=parts_per_chunk)
    batches = list(loader)
    for x, y in batches:
        check_rows(x, y)
    sizes = [len(y) for _, y in batches]
    assert len(batches) == len(loader)
    assert sizes[:-1] == [batch_size] * (len(batches) - 1)
    seen = users(batches)
    assert sorted(seen) == list(range(1000))
    assert (seen == list(range(1000))) is not shuffle


def test_shapes_and_dtypes_are_the_files_own(make):
    x, y = make().peek()
    assert list(x) == ["userId", "movieId", "genres", "price"]
    values, lengths = x["genres"]
    assert (x["userId"].shape, x["userId"].dtype) == ((64, 1), tf.int64)
    assert (x["movieId"].shape, x["movieId"].dtype) == ((64, 1), tf.int32)
    assert (x["price"].shape, x["price"].dtype) == ((64, 1), tf.float32)
    assert (y.shape, y.dtype) == ((64, 1), tf.int8)
    assert (lengths.shape, lengths.dtype) == ((64, 1), tf.int32)
    assert (values.shape[1], values.dtype) == (1, tf.int64)
    assert values.shape[0] == int(tf.reduce_sum(lengths))


def test_drop_last_drops_only_the_short_batch(make):
    loader = make(batch_size=300, drop_last=True)
    assert [len(y) for _, y in loader] == [300, 300, 300]
    assert len(loader) == 3
    assert len(make(batch_size=250, drop_last=True)) == 4


def test_no_labels_gives_features_alone(make):
    x = make(label_names=[]).peek()
    assert sorted(x) == ["genres", "movieId", "price", "userId"]


def test_several_labels_come_by_name(make):
    _, y = make(label_names=["rating", "price"], cont_names=[]).peek()
    assert {name: tensor.dtype for name, tensor in y.items()} == {
        "rating": tf.int8,
        "price": tf.float32,
    }


def test_null_and_empty_lists_are_empty_rows(make):
    frame = pl.DataFrame({"genres": [[1, 2], None, [], [3]], "rating": [1, 0, 1, 0]})
    loader = make(frame, cat_names=["genres"], cont_names=[], shuffle=False)
    x, _ = loader.peek()
    assert x["genres"][0].numpy().ravel().tolist() == [1, 2, 3]
    assert x["genres"][1].numpy().ravel().tolist() == [2, 0, 0, 1]


def test_only_empty_lists(make):
    frame = pl.DataFrame({"genres": [[], None]}, schema={"genres": pl.List(pl.Int32)})
    (x,) = make(frame, cat_names=["genres"], cont_names=[], label_names=[])
    assert x["genres"][0].shape == (0, 1)
    assert x["genres"][1].numpy().ravel().tolist() == [0, 0]


@pytest.mark.parametrize("compiled", [False, True])
def test_all_dtypes_arrive(make, tmp_path, compiled):
    kinds = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]
    frame = pl.DataFrame(
        {
            **{k: pl.Series([0, 1, 100], dtype=getattr(pl, k)) for k in kinds},
            "Float32": pl.Series([0.5, None, float("inf")], dtype=pl.Float32),
            "Float64": pl.Series([0.5, float("nan"), -1e300]),
            "Boolean": [True, False, True],
            "String": ["", "müsli", "a" * 100],
            "Strings": [["x", "y"], [], ["z"]],
            "Array": pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Int16, 2)),
        }
    )
    frame.write_parquet(tmp_path / "all.parquet")
    loader = make(tmp_path, cat_names=frame.columns, cont_names=[], label_names=[], shuffle=False)
    iterator = iter(loader)

    def take(batches):
        return next(batches)

    x = tf.function(take)(iterator) if compiled else take(iterator)
    for name in [*kinds, "Boolean"]:
        assert x[name].numpy().ravel().tolist() == frame[name].to_list()
        assert x[name].dtype == name.lower().replace("boolean", "bool")
    np.testing.assert_array_equal(x["Float32"].numpy().ravel(), [0.5, np.nan, np.inf])
    np.testing.assert_array_equal(x["Float64"].numpy().ravel(), [0.5, np.nan, -1e300])
    assert [text.decode() for text in x["String"].numpy().ravel()] == frame["String"].to_list()
    assert x["Strings"][0].numpy().ravel().tolist() == [b"x", b"y", b"z"]
    assert x["Array"][0].numpy().ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert x["Array"][1].numpy().ravel().tolist() == [2, 2, 2]


@pytest.mark.parametrize("width", [5, np.int64(5)], ids=["Python", "numpy"])
def test_padding_fills_with_zero(make, width):
    loader = make(
        cont_names=[],
        sparse_names=["genres"],
        sparse_max={"genres": width},
        sparse_as_dense=True,
        shuffle=False,
    )
    x, _ = loader.peek()
    assert x["genres"].shape == (64, 5)
    assert x["genres"].numpy()[3].tolist() == [3, 4, 5, 0, 0]
    assert x["genres"].numpy()[4].tolist() == [0, 0, 0, 0, 0]


def test_padding_never_cuts_a_row(make):
    loader = make(
        cont_names=[], sparse_names=["genres"], sparse_max={"genres": 2}, sparse_as_dense=True
    )
    with pytest.raises(LoaderError, match=r"'genres'.*3 elements in .*parquet, row group \d"):
        list(loader)


def test_a_frame_keeps_its_values_when_batches_are_used_in_place(make, ratings, users):
    before = ratings.clone()
    loader = make(ratings, shuffle=False)

    @tf.function
    def grow(iterator):
        x, _ = next(iterator)
        return tf.exp(x["price"]) * 2.0, x["userId"] + 1

    iterator = iter(loader)
    for _ in range(len(loader)):
        grow(iterator)
    assert ratings.equals(before)
    assert users(loader) == list(range(1000))


def test_a_batch_outlives_its_loader(make, users):
    kept = list(make(shuffle=False))
    assert users(kept) == list(range(1000))


def test_lazy_frames_and_lists_of_paths(folder, make, ratings, users):
    assert users(make(ratings.lazy(), shuffle=False)) == list(range(1000))
    files = [folder / "2.parquet", str(folder / "0.parquet")]
    assert users(make(files, shuffle=False)) == [*range(750, 1000), *range(400)]
    assert sorted(users(make(str(folder / "[01].parquet")))) == list(range(750))


def test_row_groups_larger_than_the_buffer_are_read_in_parts(
    make, ratings, tmp_path, users, monkeypatch
):
    read, counts = chunks.ParquetReader.read, []

    def recorded(reader, pieces):
        counts.append(sum(piece.rows for piece in pieces))
        return read(reader, pieces)

    monkeypatch.setattr(chunks.ParquetReader, "read", recorded)
    ratings.write_parquet(tmp_path / "one.parquet", row_group_size=1000)
    loader = make(tmp_path, buffer_size=20_000, shuffle=False, batch_size=32)
    assert users(loader) == list(range(1000))
    assert sum(counts) == 1000
    assert 32 <= max(counts) < 200
    assert sorted(users(make(tmp_path, buffer_size=20_000, batch_size=32))) == list(range(1000))


def test_positional_arguments_are_nvtabulars(folder, users):
    loader = KerasSequenceLoader(
        str(folder), 10, ["rating"], None, ["userId"], ["price"], "parquet", False, None, 0.06
    )
    assert users(loader) == list(range(1000))


def test_a_file_that_a_list_names_twice_comes_twice(make, folder, users):
    file = folder / "2.parquet"
    for paths in ([file, file], [str(file), file]):
        loader = make(paths, shuffle=False)
        assert users(loader) == [*range(750, 1000)] * 2
    assert users(make([folder, file], shuffle=False)) == [*range(1000), *range(750, 1000)]
    assert sorted(users(make([folder, file]))) == sorted([*range(1000), *range(750, 1000)])
