"""Model and loader saved together during `model.fit`, so that both go on where they were."""

from __future__ import annotations

import json
import os
import secrets
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import keras

from loader.arguments import check_counts
from loader.errors import LoaderError
from loader.keras_loader import KerasSequenceLoader

_FORMAT = 1
_POINTER = "checkpoint.json"
_WEIGHTS = ".weights.h5"


class LoaderCheckpoint(keras.callbacks.Callback):
    """Saves the model, its optimizer and the loader's position as one checkpoint.

    A checkpoint is complete or not there, whenever the process is killed: the weights are
    written under a new name, and then one rename makes them the checkpoint, together with the
    position. The position is that of the batches the model was trained on, also where Keras
    reads ahead (with `class_weight`, or on several devices). Put it first among the callbacks.

    Args:
        loader: what `fit` trains on, as it is or mapped.
        folder: where to write; made if need be.
        save_freq: "epoch", or a number of batches after which to save as well.

    Raises:
        LoaderError: a `save_freq` that makes no sense. In `fit`: `steps_per_epoch`, or other
            data than the loader's, for then epochs of Keras are not epochs of the loader.

    Example:
        The same program begins and, after it was killed, goes on:

        >>> checkpoint = LoaderCheckpoint(train, "checkpoint", save_freq=1000)  # doctest: +SKIP
        >>> model.fit(  # doctest: +SKIP
        ...     train, epochs=3, initial_epoch=checkpoint.restore(model), callbacks=[checkpoint]
        ... )
    """

    def __init__(
        self,
        loader: KerasSequenceLoader,
        folder: str | os.PathLike[str],
        save_freq: int | Literal["epoch"] = "epoch",
    ) -> None:
        super().__init__()
        if save_freq != "epoch":
            check_counts(save_freq=save_freq)
        self._loader = loader
        self._folder = Path(folder)
        self._every = None if save_freq == "epoch" else save_freq
        self._since_saved = 0
        self._epoch = 0
        self._batches = 0
        self._ended_early = False
        self._state_after: Callable[[int], dict[str, Any]] = loader.follow()

    def restore(self, model: keras.Model) -> int:
        """Load what was saved last into a built, compiled model and the loader.

        Returns:
            The `initial_epoch` for `fit`; 0 if nothing was saved.

        Raises:
            LoaderError: a checkpoint of another model, other data or other settings, or one that
                is damaged.
        """
        path = self._folder / _POINTER
        if not path.exists():
            return 0
        content = _read(path)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # Keras warns of layers it left out
                model.load_weights(self._folder / content["weights"])
        except (ValueError, OSError, KeyError, UserWarning) as error:
            raise LoaderError(
                f"Expected the weights of this model in {self._folder / content['weights']}. "
                f"Received: {error}. Build the model that was saved, or remove the folder."
            ) from error
        for variable, seed in zip(_seeds(model), content["seeds"], strict=False):
            variable.assign(seed)
        self._loader.set_state(content["loader"])
        return int(content["epoch"])

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Refuse epochs that are not the loader's."""
        del logs
        if self.params["steps"] != len(self._loader):
            raise LoaderError(
                f"Expected epochs of {len(self._loader)} steps, which is len(loader). "
                f"Received: {self.params['steps']} in fit. Leave steps_per_epoch out; "
                "save_freq saves within epochs."
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count batches from here."""
        del logs
        self._epoch, self._batches = epoch, 0
        self._state_after = self._loader.follow()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save, if it is time to."""
        del logs
        self._since_saved += batch + 1 - self._batches
        self._batches = batch + 1
        # Keras expects a whole epoch where the rest of one is resumed. A step without data would
        # fail, but count in the optimizer all the same; so the epoch is ended before it.
        if self._batches < self.params["steps"] and self._epochs_done():
            self._ended_early = self.model.stop_training = True
        if self._every is not None and self._since_saved >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save, and let the next epoch begin."""
        del epoch, logs
        if self._ended_early:
            self._ended_early = self.model.stop_training = False
        self._save()

    def _epochs_done(self) -> int:
        """Epochs of the loader that have ended since Keras's began: 1 after the last batch."""
        return int(self._state_after(self._batches)["epoch"] - self._state_after(0)["epoch"])

    def _save(self) -> None:
        self._since_saved = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        weights = self._folder / f"{secrets.token_hex(8)}{_WEIGHTS}"
        self.model.save_weights(weights)
        _sync(weights)
        content = {
            "format": _FORMAT,
            "epoch": self._epoch + self._epochs_done(),
            "weights": weights.name,
            "seeds": [variable.numpy().tolist() for variable in _seeds(self.model)],
            "loader": self._state_after(self._batches),
        }
        partial = self._folder / f"{_POINTER}.partial"
        partial.write_text(json.dumps(content))
        _sync(partial)
        partial.replace(self._folder / _POINTER)
        _sync(self._folder)
        for file in self._folder.glob(f"*{_WEIGHTS}"):
            if file != weights:
                file.unlink()


def _seeds(model: keras.Model) -> list[keras.Variable]:
    """What dropout draws from, which Keras leaves out of a model's weights."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LoaderError(
            f"Expected a checkpoint in {path}. Received: {error}. Remove the folder to start anew."
        ) from error
    keys = {"format", "epoch", "weights", "seeds", "loader"}
    if not isinstance(content, dict) or set(content) != keys or content["format"] != _FORMAT:
        raise LoaderError(
            f"Expected a checkpoint of format {_FORMAT} in {path}. Received: {content!r}. "
            "Remove the folder to start anew."
        )
    return content


def _sync(path: Path) -> None:
    """Let what was written reach the disk, so that a rename never runs ahead of it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
