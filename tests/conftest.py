"""The tests of a file go to one worker, and those of a shared server: fixtures are made once."""

import errno
import gc
import itertools
import os
import resource
import signal
import time
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import at_calls
import pytest
from goals import goals
from object_server import Link, object_server

from workflow.progress import stage

TESTS = Path(__file__).parent
GPU_TESTS = TESTS / "gpu"
# The long tests that run: "2/3" are the second third.
PART, PARTS = map(int, os.environ.get("LONG_PART", "1/1").split("/"))
# What the processes of tests do first, see tests/children/sitecustomize.py.
_PATHS = (str(TESTS / "children"), os.environ.get("PYTHONPATH", ""))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

if find_spec("hypothesis") is not None:  # a machine with a GPU may lack it
    from hypothesis import settings

    # An example may take its time: on a busy machine 200 ms are none of its faults. Here, since settings of the
    # folders that a command names are made before pytest is configured.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")


class NoGpu(pytest.Dir):
    """The tests for a GPU where there is none: one skip for all of them."""

    def collect(self):
        pytest.skip("needs an NVIDIA GPU and cuDF; `make test-gpu` runs it")


def pytest_collect_directory(path, parent):
    if path == GPU_TESTS and "TEST_DEVICE" not in os.environ and not has_gpu():
        return NoGpu.from_parent(parent, path=path)
    return None


def has_gpu():
    if find_spec("pylibcudf") is None:
        return False
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def pytest_collection_finish():
    """Freeze what is imported by now: to look through it for garbage again and again takes long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items):
    of_parts = [item for item in items if item.get_closest_marker("long")]
    others = set(of_parts) - set(of_parts[PART - 1 :: PARTS])
    items[:] = [item for item in items if item not in others]
    # What another library has changed fails by its name, before all that it breaks.
    items.sort(key=lambda item: item.path.name != "test_private_names.py")
    if not at_calls.LIBRARY:
        items[:] = [item for item in items if not item.get_closest_marker("faults")]
    for item in items:
        if item.get_closest_marker("xdist_group") or item.get_closest_marker("long"):
            continue
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item):
    place = item.path.relative_to(TESTS)
    has_server = "server" in getattr(item, "fixturenames", ())
    is_shared = has_server and not hasattr(item.module, "server")
    return place.parts[0] if is_shared else str(place)


@pytest.fixture(scope="session")
def object_port():
    with object_server() as port:
        yield port


@pytest.fixture
def link(object_port):
    """A link to a server of S3, with a folder of its own there."""
    link = Link(object_port)
    yield link
    link.close()


@pytest.fixture
def full_disk():
    """A context in which files of more than some bytes cannot be written, nor by C++ or Rust."""

    @contextmanager
    def full(size):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)

    return full


@pytest.fixture
def closed(monkeypatch):
    """Makes folders such as this user may not list, even for root."""
    scandir = os.scandir

    def close(*folders):
        def scan(path="."):
            if Path(path) in folders:
                raise PermissionError(errno.EACCES, "Permission denied")
            return scandir(path)

        monkeypatch.setattr(os, "scandir", scan)

    return close


@pytest.fixture
def wait_for():
    def wait(condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def stages(monkeypatch):
    """All stages of progress that begin during the test, each with the names of its parts in `works`."""
    seen = []

    class Seen(stage.Stage):
        def __init__(self, *arguments):
            self.works = []
            super().__init__(*arguments)
            seen.append(self)

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "work" and value:
                self.works.append(value)

    monkeypatch.setattr(stage, "Stage", Seen)
    return seen


def pytest_addoption(parser):
    parser.addoption("--goals", action="store_true", help="print what was tried for each goal")


@pytest.fixture
def tally(request):
    """Count a fault that a test tries and that is survived if the test passes."""
    count = itertools.count(1)
    return lambda: request.node.user_properties.append(("tried", next(count)))


def pytest_terminal_summary(terminalreporter, config):
    if not config.option.goals:
        return
    tried, lost = Counter(), Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            name = report.nodeid.removeprefix("tests/").partition("[")[0]
            tried[name] += dict(report.user_properties).get("tried", 1)
            lost[name] += outcome != "passed"
    terminalreporter.section("goals")
    terminalreporter.line(f"{'goal':>8} {'tried':>8} {'survived':>8} {'lost':>8}")
    named = goals()
    for name in tried:
        held = named.get(name, []) + named.get(name.partition("::")[0], [])
        figures = (tried[name], tried[name] - lost[name], lost[name])
        line = " ".join(f"{figure:>8,}" for figure in figures)
        terminalreporter.line(f"{' '.join(held):>8} {line}  {name}")
