"""Bad files and bad arguments: which column, which file, which row group, and what to do."""

import copy
import json
import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loader import ArrayLoader, KerasSequenceLoader, LoaderError


@pytest.fixture
def copies(folder, tmp_path):
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize("path", ["nothing/*.parquet", "nothing.parquet", [], ["no", "no"]])
def test_no_file(make, path):
    with pytest.raises(LoaderError, match=r"No parquet file matches|one path of parquet or more"):
        make(path)


def test_an_empty_folder(make, tmp_path):
    with pytest.raises(LoaderError, match="No parquet file matches"):
        make(tmp_path)


def test_something_that_is_no_path(make):
    with pytest.raises(LoaderError, match="Received: 3"):
        make(3)


def test_a_missing_column_names_the_file(make, copies, ratings):
    ratings.drop("price").write_parquet(copies / "1.parquet")
    with pytest.raises(LoaderError, match=r"'price' in .*1\.parquet.*userId, movieId"):
        make(copies)


def test_schema_drift_names_both_types(make, copies, ratings):
    ratings.cast({"movieId": pl.String}).write_parquet(copies / "2.parquet")
    with pytest.raises(
        LoaderError, match=r"'movieId' is Int32 in .*0\.parquet and String in .*2\."
    ):
        make(copies)


@pytest.mark.parametrize("values", [[1j, 2], np.array([(1,)], [("a", "i4")])])
def test_values_that_no_column_has(values):
    with pytest.raises(
        LoaderError, match=r"'x' as numbers.*Received: (complex in row 0|void32 of)"
    ):
        KerasSequenceLoader({"x": values}, batch_size=2, label_names=[], cont_names=["x"])


def test_a_type_without_a_tensor(make, ratings, tmp_path):
    dated = ratings.with_columns(day=pl.lit("2020-01-01").str.to_date())
    dated.write_parquet(tmp_path / "dated.parquet")
    for data in (dated, tmp_path):
        with pytest.raises(LoaderError, match=r"'day'.*[Dd]ate.*[Cc]ast it"):
            make(data, cat_names=["day"])


@pytest.mark.parametrize(
    ("keep", "reason"),
    [(0, "is empty"), (3, "is not a parquet file"), (100, "ends after 100 bytes")],
)
def test_a_truncated_file(make, copies, keep, reason):
    file = copies / "1.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(LoaderError, match=rf"1\.parquet.*it {reason}"):
        make(copies)


def test_skipping_bad_files_warns_and_lists_them(make, copies, users):
    (copies / "1.parquet").write_bytes(b"PAR1")
    with pytest.warns(UserWarning, match=r"Skipping a file.*1\.parquet"):
        loader = make(copies, on_bad_files="skip")
    assert [file.rsplit("/", 1)[1] for file in loader.skipped_files] == ["1.parquet"]
    assert sorted(users(loader)) == [*range(400), *range(750, 1000)]


@pytest.mark.parametrize("elements", [1, [1]], ids=["scalars", "lists"])
@pytest.mark.parametrize("wanted", [["userId"], ["userId", "movieName"]], ids=["other", "wanted"])
@pytest.mark.parametrize("last", [False, True], ids=["schema", "column chunk"])
def test_a_name_in_a_footer_that_is_no_text(make, tmp_path, users, elements, wanted, last):
    table = pa.table({"userId": [1, 2], "movieName": [elements] * 2, "rating": [0, 1]})
    for name in ("0.parquet", "1.parquet"):
        pq.write_table(table, tmp_path / name, store_schema=False)
    raw = bytearray((tmp_path / "1.parquet").read_bytes())
    # Older pyarrow also writes the column chunk's metadata behind its data, where nobody reads it.
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    raw[raw.rindex(b"movieName") if last else raw.index(b"movieName", footer)] = 0xB8
    (tmp_path / "1.parquet").write_bytes(raw)
    columns = {"cat_names": wanted, "cont_names": [], "shuffle": False}
    with pytest.raises(LoaderError, match=r"1\.parquet cannot be read as parquet"):
        make(tmp_path, **columns)
    with pytest.warns(UserWarning, match=r"Skipping a file.*1\.parquet"):
        loader = make(tmp_path, on_bad_files="skip", **columns)
    assert users(loader) == [1, 2]


