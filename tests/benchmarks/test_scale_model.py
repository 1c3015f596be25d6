"""The model of docs/scale.md: its arithmetic by hand, its page, and the runs that it is held to."""

import itertools
import math
import re
from dataclasses import replace

import pytest

from benchmarks import scale_model
from benchmarks.scale_model import (
    MACHINES,
    PAGES,
    Work,
    checks,
    fitted,
    main,
    p99_ms,
    plan,
    read_figures,
    read_runs,
    step_seconds,
    waits,
)

PAGE = (PAGES / "scale.md").read_text()
# Of the model to a run, as docs/scale.md says it.
TOLERANCE = 0.25


@pytest.fixture(scope="module")
def figures():
    return read_figures((PAGES / "benchmarks.md").read_text())


def needs(figures, **changes):
    return {need.stage.split()[0]: need for need in plan(Work(**changes), figures, MACHINES)}


def test_figures_are_those_of_the_tables(figures):
    page = (PAGES / "benchmarks.md").read_text()
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    (cpu,) = [row for row in rows if row[:2] == ["Criteo-like", "cpu"]]
    assert [figures["cpu fit s"], figures["cpu transform s"]] == [float(cpu[2]), float(cpu[3])]
    (fed,) = [r for r in rows if r[:1] == ["the same, split step, bfloat16, 32 steps a call"]]
    assert [figures["million samples/s"], figures["bytes a row"]] == [float(fed[1]), float(fed[3])]
    served = [row for row in rows if row[:1] == ["fused_onnx"] and len(row) == 10][1]  # Criteo-like
    assert [figures["one request ms"], figures["server us"]] == [float(served[1]), float(served[8])]


def test_a_figure_that_has_moved_is_an_error():
    with pytest.raises(SystemExit, match=r"figure 'etl rows' in docs/benchmarks\.md"):
        read_figures("# Benchmarks")


def test_a_day_by_hand(figures):
    made = needs(figures)
    rows = 10e12 / 73  # bytes a row
    # 16 million rows take 8.70 s on one machine, and each row's 73 bytes cross the link twice.
    seconds = max(rows / 16e6 * 8.70, 2 * 10e12 / 1.5e9)
    count = math.ceil(seconds / 4 / 3600)
    assert (made["transform"].count, made["transform"].usd) == (count, pytest.approx(count * 0.81))
    assert made["transform"].hours == pytest.approx(seconds / count / 3600)
    # 2 TB of weights and accumulators, in 0.8 of eight GPUs of 141 GB.
    assert made["training"].count == math.ceil(2e12 / (0.8 * 141e9 * 8)) == 3
    # 311 µs of a core for a request; half of the cores; and a machine more.
    small = needs(figures, table_bytes=5e10)["serving"]
    assert (small.machine, small.count) == ("cpu", math.ceil(100_000 * 311e-6 / 0.5 / 16) + 1)


@pytest.mark.parametrize("name", ["bytes_a_day", "history_rows", "table_bytes", "requests"])
def test_more_work_never_needs_fewer_machines(figures, name):
    sizes = [getattr(Work(), name) * factor for factor in (0.001, 0.1, 0.5, 1, 1.2)]
    found = [needs(figures, **{name: size}) for size in sizes]
    for less, more in itertools.pairwise(found):
        assert all(less[stage].usd <= more[stage].usd for stage in less)


def test_less_time_needs_more_machines(figures):
    few, many = needs(figures, hours=4), needs(figures, hours=0.02)
    assert all(many[n].count > few[n].count for n in ("fit", "transform", "training"))


def test_a_slow_link_is_the_limit(figures):
    slow = {**MACHINES, "cpu": replace(MACHINES["cpu"], link=1e8)}
    fit, transform = plan(Work(), figures, slow)[:2]
    # 730 GB of history are read; 10 TB are read and written.
    assert (fit.limit, fit.count) == ("the link to the store", 1)
    assert fit.hours == pytest.approx(10e9 * 73 / 1e8 / 3600)
    assert transform.count == math.ceil(2 * 10e12 / 1e8 / (4 * 3600)) == 14


