"""Progress counts the rows that are done, in a log, a terminal and a closed stream, or not at all."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.progress import shown
from workflow.progress.line import Count, clock, short, text_of
from workflow.progress.stage import VARIABLE, advance, at_work, counted, restart, showing

SECONDS = 30

STAGE = """
import sys
from workflow.progress import shown
from workflow.progress.stage import advance, at_work, showing
shown.SECONDS_BEFORE = shown.SECONDS_IN_THE_LOG = 0.0
with showing("copy", total=400, progress={progress}):
    advance(100)
    sys.stdin.readline()
print("the result")
"""
# More rows than it can write until it is interrupted.
ENDLESS = """
import sys
from workflow import Workflow
from workflow.progress import shown
shown.SECONDS_BEFORE = 0.0
Workflow(["a"]).transform_to_parquet([sys.argv[1]] * 2000, sys.argv[2])
"""


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


def in_a_terminal(code, *arguments, encoding="utf-8"):
    """A process whose standard input and error are a terminal of 60 columns; and our end of it."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": encoding},
        preexec_fn=own_terminal,  # noqa: PLW1509 - no thread of the test holds a lock there
    )
    os.close(theirs)
    return process, ours


def read_until(ours, text):
    """The terminal's output up to a text; None for all of it, until the process ends."""
    found, end = "", time.monotonic() + SECONDS
    while text is None or text not in found:
        ready, _, _ = select.select([ours], [], [], max(0, end - time.monotonic()))
        assert ready, f"no {text!r} within {SECONDS} s in {found!r}"
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the process has ended
            part = b""
        if not part:
            assert text is None, found
            break
        found += part.decode()
    return found


def test_a_line_has_count_speed_and_time_left():
    count = Count("fit", 12_000_000, "rows", started=10.0, done=3_000_000)
    assert count.numbers(now=40.0) == ["3.00M of 12.0M rows", "100k rows/s", "1:30 left"]
    assert Count("fit", None, "rows", 0.0, 30).numbers(now=2.0) == ["30 rows", "15 rows/s"]
    assert Count("fit", 5, "models", 0.0, 9).numbers(now=2.0) == ["5 of 5 models"]
    assert Count("fit", 5, "models", 0.0).numbers(now=2.0) == ["0 of 5 models"]
    assert Count("server", 1, "models", 0.0).numbers(now=2.0) == ["0 of 1 model"]
    assert Count("server", 1, "models", 0.0, 1).numbers(now=2.0) == ["1 of 1 model"]
    assert Count("fit", None, "rows", 0.0).numbers(now=2.0) == []
    assert Count("fit", 0, "rows", 0.0).share is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999.4, "999"), (999.6, "1.00k"), (99_949, "99.9k"), (99_960, "100k")]
    + [(999_499, "999k"), (999_600, "1.00M"), (1e12, "1000G")],
)
def test_numbers_have_three_digits(number, text):
    assert short(number) == text


def test_hours_are_shown_where_there_are_some():
    assert [clock(s) for s in (0, 59.6, 3600)] == ["0:00", "1:00", "1:00:00"]


def test_the_innermost_stage_is_drawn():
    outer, inner = (Count(name, total, "rows", 0.0) for name, total in (("fit", None), ("x", 4)))
    inner.done, outer.work = 1, "first"
    text = text_of([outer, inner], bar=True)
    assert text.startswith(f"fit {'━' * 4}{'─' * 10} 25% · 1 of 4 rows · ")
    assert text.endswith(" left · first · x")
    assert text_of([outer, inner]).startswith("fit 25% · 1 of 4 rows")


def test_fit_counts_each_row_in_each_pass(tmp_path, stages):
    names = [f"c{n}" for n in range(11)]
    frame = pl.DataFrame({name: range(1000) for name in names})
    for number in range(3):
        frame.write_parquet(tmp_path / f"{number}.parquet", row_group_size=300)
    made = names >> ops.Clip(0, 9) >> ops.Categorify() >> ops.Normalize()
    Workflow(made).fit([*tmp_path.glob("*.parquet")])
    passes = [s for s in stages if s.title in ("Categorify", "Normalize")]
    assert [(s.title, s.total) for s in passes] == [("Categorify", 3000), ("Normalize", 3000)]
    assert [s.done for s in passes] == pytest.approx([3000, 3000])
    assert stages[0].title == "fit"


def test_fit_counts_rows_of_a_frame_but_not_of_a_query(stages):
    frame = pl.DataFrame({"a": range(50)})
    Workflow(["a"] >> ops.Categorify()).fit(frame)
    assert [s.done for s in stages if s.title == "Categorify"] == pytest.approx([50])
    stages.clear()
    Workflow(["a"] >> ops.Categorify()).fit(frame.lazy())
    assert {s.total for s in stages} == {None}


@pytest.mark.parametrize("shuffle", [False, True])
def test_transform_counts_each_row(tmp_path, stages, shuffle):
    rows = {"a": range(1000)}
    Workflow(["a"]).transform_to_parquet(rows, tmp_path, rows_per_file=300, shuffle=shuffle)
    assert [(s.title, s.total, s.done) for s in stages] == [("transform", 1000, 1000)]
    assert stages[0].work == ("into a random order" if shuffle else "")


def test_rows_of_a_filter_have_no_total(tmp_path, stages):
    kept = ["a"] >> ops.Filter(lambda rows: rows["a"] > 100)
    Workflow(kept).transform_to_parquet({"a": range(1000)}, tmp_path)
    assert [(s.total, s.done) for s in stages] == [(None, 899)]


