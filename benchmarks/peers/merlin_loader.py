"""Merlin dataloader 23.08 over Criteo-like parquet, in the environment `.venv-nvtabular`.

    echo '{"batch_size": 65536, "shuffle": true, "totals": true}' |
        .venv-nvtabular/bin/python benchmarks/peers/merlin_loader.py FILE...

Reads one epoch for each line of its input and answers with a line of JSON: rows, and where totals
are asked for the sum of all ids and labels, and that of the first float column. In between it
waits for input and uses no processor. Every column but "label" is a feature; every batch is taken
and its label's length kept, as a training step would hold on to it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import dask  # noqa: E402 - Merlin's warnings are not the subject
import numpy as np  # noqa: E402
from merlin.dataloader.tensorflow import Loader  # noqa: E402
from merlin.io import Dataset  # noqa: E402
from merlin.schema import Tags  # noqa: E402


@functools.cache
def make_loader(files: tuple[str, ...], batch_size: int, shuffle: bool) -> Any:
    """Merlin's loader, made once for each setting."""
    data = Dataset(list(files), engine="parquet", part_size="128MB", cpu=True)
    data.schema["label"] = data.schema["label"].with_tags([Tags.TARGET])
    return Loader(data, batch_size=batch_size, shuffle=shuffle, device="cpu")


def read(loader: Any) -> dict[str, float]:
    """An epoch, doing nothing with the batches."""
    rows = 0
    for _, label in loader:
        rows += int(label.shape[0])
    return {"rows": rows}


def add_up(loader: Any) -> dict[str, float]:
    """An epoch, and what it held."""
    rows = ids = 0
    floats = 0.0
    for x, label in loader:
        columns = {name: np.asarray(tensor) for name, tensor in x.items()} | {"": np.asarray(label)}
        rows += len(label)
        ids += sum(
            int(column.sum(dtype=np.int64)) for name, column in columns.items() if name[:1] != "I"
        )
        floats += float(columns["I1"].sum(dtype=np.float64))
    return {"rows": rows, "ids": ids, "floats": round(floats, 2)}


def main() -> None:
    """Answer until the input ends."""
    dask.config.set(scheduler="synchronous")
    for line in sys.stdin:
        asked = json.loads(line)
        loader = make_loader(tuple(sys.argv[1:]), asked["batch_size"], asked["shuffle"])
        print(json.dumps((add_up if asked["totals"] else read)(loader)), flush=True)


if __name__ == "__main__":
    main()
