"""What a loader makes of random damage to the pages of one row group.

    python -m benchmarks.gpu_loader_fuzz FOLDER DEVICE FIRST END

tries damage number FIRST and those that follow until the time END, in seconds since 1970, and
prints a line of JSON for each. It ends earlier with the GPU: a decoder that reads outside of
memory takes the process's CUDA context with it. So `check_damage` runs it in a process of its own,
again and again.
"""

from __future__ import annotations

import concurrent.futures
import faulthandler
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from loader import KerasSequenceLoader, LoaderError, configure_tensorflow

CODECS: tuple[Literal["snappy", "zstd", "uncompressed"], ...] = ("snappy", "zstd", "uncompressed")
GROUP = 2_000
COLUMNS: dict[str, Any] = {"label_names": ["label"], "cat_names": ["id", "long"]}
BEGIN = 10  # seconds that a process takes to begin
HUNG = 8  # seconds after its end
TIMEOUT = 3.0  # seconds after which a GPU at work counts as hanging
LOST = "lost the GPU, and told"
HANG = "hang told"
# What a user can live with. A decoder cannot notice all damage: a value may just be another one.
GOOD = (
    "no difference",
    "other values in the row group",
    "error with its place",
    "replaced",
    LOST,
    HANG,
)


def check_damage(folder: Path, device: str, seconds: float) -> None:
    """Try each codec, all at once, for so long with the time that processes take to begin.

    Raises:
        AssertionError: at an outcome that is not one of `GOOD`.
    """
    rows = np.arange(3 * GROUP)
    random = np.random.default_rng(2)
    part = pl.DataFrame(
        {
            "id": (random.zipf(1.2, len(rows)) % 10_000).astype(np.int32),
            "long": 1_700_000_000_000 + rows // 3 * 1_000,  # as times
            "label": random.integers(0, 2, len(rows)).astype(np.int32),
        }
    )
    places = [folder / codec for codec in CODECS]
    for codec, place in zip(CODECS, places, strict=True):
        place.mkdir(exist_ok=True)
        part.write_parquet(place / "good.parquet", compression=codec, row_group_size=GROUP)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        tried = list(pool.map(lambda place: _try_all(place, device, seconds), places))
    for codec, found in zip(CODECS, tried, strict=True):
        counts = "; ".join(f"{outcome}: {n}" for outcome, n in sorted(found.items()))
        print(f"damage: {codec}, {device}: {counts}", flush=True)
    wrong = [what for found in tried for what in found if not what.endswith(GOOD)]
    assert not wrong, wrong  # noqa: S101


def _try_all(folder: Path, device: str, seconds: float) -> Counter[str]:
    """Outcomes of as many tries as there is time for, with a new process when one has ended."""
    found: Counter[str] = Counter()
    end, number = time.time() + seconds, 0
    while (left := end - time.time()) > (BEGIN if number else 0):
        program = [sys.executable, "-m", "benchmarks.gpu_loader_fuzz"]
        printed, ended = _run([*program, str(folder), device, str(number), str(end)], left + HUNG)
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
        found.update(f"{mode}: {outcome}" for mode, outcome in lines)
        number += len(lines)
        print(f"  {folder.name}: {number} tried, the last: {(lines or [ended])[-1]}", flush=True)
        if ended:
            found[f"number {number} {ended}"] += 1
            number += 1
    return found


def _run(program: list[str], limit: float) -> tuple[str, str]:
    """What a program printed, and how it ended if it did not end well."""
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, errors = process.communicate()
            return printed, f"hung: {errors[-1500:]}"
    code = process.returncode
    return printed, f"ended by {code}: {errors[-300:]}" if code else ""


def try_damage(folder: Path, device: str, first: int, end: float) -> None:
    """Damage the second row group's pages, again and again, and print what came of it."""
    good = folder / "good.parquet"
    tried = folder / f"tried-{device.replace(':', '')}.parquet"
    expected = _read(good, device, "raise")
    number = first
    outcome = ""
    while time.time() < end and outcome not in (LOST, HANG):
        mode = ("raise", "skip")[number % 2]
        tried.write_bytes(_damaged(good, number))
        outcome = _outcome(tried, device, mode, expected)
        told = _outcome_when_lost(good, device) if outcome == LOST else outcome
        print(json.dumps([mode, told]), flush=True)
        number += 1
    if outcome != HANG:  # after which a process has to end as usual
        os._exit(0)  # TensorFlow's own end would fail without its GPU, and tell nothing


def _damaged(file: Path, number: int) -> bytes:
    """A file's bytes with a bit flipped, or 64 bytes zeroed, in its second row group."""
    data, random = bytearray(file.read_bytes()), np.random.default_rng(number)
    start, stop = extent(file, 1)
    place = int(random.integers(start, stop - 64))
    if random.integers(2):
        data[place] ^= 1 << int(random.integers(8))
    else:
        data[place : place + 64] = bytes(64)
    return bytes(data)


def extent(file: Path, row_group: int) -> tuple[int, int]:
    """Where the pages of a row group begin and end in its file."""
    group = pq.read_metadata(file).row_group(row_group)
    chunks = [group.column(number) for number in range(group.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    ends = [
        start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)
    ]
    return min(starts), max(ends)


def _outcome(file: Path, device: str, mode: str, expected: Any) -> str:
    try:
        found = _read(file, device, mode)
    except LoaderError as error:
        return _told(str(error), file, mode)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return f"WRONG error: {type(error).__name__}: {error}"[:300]
    if np.array_equal(found, expected):
        return "no difference"
    first, _, last = np.split(expected, 3)
    if mode == "skip" and np.array_equal(found, np.concatenate([first, last, last])):
        return "replaced"
    others_same = len(found) == len(expected) and all(
        np.array_equal(found[part], expected[part])
        for part in (slice(GROUP), slice(2 * GROUP, None))
    )
    return "other values in the row group" if others_same else "WRONG rows of other row groups"


def _told(error: str, file: Path, mode: str) -> str:
    if f"{file}, row group" in error and "does not finish" in error:
        return HANG
    if f"{file}, row group" in error and "only in a new process" in error:
        return LOST
    named = mode == "raise" and f"{file}, row group 1" in error
    return "error with its place" if named else f"WRONG error: {error}"[:300]


def _outcome_when_lost(good: Path, device: str) -> str:
    """The next loader in the same process has to tell it as well."""
    try:
        _read(good, device, "raise")
    except LoaderError as error:
        return LOST if "only in a new process" in str(error) else f"WRONG after it: {error}"[:300]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return f"WRONG after it: {type(error).__name__}: {error}"[:300]
    return "WRONG: it said that the GPU was lost, and it was not"


def _read(file: Path, device: str, on_bad_files: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loader = KerasSequenceLoader(
            file,
            3 * GROUP,
            device=device,
            shuffle=False,
            on_bad_files=on_bad_files,
            decode_timeout=TIMEOUT,
            **COLUMNS,
        )
        ((x, y),) = loader
    return np.concatenate([x["id"].numpy(), x["long"].numpy(), y.numpy()], axis=1, dtype=np.int64)


if __name__ == "__main__":
    folder, device, first, end = sys.argv[1:]
    faulthandler.dump_traceback_later(max(float(end) - time.time(), 0) + HUNG / 2)
    configure_tensorflow(2_000)  # MB: several processes share the GPU
    try_damage(Path(folder), device, int(first), float(end))
