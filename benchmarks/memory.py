"""Peak memory of the loader, of a large vocabulary, and of a model with a large table and its exports.

    python -m benchmarks.memory loader [--rows 4000000]
    python -m benchmarks.memory vocabulary [--rows 10000000]
    python -m benchmarks.memory model [--rows 1600000]

Each measurement runs in a process of its own. The peak is the resident set's high-water mark, which
counts the pages of files that are mapped; it is reset before each step.

loader: the memory that reading adds, over `buffer_size`: the largest resident anonymous memory while
an epoch is read, less that before its first batch. vocabulary: time and peak beyond the start of
loading a saved workflow with so many keys of one column, and of what serves it. model: figures in
tables, beyond what the process held before: 1 is one copy of the table, which is made in the first
step and held from then on.
"""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import data
from benchmarks.measure import in_child, memory_gb, options, peak_memory, show, timed
from exporter.plan.runtime import RUNTIMES
from workflow import Workflow, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program, save_program
from workflow.operator.feature import State
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.training_data import TrainingData

WIDTH = 64
BUFFERS = (32_000_000, 64_000_000)
Row = dict[str, Any]


def loader(folder: Path, rows: int) -> Iterator[Row]:
    """An epoch with buffers of several sizes."""
    files = data.clicks(folder, rows)
    for size in BUFFERS:
        yield {"buffer, MB": size // 10**6, "peak of it": in_child(peak_over_buffer, files, size)}


def peak_over_buffer(files: list[Path], buffer_size: int) -> float:
    """The ratio, in this process."""
    from benchmarks.feeds import open_loader  # noqa: PLC0415 - TensorFlow, in a child alone

    # A first epoch over one file lets the libraries set up what they keep.
    for _ in open_loader(files[:1], 16_384, buffer_size=2e6, device="cpu"):
        pass
    batches = open_loader(files, 16_384, buffer_size=float(buffer_size), device="cpu")
    before, most, end = memory_gb("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not end.wait(0.005):
            most[0] = max(most[0], memory_gb("RssAnon"))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    for _ in batches:
        pass
    end.set()
    watching.join()
    return (most[0] - before) * 2**30 / buffer_size


def vocabulary(_: Path, count: int) -> Iterator[Row]:
    """Loading one of integers and one of strings."""
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("int64", "string"):
            folder = Path(scratch, kind)
            save_vocabulary(kind, count, folder)
            yield {
                "keys": kind,
                "Workflow.load": in_child(cost_of, Workflow.load, folder),
                "numpy interpreter": in_child(cost_of, serve, folder / "served"),
            }


def save_vocabulary(kind: str, count: int, folder: Path) -> None:
    """A fitted workflow with distinct keys in no order, and its program, as an export has it."""
    numbers = np.random.default_rng(0).permutation(count) * 7_919 + 2**40
    keys = Column(numbers * 104_729)  # too far apart for a table by address
    if kind == "string":
        texts = pl.select("user_" + pl.Series(numbers).cast(pl.String)).to_series()
        data = np.frombuffer("".join(texts).encode(), np.uint8)
        keys = Column(Strings(data, np.append(0, np.cumsum(texts.str.len_bytes().cast(pl.Int64)))))
    made = Workflow(["user"] >> ops.Categorify())
    states: dict[int, State] = {1: {"learnt.user": keys}}
    made.restore(Schema([ColumnSchema("user", kind)]), states, {}, TrainingData())
    made.save(folder)
    (folder / "served").mkdir()
    save_program(made.program, folder / "served")


def serve(folder: Path) -> NumpyInterpreter:
    """The numpy interpreter of a saved program."""
    return NumpyInterpreter(load_program(folder))


def cost_of(load: Callable[[Path], object], folder: Path) -> str:
    """Time, that of the processor, and peak memory beyond what was there, in this process."""
    before = memory_gb("VmRSS")
    with peak_memory() as peak:
        taken = timed(lambda: load(folder), 1)
    megabytes = (peak[0] - before) * 1024
    return f"{taken.seconds:.2f} s ({taken.processor:.2f} s CPU), {megabytes:,.0f} MB"


def model(_: Path, rows: int) -> list[Row]:
    """Make, save, load and export a model."""
    peaks: dict[str, float] = {}
    for runtime in [*RUNTIMES][::-1]:  # each in a process of its own, as memory is used again
        peaks |= in_child(peaks_of_steps, rows, runtime)
    return [{"": step, "tables": peak} for step, peak in peaks.items()]


def peaks_of_steps(rows: int, runtime: str) -> dict[str, float]:
    """The peak of each step in tables, in this process."""
    peaks: dict[str, float] = {}
    for count in (10, rows):  # with the few rows the libraries get what they need
        with tempfile.TemporaryDirectory() as folder:
            for name, step in steps_of(count, runtime, Path(folder)):
                gc.collect()
                before = memory_gb("VmRSS")
                with peak_memory() as peak:
                    step()
                peaks[name] = (peak[0] - before) * 2**30 / (count * WIDTH * 4)
    return peaks


def steps_of(rows: int, runtime: str, folder: Path) -> list[tuple[str, Callable[[], Any]]]:
    """All that can be done with a model, once it is made."""
    import keras  # noqa: PLC0415 - TensorFlow, in a child alone

    from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415
    from training import models, save_model  # noqa: PLC0415

    workflow = Workflow(["userId"] >> ops.HashBucket(rows)).fit(pl.DataFrame({"userId": [1, 2]}))
    made: list[Any] = []

    def export() -> None:
        serving = ServingOptions(runtime=runtime, max_batch_size=1024)
        export_tensorflow_ensemble(made[0], workflow, runtime, folder / "models", serving=serving)

    return [
        ("make", lambda: made.append(models.mlp({"userId": (rows, WIDTH)}, hidden=(4,)))),
        ("save_model", lambda: save_model(made[0], folder / "saved")),
        (f"export, {runtime}", export),
        ("save", lambda: made[0].save(folder / "model.keras")),
        ("load", lambda: keras.saving.load_model(folder / "model.keras")),
        ("save_weights", lambda: made[0].save_weights(folder / "model.weights.h5")),
        ("load_weights", lambda: made[0].load_weights(folder / "model.weights.h5")),
    ]


PARTS: dict[str, tuple[Callable[[Path, int], Any], int]] = {
    "loader": (loader, 4_000_000),
    "vocabulary": (vocabulary, 10_000_000),
    "model": (model, 1_600_000),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options(__doc__, files=True)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rows", type=int, help="of the data, of a vocabulary or of a table")
    parsed = parser.parse_args(arguments)
    part, rows = PARTS[parsed.part]
    rows = parsed.rows or rows
    show(f"{parsed.part}: {rows:,} rows", part(parsed.folder, rows))


if __name__ == "__main__":
    main()
