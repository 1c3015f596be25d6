"""Where the time of a training step goes: kernels, copies and gaps, as TensorFlow's profiler sees them.

    python -m benchmarks.gpu_profile [--model mlp] [--precision bfloat16] [--feed] [--steps 32]

Trains one of the models of `benchmarks.gpu_training` with the split step, on batches that stay on
the device or (`--feed`) on those of the loader, and traces some steps. On a GPU it shows how much
of the time a kernel was running, which kernels and which operations took it, what was copied
between host and device, and how long the device waited; on a CPU, TensorFlow's operations. It
reads the profiler's own file, so TensorBoard need not be there.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import keras
import tensorflow as tf

from benchmarks import training_data as data
from benchmarks import training_models as networks
from training import compile_model, optimizers

MODELS = {
    "mlp": (networks.our_mlp, data.CRITEO, 65_536),
    "wide_and_deep": (networks.our_wide_and_deep, data.WIDE_AND_DEEP, 131_072),
}


@dataclass(frozen=True)
class Event:
    """Something that ran on the device.

    Attributes:
        name: of the kernel, copy or operation.
        op: the operation of TensorFlow or XLA that it belongs to, where that is known.
        start: in picoseconds.
        stop: likewise.
        size: bytes, of a copy.
    """

    name: str
    op: str
    start: int
    stop: int
    size: int = 0

    @property
    def is_copy(self) -> bool:
        """Whether it moves bytes and computes nothing."""
        return self.name.startswith(("Memcpy", "Memset"))


def traced(run: Callable[[], Any]) -> tuple[list[Event], list[Event]]:
    """What the device, if there is a GPU, and what the host did while `run` ran, by start."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415 - only here

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        run()
        tf.profiler.experimental.stop()
        files = list(Path(folder).rglob("*.xplane.pb"))
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    planes = [plane for space in spaces for plane in space.planes]
    found: list[list[Event]] = []
    for name in ("/device:GPU", "/host:CPU"):
        own = [plane for plane in planes if plane.name.startswith(name)]
        events = [event for plane in own for event in _events(plane, is_host="host" in name)]
        found.append(sorted(events, key=lambda event: event.start))
    return found[0], found[1]


def _events(plane: Any, *, is_host: bool) -> Iterator[Event]:
    stats = plane.stat_metadata
    for line in plane.lines:
        # The others of a GPU sum these up once more.
        if not is_host and not line.name.startswith("Stream"):
            continue
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            if is_host and not re.search(r"[^:]:_?[A-Z]\w+$", name):
                continue  # no operation: a thread pool's, a dataset's, Python's
            notes = {
                stats[note.metadata_id].name: note.str_value or stats[note.ref_value].name
                for note in event.stats
                if note.WhichOneof("value") in {"str_value", "ref_value"}
            }
            start = line.timestamp_ns * 1000 + event.offset_ps
            size = re.search(r"size:(\d+)", notes.get("memcpy_details", ""))
            op = name if is_host else notes.get("hlo_op") or notes.get("tf_op", "")
            kind = name.rpartition(":")[2] if is_host else name
            yield Event(
                kind, op, start, start + event.duration_ps, int(size.group(1)) if size else 0
            )


def busy(events: Iterable[Event]) -> int:
    """Picoseconds in which at least one of the events ran, given by start."""
    total, until = 0, 0
    for event in events:
        total += max(0, event.stop - max(event.start, until))
        until = max(until, event.stop)
    return total


def gaps(events: Sequence[Event]) -> dict[str, list[int]]:
    """How long nothing ran, by what ran before and after."""
    found: dict[str, list[int]] = defaultdict(list)
    last = events[0]
    for event in events[1:]:
        if event.start > last.stop:
            found[f"{_what(last)}  ..  {_what(event)}"].append(event.start - last.stop)
        last = max(last, event, key=lambda each: each.stop)
    return found


def times(events: Iterable[Event], key: Callable[[Event], str]) -> dict[str, list[int]]:
    """How long the events took, by key."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event.stop - event.start)
    return found


def show(events: Sequence[Event], steps: int, top: int) -> None:
    """Print the tables of a GPU."""
    span = max(event.stop for event in events) - events[0].start
    computing = busy([event for event in events if not event.is_copy])
    print(
        f"\n{span / steps / 1e9:.3f} ms a step in the trace; a kernel ran {computing / span:.1%} of "
        f"the time, a kernel or a copy {busy(events) / span:.1%}; {len(events) / steps:.0f} events"
    )
    copies = [event for event in events if event.is_copy]
    for title, spent in {
        "kernels": times(events, lambda event: event.name),
        "operations": times(events, lambda event: _short(event.op)),
        "copies": times(copies, lambda event: f"{event.name}, {event.size:,} bytes"),
        "waits, after and before what": gaps(events),
    }.items():
        table(title, spent, steps, top)


def table(title: str, spent: dict[str, list[int]], steps: int, top: int) -> None:
    """Print what took longest."""
    print(f"\n{title}: microseconds a step, how often a step")
    for name, each in sorted(spent.items(), key=lambda item: -sum(item[1]))[:top]:
        print(f"{sum(each) / steps / 1e6:10.1f} {len(each) / steps:8.2f}  {name[:130]}")


def _short(op: str) -> str:
    return "/".join(op.split("/")[-3:])


def _what(event: Event) -> str:
    return (_short(event.op) or event.name)[-60:]


def feed(batch: int, rows: int) -> Any:
    """The loader's batches of an epoch, shuffled."""
    from benchmarks import gpu_loader_data as parquet  # noqa: PLC0415 - made only if wanted

    files = parquet.make_data(parquet.FOLDER, rows, lists=False)
    return parquet.make_loader(files, batch, drop_last=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--together", type=int, default=16, help="steps a call")
    parser.add_argument("--ids", default="int64")
    parser.add_argument("--shrink", type=int, default=1, help="divides the cardinalities")
    parser.add_argument("--feed", action="store_true", help="by the loader, from parquet")
    parser.add_argument("--rows", type=int, default=16_000_000, help="of the parquet files")
    parser.add_argument("--top", type=int, default=24, help="lines of a table")
    options = parser.parse_args()
    build, shape, batch = MODELS[options.model]
    batch = options.batch or batch
    shape = shape.shrunk(options.shrink)
    keras.utils.set_random_seed(0)
    ids = "int32" if options.feed else options.ids
    model = build(shape, ids)
    compile_model(
        model,
        optimizers.SGD(0.05),
        precision=options.precision,
        steps_per_execution=options.together,
    )
    batches = (
        feed(batch, options.rows)
        if options.feed
        else data.Repeated(data.on_device(shape, batch, ids, 4))
    )

    model.fit(batches, steps_per_epoch=options.together, verbose=0, shuffle=False)  # compiles
    endless, calls = iter(batches), options.steps // options.together

    def run() -> None:
        for _ in range(calls):
            logs = model.train_function(endless)
        float(logs["loss"])  # waits for the device

    run()
    start = time.perf_counter()
    run()
    seconds = (time.perf_counter() - start) / calls / options.together
    print(
        f"{options.model}, {options.precision}, batch {batch:,}, {options.together} steps a call, "
        f"{'fed by the loader' if options.feed else 'batches in memory'}: "
        f"{seconds * 1e3:.3f} ms a step, {batch / seconds / 1e6:.2f} M samples/s"
    )
    on_device, on_host = traced(run)
    steps = calls * options.together
    if on_device:
        show(on_device, steps, options.top)
    on_host_spent = times(on_host, lambda event: event.name)
    table("operations on the host, of all threads", on_host_spent, steps, options.top)


if __name__ == "__main__":
    main()
