"""A column that deviates from the training data is marked, and one that does not is not."""

import tracemalloc
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest
from package_data import flights_tables
from typer.testing import CliRunner

from exporter.command_line.app import make_app
from serving import ServerUnavailableError, SkewMonitor
from serving.contract import Contract
from serving.watch.metrics import Sample, Scrape, dump, parse, scrape
from serving.watch.skew import skews
from serving.watch.view import MARK, View
from triton_models.preprocess.input_metrics import COUNTERS
from workflow import Workflow, ops
from workflow.wire.format import WireColumn, wire_column

INPUTS = (
    WireColumn("user", "int64", nullable=True),
    WireColumn("price", "float32", nullable=True),
    WireColumn("tags", "string", "padded", nullable=True),
)
PRICE_NULLS = ("price", "nulls")


@dataclass
class Client:
    """The part of a client that a monitor uses: the description of the model's inputs."""

    contract: Contract
    model_name: str = "shop"


def rows(count, seed, *, first=1, nulls=0.1, factor=1.0, longest=4):
    """Orders: users by a long tail, prices with nulls, lists of tags."""
    random = np.random.default_rng(seed)
    price = random.lognormal(2, 0.5, count).clip(1, 40) * factor
    lengths = random.integers(0, longest, count)
    return pl.DataFrame(
        {
            "user": first + (2_000 / (1 - random.random(count))).astype(int),
            "price": pl.Series(price).set(pl.Series(random.random(count) < nulls), None),
            "tags": [["new", "sale", "x", "x", "x", "x", "x", "x"][:size] for size in lengths],
        }
    )


@pytest.fixture(scope="module")
def workflow():
    ids = ["user", "tags"] >> ops.Categorify()
    return Workflow(ids + (["price"] >> ops.FillMissing(0) >> ops.Normalize())).fit(rows(20_000, 1))


def monitor_client():
    return Client(Contract(INPUTS, (), (), "", {}, max_batch_size=1024))


@pytest.fixture
def monitor(workflow):
    return SkewMonitor(workflow, monitor_client())


def marked(scraped, before=None):
    return {(s.column, s.figure) for s in skews(scraped, before) if s.deviates}


def test_rows_like_those_of_the_training_have_no_mark(monitor):
    for seed in range(2, 7):
        monitor.add(rows(3_000, seed))
        assert marked(parse(monitor.exposition())) == set(), seed


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        ({"first": 10**9}, {("user", "unknown")}),
        ({"nulls": 0.2}, {("price", "nulls")}),
        ({"nulls": 0.0}, {("price", "nulls")}),
        ({"factor": 3.0}, {("price", "outside")}),
        ({"longest": 6}, {("tags", "length")}),
    ],
)
def test_a_shift_is_marked_where_it_is(monitor, change, figures):
    monitor.add(rows(3_000, 2, **change) if "longest" not in change else _longer())
    assert marked(parse(monitor.exposition())) == figures


@pytest.mark.parametrize(
    ("mean", "null_share", "deviating"),
    [
        (4.3, 0.258, set()),
        (3.7, 0.242, set()),
        (4.5, 0.262, {"length", "nulls"}),
        (3.5, 0.238, {"length", "nulls"}),
    ],
)
def test_a_small_difference_of_many_rows_has_no_mark(mean, null_share, deviating):
    """A hundred million rows leave nothing to chance; in the training 4 values and a quarter null."""
    values = mean * 10**8
    model = 'model="m",version="1"'
    counts = {
        f"nvt_input_rows_total{{{model}}}": 10**8,
        f'nvt_input_values_total{{{model},column="tags"}}': values,
        f'nvt_input_nulls_total{{{model},column="tags"}}': values * null_share / (1 - null_share),
        f'nvt_training_values_per_row{{{model},column="tags"}}': 4.0,
        f'nvt_training_null_ratio{{{model},column="tags"}}': 0.25,
    }
    found = skews(parse("\n".join(f"{name} {count}" for name, count in counts.items())))
    assert {skew.figure for skew in found if skew.deviates} == deviating
    assert {s.figure: s.served for s in found} == pytest.approx(
        {"length": mean, "nulls": null_share}
    )


