"""What the loader does with files that are damaged, gone or others: told, or replaced."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks.gpu_loader_fuzz import extent
from loader import KerasSequenceLoader, LoaderError

PART = 3_000  # rows of each of six files


def check_errors(folder: Path, frame: pl.DataFrame, device: Any, settings: dict[str, Any]) -> None:
    """Nulls, files cut short or gone, and rows too long are named; or replaced, with "skip"."""
    file = folder / "a.parquet"
    rows = pl.int_range(pl.len())
    with_nulls = frame[:20_000].with_columns(
        pl.when(rows != 15_000).then("id"), pl.when(rows != 15_001).then("flag")
    )

    def read(**more: Any) -> list[Any]:
        given = {"device": device, "shuffle": False} | settings | more
        return [x["id"].numpy() for x, _ in KerasSequenceLoader(file, 1000, **given)]

    def write(part: pl.DataFrame) -> None:
        part.write_parquet(file, row_group_size=7_000)

    write(with_nulls)
    _expect(["'id' (int32), 'flag' (bool)", "row group 2"], read)
    _expect_skipped(frame, lambda: read(on_bad_files="skip"))
    write(frame[:20_000])
    _expect(["at most 2", "row group 0"], lambda: read(sparse_max={"tags": 2}))
    loader = KerasSequenceLoader(file, 1000, device=device, shuffle=False, **settings)
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
    start, stop = extent(file, row_group)
    broken[start:stop] = b"\xff" * (stop - start)
    file.write_bytes(broken)


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


def check_skip(folder: Path, frame: pl.DataFrame, device: Any, settings: dict[str, Any]) -> None:
    """Six files, four of them unusable: the same rows as on the CPU, in several epochs."""
    for spoil_first, shuffle, dense in (
        (True, False, True),
        (False, False, False),
        (False, True, True),
    ):
        given = settings | {"shuffle": shuffle, "sparse_as_dense": dense}
        expected, found = (
            _epochs_of_spoilt(folder, frame, spoil_first, where, given) for where in ("cpu", device)
        )
        assert found == expected  # noqa: S101
        when = "before" if spoil_first else "after"
        print(f"  spoilt {when} opening, {shuffle=}, {dense=}: the CPU's rows", flush=True)
    count = len(tf.config.list_physical_devices("GPU"))
    _expect(
        [f"Received: 'gpu:{count}'"],
        lambda: KerasSequenceLoader(folder / "0.parquet", 64, device=f"gpu:{count}", **settings),
    )


def _epochs_of_spoilt(
    folder: Path, frame: pl.DataFrame, spoil_first: bool, device: Any, settings: dict[str, Any]
) -> list[tuple[int, Counter[bytes], int]]:
    """For each epoch its batches, its rows and the number of row groups that were replaced."""
    for number in range(6):
        part = frame[number * PART : (number + 1) * PART]
        part.write_parquet(folder / f"{number}.parquet", row_group_size=700)
    epochs = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if spoil_first:
            _spoil(folder)
        loader = KerasSequenceLoader(
            folder, 512, device=device, on_bad_files="skip", seed=5, **settings
        )
        (folder / "4.parquet").unlink()
        if not spoil_first:
            _spoil(folder)
        for _ in range(3):
            batches = list(loader)
            assert len(batches) == len(loader)  # noqa: S101
            told = [each for each in caught if "could not be read" in str(each.message)]
            epochs.append((len(batches), _rows_of(batches), len(told)))
    assert len(loader.skipped_files) == 4, loader.skipped_files  # noqa: S101
    return epochs


def _spoil(folder: Path) -> None:
    """One file cut short, one of other bytes, one with other columns."""
    data = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(data[: len(data) // 2])
    (folder / "2.parquet").write_bytes(bytes(len(data)))
    other = pl.read_parquet(folder / "3.parquet").drop("id").with_columns(flag=pl.lit(1.5))
    other.write_parquet(folder / "3.parquet")


def _rows_of(batches: Iterable[Any]) -> Counter[bytes]:
    """Each row's values, side by side, and how often it came."""
    rows: Counter[bytes] = Counter()
    for x, y in batches:
        parts = [_bytes_of(column) for column in [*x.values(), y]]
        rows.update(b"|".join(row) for row in zip(*parts, strict=True))
    return rows


def _bytes_of(column: Any) -> list[bytes]:
    if isinstance(column, tuple):
        values, lengths = (half.numpy()[:, 0] for half in column)
        return [part.tobytes() for part in np.split(values, np.cumsum(lengths)[:-1])]
    dense = tf.sparse.to_dense(column) if isinstance(column, tf.SparseTensor) else column
    return [row.tobytes() for row in np.nan_to_num(dense.numpy())]
