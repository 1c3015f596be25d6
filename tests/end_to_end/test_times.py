"""Dates and times on the whole way: fitted, exported, shown and served as what they are."""

from datetime import datetime, timedelta

import keras
import pandas as pd
import polars as pl
import pytest

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.report.ensemble_drawing import EnsembleDrawing
from serving import ClientError, EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

RUNTIMES = {"tensorflow": 0, "onnx": 0, "fused_onnx": 16}
# An hour of which New York has two, and the one before an hour that it does not have.
EDGES = [datetime(2024, 11, 3, 4, 59, 59), datetime(2024, 3, 10, 6, 59, 59)]  # noqa: DTZ001


def flights() -> pl.DataFrame:
    at = pl.Series([edge + timedelta(minutes=30 * n) for edge in EDGES for n in range(8)])
    moment = at.dt.replace_time_zone("UTC").dt.convert_time_zone("America/New_York")
    return pl.DataFrame({"at": at, "moment": moment, "day": moment.dt.date()})


@pytest.fixture(scope="module")
def workflow():
    hours = ["at", "moment"] >> ops.DatePart(["day", "hour"])
    tokyo = ["moment"] >> ops.Rename(name="there") >> ops.DatePart(["hour"], time_zone="Asia/Tokyo")
    day = ["day"] >> ops.DatePart(["weekday"])
    return Workflow((hours + tokyo + day) >> ops.Categorify()).fit(flights())


@pytest.fixture(scope="module")
def model(workflow):
    keras.utils.set_random_seed(0)
    inputs = {n: keras.Input((1,), name=n, dtype="int64") for n in workflow.output_schema}
    ids = [keras.layers.Flatten()(keras.layers.Embedding(32, 2)(x)) for x in inputs.values()]
    output = keras.layers.Dense(1, name="late")(keras.layers.Concatenate()(ids))
    return keras.Model(inputs, output)


@pytest.fixture(scope="module")
def reports(workflow, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        runtime: export_tensorflow_ensemble(
            model,
            workflow,
            runtime,
            folder,
            serving=ServingOptions(runtime=runtime, max_batch_size=rows, golden_rows=flights()),
        )
        for runtime, rows in RUNTIMES.items()
    }


@pytest.fixture(scope="module")
def server(reports):
    with TritonServer(reports["onnx"].repository, list(RUNTIMES)) as server:
        yield server


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_report_and_picture_say_which_kind_of_time_an_input_is(reports, runtime):
    report = reports[runtime]
    drawing = EnsembleDrawing.read(report.repository, runtime)
    facts = {item.name: item.note for arrow in drawing.diagram().arrows for item in arrow.items}
    kinds = {"at": "datetime[us]", "moment": "datetime[us, America/New_York]", "day": "date"}
    for name, kind in kinds.items():
        assert f"{name} int64[N, 1], {kind}" in str(report)
        assert f"<td>{name}</td><td>int64</td><td>[N, 1]</td><td>{kind}</td>" in report.to_html()
        assert facts[name].startswith(kind)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_hours_of_zones_are_served_as_they_were_trained(workflow, model, server, runtime):
    rows = flights()
    moment = pl.col("moment")
    same = (
        rows,
        rows.with_columns(moment.dt.convert_time_zone("Asia/Kathmandu")),
        rows.with_columns(moment.dt.cast_time_unit("ns"), pl.col("at").dt.cast_time_unit("ms")),
        rows.to_pandas(use_pyarrow_extension_array=True),
        {name: rows[name].to_list() for name in rows.columns},
    )
    expected = model.predict(
        {
            n: s.to_numpy().reshape(-1, 1)
            for n, s in workflow.transform(rows).collect().to_dict().items()
        },
        verbose=0,
    )
    with EnsembleClient(server.grpc_url, runtime) as client:
        parity = check_parity(client, workflow, model, rows)
        assert parity.passed, parity
        for table in same:
            made = pl.DataFrame(client.predict(table))
            assert made.to_numpy().ravel() == pytest.approx(expected.ravel(), abs=1e-6)
        naive = rows.with_columns(moment.dt.replace_time_zone(None))
        with pytest.raises(ClientError, match=r"Received: datetime\[us\]\. Say which zone"):
            client.predict(naive)
        dates = pd.DataFrame({n: rows[n].to_list() for n in rows.columns})
        with pytest.raises(ClientError, match=r"'day': expected date\. Received: datetime\[us\]"):
            client.predict(dates.assign(day=pd.to_datetime(dates["day"])))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_times_that_python_has_none_for_are_proven(workflow, model, server, runtime):
    """Years beyond 10,000 and before 0, as of numbers in another unit."""
    days = pl.Series([timedelta(8_000 * 365), timedelta(-2_975 * 365)] * 8)
    rows = flights().with_columns(pl.all() + days)
    with EnsembleClient(server.grpc_url, runtime) as client:
        parity = check_parity(client, workflow, model, rows)
    assert parity.passed, parity
    assert {row["day"][:3] for row in parity.raw.values()} <= {"'+1", "'-0"}


def test_hours_are_those_of_the_clock():
    made = Workflow(["moment"] >> ops.DatePart(["hour"])).fit(flights()).transform(flights())
    clock = [m.astimezone(flights()["moment"][0].tzinfo).hour for m in flights()["moment"]]
    assert made.collect()["moment_hour"].to_list() == clock
