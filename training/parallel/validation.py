"""Metrics of validation that are the same on all workers."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

from training.parallel.failures import together
from training.parallel.workers import Workers


class FirstValidation(keras.callbacks.Callback):
    """A callback that gives all workers the first one's metrics of validation, before others run.

    These may end the run, or change the learning rate. GPUs add in no fixed order, so each worker's
    own metrics would differ in the last digits, and one worker would train on without the others.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Replace this worker's metrics.

        Raises:
            TrainingError: a worker is lost.
        """
        collectives = self._workers.collectives
        own_metrics = {
            n: np.asarray(v).tolist() for n, v in (logs or {}).items() if n.startswith("val_")
        }
        if collectives is None or logs is None:
            return
        with together(self._workers):
            first = json.loads(collectives.texts(json.dumps(own_metrics))[0])
        # Some metrics have a number for each class.
        logs.update({n: np.array(v) if isinstance(v, list) else v for n, v in first.items()})
