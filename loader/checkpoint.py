"""Model and loader saved together during `model.fit`, so that both go on where they were."""

from __future__ import annotations

import os
import re
import secrets
import warnings
from pathlib import Path
from typing import Any, Literal

import keras

from loader.errors import LoaderError
from loader.keras_loader import KerasSequenceLoader
from loader.options import check_counts
from loader.workers import replicas_of_worker
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.durable import PARTIAL, file_hash, make_folder, replace_file, sync
from workflow.files.sealed import sealed, unsealed

_FORMAT = 2
_POINTER = "checkpoint.json"
_WEIGHTS = re.compile(r"[0-9a-f]{16}\.weights\.h5")


class LoaderCheckpoint(keras.callbacks.Callback):
    """Saves the model, its optimizer and the loader's position as one checkpoint.

    A checkpoint is complete or not there, whenever the process is killed: the weights are
    written under a new name, and then one rename makes them the checkpoint, together with the
    position. Both are on the disk by then and carry sums, so that a changed byte is refused. The
    position is that of the batches the model was trained on, also where Keras reads ahead (with
    `class_weight`, or on several devices). Put it first among the callbacks.

    `fit` with `steps_per_epoch` has to train on `loader.repeat()`, as it is or mapped: its epochs
    are not the loader's, and it goes on in the midst of both.

    Args:
        loader: what `fit` trains on, as it is, mapped, repeated or distributed.
        folder: where to write; made if need be.
        save_freq: "epoch", or a number of batches after which to save as well.

    Raises:
        LoaderError: a `save_freq` that makes no sense. In `fit`: other data than the loader's, or
            `steps_per_epoch` without `repeat()`, where Keras cuts epochs where the data ends.

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
        self._ended_early = False
        self._restored: dict[str, Any] | None = None
        self._epoch = 0
        self._steps_before = 0  # of the epoch that is gone on with
        self._steps = 0  # of this epoch, since `fit` began it
        self._batches = 0  # since there is this trail
        self._trail = loader.follow()

    def restore(self, model: keras.Model) -> int:
        """Load what was saved last into a built, compiled model and the loader.

        Returns:
            The `initial_epoch` for `fit`; 0 if nothing was saved.

        Raises:
            LoaderError: a checkpoint of another model, other data or other settings, or one that
                is damaged.
        """
        if not (self._folder / _POINTER).exists():
            return 0
        content = _read(self._folder / _POINTER)
        weights = self._folder / content["weights"]
        _expect_sum(weights, content["sum_of_weights"])
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # Keras warns of layers it left out
                model.load_weights(weights)
        except (ValueError, OSError, KeyError, UserWarning) as error:
            raise LoaderError(
                f"Expected the weights of this model in {weights}. "
                f"Received: {error}. Build the model that was saved, or remove the folder."
            ) from error
        for variable, seed in zip(_seeds(model), content["seeds"], strict=False):
            variable.assign(seed)
        self._loader.set_state(content["loader"])
        self._restored, self._steps_before = content["loader"], content["steps"]
        return int(content["epoch"])

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Go on where the checkpoint was, whatever was read since."""
        del logs
        if self._restored is not None:
            # On several devices Keras takes a batch to build the model by, and drops the rest.
            self._loader.set_state(self._restored)
            self._restored = None
        self._trail = self._loader.follow()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count batches from here."""
        del logs
        self._epoch, self._steps = epoch, 0
        if not self._trail.repeats:  # else Keras keeps the iterator, which may be ahead
            self._trail, self._batches = self._loader.follow(), 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save, if it is time to."""
        del logs
        taken = batch + 1 - self._steps
        self._steps += taken
        self._batches += taken * self._batches_a_step()
        self._since_saved += taken
        # Keras expects a whole epoch where the rest of one is resumed. A step without data would
        # fail, but count in the optimizer all the same; so the epoch is ended before it.
        if self._steps < self.params["steps"] and self._is_epoch_done():
            self._ended_early = self.model.stop_training = True
        if self._every is not None and self._since_saved >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save, and let the next epoch begin."""
        del epoch, logs
        if self._ended_early:
            self._ended_early = self.model.stop_training = False
        self._save()
        self._steps_before = 0

    def _batches_a_step(self) -> int:
        """One; or one a replica, where `loader.distribute` gives each its own.

        Raises:
            LoaderError: epochs that Keras would cut where the data ends.
        """
        steps, usual = self.params["steps"], len(self._loader)
        if steps == usual or (steps is not None and self._trail.repeats):
            return 1
        workers = self._loader.get_state()["workers"]
        replicas = replicas_of_worker(self.model.distribute_strategy, workers)
        if steps == -(-usual // replicas):
            return replicas
        raise LoaderError(
            f"Expected epochs of {usual} steps, which is len(loader), or loader.repeat() with "
            f"steps_per_epoch. Received: steps={steps} in fit. Pass loader.repeat(), mapped after "
            "that if at all, or leave steps_per_epoch out: save_freq saves within epochs."
        )

    def _is_epoch_done(self) -> bool:
        """Whether Keras's epoch has ended with the last batch: one of the loader, or some steps."""
        if self._trail.repeats:
            return bool(self._steps_before + self._steps >= self.params["steps"])
        return bool(self._trail(self._batches)["epoch"] > self._trail(0)["epoch"])

    def _save(self) -> None:
        self._since_saved = 0
        weights = self._folder / f"{secrets.token_hex(8)}.weights.h5"
        kept = {_POINTER, weights.name}
        try:
            make_folder(self._folder)
            self.model.save_weights(weights)
            sync(weights)
            replace_file(self._folder / _POINTER, sealed(self._content(weights)))
        except OSError as error:
            weights.unlink(missing_ok=True)
            raise LoaderError(
                f"Expected to be able to write a checkpoint to {self._folder}. Received: {error}. The one "
                "before is still there: make room, and run the program again to resume."
            ) from error
        for file in self._folder.iterdir():
            if _is_ours(file.name) and file.name not in kept:
                file.unlink(missing_ok=True)

    def _content(self, weights: Path) -> dict[str, Any]:
        done = self._is_epoch_done()
        return {
            "format": _FORMAT,
            "epoch": self._epoch + done,
            "steps": 0 if done else self._steps_before + self._steps,
            "weights": weights.name,
            "sum_of_weights": file_hash(weights),
            "seeds": [variable.numpy().tolist() for variable in _seeds(self.model)],
            "loader": self._trail(self._batches),
        }


