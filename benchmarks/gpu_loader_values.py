"""Every value of a GPU's batches against the CPU loader's, in every way to read them."""

from __future__ import annotations

import functools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint

SETTINGS: dict[str, Any] = {
    "label_names": ["label"],
    "cat_names": ["id", "long", "genres", "tags", "byte", "flag"],
    "cont_names": ["price", "exact"],
    "sparse_names": ["tags"],
    "sparse_max": {"tags": 5},
    "sparse_as_dense": True,
}
ROWS = 100_003


def make_frame() -> pl.DataFrame:
    """Columns of every kind that the GPU path carries."""
    random = np.random.default_rng(1)
    columns: dict[str, Any] = {
        "byte": random.integers(-128, 128, ROWS).astype(np.int8),
        "id": random.integers(-(2**31), 2**31, ROWS).astype(np.int32),
        "long": random.integers(-(2**63), 2**63 - 1, ROWS),
        "price": pl.Series(random.standard_normal(ROWS).astype(np.float32)).set(
            pl.Series(random.random(ROWS) < 0.1), None
        ),
        "exact": random.standard_normal(ROWS),
        "flag": random.random(ROWS) < 0.5,
        "label": random.integers(0, 2, ROWS).astype(np.int32),
    }
    lengths = random.integers(0, 6, ROWS)
    for name, dtype in (("genres", pl.Int32), ("tags", pl.Int64)):
        flat = pl.Series(random.integers(0, 2**31 - 1, int(lengths.sum())), dtype=dtype)
        row = pl.Series(np.repeat(np.arange(ROWS), lengths))
        grouped = (
            pl.DataFrame({"row": row, name: flat}).group_by("row", maintain_order=True).agg(name)
        )
        full = pl.DataFrame({"row": np.arange(ROWS)}).join(
            grouped, on="row", how="left", maintain_order="left"
        )
        columns[name] = full[name]
    return pl.DataFrame(columns)


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


def check_values(folder: Path, frame: pl.DataFrame, gpu: Any) -> None:
    """Every value of the GPU's batches against the CPU's."""
    for number, part in enumerate((frame[:40_000], frame[40_000:])):
        part.write_parquet(folder / f"{number}.parquet", row_group_size=7_000)
    sparse = SETTINGS | {"sparse_as_dense": False}
    for batch_size, buffer_size, settings in (
        (4096, 0.05, SETTINGS),
        (4096, 2_000_000, SETTINGS),
        (1000, 0.05, sparse),
        (1000, 2_000_000, SETTINGS),
    ):
        pair = [
            KerasSequenceLoader(
                folder,
                batch_size,
                device=device,
                shuffle=False,
                buffer_size=buffer_size,
                **settings,
            )
            for device in (gpu, "cpu")
        ]
        for ours, expected in zip(*pair, strict=True):
            _same(ours, expected)
        for ours, expected in zip(_through_function(pair[0]), pair[1], strict=True):
            _same(ours, expected)
    total = checksum(KerasSequenceLoader(folder, 4096, device="cpu", shuffle=False, **SETTINGS))
    make = functools.partial(
        KerasSequenceLoader, folder, 4096, device=gpu, seed=3, parts_per_chunk=3, **SETTINGS
    )
    first = list(make())
    assert checksum(first) == total, (checksum(first), total)  # noqa: S101
    assert not np.array_equal(first[0][0]["id"].numpy()[:, 0], frame["id"][:4096].to_numpy())  # noqa: S101
    _same(first, list(make()))
    _check_workers(make, frame)
    _check_resume(make, first)
    _check_repeat(make, first)
    mapped = make().map(lambda x, y: (x, y, tf.cast(y, tf.float32) + 1))
    compiled = list(_through_function(mapped))
    _same(first, [(x, y) for x, y, _ in compiled])
    print(
        "values: every batch equals the CPU's; shuffle, workers, resume, repeat, map right",
        flush=True,
    )


def check_threads(folder: Path, frame: pl.DataFrame, gpu: Any, seconds: float) -> None:
    """Eager operations of the user's, with bounds and shapes, beside those of the loader.

    On a GPU TensorFlow mixes up such arguments of operations that several threads run at once.
    """
    frame.write_parquet(folder / "0.parquet", row_group_size=7_000)
    given: dict[str, Any] = {"device": gpu, "shuffle": False, **SETTINGS}
    batches = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = 0
        for x, _ in KerasSequenceLoader(folder, 1000, buffer_size=2_000_000, **given):
            ids, lengths = x["long"], x["genres"][1]
            expected = frame["long"][start : start + 1000].to_numpy()
            for n in range(1, 20):
                np.testing.assert_array_equal(ids[n : 2 * n, 0].numpy(), expected[n : 2 * n])
                np.testing.assert_array_equal(tf.reshape(ids[:n], [-1]).numpy(), expected[:n])
            found = frame["genres"][start : start + 1000].list.len().fill_null(0).to_numpy()
            np.testing.assert_array_equal(lengths.numpy()[:, 0], found)
            start += len(expected)
            batches += 1
        assert start == len(frame), start  # noqa: S101
    print(f"threads: {batches} batches with eager operations beside them, all right", flush=True)


def _check_workers(make: Callable[..., Any], frame: pl.DataFrame) -> None:
    ranks = [list(make(global_size=3, global_rank=rank)) for rank in range(3)]
    assert len({len(batches) for batches in ranks}) == 1  # noqa: S101
    seen = np.concatenate([x["long"].numpy()[:, 0] for batches in ranks for x, _ in batches])
    np.testing.assert_array_equal(np.unique(seen), np.unique(frame["long"].to_numpy()))
    assert len(seen) - len(frame) < 3  # noqa: S101


def _check_resume(make: Callable[..., Any], first: list[Any]) -> None:
    part = make()
    batches = iter(part)
    for _ in range(5):
        next(batches)
    state, after = part.get_state(), make()
    del batches
    after.set_state(state)
    _same(first[5:], list(after))


def _check_repeat(make: Callable[..., Any], first: list[Any]) -> None:
    batches = list(_through_function(make().repeat(2)))
    _same(first, batches[: len(first)])
    assert checksum(batches[len(first) :]) == checksum(first)  # noqa: S101
    loader = make()
    price = keras.Input((1,), name="exact")
    model = keras.Model({"exact": price}, keras.layers.Dense(1)(price))
    model.compile("sgd", "mse")
    data = loader.repeat().map(lambda x, y: ({"exact": tf.cast(x["exact"], tf.float32)}, y))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = LoaderCheckpoint(loader, folder)
        steps = len(first) // 2 + 1
        model.fit(
            data, steps_per_epoch=steps, epochs=3, callbacks=[checkpoint], verbose=0, shuffle=False
        )
        after = make()
        assert LoaderCheckpoint(after, folder).restore(model) == 3  # noqa: S101
    assert divmod(3 * steps, len(first)) == (  # noqa: S101
        after.get_state()["epoch"],
        after.get_state()["batch"],
    )


def _through_function(data: Any) -> Iterable[Any]:
    iterator = iter(data)

    @tf.function
    def step(iterator: Any) -> Any:
        return next(iterator)

    for _ in range(len(data)):
        yield step(iterator)


def _same(a: Any, b: Any) -> None:
    tf.nest.assert_same_structure(a, b, expand_composites=True)
    pairs = (tf.nest.flatten(each, expand_composites=True) for each in (a, b))
    for ours, expected in zip(*pairs, strict=True):
        assert ours.dtype == expected.dtype, (ours.dtype, expected.dtype)  # noqa: S101
        np.testing.assert_array_equal(ours.numpy(), expected.numpy())