def test_all_files_bad(make, tmp_path):
    (tmp_path / "1.parquet").write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="Skipping"),
        pytest.raises(LoaderError, match="at least one file that can be read"),
    ):
        make(tmp_path, on_bad_files="skip")


def test_files_without_rows(make, ratings, tmp_path):
    ratings[:0].write_parquet(tmp_path / "0.parquet")
    with pytest.raises(LoaderError, match="data with rows"):
        make(tmp_path)


def test_a_file_without_rows_among_others(make, copies, ratings, users):
    ratings[:0].write_parquet(copies / "9.parquet")
    assert len(users(make(copies))) == 1000


def test_damaged_data_names_file_and_row_group(make, copies):
    file = copies / "1.parquet"
    data = bytearray(file.read_bytes())
    data[4:2000] = bytes(1996)
    file.write_bytes(data)
    with pytest.raises(LoaderError, match=r"1\.parquet, row group 0.*write it again"):
        list(make(copies))


def test_a_file_that_vanishes(make, copies):
    loader = make(copies, shuffle=False)
    (copies / "2.parquet").unlink()
    with pytest.raises(LoaderError, match=r"2\.parquet, row group 0"):
        list(loader)


def test_a_file_that_got_shorter(make, copies, ratings):
    loader = make(copies, shuffle=False)
    ratings[:10].write_parquet(copies / "2.parquet")
    with pytest.raises(LoaderError, match=r"2\.parquet, row group 0.*bytes where it had"):
        list(loader)


def test_a_file_that_is_another_one_now(make, copies, ratings, users):
    """It has all row groups that were promised, and others; their rows are not those of before."""
    loader = make(copies, shuffle=False)
    ratings.reverse().write_parquet(copies / "2.parquet", row_group_size=100)
    with pytest.raises(LoaderError, match=r"2\.parquet, row group 0.*bytes where it had"):
        users(loader)


@pytest.mark.parametrize(("column", "value"), [("userId", None), ("genres", [1, None])])
def test_nulls_name_column_file_and_row_group(make, ratings, tmp_path, column, value):
    broken = ratings[150:151].with_columns(pl.Series(column, [value], dtype=ratings.schema[column]))
    frame = pl.concat([ratings[:150], broken, ratings[151:]])
    frame.write_parquet(tmp_path / "0.parquet", row_group_size=100)
    loader = make(tmp_path, shuffle=False, batch_size=10)
    with pytest.raises(
        LoaderError, match=rf"'{column}'.*1 in '{column}'.*row group 1\b.*FillMissing.*drop_nulls"
    ):
        list(loader)


def test_all_columns_with_nulls_are_named_at_once(make, ratings):
    null = pl.when(pl.int_range(pl.len()) > 1)
    with pytest.raises(
        LoaderError, match=r"no nulls in 'userId' \(int64\), 'rating' \(int8\).*2 in 'userId', 2 in"
    ):
        list(make(ratings.with_columns(null.then("userId"), null.then("rating"))))


