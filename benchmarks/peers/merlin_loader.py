"""Merlin dataloader 23.08 over Criteo-like parquet, in the environment `.venv-nvtabular`.

    .venv-nvtabular/bin/python benchmarks/peers/merlin_loader.py [--epochs 2] FILE...

Prints one JSON object a line: batch_size, shuffle, rows, rows_per_second (the median epoch; the
first one is not counted). Every column but "label" is a feature; every batch is taken and its
label's sum kept, as a training step would hold on to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from typing import Any

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import dask  # noqa: E402 - Merlin's warnings are not the subject
from merlin.dataloader.tensorflow import Loader  # noqa: E402
from merlin.io import Dataset  # noqa: E402
from merlin.schema import Tags  # noqa: E402


def epoch(loader: Any) -> tuple[int, float]:
    """The rows of one epoch and its seconds."""
    rows, start = 0, time.perf_counter()
    for _, label in loader:
        rows += int(label.shape[0])
    return rows, time.perf_counter() - start


def main() -> None:
    """Measure each batch size, in order and shuffled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    dask.config.set(scheduler="synchronous")
    for batch_size in (65_536, 16_384):
        for shuffle in (False, True):
            data = Dataset(options.files, engine="parquet", part_size="128MB", cpu=True)
            data.schema["label"] = data.schema["label"].with_tags([Tags.TARGET])
            loader = Loader(data, batch_size=batch_size, shuffle=shuffle, device="cpu")
            made = [epoch(loader) for _ in range(options.epochs + 1)][1:]
            rows = made[0][0]
            speed = statistics.median(count / seconds for count, seconds in made)
            result = {"batch_size": batch_size, "shuffle": shuffle, "rows": rows}
            print(json.dumps(result | {"rows_per_second": round(speed)}), flush=True)


if __name__ == "__main__":
    main()
