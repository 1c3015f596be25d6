"""A damaged parquet file is refused by its name, or all of its rows are read.

A file of ours is read with its own values or not at all, a file of another writer, which has no
checksums, with as many rows as it had.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from damages import damaged
from hypothesis import strategies as st

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError, ops

ROWS = 600


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "user": random.zipf(1.4, ROWS) % 5000,
            "price": random.normal(size=ROWS),
            "city": [f"c{n % 37}" for n in range(ROWS)],
            "tags": [[n % 7] * (n % 3) for n in range(ROWS)],
            "label": np.arange(ROWS) % 2,
        }
    )


@pytest.fixture(scope="module", params=["ours", "of another writer"])
def file(request, rows, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    if request.param == "ours":
        same = rows.columns >> ops.LambdaOp(lambda column: column)
        (path,) = Workflow(same).fit(rows).transform_to_parquet(rows, folder / "out")
        return path
    rows.write_parquet(folder / "foreign.parquet", row_group_size=200)
    return folder / "foreign.parquet"


def make() -> Workflow:
    ids = ["user", "city", "tags"] >> ops.Categorify()
    return Workflow(ids + (["price"] >> ops.Normalize()) + "label")


def batches(file: Path) -> list[Any]:
    loader = KerasSequenceLoader(
        str(file), 100, ["label"], cat_names=["user", "city", "tags"], cont_names=["price"],
        shuffle=False, device="cpu",
    )  # fmt: skip
    return [
        [half.numpy().tolist() for half in (x["user"], x["price"], x["city"], *x["tags"], y)]
        for x, y in loader
    ]


def test_damaged_bytes_of_parquet(explore, file, tmp_path):
    bad, out = tmp_path / "bad.parquet", tmp_path / "out"
    fitted = make().fit(file)
    # What is read, and its number of rows.
    reads: dict[str, Callable[[Path], tuple[Any, int]]] = {
        "fit": lambda path: (make().fit(path).transform(file).collect().rows(), ROWS),
        "transform": lambda path: counted(fitted.transform(path).collect()),
        "write": lambda path: counted(pl.read_parquet(fitted.transform_to_parquet(path, out))),
        "load": lambda path: (read := batches(path), sum(len(batch[-1]) for batch in read)),
    }
    ours = file.name != "foreign.parquet"
    if not ours:
        # Its pages are read in the user's own `collect`, where Polars' errors are theirs to see.
        del reads["transform"]
    good = {}
    for name, read in reads.items():
        good[name] = read(file)[0]
        shutil.rmtree(out, ignore_errors=True)
    raw = file.read_bytes()

    def check_parquet(data: st.DataObject) -> str:
        bad.write_bytes(damaged(data.draw, raw))
        name = data.draw(st.sampled_from(sorted(reads)))
        try:
            read, count = reads[name](bad)
        except (WorkflowError, LoaderError) as refusal:
            text = str(refusal)
        else:
            text = ""
        finally:
            shutil.rmtree(out, ignore_errors=True)
        if text:
            assert str(bad) in text or not ours
            return f"{name} refused"
        assert count == ROWS
        assert read == good[name] or not ours
        return f"{name} read"

    explore(check_parquet, cases=10, outcomes=["fit refused", "write refused", "load refused"])


def counted(frame: pl.DataFrame) -> tuple[Any, int]:
    return frame.rows(), frame.height