@pytest.mark.parametrize(
    ("figure", "expected", "limit"),
    [
        # 0.2 is allowed, beside which 4 standard errors are 4 * sqrt(0.2 * 0.8 / 1,600) = 0.04.
        ("nulls", 0.19, 384),
        ("nulls", 0.21, 256),
        # A tenth of 3, and 4 standard errors of 4 * sqrt(3 * 4 / 1,200) = 0.4, of 1,200 rows.
        ("length", 3.0, 4_440),
        ("length", 3.0, 2_760),
    ],
)
def test_chance_explains_a_difference_of_four_standard_errors(figure, expected, limit):
    def deviates(count):
        nulls, values = (count, 1_600 - count) if figure == "nulls" else (0, count)
        gauge = {"nulls": "null_ratio", "length": "values_per_row"}[figure]
        found = skews(
            parse(
                'nvt_input_rows_total{model="m",version="1"} 1200\n'
                f'nvt_input_values_total{{model="m",version="1",column="x"}} {values}\n'
                f'nvt_input_nulls_total{{model="m",version="1",column="x"}} {nulls}\n'
                f'nvt_training_{gauge}{{model="m",version="1",column="x"}} {expected}\n'
            )
        )
        return {skew.figure: skew.deviates for skew in found}[figure]

    share = limit / {"nulls": 1_600, "length": 1_200}[figure]
    found = [deviates(count) for count in (limit - 1, limit + 1)]
    assert found == ([False, True] if share > expected else [True, False])


def _longer():
    return rows(3_000, 2).with_columns(tags=pl.lit(["new", "new", "sale"]))


def test_flights_of_the_second_half_of_a_year_differ_from_the_first():
    """Real data: new months, flight numbers and planes; the airports stay, and so do carriers."""
    flights = flights_tables()["flights"]
    first, second = (flights.filter(pl.col("month").is_between(a, a + 5)) for a in (1, 7))
    ids = ["carrier", "origin", "tailnum", "flight"] >> ops.Categorify()
    workflow = Workflow(ids + (["month", "hour", "distance"] >> ops.Normalize())).fit(first)
    columns = [wire_column(c, c.nullable) for c in workflow.input_schema.columns]
    found = []
    for rows_served in (first, second):
        monitor = SkewMonitor(workflow, Client(Contract(tuple(columns), (), (), "", {})))
        monitor.add(rows_served.sample(20_000, seed=1))
        found.append(marked(parse(monitor.exposition())))
    new = {("month", "outside"), ("flight", "unknown"), ("tailnum", "unknown")}
    assert found == [set(), new]


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a\rb", "a\x0cb", 'a"\\b\n{}, c="1" 2'])
def test_a_column_may_have_any_name(name):
    """Lines of the format end at a line feed alone, which is escaped within a name."""
    workflow = Workflow([name] >> ops.Categorify()).fit({name: [1, 2, 3, 3]})
    inputs = (WireColumn(name, "int64", nullable=True),)
    monitor = SkewMonitor(workflow, Client(Contract(inputs, (), (), "", {})))
    monitor.add({name: [1, None, 9, 3]})
    found = {(s.column, s.figure): s.served for s in skews(parse(monitor.exposition()))}
    assert found == {(name, "nulls"): 1 / 4, (name, "unknown"): 1 / 3}


def test_lists_that_a_client_cuts_are_not_compared_with_whole_ones(workflow):
    inputs = (*INPUTS[:2], replace(INPUTS[2], width=1))
    monitor = SkewMonitor(workflow, Client(Contract(inputs, (), (), "", {}, max_batch_size=1024)))
    monitor.add(rows(20_000, 1))
    found = skews(parse(monitor.exposition()))
    assert {skew.figure for skew in found if skew.column == "tags"} == {"nulls", "unknown"}
    assert not any(skew.deviates for skew in found)


def test_few_rows_are_no_reason_for_a_mark(monitor):
    assert skews(parse(monitor.exposition())) == []
    monitor.add({"user": [10**12], "price": [None], "tags": [["new"]]})
    monitor.add(rows(2, 3))
    assert marked(parse(monitor.exposition())) == set()


def test_rows_before_the_window_do_not_count(monitor):
    monitor.add(rows(3_000, 2, nulls=0.5))
    before = parse(monitor.exposition())
    monitor.add(rows(3_000, 3))
    now = parse(monitor.exposition())
    assert marked(now) == {("price", "nulls")}
    assert marked(now, before) == set()
    # After a restart of the server the counters begin at 0.
    monitor.add(rows(3_000, 3))
    assert marked(before, parse(monitor.exposition())) == {("price", "nulls")}
    assert skews(Scrape({}), before) == []  # before it has counted anything


