"""Peak memory of fit and transform, the loader, a vocabulary, a model with a large table, and its export.

    python -m benchmarks.memory [workflow] [--rows 4000000 16000000] [--shuffle]
    python -m benchmarks.memory loader [--rows 4000000]
    python -m benchmarks.memory vocabulary [--rows 10000000]
    python -m benchmarks.memory model [--rows 1600000] [--steps make save_model]
    python -m benchmarks.memory export [--gigabytes 1]

Each measurement runs in a process of its own. The peak is the resident set's high-water mark, which
counts the pages of files that are mapped; it is reset before each step.

workflow: Criteo-like data of several sizes. 50 million rows take 4 GB of disk for the raw files and
5 GB for what is made of them. loader: the memory that reading adds, over `buffer_size`: the largest
resident anonymous memory while an epoch is read, less that before its first batch. vocabulary: time
and peak beyond the start of loading a saved workflow with so many keys of one column, and of what
serves it. model: figures in tables, beyond what the process held before: 1 is one copy of the table,
which is made in the first step and held from then on. export: of each runtime, of a network with one
table.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import data
from benchmarks.measure import in_child, memory_gb, options, peak_memory, show, timed
from benchmarks.pipelines import PIPELINES
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


def workflow(parsed: argparse.Namespace) -> None:
    """Fit and transform of data of several sizes."""
    table = []
    for rows in parsed.rows or (4_000_000, 16_000_000):
        files = PIPELINES["criteo"].write(parsed.folder, rows)
        out = parsed.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        table += in_child(fit_and_transform, files, rows, out, parsed.shuffle)
        made = pl.scan_parquet(out / "*.parquet").select(pl.len()).collect().item()
        if made != rows:
            raise SystemExit(f"Expected {rows:,} rows to come out. Received: {made:,}.")
        shutil.rmtree(out)
        for file in files:
            file.unlink()
    show("Criteo-like rows", table)


def fit_and_transform(files: list[Path], rows: int, out: Path, shuffle: bool) -> list[Row]:
    """Do it in this process."""
    made = PIPELINES["criteo"].workflow(files[0].parent)
    works: dict[str, Callable[[], Any]] = {
        "fit": lambda: made.fit([*files]),
        "transform": lambda: made.transform_to_parquet([*files], out, shuffle=shuffle),
    }
    table = []
    for name, work in works.items():
        with peak_memory() as peak:
            taken = timed(work, rows)
        costs = {"s": taken.seconds, "CPU s": taken.processor, "rows/s": rows / taken.seconds}
        table.append({"rows": rows, "": name} | costs | {"peak GB": peak[0]})
    return table


def loader(parsed: argparse.Namespace) -> None:
    """An epoch with buffers of several sizes."""
    (rows,) = parsed.rows or (4_000_000,)
    files = data.clicks(parsed.folder, rows)
    table = [
        {"buffer, MB": size // 10**6, "peak of it": in_child(peak_over_buffer, files, size)}
        for size in BUFFERS
    ]
    show(f"Epochs of {rows:,} rows", table)


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


def vocabulary(parsed: argparse.Namespace) -> None:
    """Loading one of integers and one of strings."""
    (count,) = parsed.rows or (10_000_000,)
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("int64", "string"):
            folder = Path(scratch, kind)
            save_vocabulary(kind, count, folder)
            costs = {
                "Workflow.load": in_child(cost_of, Workflow.load, folder),
                "numpy interpreter": in_child(cost_of, serve, folder / "served"),
            }
            table.append({"keys": kind} | costs)
    show(f"{count:,} keys of one column", table)


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


def model(parsed: argparse.Namespace) -> None:
    """Make, save, load and export a model; prints JSON."""
    (rows,) = parsed.rows or (1_600_000,)
    print(json.dumps(in_child(peaks_of_steps, rows, parsed.steps)))


def peaks_of_steps(rows: int, named: list[str] | None) -> dict[str, float]:
    """The peak of each step in tables, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        # The libraries have what they need by then.
        for step in steps_of(make_model(10), 10, Path(folder, "few")).values():
            step()
        peaks: dict[str, float] = {}

        def measure(name: str, step: Callable[[], Any]) -> Any:
            gc.collect()
            before = memory_gb("VmRSS")
            with peak_memory() as peak:
                made = step()
            peaks[name] = round((peak[0] - before) * 2**30 / (rows * WIDTH * 4), 2)
            return made

        large = measure("make", lambda: make_model(rows))
        for name, step in steps_of(large, rows, Path(folder, "many")).items():
            if named is None or name in named:
                measure(name, step)
        return peaks


