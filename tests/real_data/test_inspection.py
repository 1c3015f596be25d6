"""The flights out of New York and the baskets of a grocer: inspected, and generated again."""

import polars as pl
import pytest
from package_data import flights_tables, journey_table

from workflow import Workflow, generate_dataset, inspect_dataset, ops
from workflow.inspection.suggestion import suggestion


@pytest.fixture(scope="module")
def flights():
    rows = flights_tables()["flights"]
    return rows.with_columns(pl.col("time_hour").str.to_datetime(time_zone="UTC"))


def test_flights_are_inspected_and_their_suggestions_fit(flights):
    inspection = inspect_dataset(flights)
    pandas = flights.to_pandas()
    assert [c.distinct for c in inspection.columns] == pandas.nunique().tolist()
    assert [c.nulls for c in inspection.columns] == pandas.isna().sum().tolist()
    assert max(map(len, str(inspection).splitlines())) <= 80
    code = {c.name: suggestion(c).operators for c in inspection.columns}
    assert code["year"] == ""
    assert code["carrier"] == "ops.Categorify()"
    assert code["dep_delay"] == "ops.FillMedian() >> ops.Normalize()"
    nodes = [
        eval(f"columns >> {text}", {"ops": ops, "columns": [name]})  # noqa: S307 - our own text
        for name, text in code.items()
        if text
    ]
    features = nodes[0]
    for node in nodes[1:]:
        features = features + node
    workflow = Workflow(features).fit(flights.head(50_000))
    assert workflow.transform(flights.head(100)).collect().height == 100


def test_baskets_are_generated_with_their_skew(tmp_path):
    baskets = journey_table("transactions").select("product_id", "quantity", "sales_value")
    inspection = inspect_dataset(baskets)
    path = generate_dataset(inspection, baskets.height, tmp_path / "a.parquet", seed=2)
    made = pl.read_parquet(path)
    counts = [frame["product_id"].value_counts()["count"].sort() for frame in (baskets, made)]
    assert len(counts[1]) == pytest.approx(len(counts[0]), rel=0.001)
    for part in (0.01, 0.1, 0.5):
        most, again = (count.tail(round(len(count) * part)).sum() for count in counts)
        assert again == pytest.approx(most, rel=0.01)
    for name in ("quantity", "sales_value"):
        for quantile in (0.1, 0.5, 0.9, 0.99):
            expected = baskets[name].quantile(quantile)
            assert made[name].quantile(quantile) == pytest.approx(expected, rel=0.02, abs=0.01)
