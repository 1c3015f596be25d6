"""Flights out of New York: dates, joins by one and two keys, nulls; from raw tables to a server."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from package_data import flights_tables
from whole_way import (
    Way,
    ask_plainly,
    ids_by_frequency,
    in_odd_files,
    numbers_in_batches,
    train_a_little,
)

from exporter import export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

AIRPORTS_OF_DEPARTURE = {"name": ["EWR", "JFK", "LGA"], "code": [1, 2, 3]}
WEATHER = ["temp", "wind_speed", "wind_gust", "precip"]


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    """The raw tables, with times as times and the weather under one number for place and hour."""
    made = flights_tables()
    landed = made["flights"].filter(pl.col("arr_delay").is_not_null())
    assert landed.height == 327_346
    made["flights"] = landed.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        pl.col("time_hour").str.to_datetime(time_zone="UTC").dt.replace_time_zone(None),
        date=pl.date("year", "month", "day"),
    )
    code = pl.col("origin").replace_strict(*AIRPORTS_OF_DEPARTURE.values())
    made["weather"] = made["weather"].with_columns(
        place_and_hour=code * 1_000_000
        + pl.col("month") * 10_000
        + pl.col("day") * 100
        + pl.col("hour")
    )
    made["planes"] = made["planes"].rename({"year": "built"})
    return made


def features_of_flights(tables: dict[str, pl.DataFrame]) -> Workflow:
    label = (
        ["arr_delay"]
        >> ops.LambdaOp(lambda delay: (delay > 15).cast("int8"), tags=["target"])
        >> ops.Rename(name="late")
    )
    named = ["carrier", "origin", "dest", "tailnum", "flight"]
    ids = named >> ops.Categorify(freq_threshold={"tailnum": 20, "flight": 10})
    plane = ["tailnum"] >> ops.JoinExternal(
        tables["planes"], on="tailnum", columns_ext=["built", "seats", "manufacturer"]
    )
    maker = plane["manufacturer"] >> ops.Categorify(max_size=12)
    built = plane["built"] >> ops.FillMedian() >> ops.Normalize()
    seats = plane["seats"] >> ops.FillMissing(0) >> ops.LogOp() >> ops.Normalize()
    airport = ["dest"] >> ops.JoinExternal(
        tables["airports"], on="dest", on_ext="faa", columns_ext=["lat", "tzone"]
    )
    zone = airport["tzone"] >> ops.Categorify()
    north = airport["lat"] >> ops.FillMedian() >> ops.NormalizeMinMax()
    code = ["origin"] >> ops.JoinExternal(AIRPORTS_OF_DEPARTURE, on="origin", on_ext="name")
    key = (
        code["code"]
        >> ops.LambdaOp(
            lambda code, df: code * 1_000_000 + df.month * 10_000 + df.day * 100 + df.hour,
            dependency=["month", "day", "hour"],
        )
        >> ops.Rename(name="place_and_hour")
    )
    weather = key >> ops.JoinExternal(
        tables["weather"], on="place_and_hour", columns_ext=WEATHER, drop_duplicates_ext=True
    )
    sky = weather[WEATHER] >> ops.FillMissing(0) >> ops.Normalize()
    time = ["time_hour"] >> ops.DatePart(["hour", "month"]) >> ops.Categorify()
    day = ["date"] >> ops.DatePart(["weekday"])
    far = ["distance"] >> ops.LogOp() >> ops.Normalize()
    often = [["carrier", "dest"], "tailnum"] >> ops.TargetEncoding(label)
    route = ["origin"] >> ops.JoinGroupby("distance", stats=["mean", "std"]) >> ops.FillMissing(0)
    return Workflow(
        ids
        + maker
        + built
        + seats
        + zone
        + north
        + sky
        + time
        + day
        + far
        + often
        + route
        + label
        + ["row"]
    )


@pytest.fixture(scope="module")
def way(tables, tmp_path_factory) -> Way:
    folder = tmp_path_factory.mktemp("flights")
    shuffled = tables["flights"].sample(fraction=1, shuffle=True, seed=0)
    learnt, unseen = shuffled[:60_000], shuffled[60_000:62_000]
    workflow = features_of_flights(tables)
    files = in_odd_files(learnt, folder / "raw")
    workflow.fit_transform_to_parquet(files, folder / "train", rows_per_file=17_000, shuffle=True)
    workflow.save(folder / "workflow")
    workflow = Workflow.load(folder / "workflow")
    model = train_a_little(workflow, folder / "train", 2_048)
    export_tensorflow_ensemble(model, workflow, "flights", folder / "models")
    return Way(folder, workflow, model, learnt, unseen)


@pytest.fixture(scope="module")
def server(way):
    with TritonServer(way.folder / "models") as server:
        yield server


def test_every_flight_is_in_the_files_and_in_an_epoch_once(way):
    written = pl.read_parquet(way.folder / "train" / "*.parquet")
    assert written.height == way.learnt.height
    expected = sorted(way.learnt["row"].to_list())
    assert sorted(written["row"].to_list()) == expected
    assert sorted(numbers_in_batches(way.folder / "train", "row", 5_003)) == expected


def test_ids_are_those_of_pandas(way):
    learnt, unseen = way.learnt.to_pandas(), way.unseen.to_pandas()
    for name, least in {"carrier": 1, "dest": 1, "tailnum": 20, "flight": 10}.items():
        ids = ids_by_frequency(learnt[name], least)
        expected = [1 if pd.isna(value) else ids.get(value, 2) for value in unseen[name]]
        assert way.features[name].to_list() == expected, name
        assert (2 in expected) == (least > 1), "the rows show values below the threshold"


def test_joined_columns_are_those_of_pandas(way, tables):
    learnt, unseen = (planes_of(rows, tables) for rows in (way.learnt, way.unseen))
    ids = ids_by_frequency(learnt["manufacturer"])
    ids = {value: number for value, number in ids.items() if number < 12}
    expected = [1 if pd.isna(value) else ids.get(value, 2) for value in unseen["manufacturer"]]
    assert way.features["manufacturer"].to_list() == expected
    assert {1, 2} < set(expected)
    zones = tables["airports"].to_pandas().set_index("faa")["tzone"]
    learnt_zones, unseen_zones = (rows["dest"].map(zones) for rows in (learnt, unseen))
    ids = ids_by_frequency(learnt_zones)
    expected = [1 if pd.isna(value) else ids.get(value, 2) for value in unseen_zones]
    assert way.features["tzone"].to_list() == expected


def planes_of(rows: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> pd.DataFrame:
    planes = tables["planes"].to_pandas()[["tailnum", "built", "seats", "manufacturer"]]
    return rows.to_pandas().merge(planes, on="tailnum", how="left")


def weather_of(rows: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> pd.DataFrame:
    keys = ["origin", "month", "day", "hour"]
    weather = tables["weather"].to_pandas().drop_duplicates(keys)[[*keys, *WEATHER]]
    return rows.to_pandas().merge(weather, on=keys, how="left")


def test_scaled_numbers_are_those_of_pandas(way, tables):
    learnt, unseen = (planes_of(rows, tables) for rows in (way.learnt, way.unseen))
    # A column of whole numbers keeps to them: of two in the middle the median is the lower.
    median = learnt["built"].dropna().sort_values().iloc[(learnt["built"].count() - 1) // 2]
    expect_scaled(way, "built", learnt["built"].fillna(median), unseen["built"].fillna(median))
    expect_scaled(way, "seats", *(np.log1p(r["seats"].fillna(0)) for r in (learnt, unseen)))
    expect_scaled(way, "distance", *(np.log1p(r["distance"]) for r in (learnt, unseen)))
    learnt, unseen = (weather_of(rows, tables) for rows in (way.learnt, way.unseen))
    assert unseen["temp"].notna().mean() > 0.99
    for name in WEATHER:
        expect_scaled(way, name, learnt[name].fillna(0), unseen[name].fillna(0))


def expect_scaled(way: Way, name: str, learnt: pd.Series, unseen: pd.Series) -> None:
    expected = (unseen - learnt.mean()) / learnt.std()
    np.testing.assert_allclose(way.features[name].to_numpy(), expected, atol=2e-6, err_msg=name)


def test_dates_are_taken_apart_as_pandas_does(way):
    learnt, unseen = way.learnt.to_pandas(), way.unseen.to_pandas()
    for part in ("hour", "month"):
        ids = ids_by_frequency(getattr(learnt["time_hour"].dt, part))
        expected = [ids[value] for value in getattr(unseen["time_hour"].dt, part)]
        assert way.features[f"time_hour_{part}"].to_list() == expected
    weekdays = pd.to_datetime(unseen[["year", "month", "day"]]).dt.weekday
    assert way.features["date_weekday"].to_list() == weekdays.to_list()


def test_statistics_of_groups_are_those_of_pandas(way):
    learnt, unseen = way.learnt.to_pandas(), way.unseen.to_pandas()
    learnt["late"] = (learnt["arr_delay"] > 15).astype(float)
    mean = learnt["late"].mean()
    for keys, name in (
        (["carrier", "dest"], "TE_carrier_dest_late"),
        (["tailnum"], "TE_tailnum_late"),
    ):
        groups = learnt.groupby(keys, dropna=False)["late"].agg(["sum", "count"]).reset_index()
        groups["encoded"] = (groups["sum"] + 20 * mean) / (groups["count"] + 20)
        found = unseen.merge(groups, on=keys, how="left")["encoded"].fillna(mean)
        np.testing.assert_allclose(way.features[name].to_numpy(), found, rtol=1e-6)
    groups = learnt.groupby("origin")["distance"]
    for stat in ("mean", "std"):
        expected = unseen["origin"].map(getattr(groups, stat)())
        made = way.features[f"origin_distance_{stat}"].to_numpy()
        np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_training_rows_do_not_see_their_own_delay(way):
    """Encoded from all rows, a plane that flew once would tell its label."""
    written = pl.read_parquet(way.folder / "train" / "*.parquet")
    of_all = way.workflow.transform(way.learnt).collect().select("row", all="TE_tailnum_late")
    both = written.join(of_all, on="row").select("late", "TE_tailnum_late", "all")
    honest, leaking = (
        both.select(pl.corr("late", name)).item() for name in ("TE_tailnum_late", "all")
    )
    assert honest < leaking - 0.05


def test_the_server_answers_as_the_offline_pipeline(way, server):
    with EnsembleClient(server.grpc_url, "flights") as client:
        report = check_parity(client, way.workflow, way.model, way.unseen)
        assert report.passed, f"\n{report}"
        assert report.rows == way.unseen.height
        assert "arr_delay" not in {column.name for column in client.contract.inputs}


def test_a_plain_client_gets_the_same_answer(way, server):
    with EnsembleClient(server.grpc_url, "flights") as client:
        names = [column.name for column in client.contract.inputs]
        (output,) = [column.name for column in client.contract.outputs]
        rows = way.unseen.drop_nulls(names).head(300)
        expected = client.predict(rows)[output].to_numpy()
        tensors = {}
        for column in client.contract.inputs:
            values = rows[column.name]
            if values.dtype == pl.String:
                tensor = np.array([text.encode() for text in values], object)
            elif values.dtype.is_temporal():
                tensor = values.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy()
            else:
                tensor = values.to_numpy()
            tensors[column.name] = tensor.reshape(-1, 1)
    (answer,) = ask_plainly(server.grpc_url, "flights", tensors, [output])
    np.testing.assert_array_equal(answer.reshape(-1), expected)
