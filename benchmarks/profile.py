"""A profile of training steps: kernels, operations, copies, and what a GPU waits for.

    python -m benchmarks.profile --device gpu [--model mlp] [--precision bfloat16] [--feed]

Some steps of a `model.fit` are timed, and then as many traced by TensorFlow's profiler: which
kernels and which operations took the time, what was copied between host and device, and how long the
device waited; on a CPU, TensorFlow's operations. The batches stay on the device, or (`--feed`) come
from the loader. The GPU is busy while at least one kernel runs. Tracing slows host and device down a
little, so the share is that of a step in the trace.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import tensorflow as tf

from benchmarks import data
from benchmarks.feeds import open_loader, resident
from benchmarks.fitting import Clock
from benchmarks.measure import options, show, use
from benchmarks.models import NETWORKS, OPTIMIZERS, Way

# Of an event of the device or the host; its operation where that is known, and the bytes of a copy.
EVENT = {
    "is_host": pl.Boolean,
    "name": pl.String,
    "op": pl.String,
    "start": pl.Int64,  # picoseconds
    "stop": pl.Int64,
    "size": pl.Int64,
}
LINES = 24
IS_COPY = pl.col("name").str.contains("^(Memcpy|Memset)")
SHORT = pl.col("op").str.extract("((?:[^/]*/){0,2}[^/]*)$")
# When all earlier events have ended.
QUIET = pl.col("stop").cum_max().shift(1)


@contextmanager
def traced() -> Iterator[list[pl.DataFrame]]:
    """Trace some work; a table of its events, by start, is in the list at the end."""
    found: list[pl.DataFrame] = []
    with tempfile.TemporaryDirectory() as folder:
        profiler = tf.profiler.experimental
        profiler.start(folder, profiler.ProfilerOptions(python_tracer_level=0))
        yield found
        profiler.stop()
        found.append(pl.DataFrame(_events(Path(folder)), EVENT, orient="row").sort("start"))


def _events(folder: Path) -> Iterator[tuple[Any, ...]]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415 - only here

    spaces = [xplane_pb2.XSpace.FromString(f.read_bytes()) for f in folder.rglob("*.xplane.pb")]
    for plane in (plane for space in spaces for plane in space.planes):
        is_host, stats = plane.name.startswith("/host:CPU"), plane.stat_metadata
        for line in plane.lines:
            # The others of a GPU sum these up once more.
            is_stream = plane.name.startswith("/device:GPU") and line.name.startswith("Stream")
            for event in line.events if is_host or is_stream else ():
                name = plane.event_metadata[event.metadata_id].name
                if is_host and not re.search(r"[^:]:_?[A-Z]\w+$", name):
                    continue  # no operation: a thread pool's, a dataset's, Python's
                notes = {
                    stats[note.metadata_id].name: note.str_value or stats[note.ref_value].name
                    for note in event.stats
                    if note.WhichOneof("value") in {"str_value", "ref_value"}
                }
                start = line.timestamp_ns * 1000 + event.offset_ps
                size = re.search(r"size:(\d+)", notes.get("memcpy_details", "size:0"))
                op = notes.get("hlo_op") or notes.get("tf_op", "")
                kind = name.rpartition(":")[2] if is_host else name
                yield (
                    is_host,
                    kind,
                    op,
                    start,
                    start + event.duration_ps,
                    int(size[1] if size else 0),
                )


def show_device(events: pl.DataFrame, steps: int) -> None:
    """Print the tables of a GPU."""
    events = events.filter(~pl.col("is_host"))
    free = pl.max_horizontal("start", QUIET.fill_null(0))
    busy = (pl.col("stop") - free).clip(0).sum()
    computing = events.filter(~IS_COPY).select(busy).item() / steps / 1e9
    span = events.select(pl.col("stop").max() - pl.col("start").min()).item() / steps / 1e9
    print(
        f"in the trace {span:.3f} ms a step, of which a kernel ran {computing:.3f} ms: "
        f"busy {computing / span:.1%}; {len(events) / steps:.0f} kernels and copies a step"
    )
    show_times("kernels", events, pl.col("name"), steps)
    show_times("operations", events, SHORT, steps)
    copy = pl.format("{}, {} bytes", "name", "size")
    show_times("copies", events.filter(IS_COPY), copy, steps)
    what = pl.when(SHORT == "").then("name").otherwise(SHORT)
    last = pl.when(pl.col("stop") == pl.col("stop").cum_max()).then(what).forward_fill().shift(1)
    waits = events.select(
        pl.format("{} .. {}", last, what).alias("name"), start=QUIET, stop="start"
    )
    waits = waits.filter(pl.col("stop") > pl.col("start"))
    show_times("waits, after and before what", waits, pl.col("name"), steps)


def show_times(title: str, events: pl.DataFrame, key: pl.Expr, steps: int) -> None:
    """Print what took longest."""
    spent = (pl.col("stop") - pl.col("start")).sum() / steps / 1e6
    table = events.group_by(key.alias("")).agg(spent.alias("us"), (pl.len() / steps).alias("times"))
    show(f"{title}: a step", table.sort("us", descending=True).head(LINES).to_dicts())


class Observed(Clock):
    """The time of the steps between two of a fit, and a trace of those from there to its end.

    Args:
        first: the first that is timed.
        last: the first that is traced.
    """

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first)
        self._last = last
        self._tracing = ExitStack()
        self._is_traced = False
        self.found: list[pl.DataFrame] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Begin to trace where the timed steps end."""
        if not self._is_traced:
            super().on_train_batch_end(batch, logs)
            if batch + 1 == self._last:
                self._is_traced, self.found = True, self._tracing.enter_context(traced())

    def on_train_end(self, logs: Any = None) -> None:
        """End the trace."""
        self._tracing.close()
        super().on_train_end(logs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time and trace a fit; the loader begins an epoch for it."""
    counts = {"rows": 16_000_000, "steps": 96, "together": 32}
    parser = options(__doc__, devices=True, files=True, **counts, precision="bfloat16", feed=False)
    parser.add_argument("--model", choices=NETWORKS, default="mlp")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--batch", type=int, help="default: 65,536, for wide 131,072")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    shape, build = NETWORKS[parsed.model]
    batch = parsed.batch or (65_536 if parsed.model == "mlp" else 131_072)
    together, ids = parsed.together, "int32" if parsed.feed else "int64"
    split = {"precision": parsed.precision, "steps_per_execution": together}
    model = Way("", build, partial(OPTIMIZERS[parsed.optimizer], 0.01), split).model(shape, ids)
    if parsed.feed:
        files = data.clicks(parsed.folder, parsed.rows, device=parsed.device)
        batches = open_loader(files, batch, drop_last=True)
    else:
        batches = resident(shape, batch, ids)
    steps = parsed.steps // together * together
    observed = Observed(together, together + steps)
    fit = partial(model.fit, batches, verbose=0, shuffle=False)
    fit(steps_per_epoch=together)  # traces
    fit(steps_per_epoch=together + 2 * steps, callbacks=[observed])
    trained = observed.taken.amount
    if trained != 2 * steps * batch:
        raise SystemExit(f"Expected {2 * steps * batch:,} rows (--rows). Received: {trained:,}.")
    milliseconds = observed.taken.seconds / steps * 1e3
    print(f"{milliseconds:.3f} ms a step, {batch / milliseconds / 1e3:.2f} M samples/s")
    (events,) = observed.found
    if parsed.device == "gpu":
        show_device(events, steps)
    show_times("operations on the host", events.filter("is_host"), pl.col("name"), steps)


if __name__ == "__main__":
    main()
