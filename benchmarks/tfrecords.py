"""Conversion of TFRecord to parquet, beside decoding alone, in one run.

    python -m benchmarks.tfrecords [--rows 200000] [--rounds 5] [--folder build/benchmarks]

The records are Criteo-like, `tf.train.Example`s of 40 features, some 600 bytes each. "Read" is
TensorFlow reading the file, "decode" the same with `tf.io.parse_example` and a feature of one value for
each column, which is the floor of any conversion by TensorFlow. A file of 20,000 records is read as often as needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks import data
from benchmarks.data import CATS, CONTS
from benchmarks.feeds import make_tfrecord
from benchmarks.measure import Contestant, options, race, show, timed
from loader import convert_tfrecords_to_parquet

FEATURES = {name: tf.io.FixedLenFeature([], tf.float32) for name in CONTS}
FEATURES |= {name: tf.io.FixedLenFeature([], tf.int64) for name in [*CATS, "label"]}


def read(records: list[str]) -> int:
    """Read all records, and count them."""
    return sum(len(batch) for batch in tf.data.TFRecordDataset(records).batch(8192))


def decode(records: list[str]) -> int:
    """Parse all records, and count them."""
    batches = tf.data.TFRecordDataset(records).batch(8192).prefetch(1)
    return sum(len(tf.io.parse_example(batch, FEATURES)["label"]) for batch in batches)


def convert(records: list[str], features: Any = None) -> int:
    """Convert all records, and count the rows in the footers."""
    with tempfile.TemporaryDirectory(dir=Path(records[0]).parent) as folder:
        files = convert_tfrecords_to_parquet(records, f"{folder}/parquet", features)
        return sum(pq.read_metadata(file).num_rows for file in files)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parsed = options(__doc__, files=True, rows=200_000, rounds=5).parse_args(arguments)
    sample, few = make_tfrecord(parsed.folder, data.clicks(parsed.folder, parsed.rows))
    records = [str(sample)] * max(parsed.rows // few, 1)
    rows = few * len(records)
    works: dict[str, Callable[[], int]] = {
        "decode": partial(decode, records),
        "read": partial(read, records),
        "convert": partial(convert, records),
        "convert, features described": partial(convert, records, FEATURES),
    }
    racers = [Contestant(name, partial(timed, work), rows) for name, work in works.items()]
    race(racers, parsed.rounds)
    table = [
        {
            "": racer.name,
            "rows/s": int(racer.rate),
            "of decoding": racer.against(racers[0]),
            "by processor time": racer.against(racers[0], "processor"),
        }
        for racer in racers
    ]
    show(f"{rows:,} records, median of {parsed.rounds} rounds", table)


if __name__ == "__main__":
    main()
