"""The network for `train`: one of `training.models`, or the user's own."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from exporter.command_line.guard import CommandError
from exporter.command_line.user_code import load_object
from exporter.command_line.words import pairs, values
from workflow.schema.names import did_you_mean

KINDS = ("mlp", "wide_and_deep", "dlrm", "dcn", "two_tower", "bst")
# Options that only one kind has, and it always.
_OF_KIND = {
    "query": ("two_tower", "the columns of the first tower"),
    "sequence": ("bst", "the list of items"),
    "target": ("bst", "the item that may follow"),
}
WIDEST = 64
# Arguments of the models that the data determines, or that have an option of their own.
_OWN_OPTIONS = {
    *("features", "continuous", "query", "candidate", "softmax", "sequence", "target"),
    *("hidden", "top", "embedding_dim", "max_embedding_dim", "dropout"),
}


@dataclass(frozen=True)
class NetworkOptions:
    """Options that describe the network.

    Attributes:
        model: one of KINDS, or the location of the user's function: see `load_object`.
        hidden: widths of the dense layers, separated by commas.
        embedding_dim: the greatest width of an embedding; for `dlrm` the width of all.
        dropout: the share of each dense layer's outputs to drop.
        query: the columns of the first of the two towers.
        softmax: the item's column of a softmax over items, for two towers.
        catalogue: transformed items from which the softmax draws; None for those of the batch.
        temperature: of the softmax.
        sequence: the list of items of `bst`, of a fixed length.
        target: the item of `bst`.
        model_option: other arguments of the model's function, as NAME=VALUE.

    All except the first are None unless the user sets them.
    """

    model: str
    hidden: str | None
    embedding_dim: int | None
    dropout: float | None
    query: Sequence[str] | None
    softmax: str | None = None
    catalogue: Sequence[str] | None = None
    temperature: float | None = None
    sequence: str | None = None
    target: str | None = None
    model_option: Sequence[str] | None = None

    def make(self, workflow: Any, labels: Sequence[str]) -> Any:
        """The Keras model for the workflow's columns except the labels.

        Raises:
            CommandError: options that cannot be combined, or invalid widths.
            TrainingError: the workflow's columns do not fit the model.
        """
        if self.model in KINDS:
            return self._built(workflow, labels)
        names = [field.name for field in fields(self) if field.name != "model"]
        useless = [
            f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None
        ]
        if useless:
            raise CommandError(
                f"Expected {', '.join(useless)} with a --model among {', '.join(KINDS)}. "
                f"Received: {self.model}, which has its own."
            )
        if ":" not in self.model and not self.model.endswith(".py"):
            raise CommandError(
                f"Expected a --model among {', '.join(KINDS)}, or file.py:name or module:name of a "
                f"function that makes one. Received: {self.model}."
                + did_you_mean([self.model], KINDS)
            )
        make = load_object(self.model, "make_model")
        if not callable(make):
            raise CommandError(
                f"Expected {self.model} to be a function that takes the workflow and returns a Keras "
                f"model. Received: {type(make).__name__}."
            )
        return make(workflow)

    def _built(self, workflow: Any, labels: Sequence[str]) -> Any:
        from training import models  # noqa: PLC0415 - so that help is shown at once
        from workflow import Schema  # noqa: PLC0415
        from workflow.operator.settings import settled  # noqa: PLC0415

        columns = [c for c in workflow.output_schema.columns if c.name not in labels]
        options: dict[str, Any] = {"dropout": self.dropout or 0.0}
        widest = self.embedding_dim or WIDEST
        options["embedding_dim" if self.model in ("dlrm", "bst") else "max_embedding_dim"] = widest
        if self.hidden is not None:
            options["top" if self.model == "dlrm" else "hidden"] = _widths(self.hidden)
        self._expect_own()
        if self.query:
            inputs = [c for c in columns if {"categorical", "continuous"} & {*c.tags}]
            rest = [c.name for c in inputs if c.name not in self.query]
            options |= {"query": list(self.query), "candidate": rest, "softmax": self._softmax()}
        if self.model == "bst":
            options |= {"sequence": self.sequence, "target": self.target}
        make = getattr(models, self.model)
        kinds = {
            name: str(parameter.annotation)
            for name, parameter in inspect.signature(make).parameters.items()
            if name not in _OWN_OPTIONS
        }
        hints = typing.get_type_hints(make)
        for name, value in values(self.model_option, kinds, "--model-option").items():
            options[name] = settled(self.model, name, value, hints[name])
        return make(Schema(columns), **options)

    def _expect_own(self) -> None:
        """Refuse options of other kinds of models, and require those of this kind."""
        for name, (kind, meaning) in _OF_KIND.items():
            value = getattr(self, name)
            if bool(value) != (self.model == kind):
                shown = ", ".join([value] if isinstance(value, str) else value or ["none"])
                raise CommandError(
                    f"Expected --{name}, {meaning}, with --model {kind}, and with no other. "
                    f"Received: --model {self.model}, --{name} {shown}."
                )
        if self.softmax and self.model != "two_tower":
            raise CommandError(
                f"Expected --softmax with --model two_tower. Received: --model {self.model}."
            )
        if not self.softmax and (self.catalogue or self.temperature is not None):
            raise CommandError(
                "Expected --softmax ITEM with --catalogue and --temperature. Received: none."
            )

    def _softmax(self) -> Any:
        if not self.softmax:
            return None
        from training import retrieval  # noqa: PLC0415 - so that help is shown at once

        made: Any = (
            retrieval.SampledSoftmax(self.softmax, list(self.catalogue))
            if self.catalogue
            else retrieval.InBatchSoftmax(self.softmax)
        )
        return made if self.temperature is None else replace(made, temperature=self.temperature)


def make_loss(words: Sequence[str] | None, softmax: str | None) -> Any:
    """The loss of a network: that of a softmax, a named one, one for each output, or the cross-entropy.

    Raises:
        CommandError: another loss is named beside a softmax, or several for one output.
    """
    if not softmax:
        choices = by_output(words or ["binary_crossentropy"], "--loss")
        losses = {output: names[-1] for output, names in choices.items()}
        if any(len(names) > 1 for names in choices.values()):
            raise CommandError(f"Expected one --loss, or one of each output. Received: {words}.")
        return losses.get("", losses)
    if words:
        raise CommandError(
            "Expected no --loss with --softmax, which has its own. "
            f"Received: --loss {' --loss '.join(words)}."
        )
    from training import retrieval  # noqa: PLC0415 - so that help is shown at once

    return retrieval.SoftmaxLoss()


def make_metrics(words: Sequence[str] | None, option: str) -> Any:
    """The metrics of each output, or of each one by its name; None by default."""
    metrics = by_output(words or (), option)
    return metrics.get("", metrics) or None


def by_output(words: Sequence[str], option: str) -> dict[str, list[str]]:
    """Names by output, from arguments such as `click=auc`; without an output all under "".

    Raises:
        CommandError: some arguments with an output and some without.

    Example:
        >>> by_output(["click=auc", "click=accuracy", "price=mae"], "--metric")
        {'click': ['auc', 'accuracy'], 'price': ['mae']}
    """
    names: dict[str, list[str]] = {}
    for word in words:
        output, _, name = word.rpartition("=")
        names.setdefault(output, []).append(name)
    if "" in names and len(names) > 1:
        raise CommandError(
            f"Expected {option} NAME, or {option} OUTPUT=NAME of each output. "
            f"Received: {', '.join(words)}."
        )
    return names


def make_optimizer(name: str, learning_rate: float | None) -> Any:
    """An optimizer that updates only the batch's rows of tables.

    Raises:
        CommandError: an unknown optimizer, or a learning rate that is not above 0.
    """
    from training import optimizers  # noqa: PLC0415 - so that help is shown at once

    choices = {"adam": optimizers.Adam, "adagrad": optimizers.Adagrad, "sgd": optimizers.SGD}
    if name not in choices:
        raise CommandError(
            f"Expected an optimizer among {', '.join(choices)}. Received: {name}. Others can be used "
            "in Python: training.train(model, data, optimizer=keras.optimizers.Lion())."
        )
    if learning_rate is None:
        return choices[name]()
    if not learning_rate > 0:
        raise CommandError(f"Expected a learning rate above 0. Received: {learning_rate}.")
    return choices[name](learning_rate)


def loss_weights(words: Sequence[str] | None) -> dict[str, float] | None:
    """Weights by output, from arguments such as `click=2`.

    Raises:
        CommandError: an argument of another form, or an output twice.
    """
    weights, form = {}, "OUTPUT=WEIGHT, such as click=2"
    for output, weight in (pairs(words, "--loss-weight", form) or {}).items():
        try:
            weights[output] = float(weight)
        except ValueError:
            raise CommandError(
                f"Expected --loss-weight as {form}. Received: '{output}={weight}'."
            ) from None
    return weights or None


def class_weights(words: Sequence[str] | None) -> dict[Any, Any] | None:
    """Weights by label, from arguments such as `1=20`; of several outputs by output, `click:1=20`.

    Raises:
        CommandError: an argument of another form, or a label twice.

    Example:
        >>> class_weights(["0=1", "1=20"])
        {0: 1.0, 1: 20.0}
    """
    weights: dict[Any, Any] = {}
    form = "LABEL=WEIGHT, such as 1=20, or OUTPUT:LABEL=WEIGHT"
    for place, weight in (pairs(words, "--class-weight", form) or {}).items():
        output, _, label = place.rpartition(":")
        try:
            output_weights = weights.setdefault(output, {}) if output else weights
            output_weights[int(label)] = float(weight)
        except ValueError:
            raise CommandError(
                f"Expected --class-weight as {form}. Received: '{place}={weight}'."
            ) from None
    return weights or None


def _widths(text: str) -> list[int]:
    widths = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if min(widths) < 1:
        raise CommandError(
            f"Expected widths of layers, such as --hidden 256,128. Received: {text!r}."
        )
    return widths
