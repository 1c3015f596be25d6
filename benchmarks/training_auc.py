"""Whether a model learns the same from our loader as from TensorFlow's: AUC and loss as they grow.

The rows are Criteo-like, with a label that can be learnt. TensorFlow has them in memory, which no
shuffling of files can better; ours reads them from parquet. Each contestant trains the same model
from the same start, in the files' order and shuffled. AUC is exact (by ranks, not by thresholds),
on rows that none of them trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks.loader_data import CATS, CONTS
from loader import KerasSequenceLoader
from training import models, train
from training.chart import line_chart

BATCH = 4096
EVALUATIONS = 8
CARDINALITIES = np.geomspace(10, 100_000, len(CATS)).astype(int)
Columns = Mapping[str, Any]


@dataclass
class Curve:
    """AUC on unseen rows, and the mean loss since the point before, after some rows each."""

    auc: list[tuple[float, float]] = field(default_factory=list)
    loss: list[tuple[float, float]] = field(default_factory=list)


def make_rows(count: int, seed: int) -> pl.DataFrame:
    """Rows whose label depends on the numbers and, more, on what each id is like."""
    effects = np.random.default_rng(0)
    random = np.random.default_rng([1, seed])
    columns = {name: random.standard_normal(count, np.float32) for name in CONTS}
    score = sum(effects.normal(0, 0.25) * columns[name] for name in CONTS) - 1.5
    for name, size in zip(CATS, CARDINALITIES, strict=True):
        ids = (random.pareto(1.0, count).astype(np.int64) % size).astype(np.int32)
        score = score + effects.normal(0, 0.3, size)[ids]
        columns[name] = ids
    columns["label"] = (random.random(count) < 1 / (1 + np.exp(-score))).astype(np.int32)
    return pl.DataFrame(columns)


def exact_auc(labels: Any, scores: Any) -> float:
    """The share of pairs of a positive and a negative row that are in the right order.

    Source: J. Hanley, B. McNeil, The meaning and use of the area under a ROC curve, 1982.

    Example:
        >>> exact_auc(np.array([0, 1, 1]), np.array([0.1, 0.9, 0.1]))
        0.75
    """
    ranks = pl.Series(scores).rank().to_numpy()
    positives = int(labels.sum())
    excess = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(excess / (positives * (len(labels) - positives)))


class Examiner(keras.callbacks.Callback):
    """Measures a model on unseen rows a few times within training."""

    def __init__(self, unseen: pl.DataFrame, steps: int) -> None:
        super().__init__()
        self.curve = Curve()
        self._labels = unseen["label"].to_numpy()
        x = {name: unseen[name].to_numpy()[:, None] for name in [*CONTS, *CATS]}
        self._data = tf.data.Dataset.from_tensor_slices((x,)).batch(32_768)
        self._every = max(1, steps // EVALUATIONS)
        self._total = self._steps = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Adds a point to the curves."""
        if (batch + 1) % self._every:
            return
        total = logs["loss"] * (batch + 1)
        rows = (batch + 1) * BATCH
        self.curve.loss.append((rows, (total - self._total) / (batch + 1 - self._steps)))
        self._total, self._steps = total, batch + 1
        scores = self.model.predict(self._data, verbose=0)[:, 0]
        self.curve.auc.append((rows, exact_auc(self._labels, scores)))


def contestants(
    folder: Path, columns: Columns, count: int
) -> dict[str, tuple[Callable[[], Any], str]]:
    """Name -> what makes the data, and the precision of the dense layers."""
    memory = {name: tf.constant(column[:, None]) for name, column in columns.items()}

    def take(rows: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        x = {name: tf.gather(column, rows) for name, column in memory.items()}
        return x, x.pop("label")

    def native(*, shuffle: bool) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(count)
        rows = rows.shuffle(count, seed=1) if shuffle else rows
        return rows.batch(BATCH).map(take).prefetch(2)

    def ours(*, shuffle: bool) -> KerasSequenceLoader:
        return KerasSequenceLoader(
            folder, BATCH, ["label"], cat_names=CATS, cont_names=CONTS, shuffle=shuffle, seed=1,
            parts_per_chunk=4,
        )  # fmt: skip

    return {
        "tf.data, in order": (lambda: native(shuffle=False), "float32"),
        "ours, in order": (lambda: ours(shuffle=False), "float32"),
        "ours, in order, bfloat16": (lambda: ours(shuffle=False), "bfloat16"),
        "tf.data, shuffled": (lambda: native(shuffle=True), "float32"),
        "ours, shuffled": (lambda: ours(shuffle=True), "float32"),
    }


def learn(data: Any, unseen: pl.DataFrame, steps: int, **options: Any) -> Curve:
    """Trains the model from its fixed start; how it went."""
    keras.utils.set_random_seed(3)
    sizes = {name: (int(size), 16) for name, size in zip(CATS, CARDINALITIES, strict=True)}
    model = models.mlp(sizes, CONTS, hidden=(128, 64))
    examiner = Examiner(unseen, steps)
    train(model, data, metrics=(), callbacks=[examiner], **options)
    return examiner.curve


def compare(folder: Path, rows: int, pictures: Path | None) -> None:
    """Prints the last AUC of each, and draws the curves if wanted.

    Args:
        folder: for the parquet files.
        rows: to train on.
        pictures: a folder for `training-auc.svg` and `training-loss.svg`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    frame = make_rows(rows, seed=0)
    frame.write_parquet(folder / f"auc_{rows}.parquet", row_group_size=max(BATCH, rows // 16))
    unseen, steps = make_rows(max(1000, rows // 20), seed=1), rows // BATCH
    data = contestants(
        folder / f"auc_{rows}.parquet",
        {name: frame[name].to_numpy() for name in frame.columns},
        rows,
    )
    print(f"\nAUC on {len(unseen):,} unseen rows after {rows:,}, batch {BATCH:,}, Adam")
    curves: dict[str, Curve] = {}
    for name, (make, precision) in data.items():
        curves[name] = learn(make(), unseen, steps, optimizer="adam", precision=precision)
        first = next(iter(curves.values())).auc[-1][1]
        auc, loss = curves[name].auc[-1][1], curves[name].loss[-1][1]
        print(f"{name:<34} AUC {auc:.5f} ({auc - first:+.5f})   loss {loss:.5f}")
    if pictures is not None:
        draw(curves, pictures)


def draw(curves: Mapping[str, Curve], folder: Path) -> None:
    """Writes the two charts."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, title in (("auc", "AUC on unseen rows"), ("loss", "Loss in training")):
        points = {name: getattr(curve, what) for name, curve in curves.items()}
        chart = line_chart(points, title, "rows trained on", what.replace("auc", "AUC"))
        (folder / f"training-{what}.svg").write_text(chart)