def test_a_restart_is_found_by_one_counter_that_fell(workflow, monitor):
    """More rows than before it, of which fewer are unknown, and more null."""
    monitor.add(rows(3_000, 2, first=10**9, nulls=0.05))
    before = parse(monitor.exposition())
    again = SkewMonitor(workflow, monitor_client())
    sent = rows(9_000, 3, nulls=0.3)
    again.add(sent)
    now = parse(again.exposition())
    found = {(s.column, s.figure): s.served for s in skews(now, before)}
    assert found["price", "nulls"] == sent["price"].null_count() / 9_000
    assert found["tags", "length"] == sent["tags"].list.len().sum() / 9_000
    assert marked(now, before) == {PRICE_NULLS}


def test_a_share_is_never_above_one():
    """A scrape between two counts of one report: the unknown values of before come with the next."""

    def at(values, unknown):
        labels = 'model="shop",version="1",column="user"'
        return parse(
            f"nvt_input_values_total{{{labels}}} {values}\n"
            f"nvt_input_unknown_total{{{labels}}} {unknown}\n"
            f"nvt_training_unknown_ratio{{{labels}}} 0.1\n"
        )

    assert [(s.served, s.deviates) for s in skews(at(210, 90), at(200, 0))] == [(1.0, True)]


def test_a_look_marks_what_deviates_and_fails(monitor):
    monitor.add(rows(3_000, 2))
    with monitor.serving() as url:
        good = CliRunner().invoke(make_app(), ["watch", "--once", url])
        monitor.add(rows(9_000, 3, nulls=0.3))
        bad = CliRunner().invoke(make_app(), ["watch", "--once", url.removesuffix("/metrics")])
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert MARK not in good.output
    (line,) = [line for line in bad.output.splitlines() if MARK in line]
    assert line.split()[:4] == ["shop", "client", "price", "nulls"]


def test_a_version_that_is_unloaded_is_left_out_and_the_others_are_in_order():
    """Triton keeps the metrics of a version that was taken back, with the rows that deviated."""
    lines = []
    for version, seen in (("4", ["nan", "nan"]), ("3", ["1.0", "nan"]), ("2", [])):
        model = f'model="shop",version="{version}"'
        lines += [
            f'nvt_step_alive_timestamp_seconds{{{model},step="shop_{n}"}} {time}'
            for n, time in enumerate(seen)
        ]
        for column in ("user", "age"):
            labels = f'{{{model},column="{column}"}}'
            lines.append(f"nvt_input_values_total{labels} 0")
            lines.append(f"nvt_input_nulls_total{labels} 1000")
            lines.append(f"nvt_training_null_ratio{labels} 0")
    found = [(s.model, s.column) for s in skews(parse("\n".join(lines))) if s.deviates]
    assert found == [("shop 2", "age"), ("shop 2", "user"), ("shop 3", "age"), ("shop 3", "user")]


def test_servers_of_one_model_have_figures_of_their_own(workflow):
    """Two servers behind one address name their metrics alike; each has had other rows."""
    sent = {"good": rows(3_000, 2), "bad": rows(500, 3, nulls=0.5)}
    urls = {}
    with ExitStack() as stack:
        for name, table in sent.items():
            contract = Contract(INPUTS, (), (), "", {}, max_batch_size=1024)
            monitor = SkewMonitor(workflow, Client(contract))
            monitor.add(table)
            urls[name] = stack.enter_context(monitor.serving())
        found = [s for s in skews(scrape(urls.values())) if (s.column, s.figure) == PRICE_NULLS]
        result = CliRunner().invoke(make_app(), ["watch", "--once", *urls.values()])
        # The same address twice is one server.
        twice = skews(scrape([urls["bad"], urls["bad"].removesuffix("/metrics")]))
    of_server = {s.model: (s.served, s.deviates) for s in found}
    assert len(found) == len(sent)
    assert of_server == {
        f"shop client {urls[name].removeprefix('http://').removesuffix('/metrics')}": (
            pytest.approx(table["price"].null_count() / table.height),
            name == "bad",
        )
        for name, table in sent.items()
    }
    assert [s.model for s in twice if (s.column, s.figure) == PRICE_NULLS] == ["shop client"]
    assert result.exit_code == 1
    assert result.output.count(MARK) == 1