def make_model(rows: int) -> Any:
    """A network whose table is all but all of it."""
    from training import models  # noqa: PLC0415 - TensorFlow, in a child alone

    return models.mlp({"userId": (rows, WIDTH)}, hidden=(4,))


def steps_of(model: Any, rows: int, folder: Path) -> dict[str, Callable[[], Any]]:
    """All that can be done with a model, by name."""
    import keras  # noqa: PLC0415 - TensorFlow, in a child alone

    from exporter import export_tensorflow_ensemble  # noqa: PLC0415
    from training import save_model  # noqa: PLC0415

    folder.mkdir()
    workflow = Workflow(["userId"] >> ops.HashBucket(rows)).fit(pl.DataFrame({"userId": [1, 2]}))
    return {
        "save_model": lambda: save_model(model, folder / "saved"),
        "export": lambda: export_tensorflow_ensemble(model, workflow, "e", folder / "repository"),
        "save": lambda: model.save(folder / "model.keras"),
        "load": lambda: keras.saving.load_model(folder / "model.keras"),
        "save_weights": lambda: model.save_weights(folder / "model.weights.h5"),
        "load_weights": lambda: model.load_weights(folder / "model.weights.h5"),
    }


def export(parsed: argparse.Namespace) -> None:
    """Every runtime."""
    from exporter.plan.runtime import RUNTIMES  # noqa: PLC0415 - TensorFlow comes with it

    table = [in_child(export_of, parsed.gigabytes, runtime) for runtime in RUNTIMES]
    show("Export of a network with one large table", table)


def export_of(gigabytes: float, runtime: str) -> Row:
    """Time and memory of an export, in this process."""
    import keras  # noqa: PLC0415 - TensorFlow, in a child alone

    from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415

    count = int(gigabytes * 1e9 / (WIDTH * 4))
    workflow = Workflow(["id"]).fit({"id": np.arange(3)})
    tensor = keras.Input((1,), name="id", dtype="int64")
    # Random numbers would take more memory than the export itself.
    table = keras.layers.Embedding(count, WIDTH, embeddings_initializer="zeros")
    vector = keras.layers.Flatten()(table(tensor))
    network = keras.Model({"id": tensor}, keras.layers.Dense(1, name="score")(vector))
    before, start = memory_gb("VmHWM"), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        serving = ServingOptions(runtime=runtime, max_batch_size=1024)
        export_tensorflow_ensemble(network, workflow, "large", folder, serving=serving)
        seconds = time.perf_counter() - start
    return {
        "runtime": runtime,
        "s": seconds,
        "peak GB": memory_gb("VmHWM"),
        "of which before the export": before,
    }


PARTS = {each.__name__: each for each in (workflow, loader, vocabulary, model, export)}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options(__doc__, folder=Path("build/benchmarks"), gigabytes=1.0)
    parser.add_argument("part", nargs="?", choices=PARTS, default="workflow")
    parser.add_argument("--rows", type=int, nargs="+", help="of the data, or of the table")
    parser.add_argument("--shuffle", action="store_true", help="transform_to_parquet shuffles")
    parser.add_argument("--steps", nargs="+", help="of `model`; all, where none is named")
    parsed = parser.parse_args(arguments)
    PARTS[parsed.part](parsed)


if __name__ == "__main__":
    main()
