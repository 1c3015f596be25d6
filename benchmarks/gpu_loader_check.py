"""Whether the loader on an NVIDIA GPU gives what it does on the CPU, and gives memory back.

    python -m benchmarks.gpu_loader_check [--rows 40000000] [--folder /tmp/gpu_loader]

Every value of the GPU's batches against the CPU loader's: nulls, lists, padding, shuffling,
resuming, mapping, errors. Then the GPU memory that an epoch takes against the buffer that was
asked for, and what is left of it after many epochs that were begun and dropped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks.gpu_loader import FOLDER, make_data, make_loader, python_epoch, wait
from loader import KerasSequenceLoader


def checksum(batches: Iterable[Any]) -> tuple[int, Counter[str]]:
    """Rows, and for each column the sum of its values: of integers modulo 2^64, of floats in 2^-40."""
    rows = 0
    sums: Counter[str] = Counter()
    for x, y in batches:
        rows += int(y.shape[0])
        for name, tensor in [*x.items(), ("label", y)]:
            for part in tensor if isinstance(tensor, tuple) else (tensor,):
                values = part.numpy()
                if values.dtype.kind == "f":
                    # In whole 2^-40: exact, so that the order of rows does not show.
                    whole = np.round(np.nan_to_num(values.astype(np.float64)) * 2.0**40)
                    sums[name] += sum(map(int, whole[:, 0]))
                else:
                    sums[name] = (sums[name] + int(values.sum(dtype=np.int64))) % 2**64
    return rows, sums


def check(folder: Path) -> None:
    """Every value of the GPU's batches against the CPU's, nulls, lists, padding, errors, resuming."""
    random = np.random.default_rng(1)
    rows = 100_003
    columns: dict[str, Any] = {
        "byte": random.integers(-128, 128, rows).astype(np.int8),
        "id": random.integers(-(2**31), 2**31, rows).astype(np.int32),
        "long": random.integers(-(2**63), 2**63 - 1, rows),
        "price": pl.Series(random.standard_normal(rows).astype(np.float32)).set(
            pl.Series(random.random(rows) < 0.1), None
        ),
        "exact": random.standard_normal(rows),
        "flag": random.random(rows) < 0.5,
        "label": random.integers(0, 2, rows).astype(np.int32),
    }
    lengths = random.integers(0, 6, rows)
    for name, dtype in (("genres", pl.Int32), ("tags", pl.Int64)):
        flat = pl.Series(random.integers(0, 2**31 - 1, int(lengths.sum())), dtype=dtype)
        row = pl.Series(np.repeat(np.arange(rows), lengths))
        grouped = (
            pl.DataFrame({"row": row, name: flat}).group_by("row", maintain_order=True).agg(name)
        )
        full = pl.DataFrame({"row": np.arange(rows)}).join(
            grouped, on="row", how="left", maintain_order="left"
        )
        columns[name] = full[name]
    frame = pl.DataFrame(columns)
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate((frame[:40_000], frame[40_000:])):
        part.write_parquet(folder / f"{number}.parquet", row_group_size=7_000)
    settings: dict[str, Any] = {
        "label_names": ["label"],
        "cat_names": ["id", "long", "genres", "tags", "byte", "flag"],
        "cont_names": ["price", "exact"],
        "sparse_names": ["tags"], "sparse_max": {"tags": 5}, "sparse_as_dense": True,
    }  # fmt: skip
    for batch_size in (4096, 1000):
        for buffer_size in (0.05, 2_000_000):
            pair = [
                KerasSequenceLoader(
                    folder,
                    batch_size,
                    device=device,
                    shuffle=False,
                    buffer_size=buffer_size,
                    **settings,
                )
                for device in (0, "cpu")
            ]
            for gpu, cpu in zip(*pair, strict=True):
                tf.nest.map_structure(_same, gpu, cpu)
    total = checksum(KerasSequenceLoader(folder, 4096, device="cpu", shuffle=False, **settings))
    shuffled: dict[str, Any] = {"device": 0, "seed": 3, "parts_per_chunk": 3, **settings}
    make = functools.partial(KerasSequenceLoader, folder, 4096, **shuffled)
    first = list(make())
    assert checksum(first) == total, (checksum(first), total)  # noqa: S101
    assert not np.array_equal(first[0][0]["id"].numpy()[:, 0], frame["id"][:4096].to_numpy())  # noqa: S101
    tf.nest.map_structure(_same, first, list(make()))
    ranks = [list(make(global_size=3, global_rank=rank)) for rank in range(3)]
    assert len({len(batches) for batches in ranks}) == 1  # noqa: S101
    seen = np.concatenate([x["long"].numpy()[:, 0] for batches in ranks for x, _ in batches])
    np.testing.assert_array_equal(np.unique(seen), np.unique(frame["long"].to_numpy()))
    assert len(seen) - rows < 3  # noqa: S101
    part = make()
    batches = iter(part)
    for _ in range(5):
        next(batches)
    state, after = part.get_state(), make()
    del batches
    after.set_state(state)
    tf.nest.map_structure(_same, first[5:], list(after))
    # In a compiled loop, and mapped.
    mapped = make().map(lambda x, y: (x, y, tf.cast(y, tf.float32) + 1))
    compiled = list(_through_function(mapped))
    tf.nest.map_structure(_same, first, [(x, y) for x, y, _ in compiled])
    _check_errors(folder, frame, settings)
    print("check: every batch equals the CPU's; shuffle, resume, map, errors right", flush=True)


def _through_function(data: Any) -> Iterable[Any]:
    iterator = iter(data)

    @tf.function
    def step(iterator: Any) -> Any:
        return next(iterator)

    for _ in range(len(data)):
        yield step(iterator)


def _same(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype, (a.dtype, b.dtype)  # noqa: S101
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def _check_errors(folder: Path, frame: pl.DataFrame, settings: dict[str, Any]) -> None:
    bad = folder / "bad"
    bad.mkdir(exist_ok=True)
    with_null = frame[:20_000].with_columns(
        pl.when(pl.int_range(pl.len()) != 15_000).then("id").alias("id")
    )
    with_null.write_parquet(bad / "a.parquet", row_group_size=7_000)
    _expect(
        "row group 2",
        lambda: list(KerasSequenceLoader(bad, 1000, device=0, shuffle=False, **settings)),
    )
    frame[:20_000].write_parquet(bad / "a.parquet", row_group_size=7_000)
    loader = KerasSequenceLoader(bad, 1000, device=0, shuffle=False, **settings)
    whole = (bad / "a.parquet").read_bytes()
    (bad / "a.parquet").write_bytes(whole[: len(whole) // 2])
    _expect("a.parquet", lambda: list(loader))
    (bad / "a.parquet").unlink()
    _expect("a.parquet", lambda: list(loader))


def _expect(text: str, function: Callable[[], Any]) -> None:
    try:
        function()
    except Exception as error:
        if text not in str(error):
            raise
        print(f"  {type(error).__name__}: {str(error)[:160]}", flush=True)
    else:
        raise AssertionError(f"No error with {text!r}.")


def check_leaks(files: list[Path]) -> None:
    """GPU memory after many loaders that were opened, read a little and dropped."""
    import rmm  # noqa: PLC0415 - only where there is a GPU

    free = []
    for number in range(40):
        for _ in make_loader(files, 65_536, buffer_size=2e9):
            break
        if number in (9, 39):
            free.append(rmm.mr.available_device_memory()[0])
    print(
        f"leak: GPU memory free after 10 and 40 abandoned epochs: {free[0] / 1e9:.2f}, {free[1] / 1e9:.2f} GB",
        flush=True,
    )


def check_memory(files: list[Path]) -> None:
    """The most GPU memory in use during an epoch, against the buffer that was asked for."""
    import rmm  # noqa: PLC0415 - only where there is a GPU

    wait(tf.zeros([1]) + 1)  # what TensorFlow takes by itself
    before = rmm.mr.available_device_memory()[0]
    decoded = pl.scan_parquet(files).select(pl.len()).collect().item() * 40 * 4
    for share in (20, 5):  # the smaller one first: pools keep what they have
        buffer = decoded / share
        data = make_loader(files, 65_536, buffer_size=buffer)
        least = before
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            epoch = pool.submit(python_epoch, data)
            while not epoch.done():
                least = min(least, rmm.mr.available_device_memory()[0])
                time.sleep(0.001)
        print(
            f"memory: buffer {buffer / 1e6:,.0f} MB, data {share} times as large: "
            f"at most {(before - least) / 1e6:,.0f} MB in use beyond those before the first epoch, "
            f"{(before - least) / buffer:.2f} of the buffer",
            flush=True,
        )


def main() -> None:
    """Run, and print what was found; an assertion fails where the GPU differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    files = make_data(arguments.folder, arguments.rows, lists=False)
    check_memory(files)
    check(arguments.folder / "check")
    check_leaks(files)


if __name__ == "__main__":
    main()
