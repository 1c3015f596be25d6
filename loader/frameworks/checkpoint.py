"""Checkpoints of model and loader during `model.fit`, from which both resume together."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import tensorflow  # noqa: F401, ICN001 - before Keras, as in training/__init__.py

# isort: split
import keras
import numpy as np

from loader.errors import LoaderError
from loader.frameworks.keras_loader import KerasSequenceLoader
from loader.frameworks.run_settings import different, settings_of_loss, settings_of_model
from loader.options import check_counts
from loader.tensorflow.sized_dataset import epochs_read_by
from loader.tensorflow.workers import replicas_of_worker
from workflow.data.object_stores import expect_local
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.durable import PARTIAL, exclusive, expect_room, file_hash, replace_file, sync
from workflow.files.sealed import sealed, unsealed
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames
from workflow.schema.schema import Tags
from workflow.schema.tags import fits_of, other_fits

_FORMAT = 10
_POINTER = "checkpoint.json"
_WEIGHTS = re.compile(r"[0-9a-f]{16}\.weights\.h5")
_NUMBER = re.compile(r"_\d+(?=/)")
# Callbacks of Keras that decide by earlier epochs, and the attributes in which they keep these.
_DECIDING = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)
_COUNTS = ("best_epoch", "wait", "cooldown_counter")
# Bytes that HDF5 adds to a file and to each variable, at most.
_HDF5, _HDF5_VARIABLE = 65_536, 4_096
# A true value for `stop_training`, which tells the end of an epoch from a stop that another callback wants.
_END_OF_EPOCH = "the data of the epoch is used up"


class LoaderCheckpoint(keras.callbacks.Callback, metaclass=OwnNames):
    """A callback that saves the model, its optimizer and the loader's position as one checkpoint.

    A checkpoint is complete or absent, whenever the process is killed: the weights are written and
    synced under a new name, and one rename then publishes them together with the position. Both
    carry checksums, so that a changed byte is refused. The position is that of the batches the
    model was trained on, even where Keras reads ahead (with `class_weight`, or on several devices).
    Put this callback last, so that it saves what the others decide after an epoch.

    With `steps_per_epoch`, `fit` has to train on `loader.repeat()`, mapped or not: the epochs of `fit`
    then differ from the loader's, and training resumes in the middle of both.

    Args:
        loader: the data of `fit`: a loader as it is, mapped, repeated or distributed.
        folder: where to write; created if missing.
        save_freq: "epoch", or a number of batches after which to save as well.
        writes: whether to save at all. Of several workers with equal weights, one saves; all of them
            restore what it saved, since any worker's position is the position of all.
        saving: makes a context of the model in which it is saved; every worker enters it. Where tables
            are divided among workers it is `training.whole_tables`, as `training.train` passes it.
        callbacks: the other callbacks of `fit`. The counts, best values and best weights of
            `EarlyStopping`, `ReduceLROnPlateau` and `ModelCheckpoint` are saved. `training.train`
            passes its own.
        settings: further settings of `fit`, by name, as JSON values: if one has changed, a run does not
            resume. `training.train` passes class_weight and loss_weights.
        validation: the `validation_data` of `fit`. If it is a loader, mapped or not, its next epoch is
            saved too, so that a shuffled one continues with the rows that it would have had.
            `training.train` passes its own.

    Attributes:
        writes: whether it saves at all.
        saving: makes the context in which the model is saved.
        callbacks: the other callbacks of `fit`.
        settings: further settings of `fit`.
        validation: the validation data.

    Raises:
        LoaderError: an invalid `save_freq`. In `fit`: data other than the loader's,
            `steps_per_epoch` without `repeat()`, where Keras would end an epoch with the data, or
            another run that saves into the folder.

    Example:
        The same program starts and, after it was killed, resumes:

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
        *,
        writes: bool = True,
        saving: Callable[[keras.Model], AbstractContextManager[Any]] = nullcontext,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        settings: Mapping[str, Any] | None = None,
        validation: Any = None,
    ) -> None:
        super().__init__()
        if save_freq != "epoch":
            check_counts(save_freq=save_freq)
        self._loader = loader
        expect_local(folder, LoaderError)
        self._folder = Path(folder)
        self._every = None if save_freq == "epoch" else save_freq
        self.writes = writes
        self.saving = saving
        self.callbacks = callbacks
        self.settings = settings or {}
        self.validation = validation
        self._counts: dict[str, dict[str, Any]] = {}  # of the checkpoint that was restored
        self._best: dict[str, dict[str, str]] = {}  # the files of the callbacks' best weights
        self._rate: float | None = None  # with which the run began
        self._rate_within_epoch: float | None = None
        self._metrics: dict[str, Any] = {}  # of the resumed epoch, before the interruption
        self._shapes: dict[str, Any] = {}  # of these, until they are compared
        self._described: dict[str, Any] = {}  # the settings of the run
        self._since_saved = 0
        self._restored: dict[str, Any] | None = None
        self._last: bytes | None = self._published()  # the checkpoint that this run continues
        self._epoch = 0
        self._steps_before = 0  # of the resumed epoch, before the interruption
        self._rows_before = 0  # likewise, of all workers
        self._steps = 0  # of this epoch, since `fit` began it
        self._batches = 0  # since the trail began
        self._trail = loader.follow()

    def __repr__(self) -> str:
        every = "each epoch" if self._every is None else f"each epoch and {self._every:,} batches"
        return f"LoaderCheckpoint({str(self._folder)!r}, saves after {every})"

    @property
    def rows_before(self) -> float:
        """The rows of this epoch that all workers trained on before an interruption, divided by their number."""
        return self._rows_before / self._loader.global_size

    @property
    def restored_sum(self) -> str:
        """The checksum of the weights that `restore` has loaded; "" if it has loaded none."""
        return "" if self._restored is None else str(self._restored["sum_of_weights"])

    def restore(self, model: keras.Model) -> int:
        """Load the last checkpoint into a built, compiled model and the loader.

        The learning rate is that of the checkpoint, unless the model's initial one has changed since.

        Returns:
            The `initial_epoch` for `fit`; 0 if there is no checkpoint, and one beyond all epochs if one
            of the `callbacks` has ended the run early.

        Raises:
            LoaderError: a damaged checkpoint, or one of another model, another optimizer, other data,
                another label, loss or sample_weight, or other `settings`; or
                `SwapEMAWeights(swap_on_epoch=True)` among the `callbacks`.
        """
        self._expect_weights_trained()
        self._last, self._rate = self._published(), learning_rate(model)
        if self._last is None:
            return 0
        content = _parsed(self._last, self._folder / _POINTER)
        self._expect_same_run(model, content)
        for saved in _files(content):
            _expect_sum(self._folder / saved["weights"], saved["sum_of_weights"])
        self._set_positions(content)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._counts, self._best = content["callbacks"], content["best"]
        self._load_weights(model, content)
        if self._rate != content["learning_rate"]:  # the program has another one than before
            model.optimizer.learning_rate = self._rate
        for variable, seed in zip(_seeds(model), content["seeds"], strict=False):
            variable.assign(seed)
        self._restored = content
        self._steps_before, self._rows_before = content["steps"], content["rows"]
        self._metrics, self._rate_within_epoch = content["metrics"], learning_rate(model)
        self._shapes = {name: np.shape(value) for name, value in self._metrics.items()}
        self._set_counts()
        is_ended = self._is_out_of_patience(content["epoch"] - 1)
        return sys.maxsize if is_ended else int(content["epoch"])

    def _expect_same_run(self, model: keras.Model, content: Mapping[str, Any]) -> None:
        if differ := other_fits(content["fits"], fits_of(self._loader.input_schema.columns)):
            raise LoaderError(
                f"Expected the data of the checkpoint in {self._folder}. Received: data in which "
                f"another fit of a workflow has made {listed(differ)}: equal ids stand for other values. "
                "Give it the earlier data, or another folder."
            )
        self._expect_data(content["data"])
        if content["optimizer"] != (optimizer := _name_of_optimizer(model)):
            raise LoaderError(
                f"Expected the optimizer of the checkpoint in {self._folder}, {content['optimizer']}. "
                f"Received: {optimizer}, whose state means something else. Compile with the earlier one; "
                "or give it another folder, and begin with the weights of a saved model."
            )
        self._expect_settings(content["settings"], self._settings(model))

    def _settings(self, model: keras.Model) -> dict[str, Any]:
        """The settings that make a run another one if they change, by names for errors."""
        columns = self._loader.input_schema.columns
        return {  # columns before the model, whose inputs they change
            "label": [column.name for column in columns if column.has_tag(Tags.TARGET)],
            "sample_weight": self._loader.sample_weight,
            "model": settings_of_model(model),
            "loss": settings_of_loss(model.loss),
            **self.settings,
        }

    def _expect_settings(self, saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
        for name in [*saved, *current]:
            if saved.get(name) != current.get(name):
                expected, received = different(saved.get(name), current.get(name))
                raise LoaderError(
                    f"Expected the {name} of the checkpoint in {self._folder}: {expected}. Received: "
                    f"{received}. To resume, give it the earlier one. For another run, give it another "
                    "folder, and begin with the weights of a saved model if need be."
                )

    def _set_positions(self, content: Mapping[str, Any]) -> None:
        validation = epochs_read_by(self.validation)
        if validation is not None and content["validation"] is not None:
            validation.set_state(content["validation"])
        try:  # after that, as it may be the same loader
            self._loader.set_state(content["loader"])
        except LoaderError as error:
            raise LoaderError(
                f"Expected the loader's settings of the checkpoint in {self._folder}, which was saved within an "
                "epoch: batch_size, shuffle, parts_per_chunk, buffer_size, device and version of Polars or "
                "cuDF. Received: others, by which the rest of the epoch would be other rows. Give it the "
                "earlier ones; or give it another folder, and begin with the weights of a saved model."
            ) from error

    def _load_weights(self, model: keras.Model, content: Mapping[str, Any]) -> None:
        """Load the weights of the best epochs, for callbacks that restore them, and then the last ones."""
        for saved in _files(content):
            self._load(model, saved)
            for name, best in self._best.items():
                if best["weights"] == saved["weights"]:
                    self._counts[name]["best_weights"] = model.get_weights()

    def _load(self, model: keras.Model, saved: Mapping[str, Any]) -> None:
        weights = self._folder / saved["weights"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # Keras warns of layers it left out
                model.load_weights(weights)
        except (ValueError, OSError, KeyError, UserWarning) as error:
            raise LoaderError(
                f"Expected the weights of this model in {weights}. "
                f"Received: {error}. Build the model that was saved, and give its optimizer the options with "
                "which it has the same variables: a schedule or a number as learning rate, use_ema, "
                'gradient_accumulation_steps, amsgrad, momentum, and precision="float16" of `train`. Or '
                "remove the folder."
            ) from error

    def _deciding(self) -> dict[str, Any]:
        """The callbacks whose counts are saved, each under a name that no other has."""
        callbacks: dict[str, Any] = {}
        for callback in self.callbacks:
            if isinstance(callback, _DECIDING):
                name = f"{type(callback).__name__} of {callback.monitor}"
                number = sum(other.startswith(f"{name} ") for other in callbacks)
                callbacks[f"{name} {number}"] = callback
        return callbacks

    def _set_counts(self) -> None:
        for name, callback in self._deciding().items():
            counts = self._counts.get(name, {})
            vars(callback).update(counts)
            if counts.get("best") is not None:
                callback.best = float(counts["best"])

    def _expect_weights_trained(self) -> None:
        if any(getattr(callback, "swap_on_epoch", False) for callback in self.callbacks):
            raise LoaderError(
                "Expected SwapEMAWeights(swap_on_epoch=False) beside a checkpoint. Received: swap_on_epoch=True, "
                "with which the model has the average of its weights, not the weights, after an epoch."
            )

    def _is_out_of_patience(self, epoch: int) -> bool:
        """Whether `EarlyStopping` ends the run after an epoch, which it does not if that was the best.

        Of the first epoch alone the first is the best, whatever its loss; Keras ends no run there.
        """
        return any(
            callback.wait >= max(callback.patience, 1) and callback.best_epoch != epoch
            for callback in self._deciding().values()
            if isinstance(callback, keras.callbacks.EarlyStopping)
        )

    def _expect_data(self, saved: str) -> None:
        # Workers that do not write may each have data of their own.
        if self.writes and saved != (digest := self._loader.data_digest()):
            raise LoaderError(
                f"Expected the data of the checkpoint in {self._folder}: {saved}. Received: other data: "
                f"{digest}. To resume, give it the earlier data. To train on new data, give each run a "
                "folder of its own, and begin with the weights of a saved model."
            )

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Resume at the checkpoint, whatever was read in between."""
        del logs
        if self._rate is None:  # `restore` was not called
            self._rate = learning_rate(self.model)
        if self._restored is not None:
            # On several devices Keras reads a batch to build the model, and drops the rest of the
            # epoch.
            self._set_positions(self._restored)
            self._restored = None
            self._set_counts()  # which Keras' callbacks have set to zero
            self._counts = {}
        self._trail = self._loader.follow()
        self._described = self._settings(self.model)
        if self.writes:  # now, rather than after an epoch
            with self._locked():
                self._expect_room()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count batches from here."""
        del logs
        self._epoch, self._steps = epoch, 0
        if self._steps_before:  # Other callbacks may have changed it again.
            if self._rate is not None:
                self.model.optimizer.learning_rate = self._rate_within_epoch
            self._add_metrics()
        if not self._trail.repeats:  # else Keras keeps the iterator, which may have read ahead
            self._trail, self._batches = self._loader.follow(), 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save if `save_freq` batches have passed."""
        del logs
        self._add_metrics()  # of those that Keras makes in the first step
        self._expect_metrics()
        steps = batch + 1 - self._steps
        self._steps += steps
        self._batches += steps * self._batches_a_step()
        self._since_saved += steps
        # Keras expects a whole epoch where only the rest of one is left. A step without data would
        # fail, yet the optimizer would count it; so the epoch is ended before that step.
        if self._steps < self.params["steps"] and self._is_epoch_done():
            self.model.stop_training = self.model.stop_training or _END_OF_EPOCH
        is_due = self._every is not None and self._since_saved >= self._every
        # A finished epoch is saved in `on_epoch_end`, once it is validated and counted. An epoch that a
        # callback has stopped is saved here: it counts when the rest of it has been trained on.
        if (is_due or self.model.stop_training) and not self._is_epoch_done():
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save a finished epoch, and let the next one begin."""
        del epoch, logs
        if self.model.stop_training == _END_OF_EPOCH:
            self.model.stop_training = False
        if self._is_epoch_done():
            self._save()
        self._steps_before = self._rows_before = 0

    def _add_metrics(self) -> None:
        """Add the sums that metrics had before the interruption to those of the rest of the epoch."""
        if not self._metrics:
            return
        for name, variable in _metrics_of(self.model).items():
            if self._shapes.get(name) == tuple(variable.shape) and name in self._metrics:
                variable.assign(variable.numpy() + self._metrics.pop(name))

    def _expect_metrics(self) -> None:
        """Refuse other metrics, which would be those of the rest of the epoch alone."""
        if not self._shapes:
            return
        saved, self._shapes = self._shapes, {}
        shapes = {name: tuple(v.shape) for name, v in _metrics_of(self.model).items()}
        if saved != shapes:
            raise LoaderError(
                f"Expected the metrics of the checkpoint in {self._folder}, which was saved within an epoch and "
                f"has counted {listed(sorted(saved))}. Received: {listed(sorted(shapes))}. Give it the earlier "
                "metrics until that epoch has ended, and the new ones then."
            )

    def _rows(self) -> int:
        """Rows of this epoch that all workers have trained on since `fit` began it."""
        batches = self._steps * self._batches_a_step()
        return batches * self._loader.batch_size * self._loader.global_size

    def _batches_a_step(self) -> int:
        """The batches of a step: one, or one for each replica that `loader.distribute` feeds."""
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
        """Whether Keras's epoch ended with the last batch: an epoch of the loader, or its steps."""
        if self._trail.repeats:
            return bool(self._steps_before + self._steps >= self.params["steps"])
        return bool(self._trail(self._batches)["epoch"] > self._trail(0)["epoch"])

    def _save(self) -> None:
        self._since_saved = 0
        with self.saving(self.model):
            if self.writes:
                self._write()

    def _write(self) -> None:
        weights = self._folder / f"{secrets.token_hex(8)}.weights.h5"
        with self._locked():
            self._expect_alone()
            try:
                self._replace(weights)
            except OSError:
                weights.unlink(missing_ok=True)
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder, made if it is missing, while the block writes there."""
        try:
            with exclusive(self._folder):
                yield
        except OSError as error:
            advice = (
                ""
                if self._last is None
                else " The previous one is intact: run the program again to resume."
            )
            raise LoaderError(
                f"Expected to be able to write a checkpoint to {self._folder}. Received: {error}. Give it a "
                f"folder that can be written, or free some space.{advice}"
            ) from error

    def _expect_alone(self) -> None:
        # A folder that the user has removed meanwhile is written again.
        if self._published() not in (None, self._last):
            raise LoaderError(
                f"Expected this run alone to save into {self._folder}. Received: a checkpoint that "
                "another run has saved there since this one began, and that is kept. Give each run a folder "
                "of its own; or let one end, and run it again to resume."
            )

    def _expect_room(self) -> None:
        """Check that the weights have room: HDF5 crashes the process after a failed write."""
        optimizer = _optimizer_of(self.model)
        saved = [*self.model.variables, *(optimizer.variables if optimizer else ())]
        saved += self.model.metrics_variables
        sizes = [math.prod(weight.shape) * np.dtype(weight.dtype).itemsize for weight in saved]
        expect_room(self._folder, sum(sizes) + _HDF5 + _HDF5_VARIABLE * len(saved))

    def _replace(self, weights: Path) -> None:
        self._expect_room()
        self.model.save_weights(weights)
        sync(weights)
        saved = {"weights": weights.name, "sum_of_weights": file_hash(weights)}
        best = {
            name: saved if one.best_epoch == self._epoch else self._file_of_best(name)
            for name, one in self._deciding().items()
            if getattr(one, "best_weights", None) is not None
        }
        content = sealed(self._content() | saved | {"best": best})
        replace_file(self._folder / _POINTER, content)
        self._last, self._best = content, best
        current_names = {_POINTER, weights.name, *(one["weights"] for one in best.values())}
        for file in self._folder.iterdir():
            if _is_ours(file.name) and file.name not in current_names:
                file.unlink(missing_ok=True)

    def _file_of_best(self, name: str) -> dict[str, str]:
        if name not in self._best:
            raise LoaderError(
                "Expected LoaderCheckpoint behind the callbacks that it saves, as after an epoch Keras calls "
                f"them in their order. Received: it before callback {name}. Put it last among the callbacks."
            )
        return self._best[name]

    def _published(self) -> bytes | None:
        """The checkpoint of the folder, in its written form; None if there is none."""
        try:
            return (self._folder / _POINTER).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LoaderError(
                f"Expected to be able to read checkpoints in {self._folder}. Received: {error}."
            ) from error

    def _position(self) -> dict[str, Any]:
        if self._trail.repeats or not self._is_epoch_done():
            return self._trail(self._batches)
        # The next one: others, such as the validation, may have taken epochs since.
        return self._loader.follow()(0)

    def _content(self) -> dict[str, Any]:
        is_done, validation = self._is_epoch_done(), epochs_read_by(self.validation)
        return {
            "format": _FORMAT,
            "epoch": self._epoch + is_done,
            "steps": 0 if is_done else self._steps_before + self._steps,
            "rows": 0 if is_done else self._rows_before + self._rows(),
            "metrics": {}
            if is_done
            else {n: v.numpy().tolist() for n, v in _metrics_of(self.model).items()},
            "optimizer": _name_of_optimizer(self.model),
            "learning_rate": self._rate,
            "callbacks": {
                name: {
                    # As a text, since JSON has no infinity.
                    "best": None if callback.best is None else str(float(callback.best)),
                    **{
                        count: vars(callback)[count] for count in _COUNTS if count in vars(callback)
                    },
                }
                for name, callback in self._deciding().items()
            },
            "settings": self._described,
            "seeds": [variable.numpy().tolist() for variable in _seeds(self.model)],
            "loader": self._position(),
            "validation": None if validation is None else validation.next_state(),
            "fits": fits_of(self._loader.input_schema.columns),
            "data": self._loader.data_digest(),
        }


def _is_ours(name: str) -> bool:
    """Whether this callback wrote a file, rather than the user."""
    is_partial = name.startswith(_POINTER) and name.endswith(PARTIAL)
    return is_partial or _WEIGHTS.fullmatch(name) is not None


def _optimizer_of(model: keras.Model) -> Any:
    """A model's optimizer; the inner one, if it scales the loss."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def _name_of_optimizer(model: keras.Model) -> str:
    """The class of a model's optimizer, with the package of one that shares its name with Keras' own."""
    kind = type(_optimizer_of(model))
    package = kind.__module__.partition(".")[0]
    return (
        f"{package}'s {kind.__name__}"
        if ">" in keras.saving.get_registered_name(kind)
        else kind.__name__
    )


def learning_rate(model: keras.Model) -> float | None:
    """The learning rate of a model's optimizer; None if a schedule sets it."""
    optimizer = _optimizer_of(model)
    rate = None if optimizer is None else optimizer.get_config().get("learning_rate")
    return rate if isinstance(rate, float) else None


def _metrics_of(model: keras.Model) -> dict[str, keras.Variable]:
    """The state of a model's metrics, by place and path, since metrics of several outputs may share a path.

    Without the numbers that Keras gives to the metrics of a process, such as "auc_1".
    """
    return {
        f"{place} {_NUMBER.sub('', variable.path)}": variable
        for place, variable in enumerate(model.metrics_variables)
    }


def _seeds(model: keras.Model) -> list[keras.Variable]:
    """Seeds of the model's dropout layers, which Keras does not save with its weights."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = unsealed(text, str(path))
    except FormatError as error:
        raise LoaderError(
            f"Expected a checkpoint in {path}. Received: {error} Remove the folder to start afresh."
        ) from error
    keys = {"format", "epoch", "steps", "rows", "weights", "sum_of_weights"}
    keys |= {"seeds", "loader", "fits", "data", "callbacks", "best"}
    keys |= {"metrics", "optimizer", "learning_rate", "settings", "validation"}
    valid = content.keys() == keys and content["format"] == _FORMAT
    if not valid or not all(_WEIGHTS.fullmatch(str(file["weights"])) for file in _files(content)):
        raise LoaderError(
            f"Expected a checkpoint of format {_FORMAT} in {path}. Received: {content!r:.500}. "
            "Remove the folder to start afresh."
        )
    return content


def _files(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The files of weights, each once with its checksum: those of the best epochs, then the last one."""
    return [*{one["weights"]: one for one in (content, *content["best"].values())}.values()][::-1]


def _expect_sum(weights: Path, expected: str) -> None:
    try:
        received = file_hash(weights)
    except OSError as error:
        received = (error.strerror or str(error)).lower()
    if received != expected:
        raise LoaderError(
            f"Expected the weights of a checkpoint in {weights}, with checksum {expected[:16]}.... "
            f"Received: {received[:50]}. The file is missing or damaged: copy the folder again, or "
            "remove it to start afresh."
        )
