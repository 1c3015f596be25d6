"""Random rows with the facts of an inspection."""

import datetime as dt

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from workflow import WorkflowError, generate_dataset, inspect_dataset
from workflow.inspection.random_order import permuted

ROWS = 20_000


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(5)
    every = np.arange(ROWS)
    prices = random.gamma(2, 10, ROWS).astype(np.float32)
    prices[every % 50 == 0] = np.nan
    start = dt.datetime(2024, 1, 1)  # noqa: DTZ001
    return pl.DataFrame(
        {
            "orderId": every + 10_000_000_000,
            "userId": pl.Series(random.zipf(1.4, ROWS) % 3_000).set(pl.Series(every % 4 == 0), None),
            "code": pl.Series([f"code {n}" for n in random.zipf(1.6, ROWS) % 500]),
            "tiny": pl.Series(random.integers(-128, 128, ROWS), dtype=pl.Int8),
            "wide": pl.Series(random.integers(0, 2**64 - 1, ROWS, dtype=np.uint64)),
            "huge": pl.Series([2**63 + 10**15 * (n % 500) for n in range(ROWS)], dtype=pl.UInt64),
            "price": prices,
            "whole": pl.Series(random.poisson(3, ROWS)),
            "on": pl.Series(random.random(ROWS) < 0.3).set(pl.Series(every % 5 == 0), None),
            "none": pl.Series([None] * ROWS, dtype=pl.String),
            "tags": pl.Series(
                [[int(n) for n in random.zipf(2, size) % 90] + [None] * int(size == 3)
                 for size in random.integers(0, 6, ROWS)]
            ).set(pl.Series(every % 8 == 0), None),
            "at": [start + dt.timedelta(hours=int(n)) for n in random.integers(0, 900, ROWS)],
            "day": [start.date() + dt.timedelta(days=int(n)) for n in random.integers(0, 90, ROWS)],
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def inspection(rows):
    return inspect_dataset(rows)


@pytest.fixture(scope="module")
def made(inspection, tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "made.parquet"
    return pl.read_parquet(generate_dataset(inspection, ROWS, path, seed=1, row_group_size=3_000))


def test_types_nulls_and_nan_are_those_of_the_data(rows, made):
    assert made.schema == rows.schema
    assert made.null_count().rows() == rows.null_count().rows()
    assert made["price"].is_nan().sum() == rows["price"].is_nan().sum()
    elements = made["tags"].explode(empty_as_null=False)
    assert elements.null_count() / len(elements) == pytest.approx(
        rows["tags"].explode(empty_as_null=False).null_count()
        / len(rows["tags"].explode(empty_as_null=False)),
        rel=0.1,
    )


def test_a_column_with_an_empty_name_keeps_it(tmp_path):
    rows = pl.DataFrame({"n": [1.5, 2.5, 2.5], "": ["a", "b", "b"]})
    made = pl.read_parquet(generate_dataset(inspect_dataset(rows), 3, tmp_path / "a.parquet"))
    assert made.schema == rows.schema
    assert made[""].sort().to_list() == rows[""].to_list()


def test_a_column_of_nothing_but_nan_stays_so(tmp_path):
    data = pl.DataFrame(
        {
            "all": [np.nan] * 8,
            "some": [np.nan, None] * 4,
            "lists": [[np.nan, None], [np.nan, np.nan]] * 4,
        }
    )
    made = pl.read_parquet(generate_dataset(inspect_dataset(data), 8, tmp_path / "a.parquet"))
    for name, nans, nulls in (("all", 8, 0), ("some", 4, 4), ("lists", 12, 4)):
        values = made[name].explode(empty_as_null=False) if name == "lists" else made[name]
        assert (values.is_nan().sum(), values.null_count()) == (nans, nulls)


@pytest.mark.parametrize(
    ("values", "top"), [([True, False], 20), ([True, None], 20), ([True, False] * 9, 0)]
)
def test_booleans_without_frequent_values_stay_so(values, top, tmp_path):
    inspection = inspect_dataset({"clicked": values}, top=top)
    made = pl.read_parquet(generate_dataset(inspection, 1_000, tmp_path / "made.parquet"))
    assert made.schema == {"clicked": pl.Boolean}
    assert made["clicked"].null_count() == 1_000 * values.count(None) / len(values)


def test_quantities_have_no_more_different_values_than_the_data(tmp_path):
    """The 99 values beside the percentiles would lie on these, were they spread evenly."""
    found = inspect_dataset({"temp": np.tile(np.arange(200) / 10, 45)}, top=0)
    made = pl.read_parquet(generate_dataset(found, 9_000, tmp_path / "a.parquet"))
    assert made["temp"].n_unique() == 200


def test_days_and_small_numbers_have_all_different_values(tmp_path):
    random = np.random.default_rng(0)
    days = random.exponential(60, 20_000).astype(int)
    first = dt.date(2020, 1, 1)
    rows = pl.DataFrame(
        {
            "day": [first + dt.timedelta(days=day) for day in days.tolist()],
            "tiny": pl.Series(random.integers(-128, 128, 20_000), dtype=pl.Int8),
        }
    )
    path = generate_dataset(inspect_dataset(rows), len(rows), tmp_path / "a.parquet")
    made = pl.read_parquet(path)
    for name in rows.columns:
        assert made[name].n_unique() == pytest.approx(rows[name].n_unique(), rel=0.01)


@pytest.mark.parametrize("whole", [True, False])
def test_quantities_that_are_rare_have_all_different_values(whole, tmp_path):
    """Most of them lie beyond the 99th percentile, where only a hundredth of the rows is."""
    amounts = np.random.default_rng(0).lognormal(1, 1.3, 50_000)
    amounts = np.round(amounts * (10 if whole else 4)) / (1 if whole else 4)
    rows = pl.DataFrame({"amount": amounts}).cast(pl.Int64 if whole else pl.Float64)
    path = generate_dataset(inspect_dataset(rows), len(rows), tmp_path / "a.parquet")
    made = pl.read_parquet(path)["amount"]
    assert made.n_unique() == pytest.approx(rows["amount"].n_unique(), rel=0.01)
    for share in (0.1, 0.5, 0.9, 0.98):
        assert made.quantile(share) == pytest.approx(rows["amount"].quantile(share), rel=0.03)


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize(
    "values",
    [
        range(3_000),  # of which half would be rounded to another one
        range(2**53, 2**53 + 300),
        [*range(-290, 0), *range(10**6, 10**9, 10**8)],
        pl.Series([*range(2**64 - 300, 2**64, 3)], dtype=pl.UInt64),
        [dt.date(1960, 1, 1) + dt.timedelta(days=n) for n in range(300)],
    ],
    ids=["dense", "beyond float64", "uneven", "uint64", "days"],
)
def test_whole_quantities_without_equal_values_have_none(values, factor, tmp_path):
    rows = pl.DataFrame({"amount": values})
    inspection = inspect_dataset(rows)
    count = min(rows.height * factor, 300 if rows["amount"].dtype == pl.UInt64 else rows.height * 4)
    made = pl.read_parquet(generate_dataset(inspection, count, tmp_path / "made.parquet"))["amount"]
    assert made.n_unique() == count
    assert made.dtype == rows["amount"].dtype
    assert made.min() >= rows["amount"].min()
    if factor == 1:
        assert made.max() <= rows["amount"].max()


@pytest.mark.parametrize(
    ("name", "distance"),
    [(name, 0.01) for name in ("orderId", "userId", "code", "whole", "on", "tags")]
    + [(name, 0.1) for name in ("tiny", "at", "day")],  # by percentiles, not by ranks
)
def test_different_values_and_their_skew_are_those_of_the_data(name, distance, rows, made):
    def counts(frame):
        values = frame[name].explode(empty_as_null=False) if name == "tags" else frame[name]
        return np.sort(values.drop_nulls().value_counts()["count"].to_numpy())[::-1]

    expected, found = counts(rows), counts(made)
    assert len(found) == pytest.approx(len(expected), rel=max(distance, 0.03))
    shares = [np.cumsum(n) / n.sum() for n in (expected, found)]
    common = min(map(len, shares))
    assert np.abs(shares[0][:common] - shares[1][:common]).max() < distance


@pytest.mark.parametrize("name", ["wide", "huge", "price", "whole", "tiny", "at", "day"])
def test_quantities_have_the_quantiles_of_the_data(name, rows, made):
    def numbers(frame):
        values = frame[name].to_physical().drop_nulls().cast(pl.Float64)
        return np.sort(values.drop_nans().to_numpy())

    expected, found = numbers(rows), numbers(made)
    # Kolmogorov and Smirnov's distance between the two samples.
    both = np.concatenate([expected, found])
    below = [np.searchsorted(part, both, side="right") / len(part) for part in (expected, found)]
    assert np.abs(below[0] - below[1]).max() < 0.02
    assert expected.min() <= found.min()
    assert found.max() <= expected.max()


def test_lists_have_the_lengths_of_the_data(rows, made):
    expected, found = (frame["tags"].list.len().drop_nulls() for frame in (rows, made))
    assert found.mean() == pytest.approx(expected.mean(), rel=0.05)
    assert (found.min(), found.max()) == (expected.min(), expected.max())
    assert (found == 0).sum() == pytest.approx((expected == 0).sum(), rel=0.1)


@pytest.mark.parametrize("name", ["itemId", "stars"])
def test_few_lists_stay_in_their_range(name, tmp_path):
    found = inspect_dataset({name: [[7, 8], [9]]})  # every element once, as in any few lists
    made = pl.read_parquet(generate_dataset(found, 1_000, tmp_path / "a.parquet"))
    assert sorted(made[name].explode(empty_as_null=False).unique()) == [7, 8, 9]


def test_texts_are_frequent_ones_and_made_up_ones_of_the_same_length(rows, made, inspection):
    frequent = {value for value, _ in inspection["code"].common}
    found = set(made["code"])
    assert frequent <= found
    assert not (found - frequent) & set(rows["code"])
    lengths = made["code"].str.len_chars()
    assert (lengths.min(), lengths.max()) == (6, 8)


def test_no_made_up_text_is_a_frequent_one(tmp_path):
    """Such as numbers written as text, of which the made-up ones consist too."""
    texts = [f"{prefix}{number}" for prefix in ("", "x", "xx") for number in range(30)]
    data = pl.DataFrame({"code": texts}).select(
        pl.col("code").repeat_by(pl.int_range(90, 0, -1)).explode(empty_as_null=False)
    )
    found = inspect_dataset(data)
    made = pl.read_parquet(generate_dataset(found, data.height, tmp_path / "a.parquet"))
    expected, counts = (frame["code"].value_counts(sort=True) for frame in (data, made))
    assert made["code"].n_unique() == 90
    assert counts["count"][:20].to_list() == pytest.approx(expected["count"][:20].to_list(), abs=2)


def test_columns_are_independent_of_one_another(rows, tmp_path):
    twice = rows.select("whole", again="whole")
    path = generate_dataset(inspect_dataset(twice), ROWS, tmp_path / "a.parquet")
    made = pl.read_parquet(path)
    assert abs(np.corrcoef(made["whole"], made["again"])[0, 1]) < 0.03
    assert abs(np.corrcoef(made["whole"][1:], made["whole"][:-1])[0, 1]) < 0.03


def test_a_seed_decides_everything(inspection, tmp_path):
    def generated(name, seed, size):
        path = tmp_path / name
        return pl.read_parquet(generate_dataset(inspection, 2_500, path, seed, row_group_size=size))

    first = generated("a.parquet", 3, 131_072)
    assert first.equals(generated("b.parquet", 3, 700))
    assert not first["userId"].equals(generated("c.parquet", 4, 131_072)["userId"])


def test_every_seed_makes_other_rows(inspection, tmp_path):
    """Also times in milliseconds, and those that differ in high bits alone."""
    seeds = (0, 1, 2**28, 2**32, 1_764_460_800_000, 2**64, np.uint64(2**63))
    made = [
        pl.read_parquet(generate_dataset(inspection, 500, tmp_path / "a.parquet", seed))
        for seed in seeds
    ]
    for name in ("userId", "code", "price", "tags"):
        assert len({str(rows[name].to_list()) for rows in made}) == len(seeds)


def test_ids_that_were_estimated_to_be_unique_stay_so(tmp_path):
    ids = np.random.default_rng(1).permutation(60_000) * 7
    found = inspect_dataset({"id": ids}, most_values=5_000)
    for rows in (20_000, 60_000, 90_000):
        made = pl.read_parquet(generate_dataset(found, rows, tmp_path / "a.parquet"))
        assert made["id"].n_unique() == rows


def test_more_rows_keep_shares_and_unique_columns_unique(inspection, rows, tmp_path):
    path = generate_dataset(inspection, 3 * ROWS, tmp_path / "a.parquet", row_group_size=7_000)
    made = pl.read_parquet(path, columns=["orderId", "userId", "wide"])
    assert made["orderId"].n_unique() == 3 * ROWS
    assert made["userId"].null_count() == 3 * ROWS // 4
    assert made["userId"].n_unique() == pytest.approx(rows["userId"].n_unique(), rel=0.02)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(2)] == [7_000, 7_000]


def test_generated_data_has_the_facts_that_it_was_made_from(inspection, made):
    again = inspect_dataset(made)
    for column in inspection.columns:
        assert again[column.name].type == column.type
        assert again[column.name].nulls == column.nulls
        if column.name not in ("wide", "price", "none"):
            assert again[column.name].entropy == pytest.approx(column.entropy, abs=0.25)


def test_estimated_facts_are_enough(tmp_path):
    ids = np.random.default_rng(0).zipf(1.2, 50_000) % 20_000
    found = inspect_dataset({"userId": ids}, most_values=500)
    made = pl.read_parquet(generate_dataset(found, 50_000, tmp_path / "a.parquet"))
    share = (ids == 1).mean()
    top = made["userId"].value_counts(sort=True)["count"][0] / 50_000
    assert top == pytest.approx(share, rel=0.1)


def test_no_rows(inspection, tmp_path, rows):
    made = pl.read_parquet(generate_dataset(inspection, 0, tmp_path / "a.parquet"))
    assert made.schema == rows.schema
    assert made.height == 0
    empty = inspect_dataset(rows.clear())
    assert pl.read_parquet(
        generate_dataset(empty, 5, tmp_path / "b.parquet")
    ).null_count().rows() == [(5,) * rows.width]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100, 1_024, 1_025])
def test_a_random_order_has_each_place_once(size):
    places = permuted(np.arange(size), size, seed=9)
    assert sorted(places.tolist()) == list(range(size))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("facts.json", 5, "a.parquet"), "Expected an inspection, from inspect_dataset"),
        ((None, -1, "a.parquet"), "Expected rows as a whole number from 0. Received: -1"),
        ((None, 5.0, "a.parquet"), "Expected rows as a whole number from 0. Received: 5.0"),
        ((None, 5, "a.csv"), "Expected the path of a .parquet file .*Received: a.csv"),
        ((None, 5, "no/a.parquet"), "in a folder that exists. Received: no/a.parquet"),
        ((None, 5, "a.parquet", -3), "Expected seed as a whole number from 0. Received: -3"),
    ],
)
def test_wrong_arguments(inspection, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts, *others = arguments
    with pytest.raises(WorkflowError, match=message):
        generate_dataset(facts or inspection, *others)
    assert not list(tmp_path.iterdir())