def test_prices_are_the_users(figures):
    gpu = {**MACHINES, "gpu": replace(MACHINES["gpu"], usd=100.0)}
    training = plan(Work(), figures, gpu)[2]
    assert training.usd == 100.0 * training.count


def test_the_wait_is_that_of_erlang():
    # One server waits as often as it is busy; two at half load wait in a third of cases; by the sum of
    # Erlang's own formula for twelve servers.
    assert waits(1, 0.7) == pytest.approx(0.7)
    assert waits(2, 1.0) == pytest.approx(1 / 3)
    terms = [9.0**n / math.factorial(n) for n in range(12)]
    last = 9.0**12 / math.factorial(12) * 12 / (12 - 9)
    assert waits(12, 9.0) == pytest.approx(last / (sum(terms) + last))
    # M/M/1: the wait exceeds t with probability rho * exp(-(mu - lambda) t).
    late = math.log(0.5 / 0.01) / (1000 - 500) * 1e3
    assert p99_ms(1, 500, 1.0, 2.0) == pytest.approx(2.0 + late)
    assert p99_ms(2, 2000, 1.0, 2.0) == math.inf


def test_collectives_follow_the_line_they_were_measured_on():
    line = {size: 1e-4 + size / 2e11 for size in (1e6, 9e6, 7e7)}
    made = fitted(line)
    assert (made.alpha, made.beta) == (pytest.approx(1e-4), pytest.approx(2e11))
    times = [step_seconds(3e-3, gpus) for gpus in (1, 2, 4, 8, 16, 64)]
    assert times == sorted(times)
    # Two GPUs, a quarter of the ids: each sends half of 425,984 ids and, twice, of their vectors, and
    # all of its gradients; the measured buffers are twice what is sent.
    sent = [425_984 * 8, 425_984 * 64, 425_984 * 64, 2 * 14.4e6]
    inside = fitted(scale_model.ALL_TO_ALL)
    want = 3e-3 + 4 * inside.alpha + sum(sent) / inside.beta
    assert times[1] == pytest.approx(want)


def test_the_model_reproduces_the_runs(figures):
    rows = checks(figures, read_runs(PAGE))
    names = " ".join(row[""] for row in rows)
    assert all(each in names for each in ("two H200s", "4 Dask", "4 servers", "2 training"))
    for row in rows:
        assert abs(row["model / measured"] - 1) <= TOLERANCE, row
    assert f"within {TOLERANCE:.0%}".replace("%", " %") in PAGE


def test_the_collectives_are_those_of_the_page():
    cells = [rf"0*{seconds * 1e3:.4g}0*" for seconds in scale_model.ALL_TO_ALL.values()]
    assert re.search(r" \| ".join(cells) + r" \|", PAGE)


def test_the_page_has_what_the_command_prints(capsys):
    main([])
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("| ") and "machines" not in line:
            assert line in PAGE
    main(["--check"])
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("| ") and "measured" not in line:
            assert line in PAGE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--table-bytes", "2e12"], r"at most 1\.25e\+12 bytes.*Received: 2e\+12.*prune"),
        (["--bytes-a-day", "1e30"], r"10,000 hosts.*Received: 1\.37e\+28 rows.*--hours"),
        (["--p99-ms", "0.5"], r"p99 from 0\.73 ms.*Received: 0\.5 ms"),
    ],
)
def test_impossible_wishes_are_refused(given, said):
    with pytest.raises(SystemExit, match=said):
        main(given)


@pytest.mark.parametrize("option", ["--requests", "--gpu-usd"])
@pytest.mark.parametrize("value", ["-3", "free", "inf"])
def test_a_number_is_a_positive_one(option, value, capsys):
    with pytest.raises(SystemExit):
        main([option, value])
    assert f"expected a positive number. Received: {value}" in capsys.readouterr().err