def test_good_batches_come_before_the_error(make, copies, users):
    loader = make(copies, shuffle=False, batch_size=100)
    (copies / "2.parquet").unlink()
    seen = []
    with pytest.raises(LoaderError):
        seen.extend(users([batch])[0] for batch in loader)
    assert seen == list(range(0, 700, 100))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size as a whole number"),
        ({"batch_size": 2.0}, r"Received: 2\.0"),
        ({"parts_per_chunk": -1}, "parts_per_chunk"),
        ({"engine": "csv"}, "Received: 'csv'"),
        (
            {"device": 0},
            r"a GPU that TensorFlow may use.*sees none here: pass \"cpu\"\. Received: 0",
        ),
        ({"device": "gpu:x"}, "as its number or \"gpu:<number>\".*Received: 'gpu:x'"),
        ({"device": "gpu"}, r"none here.* Received: 'gpu'"),
        ({"device": "GPU:0"}, r"none here.* Received: 'GPU:0'"),
        ({"on_bad_files": "ignore"}, "'ignore'"),
        ({"buffer_size": 0}, "buffer_size"),
        ({"buffer_size": float("inf")}, "buffer_size as.*a finite number.*Received: inf"),
        (
            {"decode_timeout": float("inf")},
            "decode_timeout as seconds above 0, or None.*Received: inf",
        ),
        ({"sparse_names": ["genres"], "sparse_max": {"genres": True}}, "Received: True"),
        ({"buffer_size": "1GB"}, "buffer_size as a fraction.*Received: '1GB'"),
        ({"seed": "x"}, "seed as a whole number from 0. Received: 'x'"),
        ({"seed": -1}, "seed as a whole number"),
        ({"seed_fn": 3}, "seed_fn as a function"),
        ({"label_names": 3}, "as a list of str. Received: 3"),
        ({"sparse_names": ["genres"], "sparse_max": 3}, "sparse_max as a dict"),
        ({"data": {"userId": [1]}}, "Expected the column 'movieId' in the data frame"),
        ({"batch_size": 1001, "drop_last": True}, "1000 rows for this rank, with batch_size=1001"),
        ({"cat_names": [], "cont_names": []}, "Expected names of the features"),
        ({"cat_names": ["rating"]}, "Received twice: rating"),
        ({"label_names": ["genres"], "cat_names": ["userId"]}, "label 'genres'"),
        ({"sparse_max": {"genres": 3}}, r"sparse_names only, which is \[\]\. Received: 'genres'"),
        ({"sparse_names": ["genres"]}, r"sparse_max\['genres'\]"),
        ({"sparse_names": ["genres"], "sparse_as_dense": True}, r"sparse_max\['genres'\]"),
        (
            {"sparse_names": ["price"], "sparse_max": {"price": 2}, "sparse_as_dense": True},
            r"list features are: \['genres'\]",
        ),
        ({"reader_kwargs": {"n_rows": 3}}, "Received: 'n_rows'"),
        ({"reader_kwargs": ["cache"]}, r"reader_kwargs as a dict of.*Received: \['cache'\]"),
        ({"shuffle": "no"}, "shuffle as True or False. Received: 'no'"),
        ({"drop_last": 0}, "drop_last as True or False. Received: 0"),
        ({"sparse_as_dense": None}, "sparse_as_dense as True or False. Received: None"),
        ({"schema": {"userId": "int64"}}, "schema as a Schema.*Received: {'userId': 'int64'}"),
        ({"data": ""}, r'Expected a path\. Received: an empty text.*"\*\.parquet"'),
    ],
)
def test_arguments(make, arguments, message):
    with pytest.raises(LoaderError, match=message):
        make(**arguments)


@pytest.mark.parametrize("kind", [ArrayLoader, KerasSequenceLoader])
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_a_loader_stays_in_its_process(folder, kind, duplicate):
    loader = kind(folder, 64, ["rating"], cat_names=["userId"], device="cpu")
    message = rf"Expected a {kind.__name__} to stay.*num_workers=0.*get_state"
    with loader, pytest.raises(LoaderError, match=message):
        duplicate(loader)


def test_a_seed_fn_that_gives_no_seed(make):
    with pytest.raises(LoaderError, match=r"the result of seed_fn.*Received: 'x'"):
        make(seed_fn=lambda: "x").peek()


def test_numbers_of_numpy_are_numbers(make):
    loader = make(
        batch_size=np.int64(64), seed=np.int32(7), global_size=np.int64(1), global_rank=np.int64(0)
    )
    next(iter(loader))
    assert json.loads(json.dumps(loader.get_state())) == loader.get_state()


def test_a_file_with_a_type_that_arrow_does_not_know(tmp_path):
    pl.DataFrame({"userId": pl.Series([1], dtype=pl.Int128)}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LoaderError, match=r"a\.parquet.*more than 64 bits"):
        KerasSequenceLoader(tmp_path, 10, [], cat_names=["userId"])


def test_no_names_and_no_schema(folder):
    with pytest.raises(LoaderError, match="cat_names, cont_names, or a schema"):
        KerasSequenceLoader(folder, 10)


def test_csv_is_refused_with_what_to_write_instead(tmp_path):
    (tmp_path / "rows.csv").write_text("userId,rating\n7,1\n")
    for data in (tmp_path / "rows.csv", [tmp_path / "rows.csv"], f"{tmp_path}/*.csv", tmp_path):
        with pytest.raises(
            LoaderError, match=r"Expected parquet, .*rows\.csv.*transform_to_parquet"
        ):
            KerasSequenceLoader(data, 1, ["rating"], cat_names=["userId"])
