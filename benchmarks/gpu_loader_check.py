"""Whether the loader on an NVIDIA GPU gives what it does on the CPU, and gives memory back.

    python -m benchmarks.gpu_loader_check [--rows 40000000] [--folder /tmp/gpu_loader]
        [--only memory,values,threads,errors,skip,damage,leaks]

Every value of the GPU's batches against the CPU loader's: nulls, lists, padding, sparse tensors,
shuffling, resuming, mapping. Then errors, and what is damaged: named, replaced, or not noticed.
Then the GPU memory that an epoch takes against the buffer that was asked for, and what is left of
it after many epochs that were begun and dropped. About 90 seconds on an H200.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

from benchmarks.gpu_loader_damage import check_errors, check_skip
from benchmarks.gpu_loader_data import FOLDER, make_data
from benchmarks.gpu_loader_fuzz import check_damage
from benchmarks.gpu_loader_memory import check_leaks, check_memory
from benchmarks.gpu_loader_values import SETTINGS, check_threads, check_values, make_frame


def main() -> None:
    """Run, and print what was found; an assertion fails where the GPU differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="memory,values,threads,errors,skip,damage,leaks")
    parser.add_argument(
        "--seconds", type=float, default=20, help="for what is tried again and again"
    )
    parser.add_argument("--device", default="gpu:0", help='"cpu" tries the script itself')
    arguments = parser.parse_args()
    device, folder = arguments.device, arguments.folder / "check"
    frame = make_frame()

    def place(name: str) -> Path:
        (folder / name).mkdir(parents=True, exist_ok=True)
        return folder / name

    def files() -> list[Path]:
        return make_data(arguments.folder, arguments.rows, lists=False)

    parts: dict[str, Callable[[], None]] = {
        # The memory first: pools keep what they have.
        "memory": lambda: check_memory(files()),
        "values": lambda: check_values(place("values"), frame, device),
        "threads": lambda: check_threads(place("threads"), frame, device, arguments.seconds),
        "errors": lambda: check_errors(place("errors"), frame, device, SETTINGS),
        "skip": lambda: check_skip(place("skip"), frame, device, SETTINGS),
        "damage": lambda: check_damage(place("damage"), device, arguments.seconds),
        "leaks": lambda: check_leaks(files()),
    }
    for name in arguments.only.split(","):
        start = time.perf_counter()
        parts[name]()
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