def test_out_of_fold_rows_are_counted(tmp_path, stages):
    rows = {"a": [1, 2] * 50, "y": [0, 1, 1, 0] * 25}
    made = ["a"] >> ops.TargetEncoding("y")
    Workflow(made + "y").fit_transform_to_parquet(rows, tmp_path)
    assert stages[0].title == "fit"
    (transform,) = (s for s in stages if s.title == "transform")
    assert (transform.total, transform.done) == (100, 100)


def test_a_stage_inside_a_hidden_one_is_hidden(monkeypatch):
    monkeypatch.setattr(shown, "SECONDS_BEFORE", 0.0)
    with showing("outer", progress=False), showing("inner"):
        assert threads() == []
    monkeypatch.setenv(VARIABLE, "0")
    with showing("outer"):
        assert threads() == []
    monkeypatch.setenv(VARIABLE, "1")
    with showing("outer"), showing("inner"):
        assert len(threads()) == 1
    assert threads() == []


def test_the_thread_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), showing("fit"):
        assert threads() == 1 / 0
    assert threads() == []


def test_without_a_stage_nothing_is_counted():
    advance(1)
    restart("a pass")
    at_work("a part")
    assert list(counted([1, 2])) == [1, 2]


@pytest.mark.parametrize("value", [None, 0, "no"])
def test_another_value_is_refused(value):
    with pytest.raises(WorkflowError, match=f"progress as True or False. Received: {value!r}"):
        Workflow(["a"] >> ops.Categorify()).fit({"a": [1]}, progress=value)


def test_a_log_has_lines(monkeypatch, caplog):
    monkeypatch.setattr(shown, "SECONDS_IN_THE_LOG", 0.01)
    monkeypatch.setattr(shown, "is_terminal", lambda: False)
    with caplog.at_level("INFO", "workflow.progress"), showing("fit", total=400):
        advance(100)
        with showing("Categorify", total=800):
            advance(200)
            end = time.monotonic() + SECONDS
            while len(caplog.records) < 3 and time.monotonic() < end:
                time.sleep(0.005)
    last = caplog.messages[2]
    assert last.startswith("fit 25% · 200 of 800 rows")
    assert last.endswith("Categorify")
    assert "\x1b" not in "".join(caplog.messages)


@pytest.mark.parametrize(("encoding", "bar"), [("utf-8", "━━━━────"), ("ascii", "????????")])
def test_a_terminal_has_one_line_that_is_erased(encoding, bar):
    process, ours = in_a_terminal(STAGE.format(progress=True), encoding=encoding)
    shown_once = read_until(ours, "25%")
    os.write(ours, b"\n")
    rest = shown_once + read_until(ours, None)
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, b"the result\n")
    lines = rest.replace("\r\n", "").split("\r\x1b[2K")
    assert f"copy {bar}" in rest
    assert max(map(len, lines)) <= 59
    assert lines[-1] == ""
    # The cursor was never hidden, so that nothing has to show it again.
    assert "\x1b[?25l" not in rest
    os.close(ours)


def test_a_line_of_wide_letters_is_one_line():
    """As of a folder: wrapped, it could not be erased, and a line break would end it."""
    process, ours = in_a_terminal(
        STAGE.format(progress=True).replace("copy", "\u756a" * 50 + "\\n")
    )
    drawn = read_until(ours, "\u2026").rpartition("\x1b[2K")[2]
    assert sum(2 if letter == "\u756a" else 1 for letter in drawn) <= 59
    assert "\n" not in drawn
    os.write(ours, b"\n")
    read_until(ours, None)
    process.communicate(timeout=SECONDS)
    os.close(ours)


def test_a_hidden_stage_writes_nothing():
    process, ours = in_a_terminal(STAGE.format(progress=False))
    os.write(ours, b"\n")
    assert read_until(ours, None) == "\r\n"  # the terminal's echo
    assert process.wait(SECONDS) == 0
    process.stdout.close()
    os.close(ours)


def test_a_closed_standard_error_does_not_stop_the_work():
    code = "import os, sys\nos.close(2)\nsys.stderr.close()\n" + STAGE.format(progress=True)
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"\n", stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"the result\n"


def test_ctrl_c_leaves_neither_files_nor_a_line(tmp_path):
    folder, rows = tmp_path / "made", tmp_path / "rows.parquet"
    pl.DataFrame({"a": range(250_000)}).write_parquet(rows)
    process, ours = in_a_terminal(ENDLESS, rows, folder)
    read_until(ours, "M of 500M")
    os.write(ours, b"\x03")  # the terminal sends SIGINT
    rest = read_until(ours, None)
    assert process.wait(SECONDS) == -signal.SIGINT
    process.stdout.close()
    os.close(ours)
    assert "KeyboardInterrupt" in rest
    # The line is erased before the traceback.
    assert "\r\x1b[2KTraceback" in rest
    assert [*folder.rglob("*")] == []


def test_a_notebook_has_one_output_that_is_replaced():
    import nbclient
    import nbformat

    cell = nbformat.v4.new_code_cell(
        "import time\n"
        "from workflow.progress import shown\n"
        "from workflow.progress.stage import advance, showing\n"
        "shown.SECONDS_BEFORE = shown.SECONDS_IN_A_NOTEBOOK = 0.01\n"
        "updates = []\n"
        "update = shown.Notebook.update\n"
        "shown.Notebook.update = lambda *all: (updates.append(all), update(*all))\n"
        "with showing('fit', 400):\n"
        "    advance(100)\n"
        "    while len(updates) < 20:\n"
        "        time.sleep(0.005)\n"
        "    advance(300)\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output["data"]["text/plain"].startswith("fit ━━━━━━━━━━━━━━ 100% · 400 of 400 rows")