def _is_ours(name: str) -> bool:
    """Whether a file is one that this callback writes, and not one of the user's own beside it."""
    written = name.startswith(_POINTER) and name.endswith(PARTIAL)
    return written or _WEIGHTS.fullmatch(name) is not None


def _seeds(model: keras.Model) -> list[keras.Variable]:
    """Seeds of the model's dropout layers, which Keras leaves out of its weights."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = unsealed(path.read_bytes(), str(path))
    except (OSError, FormatError) as error:
        raise LoaderError(
            f"Expected a checkpoint in {path}. Received: {error} Remove the folder to start anew."
        ) from error
    keys = {"format", "epoch", "steps", "weights", "sum_of_weights", "seeds", "loader"}
    known = content.keys() == keys and content["format"] == _FORMAT
    if not known or not _WEIGHTS.fullmatch(str(content["weights"])):
        raise LoaderError(
            f"Expected a checkpoint of format {_FORMAT} in {path}. Received: {content!r:.500}. "
            "Remove the folder to start anew."
        )
    return content


def _expect_sum(weights: Path, expected: str) -> None:
    try:
        found = file_hash(weights)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
    if found != expected:
        raise LoaderError(
            f"Expected the weights of a checkpoint in {weights}, of the sum {expected[:16]}.... "
            f"Received: {found[:50]}. The file is missing or damaged: copy the folder again, or "
            "remove it to start anew."
        )
