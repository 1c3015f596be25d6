"""Data sets small enough to check row by row."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader

ROWS = 1000


@pytest.fixture(scope="session")
def ratings() -> pl.DataFrame:
    """Each row's values all follow from its number, so that mixed-up columns show."""
    row = np.arange(ROWS)
    return pl.DataFrame(
        {
            "userId": row,
            "movieId": (row * 7 % 50).astype(np.int32),
            "genres": [list(range(number, number + number % 4)) for number in row],
            "price": (row / 10).astype(np.float32),
            "rating": (row % 2).astype(np.int8),
        },
        schema_overrides={"genres": pl.List(pl.Int64)},
    )


@pytest.fixture
def check_rows():
    """Holds every row of a batch to what `ratings` has for its number."""

    def check(x, y):
        row = x["userId"].numpy()[:, 0]
        values, lengths = (half.numpy()[:, 0] for half in x["genres"])
        np.testing.assert_array_equal(x["movieId"].numpy()[:, 0], row * 7 % 50)
        np.testing.assert_allclose(x["price"].numpy()[:, 0], row / 10, rtol=1e-6)
        np.testing.assert_array_equal(y.numpy()[:, 0], row % 2)
        np.testing.assert_array_equal(lengths, row % 4)
        expected = [value for number in row for value in range(number, number + number % 4)]
        np.testing.assert_array_equal(values, expected)

    return check


@pytest.fixture
def users():
    """Lists the ids of all rows in the order in which they come."""

    def collect(batches):
        return [int(user) for x, _ in batches for user in x["userId"].numpy()[:, 0]]

    return collect


@pytest.fixture(scope="session")
def folder(tmp_path_factory, ratings) -> Path:
    """Three files of 400, 350 and 250 rows in row groups of 100."""
    path = tmp_path_factory.mktemp("ratings")
    for number, (start, rows) in enumerate([(0, 400), (400, 350), (750, 250)]):
        ratings[start : start + rows].write_parquet(path / f"{number}.parquet", row_group_size=100)
    return path


@pytest.fixture
def make(folder):
    """A loader over the folder, the user's arguments replacing the usual ones."""

    def build(data=None, **arguments):
        usual = {
            "batch_size": 64,
            "label_names": ["rating"],
            "cat_names": ["userId", "movieId", "genres"],
            "cont_names": ["price"],
            "seed": 7,
        }
        return KerasSequenceLoader(folder if data is None else data, **(usual | arguments))

    return build
