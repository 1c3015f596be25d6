"""Peak memory of making, saving, loading and exporting a model with one large table.

    python -m benchmarks.model_memory [--rows 1600000] [--steps make save_model]

Each figure is in tables, beyond what the process held before: 1 is one copy of the table, which is
made in the first step and held from then on. Peaks are the resident set's high-water mark.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import polars as pl

from exporter import export_tensorflow_ensemble
from training import models, save_model
from workflow import Workflow, ops

WIDTH = 64


def main() -> None:
    """Measure each step and print the peaks as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--steps", nargs="+", help="all, where none is named; make comes first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The libraries have what they need by then.
        _all_steps(_model(10), 10, Path(folder, "few"), None)
        peaks: dict[str, float] = {}
        model = _peak(peaks, "make", options.rows, lambda: _model(options.rows))
        steps = _all_steps(model, options.rows, Path(folder, "many"), options.steps)
        print(json.dumps(peaks | steps))


def _model(rows: int) -> keras.Model:
    return models.mlp({"userId": (rows, WIDTH)}, hidden=(4,))


def _all_steps(
    model: keras.Model, rows: int, folder: Path, named: list[str] | None
) -> dict[str, float]:
    folder.mkdir()
    workflow = Workflow(["userId"] >> ops.HashBucket(rows)).fit(pl.DataFrame({"userId": [1, 2]}))
    steps: dict[str, Callable[[], Any]] = {
        "save_model": lambda: save_model(model, folder / "saved"),
        "export": lambda: export_tensorflow_ensemble(model, workflow, "e", folder / "repository"),
        "save": lambda: model.save(folder / "model.keras"),
        "load": lambda: keras.saving.load_model(folder / "model.keras"),
        "save_weights": lambda: model.save_weights(folder / "model.weights.h5"),
        "load_weights": lambda: model.load_weights(folder / "model.weights.h5"),
    }
    peaks: dict[str, float] = {}
    for name in named or steps:
        if name != "make":
            _peak(peaks, name, rows, steps[name])
    return peaks


def _peak(peaks: dict[str, float], name: str, rows: int, work: Callable[[], Any]) -> Any:
    gc.collect()
    before = _megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    made = work()
    peaks[name] = round((_megabytes("VmHWM") - before) / (rows * WIDTH * 4 / 2**20), 2)
    return made


def _megabytes(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
