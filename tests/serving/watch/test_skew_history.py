"""Charts of a model's inputs over time: the shares of each look, beside those of the training."""

import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace

import polars as pl
import pytest
from typer.testing import CliRunner

from exporter.command_line.app import make_app
from serving import ClientError, ColumnError, SkewHistory, SkewMonitor
from serving.contract import Contract
from serving.watch import skew_history
from serving.watch.metrics import Sample, Scrape, parse
from serving.watch.view import SUCCESS, View
from workflow import Workflow, ops
from workflow.wire.format import WireColumn


@dataclass
class Client:
    """The part of a client that a monitor uses: the description of the model's inputs."""

    contract: Contract
    model_name: str = "shop"


def rows(nulls):
    """A thousand rows, of whose prices so many are null."""
    prices = [None] * nulls + [float(n % 40) for n in range(1000 - nulls)]
    return pl.DataFrame(
        {"price": pl.Series(prices, dtype=pl.Float64), "user": [n % 50 for n in range(1000)]}
    )


def new_monitor():
    graph = (["price"] >> ops.FillMissing(0) >> ops.Normalize()) + (["user"] >> ops.Categorify())
    # The label is no input of the served model.
    workflow = Workflow(graph + ["clicked"]).fit(rows(100).with_columns(clicked=1))
    columns = (WireColumn("price", "float64", nullable=True), WireColumn("user", "int64"))
    return SkewMonitor(workflow, Client(Contract(columns, (), (), "", {})))


@pytest.fixture
def monitor():
    return new_monitor()


@pytest.fixture
def started_anew():
    """The monitor after a restart of its process: all counters begin at 0."""
    return new_monitor()


def served(history, column, figure):
    (found,) = [s.served for s in history.skews() if (s.column, s.figure) == (column, figure)]
    return found


def curves(svg):
    """The curves of a chart by their names: the numbers that the axes give their points."""
    root = ET.fromstring(svg)  # noqa: S314 - our own
    chart = next(e for e in root.iter() if e.tag.endswith("svg") and e is not root)
    texts = [(float(e.get("x")), float(e.get("y")), e.text) for e in chart if "text" in e.tag]
    ticks = [(y - 4, float(t)) for x, y, t in texts if x == 56]
    (bottom, low), (top, high) = ticks[0], ticks[-1]
    # A curve of one point is a dot.
    parts = [e for e in chart if "polyline" in e.tag or "circle" in e.tag]
    lines = [e for e in parts if e.get("stroke") != "#dddddd"]
    drawn = {}
    for line, key in zip(lines[::2], lines[1::2], strict=True):
        start = float(key.get("points").split(",")[0])
        name = next(t for x, y, t in texts if y == 42 and x == start + 22)
        points = (line.get("points") or f"{line.get('cx')},{line.get('cy')}").split()
        heights = [float(p.split(",")[1]) for p in points]
        drawn[name] = [low + (high - low) * (bottom - y) / (bottom - top) for y in heights]
    return drawn


def test_a_point_is_of_the_rows_since_the_look_before(monitor):
    history = SkewHistory(monitor)
    for nulls in (100, 100, 500):
        monitor.add(rows(nulls))
        history.look()
    history.look()  # without rows between, which is no point
    drawn = curves(history.to_svg("price"))
    assert drawn["served"] == pytest.approx([10, 10, 50], abs=0.3)
    assert drawn["training"] == pytest.approx([10, 10, 10], abs=0.3)
    (nulls,) = [
        skew for skew in history.skews() if (skew.column, skew.figure) == ("price", "nulls")
    ]
    assert nulls.served == pytest.approx(700 / 3000)
    assert "deviating: price (nulls)" in repr(history)


def test_what_deviates_comes_first_and_columns_are_chosen_by_name(monitor):
    history = SkewHistory(monitor)
    monitor.add(rows(100).with_columns(user=pl.lit(10**9)))
    history.look()
    titles = re.findall(r'font-size="15">([^<]+)<', history._repr_html_())
    assert titles[0] == "user: unknown, deviates (shop client)"
    assert [t.split(":")[0] for t in titles].count("price") == 2
    assert "price" not in history.to_svg("user")
    with pytest.raises(ColumnError, match=r"are counted: price, user. Received: usr.*'user'"):
        history.to_svg("usr")


def test_no_address_is_not_a_server_on_which_all_is_well():
    with pytest.raises(ClientError, match="Expected an address of metrics"):
        SkewHistory([])


def test_what_is_older_than_the_window_is_forgotten(monitor):
    history = SkewHistory(monitor, window=1e-9)
    for nulls in (500, 0, 100):
        monitor.add(rows(nulls))
        history.look()
    (nulls,) = [
        skew for skew in history.skews() if (skew.column, skew.figure) == ("price", "nulls")
    ]
    assert nulls.served == pytest.approx(0.1)
    with pytest.raises(ClientError, match=r"more than 0 minutes. Received: 0"):
        SkewHistory(monitor, window=0)


def test_a_window_is_of_minutes(monitor, monkeypatch):
    times = iter([0.0, 50.0, 59.0, 110.0])
    monkeypatch.setattr(skew_history, "parse", lambda text: replace(parse(text), time=next(times)))
    history = SkewHistory(monitor, window=1.0)
    # In a minute there are two looks before the last one, of which the first begins the window.
    for nulls, share in ((500, 500 / 1000), (0, 500 / 2000), (100, 100 / 2000)):
        monitor.add(rows(nulls))
        history.look()
        assert served(history, "price", "nulls") == pytest.approx(share)
    assert "3 looks in 1.0 minutes" in repr(history)


