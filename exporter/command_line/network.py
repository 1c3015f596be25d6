"""The network for `train`: one of `training.models`, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exporter.command_line.guard import CommandError
from exporter.command_line.user_code import load_object

KINDS = ("mlp", "wide_and_deep", "dlrm", "dcn", "two_tower")
WIDEST = 64


@dataclass(frozen=True)
class NetworkOptions:
    """Options that describe the network.

    Attributes:
        model: one of KINDS, or the location of the user's function: see `load_object`.
        hidden: widths of the dense layers, separated by commas.
        embedding_dim: the greatest width of an embedding; for `dlrm` the width of all.
        dropout: the share of each dense layer's outputs to drop.
        query: the columns of the first of the two towers.

    All except the first are None unless the user sets them.
    """

    model: str
    hidden: str | None
    embedding_dim: int | None
    dropout: float | None
    query: Sequence[str] | None

    def make(self, workflow: Any, labels: Sequence[str]) -> Any:
        """The Keras model for the workflow's columns except the labels.

        Raises:
            CommandError: options that cannot be combined, or invalid widths.
            TrainingError: the workflow's columns do not fit the model.
        """
        if self.model in KINDS:
            return self._built(workflow, labels)
        given = ("hidden", "embedding_dim", "dropout", "query")
        useless = [f"--{name.replace('_', '-')}" for name in given if getattr(self, name)]
        if useless:
            raise CommandError(
                f"Expected {', '.join(useless)} with a --model among {', '.join(KINDS)}. "
                f"Received: {self.model}, which has its own."
            )
        if ":" not in self.model and not self.model.endswith(".py"):
            raise CommandError(
                f"Expected a --model among {', '.join(KINDS)}, or file.py:name or module:name of a "
                f"function that makes one. Received: {self.model}."
            )
        return load_object(self.model, "make_model")(workflow)

    def _built(self, workflow: Any, labels: Sequence[str]) -> Any:
        from training import models  # noqa: PLC0415 - so that help is shown at once
        from workflow import Schema  # noqa: PLC0415

        columns = [c for c in workflow.output_schema.columns if c.name not in labels]
        options: dict[str, Any] = {"dropout": self.dropout or 0.0}
        widest = self.embedding_dim or WIDEST
        options["embedding_dim" if self.model == "dlrm" else "max_embedding_dim"] = widest
        if self.hidden:
            options["top" if self.model == "dlrm" else "hidden"] = _widths(self.hidden)
        if (self.model == "two_tower") != bool(self.query):
            raise CommandError(
                "Expected --query, the columns of the first tower, with --model two_tower, and with "
                f"no other. Received: --model {self.model}, --query {', '.join(self.query or ['none'])}."
            )
        if self.query:
            others = [c.name for c in columns if c.name not in self.query]
            options |= {"query": list(self.query), "candidate": others}
        return getattr(models, self.model)(Schema(columns), **options)


def make_optimizer(name: str, learning_rate: float | None) -> Any:
    """An optimizer that updates only the batch's rows of tables.

    Raises:
        CommandError: an unknown optimizer, or a learning rate that is not above 0.
    """
    from training import optimizers  # noqa: PLC0415 - so that help is shown at once

    known = {"adam": optimizers.Adam, "adagrad": optimizers.Adagrad, "sgd": optimizers.SGD}
    if name not in known:
        raise CommandError(
            f"Expected an optimizer among {', '.join(known)}. Received: {name}. Others can be used "
            "in Python: training.train(model, data, optimizer=keras.optimizers.Lion())."
        )
    if learning_rate is None:
        return known[name]()
    if not learning_rate > 0:
        raise CommandError(f"Expected a learning rate above 0. Received: {learning_rate}.")
    return known[name](learning_rate)


def class_weights(words: Sequence[str] | None) -> dict[int, float] | None:
    """Weights by label, from arguments such as `1=20`.

    Raises:
        CommandError: an argument of another form.

    Example:
        >>> class_weights(["0=1", "1=20"])
        {0: 1.0, 1: 20.0}
    """
    weights = {}
    for word in words or ():
        label, _, weight = word.partition("=")
        try:
            weights[int(label)] = float(weight)
        except ValueError:
            raise CommandError(
                f"Expected a class weight as LABEL=WEIGHT, such as 1=20. Received: {word!r}."
            ) from None
    return weights or None


def _widths(text: str) -> list[int]:
    widths = [int(word) if word.strip().isdigit() else 0 for word in text.split(",")]
    if min(widths) < 1:
        raise CommandError(
            f"Expected widths of layers, such as --hidden 256,128. Received: {text!r}."
        )
    return widths
