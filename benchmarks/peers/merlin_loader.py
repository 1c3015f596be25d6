"""Merlin's dataloader 23.08 over Criteo-like parquet, in the environment of `make bench-peers`.

    echo 65536 shuffled | .venv-nvtabular/bin/python benchmarks/peers/merlin_loader.py FILE...

Reads one epoch for each line of its input, and answers with the number of rows. In between it waits
for input and uses no processor. Every column but "label" is a feature.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import dask  # noqa: E402 - Merlin's warnings are not the subject
from merlin.dataloader.tensorflow import Loader  # noqa: E402
from merlin.io import Dataset  # noqa: E402
from merlin.schema import Tags  # noqa: E402


@functools.cache
def make_loader(batch_size: int, shuffle: bool) -> Any:
    """Merlin's loader, made once for each setting."""
    data = Dataset(sys.argv[1:], engine="parquet", part_size="128MB", cpu=True)
    data.schema["label"] = data.schema["label"].with_tags([Tags.TARGET])
    return Loader(data, batch_size=batch_size, shuffle=shuffle, device="cpu")


def main() -> None:
    """Answer until the input ends."""
    dask.config.set(scheduler="synchronous")
    for line in sys.stdin:
        size, order = line.split()
        batches = make_loader(int(size), order == "shuffled")
        print(sum(int(label.shape[0]) for _, label in batches), flush=True)


if __name__ == "__main__":
    main()
