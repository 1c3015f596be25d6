"""Peak memory of the loader over its buffer, each time in a fresh process.

    python -m benchmarks.loader_memory BUFFER_SIZE FILE...

What counts is the memory that reading adds: the largest resident anonymous memory while an epoch
is read, less that before its first batch, over `buffer_size`. A first epoch over one file lets
the libraries set up what they keep.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from benchmarks.loader_data import CATS, CONTS

# Data of 4,000,000 rows is 640 MB once decoded: 20 and 10 times as large.
BUFFERS = (32_000_000, 64_000_000)


def peak_over_buffer(files: list[Path], buffer_size: int) -> float:
    """The ratio, measured in a process of its own."""
    program = [sys.executable, "-m", "benchmarks.loader_memory", str(buffer_size)]
    done = subprocess.run([*program, *files], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def anonymous_bytes() -> int:
    """Resident memory of this process that no file backs."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


class Peak(threading.Thread):
    """The largest `anonymous_bytes`, asked 200 times a second until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._end = threading.Event()

    def run(self) -> None:
        """Ask until stopped."""
        while not self._end.wait(0.005):
            self.bytes = max(self.bytes, anonymous_bytes())

    def stop(self) -> int:
        """The largest of all."""
        self._end.set()
        self.join()
        return self.bytes


def main() -> None:
    """Read an epoch and print the ratio."""
    from loader import KerasSequenceLoader  # noqa: PLC0415 - TensorFlow, in the child alone

    buffer_size, *files = sys.argv[1:]
    options: dict[str, Any] = {"cat_names": CATS, "cont_names": CONTS, "seed": 0}
    for _ in KerasSequenceLoader(files[:1], 16_384, ["label"], buffer_size=2e6, **options):
        pass
    loader = KerasSequenceLoader(
        files, 16_384, ["label"], buffer_size=float(buffer_size), **options
    )
    before = anonymous_bytes()
    peak = Peak()
    peak.start()
    for _ in loader:
        pass
    print((peak.stop() - before) / float(buffer_size))


if __name__ == "__main__":
    main()
