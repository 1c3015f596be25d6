"""Click prediction on data of Criteo's shape: trained in 16 bits, interrupted, resumed and served.

    .venv/bin/python examples/criteo.py                  # generated data, under a minute
    .venv/bin/python examples/criteo.py --data criteo    # the real train.txt

13 counts with missing values and 26 columns of ids are the inputs of a DCN-v2. Its dense layers
train in bfloat16. The run is interrupted in its second epoch, and a second run resumes from the
checkpoint. The model is served as one ONNX graph, preprocessing included. The real file is in the archive
of the Display Advertising Challenge, which https://ailab.criteo.com/ressources/ offers: 45,840,617
impressions of a week in their order, of which the last tenth is unseen. (A day of the 1 TB click logs,
unpacked and named train.txt, has the same columns.) The exit code is 1 when the server's answers differ
from the offline pipeline's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl

from exporter import ServingOptions, export_tensorflow_ensemble
from loader import KerasSequenceLoader, LoaderCheckpoint
from serving import EnsembleClient, TritonServer, check_parity
from training import TrainingReport, models, optimizers, train
from workflow import Workflow, ops

COUNTS = [f"I{number}" for number in range(1, 14)]
IDS = [f"C{number}" for number in range(1, 27)]
CARDINALITIES = np.geomspace(10, 50_000, len(IDS)).astype(int)
ROWS, BATCH, EPOCHS = 160_000, 2048, 2


def make_clicks(rows: int, seed: int) -> pl.DataFrame:
    """Impressions, and a label for clicks that depends on every column a little."""
    truth, random = np.random.default_rng(0), np.random.default_rng([1, seed])
    score = np.full(rows, -1.5)
    columns: dict[str, Any] = {}
    for name in COUNTS:
        count = np.floor(random.lognormal(2, 1.5, rows))
        score += truth.normal(0, 0.2) * np.log1p(count)
        columns[name] = pl.Series(count).set(pl.Series(random.random(rows) < 0.1), None)
    for name, size in zip(IDS, CARDINALITIES, strict=True):
        ids = random.zipf(1.2, rows) % size
        score += truth.normal(0, 0.3, size)[ids]
        # Hashes spread over 32 bits, as in real logs.
        columns[name] = pl.Series(ids * 2_654_435_761 % 2**32).cast(pl.Int64)
    columns["label"] = (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int8)
    return pl.DataFrame(columns)


def read(file: Path) -> pl.LazyFrame:
    """The real impressions, lazily: lines of tabs without names, ids as eight hexadecimal digits."""
    kinds = {"label": pl.Int8, **dict.fromkeys(COUNTS, pl.Float64), **dict.fromkeys(IDS, pl.String)}
    lines = pl.scan_csv(file, separator="\t", has_header=False, schema=kinds)
    return lines.with_columns(pl.col(IDS).str.to_integer(base=16))


def write_raw(folder: Path, data: Path | None) -> int:
    """Write the impressions to learn from and later ones; returns the number of the first."""
    if data is None:
        make_clicks(ROWS, seed=0).write_parquet(folder / "clicks.parquet", row_group_size=5_000)
        make_clicks(ROWS // 10, seed=1).write_parquet(folder / "later.parquet")
        return ROWS
    clicks = read(data / "train.txt")
    count = int(clicks.select(pl.len()).collect().item())
    known = count - count // 10
    clicks.head(known).sink_parquet(folder / "clicks.parquet", row_group_size=500_000)
    clicks.slice(known).sink_parquet(folder / "later.parquet", row_group_size=500_000)
    return known


def make_workflow(least: int) -> Workflow:
    """Normalised counts, and a category for each id that occurs at least so many times."""
    filled = COUNTS >> ops.FillMissing(0.0) >> ops.Clip(0.0, None) >> ops.LogOp()
    ids = IDS >> ops.Categorify(freq_threshold=least, dtype="int32")
    return Workflow((filled >> ops.Normalize()) + ids + (["label"] >> ops.AddTags(["target"])))


class GiveUp(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """An interruption, as by a crash, an eviction or Ctrl-C.

    Args:
        step: the step after which it comes.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """End the run at its step."""
        if int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt


def fit(
    workflow: Workflow, folder: Path, batch: int, callbacks: list[keras.callbacks.Callback]
) -> tuple[keras.Model, TrainingReport]:
    """Run the training program: start, or resume from the checkpoint."""
    keras.utils.set_random_seed(0)
    # The rows of eight row groups are shuffled together.
    clicks = KerasSequenceLoader(folder / "train", batch, seed=0, parts_per_chunk=8)
    unseen = KerasSequenceLoader(folder / "unseen", batch, shuffle=False)
    model = models.dcn(
        workflow.output_schema, rank=16, hidden=(128, 64), max_embedding_dim=16, dropout=0.1
    )
    # The schedule, dropout and the order of rows resume at their positions.
    schedule = keras.optimizers.schedules.CosineDecay(0.005, EPOCHS * len(clicks))
    report = train(
        model,
        clicks,
        unseen,
        epochs=EPOCHS,
        optimizer=optimizers.Adam(schedule),
        precision="bfloat16",
        checkpoint=LoaderCheckpoint(clicks, folder / "checkpoint", save_freq=len(clicks) // 4),
        tensorboard=folder / "logs",
        callbacks=callbacks,
        verbose=True,
    )
    return model, report


def run(folder: Path, data: Path | None) -> bool:
    """Run all stages; return whether the server answered as the offline pipeline does."""
    rows = write_raw(folder, data)
    batch, least = (BATCH, 2) if rows < 10**6 else (16_384, 15)
    workflow = make_workflow(least).fit(folder / "clicks.parquet")
    for raw, name in (("clicks", "train"), ("later", "unseen")):
        workflow.transform_to_parquet(folder / f"{raw}.parquet", folder / name)
    try:
        fit(workflow, folder, batch, [GiveUp(rows * 3 // (2 * batch))])
    except KeyboardInterrupt:
        print("interrupted; resuming")
    model, report = fit(workflow, folder, batch, [])
    print(f"{report}\n")

    options = ServingOptions(runtime="fused_onnx", max_batch_size=4096)
    export_tensorflow_ensemble(model, workflow, "clicks", folder / "models", serving=options)
    later = pl.scan_parquet(folder / "later.parquet").head(2_000).collect()
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "clicks") as client,
    ):
        print(client.predict(later.drop("label").head(3)))
        parity = check_parity(client, workflow, model, later)
    print(parity)
    return parity.passed


def main() -> bool:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the real train.txt")
    parser.add_argument("--output", type=Path, help="keep all files there")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = parsed.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return run(folder, parsed.data)


if __name__ == "__main__":
    sys.exit(not main())