def test_models_of_several_servers_have_a_row_for_each():
    def server(instance, answered, waiting):
        labels = f'model="shop",version="1",instance="{instance}"'
        return (
            f"nv_inference_request_success{{{labels}}} {answered}\n"
            f"nv_inference_pending_request_count{{{labels}}} {waiting}\n"
            f'nv_inference_request_summary_us{{{labels},quantile="0.5"}} {answered}000\n'
        )

    table = View(parse(server("a:8002", 7, 1) + server("b:8002", 5, 2))).models()
    lines = [*zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    assert lines == [
        ("shop 1 a:8002", "7", "0", "7.00", "-", "-", "1"),
        ("shop 1 b:8002", "5", "0", "5.00", "-", "-", "2"),
    ]


def test_rates_are_of_the_last_seconds():
    def at(time, answered, failed):
        labels = 'model="shop",version="1"'
        text = (
            f"nv_inference_request_success{{{labels}}} {answered}\n"
            f'nv_inference_request_failure{{{labels},reason="OTHER"}} {failed}\n'
            f'nv_inference_request_failure{{{labels},reason="REJECTED"}} 3\n'
            f'nv_inference_request_summary_us{{{labels},quantile="0.5"}} 1500\n'
            f'nv_inference_request_summary_us{{{labels},quantile="0.99"}} Nan\n'
        )
        return Scrape(parse(text).samples, time)

    (cells,) = zip(*(c.cells for c in View(at(12, 90, 7), at(10, 50, 1)).models().columns))  # noqa: B905
    assert [str(cell) for cell in cells] == ["shop 1", "20.0", "3.0", "1.50", "-", "-", "-"]
    # After a restart of the server the counters begin at 0.
    (cells,) = zip(*(c.cells for c in View(at(12, 90, 7), at(10, 500, 1)).models().columns))  # noqa: B905
    assert str(cells[1]) == "45.0"


def test_an_address_without_metrics_is_an_error():
    with pytest.raises(ServerUnavailableError, match=r"Expected metrics at http://127.0.0.1:1/m"):
        scrape(["127.0.0.1:1"])
    result = CliRunner().invoke(make_app(), ["watch", "--once", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_an_address_may_end_with_a_slash(server):
    address = server.metrics_url.removesuffix("metrics")
    assert scrape([address]).samples.keys() == scrape([server.metrics_url]).samples.keys()


def test_a_page_without_metrics_is_an_error(server):
    with pytest.raises(ServerUnavailableError, match=r"Received: a page without a metric\."):
        scrape([server.metrics_url.replace("metrics", "metric")])


def test_a_port_of_grpc_has_no_metrics(server):
    with pytest.raises(ServerUnavailableError, match=r"Received: no HTTP, as from a port of gRPC"):
        scrape([server.grpc_url])


def test_a_label_may_have_any_name():
    """Such as those of `metric_tags` of a model's config."""
    labels = 'model="m",version="1",name="n",self="s"'
    (cells, *_) = zip(
        *(
            c.cells
            for c in View(parse(f"nv_inference_request_success{{{labels}}} 3")).models().columns
        ),
        strict=True,
    )
    assert str(cells[1]) == "3"


def test_labels_are_read_as_they_were_written():
    name = 'a "quoted" \\ column\nof two {lines}, a="b"'
    text = dump("counter", "rows_total", "Rows", [Sample("rows_total", {"column": name}, 7)])
    assert parse(text).find("rows_total") == [Sample("rows_total", {"column": name}, 7.0)]


def test_columns_that_lack_a_counter_are_not_sought_among_all_others(monkeypatch):
    """Ids have no range and numbers no vocabulary: 2,000 columns of both took ten seconds a look."""
    counts = ("values", "nulls", "unknown"), ("values", "nulls", "outside")
    text = "\n".join(
        f'{COUNTERS[kind][0]}{{model="shop",version="1",column="c{n}"}} 1'
        for n in range(300)
        for kind in counts[n % 2]
    )
    passed = 0
    find = Scrape.find

    def counted(scrape, name, **labels):
        nonlocal passed
        passed += len(scrape.samples.get(name, ()))
        return find(scrape, name, **labels)

    monkeypatch.setattr(Scrape, "find", counted)
    found = skews(parse(text), parse(text.replace("} 1", "} 0")))
    assert [skew.figure for skew in found[:4]] == ["nulls", "unknown", "nulls", "outside"]
    assert len(found) == 600
    assert passed < 10 * 300


def test_a_further_look_keeps_little():
    """An hour of looks at 2,000 columns took 8 GB, most of it for labels, which are always the same."""
    sample = '{}{{model="shop",version="1",column="c{}"}} 1'
    lines = [sample.format(COUNTERS["values"][0], n) for n in range(1_000)]
    looks = [parse("\n".join(lines))]
    tracemalloc.start()
    try:
        looks.append(parse("\n".join(lines)))
        assert len(skews(looks[1], looks[0])) == 0
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 250 * len(lines)
