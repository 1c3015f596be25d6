"""Predictions for files: each row's own, in order, all or none."""

from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME

from serving import ClientError, ColumnError, EnsembleClient, predict_to_parquet


@pytest.fixture(scope="module")
def client(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three files of 30,000 rows, with a key that counts them."""
    folder = tmp_path_factory.mktemp("rows")
    rows = pl.concat([FRAME] * 30_000).with_row_index("key")
    for number in range(3):
        part = rows[number * 30_000 : (number + 1) * 30_000]
        part.write_parquet(folder / f"{number}.parquet", row_group_size=7_000)
    return folder


def read(files):
    return pl.concat([pl.read_parquet(file) for file in files])


def test_each_row_has_its_own_answer(client, data, tmp_path):
    files = predict_to_parquet(client, data, tmp_path / "out", keep=["key"], rows_per_file=40_000)
    assert [pl.read_parquet(file).height for file in files] == [40_000, 40_000, 10_000]
    expected = pl.concat([EXPECTED] * 30_000).with_columns(pl.col("probabilities").arr.to_list())
    found = read(files)
    assert found["key"].to_list() == [*range(90_000)]
    assert_frame_equal(found.drop("key"), expected)


def test_a_frame_is_answered(client, tmp_path):
    (file,) = predict_to_parquet(client, FRAME, tmp_path / "out")
    assert pl.read_parquet(file)["same_user"].to_list() == FRAME["userId"].to_list()


def test_progress_counts_each_row(client, data, tmp_path, stages):
    predict_to_parquet(client, data, tmp_path / "out", rows_per_file=40_000)
    assert [(s.title, s.total, s.done, s.unit) for s in stages] == [
        ("predict", 90_000, 90_000, "rows")
    ]


def test_no_rows_give_an_empty_file(client, tmp_path):
    (file,) = predict_to_parquet(client, FRAME[:0], tmp_path / "out", keep="userId")
    assert pl.read_parquet(file).shape == (0, 5)


@pytest.mark.parametrize(
    ("change", "keep", "text"),
    [
        (lambda rows: rows.drop("age"), [], "Received: data without age"),
        (lambda rows: rows, ["usrId"], "Received: 'usrId'. Did you mean 'userId'"),
        (
            lambda rows: rows.rename({"rating": "same_age"}),
            ["same_age"],
            "'same_age', which the model",
        ),
        (
            lambda rows: rows.with_columns(price=pl.lit(Decimal("1.50"))),
            ["userId", "price"],
            r"column 'price' as numbers.*Received: Decimal.*cast\(polars.Float64\)",
        ),
    ],
)
def test_columns_are_named(client, tmp_path, change, keep, text):
    with pytest.raises(ColumnError, match=text):
        predict_to_parquet(client, change(FRAME), tmp_path / "out", keep=keep)
    assert not (tmp_path / "out").exists()


def test_a_late_row_that_is_refused_leaves_nothing(client, tmp_path):
    """The last of 90,000 rows has half a user."""
    rows = pl.concat([FRAME[:1]] * 90_000).cast({"userId": pl.Float64})
    rows = rows.with_columns(
        userId=pl.col("userId") + pl.row_index().eq(89_999).cast(pl.Float64) / 2
    )
    with pytest.raises(ClientError, match="userId"):
        predict_to_parquet(client, rows, tmp_path / "out")
    assert not [*tmp_path.glob("out/*")]


def test_data_that_cannot_be_compared_at_the_end_leaves_nothing(client, link, tmp_path):
    """That it has not changed meanwhile, by a second list of it."""
    for number in range(3):
        link.put(f"raw/{number}.parquet", FRAME)
    lists = iter([None])
    link.fault = lambda text: next(lists, "fail") if "list-type" in text else None
    options = {**link.options, "max_retries": 0}
    with pytest.raises(ClientError, match=r"/raw cannot be read"):
        predict_to_parquet(client, f"{link.url}/raw", tmp_path / "out", storage_options=options)
    assert link.count("list-type") == 2
    assert not (tmp_path / "out").exists()


def test_other_data_is_not_overwritten(client, data, tmp_path):
    with pytest.raises(ClientError, match="outside of the data"):
        predict_to_parquet(client, str(data), data / "scores")
    FRAME.write_parquet(tmp_path / "mine.parquet")
    with pytest.raises(ClientError, match="holds parquet files already"):
        predict_to_parquet(client, FRAME, tmp_path)
