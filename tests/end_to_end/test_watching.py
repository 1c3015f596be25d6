"""A served model's metrics of its inputs, against counts in plain Python; what is shown of them."""

import json
import math
import os
import re
import signal
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import polars as pl
import promql_parser
import pytest
import yaml
from generations import export
from pipelines import PIPELINES
from server_processes import commands, identity_of
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException
from typer.testing import CliRunner

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.command_line.app import make_app
from serving import EnsembleClient, SkewMonitor, TritonServer
from serving.watch.metrics import Scrape, scrape
from serving.watch.skew import skews
from triton_models.preprocess.input_metrics import ALIVE, GAUGES, PERIOD
from triton_models.preprocess.input_metrics import COUNTERS as COUNTS

DOCKER = Path(__file__).parents[2] / "docker"

KNOWN = {"userId": {7, 9, 8}, "movieId": {1, 2, 3, 77}, "tags": {"fun", "long", "unseen"}}
ROWS = pl.DataFrame(
    {
        "userId": [7, None, 4, 9, 9, -1],
        "movieId": [1, None, 77, 90, 3, 5],
        "tags": [["fun", None], [], None, ["odd", "long", "odd"], ["fun"], [None, None]],
        "price": [1.0, None, float("nan"), 1e30, -3.0, -2e30],
    }
)
COUNTERS = {
    "values": "nvt_input_values_total",
    "nulls": "nvt_input_nulls_total",
    "unknown": "nvt_input_unknown_total",
    "outside": "nvt_input_out_of_range_total",
}


@pytest.fixture(scope="module")
def pipeline():
    return PIPELINES["movielens"]()


