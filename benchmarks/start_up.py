"""Seconds until a program answers: imports, help, servers of one and of eight ensembles, first batches.

    python -m benchmarks.start_up [--rows 20000] [--rounds 5] [--folder build/benchmarks]

All take turns, each in a process of its own, round by round. Processor time is that of the process and
of all that it starts, until it answers. `import numpy` and `import tensorflow` are yardsticks of the
machine. Ensembles are MovieLens-like, with small tables that are fitted on that many rows. The first
batch is that of an epoch of 65,536 rows, after a process has made its loader, of 2,000,000
Criteo-like rows in row groups of 500,000.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import data, measure
from benchmarks.data import rating_workflow
from benchmarks.measure import Contestant, Taken, in_child, options, show
from exporter import ServingOptions, export_tensorflow_ensemble
from serving import TritonServer
from workflow import get_embedding_sizes

MOST = 8
RUNTIMES = ("tensorflow", "fused_onnx")
BATCH, ROWS = 65_536, 2_000_000
HELP = "from exporter.command_line import main; main()"
PROGRAMS = {
    "import numpy": ["-c", "import numpy"],
    "import exporter": ["-c", "import exporter"],
    "ensemble --help": ["-c", HELP, "--help"],
    "import tensorflow": ["-c", "import tensorflow"],
}


def run_program(arguments: Sequence[str]) -> Taken:
    """A Python program, from its start to its end."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before, start = spent(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return Taken(time.perf_counter() - start, spent() - before, 1)


def start_server(folder: Path, models: Sequence[str]) -> Taken:
    """A server, until every model has answered."""
    server = TritonServer(folder, models)
    start, own, others = time.perf_counter(), time.process_time(), measure.children_seconds()
    try:
        server.start()
        seconds = time.perf_counter() - start
        processor = time.process_time() - own + measure.children_seconds() - others
        return Taken(seconds, processor, len(server.models))
    finally:
        server.stop()


def first_batch(files: list[Path], shuffle: bool) -> Taken:
    """The first batch of the first epoch of a process."""
    from benchmarks.feeds import open_loader  # noqa: PLC0415 - TensorFlow, in a child

    batches = open_loader(files, BATCH, shuffle=shuffle)
    epoch = iter(batches)  # to drop it is to wait for the next read
    return measure.timed(lambda: len(next(epoch)[1]))


def export(folder: Path, rows: int) -> None:
    """Eight ensembles of each runtime."""
    from training import models  # noqa: PLC0415 - TensorFlow, where a model is wanted

    random = np.random.default_rng(0)
    workflow = rating_workflow(data.movies(random, 1_000)).fit(data.ratings(rows, random))
    workflow.output_dtypes["genres"] = "int64"  # as the network takes lists
    model = models.mlp(get_embedding_sizes(workflow))
    for runtime in RUNTIMES:
        serving = ServingOptions(runtime=runtime, prove="process")
        for name in names_of(runtime):
            export_tensorflow_ensemble(model, workflow, name, folder, ["rating"], serving=serving)


def names_of(runtime: str) -> list[str]:
    """The names of the ensembles of a runtime."""
    return [f"{runtime}_{number}" for number in range(MOST)]


def contestants(folder: Path, files: list[Path]) -> Iterator[Contestant]:
    """Every program, server and loader."""
    for name, arguments in PROGRAMS.items():
        yield Contestant(name, partial(run_program, arguments), 1)
    for runtime in RUNTIMES:
        for count in (1, MOST):
            server = partial(start_server, folder, names_of(runtime)[:count])
            yield Contestant(f"{runtime}, {count}", server, count)
    for title, shuffle in (("first batch", False), ("first batch, shuffled", True)):
        yield Contestant(title, partial(in_child, first_batch, files, shuffle), BATCH)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parsed = options(__doc__, files=True, rows=20_000, rounds=5).parse_args(arguments)
    files = data.clicks(parsed.folder, ROWS)
    with tempfile.TemporaryDirectory() as repository:
        in_child(export, Path(repository), parsed.rows)
        racers = measure.race(contestants(Path(repository), files), parsed.rounds)
    table = [{"": r.name, "s": r.seconds, "processor s": r.median("processor")} for r in racers]
    show(f"start-up, medians of {parsed.rounds} rounds", table)


if __name__ == "__main__":
    main()
