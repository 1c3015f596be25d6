"""What the loader does with damaged files: told, replaced, or not noticed.

    python -m benchmarks.gpu_loader_damage FOLDER DEVICE SECONDS

tries random damage to the pages of one row group, and tells how often it was an error, other
values or nothing. It runs in a process of its own: a decoder may end it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from loader import KerasSequenceLoader, LoaderError

SECONDS = 4  # for each codec
GROUP = 2_000
COLUMNS: dict[str, Any] = {"label_names": ["label"], "cat_names": ["id", "long"]}


def check_errors(folder: Path, frame: pl.DataFrame, device: Any, settings: dict[str, Any]) -> None:
    """Nulls, files cut short or gone, and rows too long are named; or replaced, with "skip"."""
    bad = folder / "bad"
    bad.mkdir(exist_ok=True)
    file = bad / "a.parquet"
    rows = pl.int_range(pl.len())
    with_nulls = frame[:20_000].with_columns(
        pl.when(rows != 15_000).then("id"), pl.when(rows != 15_001).then("flag")
    )

    def read(**more: Any) -> list[Any]:
        given = {"device": device, "shuffle": False} | settings | more
        return [x["id"].numpy() for x, _ in KerasSequenceLoader(bad, 1000, **given)]

    def write(part: pl.DataFrame) -> None:
        part.write_parquet(file, row_group_size=7_000)

    write(with_nulls)
    _expect(["'id' (int32), 'flag' (bool)", "row group 2"], read)
    _expect_skipped(frame, lambda: read(on_bad_files="skip"))
    write(frame[:20_000])
    _expect(["at most 2", "row group 0"], lambda: read(sparse_max={"tags": 2}))
    loader = KerasSequenceLoader(bad, 1000, device=device, shuffle=False, **settings)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    _expect(["a.parquet, row group 0"], lambda: list(loader))
    file.unlink()
    _expect(["a.parquet, row group 0"], lambda: list(loader))
    _break_pages(file, whole, 2)
    _expect(["a.parquet, row group 2", "damaged"], read)
    _expect_skipped(frame, lambda: read(on_bad_files="skip"))
    file.unlink()


def _break_pages(file: Path, data: bytes, row_group: int) -> None:
    """Write the file with the pages of a row group overwritten."""
    file.write_bytes(data)
    broken = bytearray(data)
    start, stop = _extent(file, row_group)
    broken[start:stop] = b"\xff" * (stop - start)
    file.write_bytes(broken)


def _extent(file: Path, row_group: int) -> tuple[int, int]:
    """Where the pages of a row group begin and end in its file."""
    group = pq.read_metadata(file).row_group(row_group)
    chunks = [group.column(number) for number in range(group.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    ends = [
        start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)
    ]
    return min(starts), max(ends)


def _expect(texts: list[str], function: Callable[[], Any]) -> None:
    try:
        function()
    except LoaderError as error:
        if not all(text in str(error) for text in texts):
            raise
        print(f"  {type(error).__name__}: {str(error)[:180]}", flush=True)
    else:
        raise AssertionError(f"No error with {texts}.")


def _expect_skipped(frame: pl.DataFrame, read: Callable[[], list[Any]]) -> None:
    """Row group 2, of 6,000 rows, is replaced with the first rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ids = np.concatenate(read())[:, 0]
    expected = np.concatenate([frame["id"][:14_000], frame["id"][:6_000]])
    np.testing.assert_array_equal(ids, expected)
    told = [str(each.message) for each in caught if "could not be read" in str(each.message)]
    assert len(told) == 1, told  # noqa: S101
    print(f"  skipped: {told[0][:140]}", flush=True)


def check_damage(folder: Path, device: str) -> None:
    """Random damage with each codec."""
    rows = np.arange(3 * GROUP)
    random = np.random.default_rng(2)
    part = pl.DataFrame(
        {
            "id": (random.zipf(1.2, len(rows)) % 10_000).astype(np.int32),
            "long": 1_700_000_000_000 + rows // 3 * 1_000,  # as times
            "label": random.integers(0, 2, len(rows)).astype(np.int32),
        }
    )
    for codec in ("snappy", "zstd", "uncompressed"):
        place = folder / codec
        place.mkdir(exist_ok=True)
        part.write_parquet(place / "good.parquet", compression=codec, row_group_size=GROUP)
        program = [sys.executable, "-m", "benchmarks.gpu_loader_damage"]
        done = subprocess.run(
            [*program, str(place), device, str(SECONDS)],
            capture_output=True,
            text=True,
            timeout=SECONDS + 60,
            check=False,
        )
        found = (done.stdout.splitlines() or ["nothing"])[-1]
        end = "" if done.returncode == 0 else f"; ended by {done.returncode} {done.stderr[-200:]}"
        print(f"damage: {codec}, {device}: {found}{end}", flush=True)


def try_damage(folder: Path, device: str, seconds: float) -> None:
    """Flip a bit, or zero 64 bytes, of the second row group's pages, again and again."""
    good = (folder / "good.parquet").read_bytes()
    start, stop = _extent(folder / "good.parquet", 1)
    tried = folder / f"tried-{device.replace(':', '')}"
    tried.mkdir(exist_ok=True)
    expected = _read(folder / "good.parquet", device)
    random = np.random.default_rng(0)
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data, kind = bytearray(good), ("bit", "64 bytes")[int(random.integers(2))]
        place = int(random.integers(start, stop - 64))
        if kind == "bit":
            data[place] ^= 1 << int(random.integers(8))
        else:
            data[place : place + 64] = bytes(64)
        (tried / "bad.parquet").write_bytes(data)
        try:
            same = np.array_equal(_read(tried / "bad.parquet", device), expected)
            outcome = "no difference" if same else "other values"
        except LoaderError as error:
            outcome = "error" if "row group 1" in str(error) else f"wrong error: {error}"[:200]
        found[f"{kind}: {outcome}"] += 1
        print(json.dumps(dict(sorted(found.items()))), flush=True)


def _read(file: Path, device: str) -> Any:
    loader = KerasSequenceLoader(file, 3 * GROUP, device=device, shuffle=False, **COLUMNS)
    ((x, y),) = loader
    return np.concatenate([x["id"].numpy(), x["long"].numpy(), y.numpy()], dtype=np.int64)


if __name__ == "__main__":
    folder, device, seconds = sys.argv[1:]
    try_damage(Path(folder), device, float(seconds))