@pytest.fixture(scope="module")
def repository(pipeline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("movielens")
    export_tensorflow_ensemble(
        pipeline.model, pipeline.workflow, "movielens", folder, pipeline.labels
    )
    return folder


@pytest.fixture(scope="module")
def server(repository):
    """A server of its own: a request of another file's test could be reported during these."""
    with TritonServer(repository) as server:
        yield server


@pytest.fixture
def connection(server):
    with EnsembleClient(server.grpc_url, "movielens") as connection:
        yield connection


def counted_by_hand(rows, learnt):
    """The counts of each kind and column of raw rows, from their definitions."""
    counts = Counter()
    prices = [p for p in learnt["price"].to_list() if p is not None and math.isfinite(p)]
    for row in rows.iter_rows(named=True):
        for name, cell in row.items():
            for value in (cell or []) if name == "tags" else [cell]:
                if value is None or value != value:  # noqa: PLR0124 - NaN
                    counts["nulls", name] += 1
                    continue
                counts["values", name] += 1
                if name in KNOWN and value not in KNOWN[name]:
                    counts["unknown", name] += 1
                if name == "price" and not min(prices) <= value <= max(prices):
                    counts["outside", name] += 1
    return counts


def difference(now, before, labels):
    def value(where, name, **more):
        return where.value(name, **labels, **more) or 0

    counts = Counter()
    for kind, name in COUNTERS.items():
        for column in ROWS.columns:
            change = value(now, name, column=column) - value(before, name, column=column)
            counts[kind, column] = int(change)
    rows = value(now, "nvt_input_rows_total") - value(before, "nvt_input_rows_total")
    return int(rows), +counts


def when_counted(url, before, rows, labels):
    """The metrics, once they contain the rows; the step reports every few seconds."""
    deadline = time.monotonic() + 30
    while True:
        now = scrape([url])
        if difference(now, before, labels)[0] >= rows:
            return now
        assert time.monotonic() < deadline, "the rows were not counted in time"
        time.sleep(0.1)


def test_inputs_are_counted_as_by_hand(server, connection, pipeline):
    labels = {"model": "movielens", "version": "1"}
    before = scrape([server.metrics_url])
    connection.predict(ROWS)
    for number in range(ROWS.height):
        connection.predict(ROWS[number])
    # A health check is not a client.
    assert server.is_ready()
    now = when_counted(server.metrics_url, before, 2 * ROWS.height, labels)
    learnt = pipeline.rows.filter(pl.col("userId") != 12345)
    by_hand = counted_by_hand(pl.concat([ROWS, ROWS]), learnt)
    assert difference(now, before, labels) == (2 * ROWS.height, by_hand)


def test_a_monitor_at_the_client_counts_the_same(connection, pipeline):
    """The same figures and names from the rows that are sent, for runtimes without Python."""
    monitor = SkewMonitor(pipeline.workflow, connection)
    monitor.add(ROWS)
    monitor.add(ROWS.head(1))
    learnt = pipeline.rows.filter(pl.col("userId") != 12345)
    by_hand = counted_by_hand(pl.concat([ROWS, ROWS.head(1)]), learnt)
    with monitor.serving() as url:
        found = difference(scrape([url]), Scrape({}), {"model": "movielens", "version": "client"})
    assert found == (ROWS.height + 1, by_hand)


def test_a_step_with_metrics_ends_without_a_crash(repository, tmp_path):
    """A step writes a crash of its process to the log, also one after the server's last request."""
    log = tmp_path / "server.log"
    with TritonServer(repository, ["movielens_nvt"], log_file=log):
        pass
    written = log.read_text()
    assert "successfully unloaded 'movielens_nvt' version 1" in written
    assert "Fatal Python error" not in written


def test_a_step_that_is_unloaded_has_counted_all_and_is_not_silent(server, connection):
    """The server keeps its metrics, so that an old time of its last report would be an alert for ever."""
    labels = {"model": "movielens", "version": "1"}

    def reported():
        return scrape([server.metrics_url]).value(ALIVE, **labels)

    assert abs(time.time() - reported()) < 60
    before = scrape([server.metrics_url])
    connection.predict(ROWS)
    server.unload("movielens")
    deadline = time.monotonic() + 30
    while not math.isnan(reported()):
        assert time.monotonic() < deadline, "the unloaded step is reported as silent"
        time.sleep(0.1)
    assert difference(scrape([server.metrics_url]), before, labels)[0] == ROWS.height
    server.load("movielens")
    assert abs(time.time() - reported()) < 60


@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_dead_instance_is_silent_beside_one_that_reports(pipeline, tmp_path, dead):
    serving = ServingOptions(preprocess_instances=2)
    export_tensorflow_ensemble(
        pipeline.model, pipeline.workflow, "two", tmp_path, pipeline.labels, serving=serving
    )

    def reported():
        return {s.labels["step"]: s.value for s in scrape([server.metrics_url]).find(ALIVE)}

    with TritonServer(tmp_path, ["two_nvt"]) as server:
        name = f"two_nvt_{dead}"
        assert sorted(reported()) == ["two_nvt_0", "two_nvt_1"]
        (killed,) = (
            pid
            for pid, words in commands().items()
            if name in words and any(identity_of(server) in word for word in words)
        )
        os.kill(killed, signal.SIGKILL)
        last = reported().pop(name)
        deadline = time.monotonic() + 60
        while min(value for step, value in reported().items() if step != name) < last + 2 * PERIOD:
            assert time.monotonic() < deadline, "the other instance does not report"
            time.sleep(0.1)
        assert reported()[name] == last


def shares(found):
    return {(s.column, s.figure): round(s.expected, 9) for s in found if s.expected is not None}


def test_the_expectations_are_those_of_the_training(server, connection):
    before = scrape([server.metrics_url])
    connection.predict(ROWS)
    labels = {"model": "movielens", "version": "1"}
    now = when_counted(server.metrics_url, before, ROWS.height, labels)
    found = [s for s in skews(now) if s.model == "movielens 1"]
    # Of four rows: a null price and a NaN, four users of whom two came once, three tags of
    # which all came once, four movies that came once, and three tags in all.
    assert shares(found) == {
        ("userId", "nulls"): 0,
        ("userId", "unknown"): 0.5,
        ("movieId", "nulls"): 0,
        ("movieId", "unknown"): 1,
        ("tags", "unknown"): 1,
        ("tags", "length"): 0.75,
        ("price", "nulls"): 0.5,
        ("price", "outside"): 0,
    }


def test_a_look_at_a_server_shows_its_models_and_columns(server, connection):
    before = scrape([server.metrics_url])
    connection.predict(ROWS)
    when_counted(server.metrics_url, before, ROWS.height, {"model": "movielens", "version": "1"})
    result = CliRunner().invoke(make_app(), ["watch", "--once", server.metrics_url])
    lines = [line.split() for line in result.output.splitlines()]
    assert max(map(len, result.output.splitlines())) <= 80
    metrics = scrape([server.metrics_url])
    success, failure = (
        metrics.value(f"nv_inference_request_{end}", model="movielens", version="1")
        for end in ("success", "failure")
    )
    # The models come before the columns of their inputs.
    model = next(line for line in lines if line[:2] == ["movielens", "1"])
    assert model[2:4] == [f"{success:,.0f}", f"{failure:,.0f}"]
    assert ["movielens", "1", "tags", "list", "length"] in [line[:5] for line in lines]


def names_in(expression):
    """The metrics that a PromQL expression names; Grafana's variables are replaced first."""
    plain = expression.replace("$__rate_interval", "5m")
    names = set()

    def visit(node):
        if isinstance(node, promql_parser.VectorSelector):
            names.add(node.name)

    promql_parser.walk(promql_parser.parse(plain), visit)
    return names


def test_every_metric_of_the_dashboard_and_of_the_alerts_exists(server):
    """Each expression is valid PromQL; of `up`, Prometheus' own, there is no sample in a server."""
    dashboard = json.loads((DOCKER / "grafana-dashboard.json").read_text())
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    rules = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
    expressions += [rule["expr"] for rule in rules]
    named = {name for expression in expressions for name in names_in(expression)}
    for variable in dashboard["templating"]["list"][1:]:
        named.add(re.match(r"label_values\((\w+),", variable["query"])[1])
    assert len(expressions) > 20
    assert named - set(scrape([server.metrics_url]).samples) == {"up"}
    own = {name for name, _ in (*COUNTS.values(), *GAUGES.values())}
    # The ends of ranges are for people who ask.
    assert own - named == {"nvt_training_minimum", "nvt_training_maximum"}


def test_failures_of_an_ensemble_are_compared_with_all_of_its_requests(tmp_path):
    """Triton counts requests to an ensemble under version 1, and failures under its own version too."""
    export(tmp_path, 1, 2, max_rows=1, runtime="onnx")
    rules = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
    (expression,) = [rule["expr"] for rule in rules if rule["alert"] == "RequestsFail"]
    groupings = set()

    def visit(node):
        if isinstance(node, promql_parser.AggregateExpr):
            groupings.add(tuple(node.modifier.labels))

    promql_parser.walk(promql_parser.parse(expression), visit)
    (labels,) = groupings

    def counted(kind):
        counts = Counter()
        for sample in scrape([server.metrics_url]).find(f"nv_inference_request_{kind}"):
            own = dict(sample.labels)
            counts[tuple(own[name] for name in labels)] += sample.value
        return {group: count for group, count in counts.items() if count and group[0] == "live"}

    with TritonServer(tmp_path) as server, InferenceServerClient(server.grpc_url) as plain:
        for rows in (1, 2):
            tensor = InferInput("clicks", [rows, 1], "INT64")
            tensor.set_data_from_numpy(np.ones((rows, 1), np.int64))
            with pytest.raises(InferenceServerException) if rows > 1 else nullcontext():
                plain.infer("live", [tensor])
        deadline = time.monotonic() + 60
        while not counted("failure"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert counted("failure").keys() == counted("success").keys()
