"""Events of a GPU and its host, read from the file of TensorFlow's profiler, and tables of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Lines of a table.
_MOST = 24


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


def read_trace(folder: Path) -> tuple[list[Event], list[Event]]:
    """The events of the device and of the host, by start, from the profiler's file."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415 - only here

    files = list(folder.rglob("*.xplane.pb"))
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
    """The time in which nothing ran, by the events before and after."""
    found: dict[str, list[int]] = defaultdict(list)
    last = events[0]
    for event in events[1:]:
        if event.start > last.stop:
            found[f"{_what(last)}  ..  {_what(event)}"].append(event.start - last.stop)
        last = max(last, event, key=lambda each: each.stop)
    return found


def times(events: Iterable[Event], key: Callable[[Event], str]) -> dict[str, list[int]]:
    """The duration of events, by key."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event.stop - event.start)
    return found


def show_device(events: Sequence[Event], steps: int) -> None:
    """Print the tables of a GPU."""
    span = (max(event.stop for event in events) - events[0].start) / steps / 1e9
    computing = busy([event for event in events if not event.is_copy]) / steps / 1e9
    print(
        f"in the trace {span:.3f} ms a step, of which a kernel ran {computing:.3f} ms: "
        f"busy {computing / span:.1%}; "
        f"{len(events) / steps:.0f} kernels and copies a step"
    )
    copies = [event for event in events if event.is_copy]
    for title, spent in {
        "kernels": times(events, lambda event: event.name),
        "operations": times(events, lambda event: _short(event.op)),
        "copies": times(copies, lambda event: f"{event.name}, {event.size:,} bytes"),
        "waits, after and before what": gaps(events),
    }.items():
        table(title, spent, steps)


def table(title: str, spent: dict[str, list[int]], steps: int) -> None:
    """Print what took longest."""
    print(f"\n{title}: microseconds a step, how often a step")
    for name, each in sorted(spent.items(), key=lambda item: -sum(item[1]))[:_MOST]:
        print(f"{sum(each) / steps / 1e6:10.1f} {len(each) / steps:8.2f}  {name[:130]}")


def _short(op: str) -> str:
    return "/".join(op.split("/")[-3:])


def _what(event: Event) -> str:
    return (_short(event.op) or event.name)[-60:]