def test_after_a_restart_the_rows_since_then_count(monitor, started_anew):
    """One counter shows it, although others have passed the numbers that they had before."""
    monitor.add(rows(100).with_columns(user=pl.lit(10**9)))
    with monitor.serving() as url:
        history = SkewHistory(url)
        port = int(url.split(":")[2].split("/")[0])
        monitor.add(rows(100))
        history.look()
    started_anew.add(pl.concat([rows(500)] * 2 + [rows(0)]))
    with started_anew.serving(port):
        history.look()
        assert served(history, "price", "nulls") == pytest.approx(1000 / 3000)
        assert served(history, "user", "unknown") == 0
        started_anew.add(rows(0))
        history.look()
        assert served(history, "price", "nulls") == pytest.approx(1000 / 4000)
    drawn = curves(history.to_svg("price"))["served"]
    assert drawn == pytest.approx([10, 100 / 3, 0], abs=0.3)


def test_a_restart_of_one_server_leaves_the_counts_of_another(monitor, started_anew):
    other = new_monitor()
    with other.serving() as kept:
        monitor.add(rows(100).with_columns(user=pl.lit(10**9)))
        other.add(rows(900))
        with monitor.serving() as url:
            history = SkewHistory([url, kept])
        other.add(rows(200))
        # Fewer unknown users, and more rows than before the restart.
        started_anew.add(pl.concat([rows(300)] * 3))
        with started_anew.serving(int(url.split(":")[2].split("/")[0])):
            history.look()
    found = {
        s.model.split(":")[-1]: s.served
        for s in history.skews()
        if s.figure == "nulls" and s.column == "price"
    }
    ports = [address.split(":")[2].split("/")[0] for address in (url, kept)]
    assert [found[port] for port in ports] == pytest.approx([0.3, 0.2])


@pytest.mark.parametrize("alone", [True, False])
def test_a_server_that_is_down_is_named_and_looked_at_again(monitor, alone):
    other = new_monitor()
    other.add(rows(100))
    monitor.add(rows(100))
    with other.serving() as kept:
        with monitor.serving() as url:
            address = url.removeprefix("http://").removesuffix("/metrics")
            history = SkewHistory(url if alone else [url, kept])
        port = int(address.split(":")[1])
        for _ in range(2):
            other.add(rows(300))
            history.look()
            assert repr(history).endswith(f"not answering: {address})")
        # It was out of reach, and did not end: the rows of the time before count once.
        monitor.add(rows(400))
        with monitor.serving(port):
            history.look()
    assert "not answering" not in repr(history)
    found = {
        s.model: s.served for s in history.skews() if (s.column, s.figure) == ("price", "nulls")
    }
    models = ["shop client"] if alone else [f"shop client {address}", f"shop client {kept[7:-8]}"]
    assert found == pytest.approx(dict(zip(models, [0.4, 0.3], strict=False)))


def table(*servers):
    """The rows of `View.models` for two looks, ten seconds apart, as texts."""
    view = View(servers[1], servers[0])
    return [[str(cell) for cell in column.cells] for column in view.models().columns[:2]]


def requests(count, time, silent=()):
    samples = [
        Sample(SUCCESS, {"model": "m", "version": "1", "instance": name}, count) for name in "ab"
    ]
    return Scrape({SUCCESS: samples}, time, silent)


def test_a_server_that_does_not_answer_has_a_row_without_numbers():
    down, up = requests(100, 10.0, ["b"]), requests(300, 20.0)
    assert table(requests(0, 0.0), down) == [["m 1 a", "b"], ["10.0", "no answer"]]
    # The requests of b are those of all the time since it answered last.
    assert table(down, up) == [["m 1 a", "m 1 b"], ["20.0", "-"]]


def test_the_command_goes_on_while_a_server_is_down(monitor):
    command = [sys.executable, "-u", "-m", "exporter.command_line", "watch", "--interval", "0.5"]
    with new_monitor().serving() as kept:
        with monitor.serving() as url:
            watch = subprocess.Popen(
                [*command, url, kept], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            watch.stdout.readline()
        shown = next((line for line in watch.stdout if "no answer" in line), "")
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=60)
    assert url[7:-8].startswith(shown.split()[0])  # the column folds the rest
    assert watch.returncode == 130


def test_nothing_is_drawn_before_a_row_was_counted(monitor):
    history = SkewHistory(monitor)
    assert ET.fromstring(history.to_svg()) is not None  # noqa: S314
    assert "0 figures" in history.to_html()


def test_the_command_draws_at_each_look_until_it_is_interrupted(monitor, tmp_path):
    page, picture = tmp_path / "skew.html", tmp_path / "skew.svg"
    command = [sys.executable, "-m", "exporter.command_line", "watch", "--interval", "0.5"]
    with monitor.serving() as url:
        watch = subprocess.Popen(
            [*command, "--html", page, "--svg", picture, "--column", "price", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while not (picture.exists() and "deviates" in picture.read_text()):
            assert watch.poll() is None, watch.stdout.read()
            monitor.add(rows(500))
        watch.send_signal(signal.SIGINT)
        said, _ = watch.communicate(timeout=60)
    assert watch.returncode == 130
    assert "Traceback" not in said
    assert curves(picture.read_text())["training"] == pytest.approx([10], abs=0.3)
    assert "price: nulls, deviates" in page.read_text()
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--once", "--svg", "a.svg"], "one look has no curve"),
        (["--column", "price"], "Received: --column alone"),
        (["--html", "no/such/folder/a.html"], "Expected a file in a folder that exists"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, error):
    result = CliRunner().invoke(make_app(), ["watch", *arguments])
    assert result.exit_code == 1
    assert error in result.output
