"""Softmax over items: the settings, and the layer that computes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import make_fields_plain, whole_number


@dataclass(frozen=True)
class InBatchSoftmax(metaclass=OwnNames):
    """A softmax over the items of the batch, corrected for their popularity.

    A popular item is a negative of many rows, and would be ranked too low. So the logarithm of its
    frequency, which `StreamingFrequency` estimates, is subtracted from its logit. An item that
    occurs in several rows is no negative of them.

    Source: X. Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations, RecSys 2019. There, repeated items stay negatives of one another.

    Attributes:
        item: the candidate's column that identifies the item, with one id a row.
        temperature: divides the cosines, which are at most 1; smaller is sharper.
        rate: of `StreamingFrequency`; None for no correction.

    Raises:
        TrainingError: invalid settings.

    Example:
        >>> sizes = {"userId": (1000, 16), "movieId": (500, 16)}
        >>> softmax = InBatchSoftmax("movieId", temperature=0.1)
        >>> model = models.two_tower(sizes, query=["userId"], candidate=["movieId"], softmax=softmax)
    """

    item: str
    temperature: float = 0.05
    rate: float | None = 0.05

    def __post_init__(self) -> None:
        make_fields_plain(self)
        _expect_temperature(self.temperature)
        if self.rate is not None and not (_is_positive(self.rate) and self.rate <= 1):
            raise TrainingError(
                f"Expected rate above 0 and up to 1, or None. Received: rate={self.rate!r}."
            )


@dataclass(frozen=True)
class SampledSoftmax(metaclass=OwnNames):
    """A softmax over the row's item and random items of the catalogue, corrected for their shares.

    Items that are rare in the data are negatives too, unlike those of a batch. The logarithm of the
    expected number of draws is subtracted from each logit.

    Source: Y. Bengio and J.-S. Senécal, Adaptive Importance Sampling to Accelerate Training of a
    Neural Probabilistic Language Model, IEEE Transactions on Neural Networks, 2008.

    Attributes:
        item: as in `InBatchSoftmax`.
        items: the catalogue: a row for each item, with the candidate's columns as the workflow makes
            them; a frame, parquet, or whatever else the loader takes.
        count: how many items to draw in each step.
        popularity: a column of `items` with the items' counts or shares, to draw in proportion to
            them; None to draw each item equally often.
        temperature: as in `InBatchSoftmax`.
        seed: of the draws.

    Raises:
        TrainingError: invalid settings.

    Example:
        >>> import polars as pl
        >>> items = pl.DataFrame({"movieId": range(500)}, {"movieId": pl.Int32})
        >>> softmax = SampledSoftmax("movieId", items, count=100)
        >>> sizes = {"userId": (1000, 16), "movieId": (500, 16)}
        >>> model = models.two_tower(sizes, query=["userId"], candidate=["movieId"], softmax=softmax)
    """

    item: str
    items: Any
    count: int = 1000
    popularity: str | None = None
    temperature: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        make_fields_plain(self)
        _expect_temperature(self.temperature)
        whole_number("count", self.count, 1, TrainingError)
        whole_number("seed", self.seed, 0, TrainingError)
        if not isinstance(self.popularity, str | None):
            raise TrainingError(
                "Expected popularity as the name of a column of items, or None. "
                f"Received: {self.popularity!r:.100}."
            )


def _expect_temperature(temperature: Any) -> None:
    if not _is_positive(temperature):
        raise TrainingError(
            f"Expected a finite temperature above 0. Received: temperature={temperature!r}."
        )


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class LogProbability(keras.layers.Layer):
    """The logarithm of a softmax's probability of each row's own item.

    Args:
        temperature: divides the products of vectors.
        **options: of `keras.layers.Layer`.

    Example:
        >>> import numpy as np
        >>> batch = {"vectors": tf.eye(2), "ids": tf.constant([[3], [4]])}
        >>> made = LogProbability(1.0)(tf.eye(2), batch, batch)
        >>> np.exp(made.numpy()).round(3).ravel()  # e / (e + 1)
        array([0.731, 0.731], dtype=float32)
    """

    def __init__(self, temperature: float, **options: Any) -> None:
        super().__init__(**{"dtype": "float32", **options})
        self.temperature = temperature

    def call(self, query: tf.Tensor, own: dict[str, Any], others: dict[str, Any]) -> tf.Tensor:
        """The log probabilities, (N, 1).

        Args:
            query: vectors (N, width).
            own: each row's item: "vectors" (N, width), "ids" (N, 1), and "log_share" (N, 1), if it is
                to be corrected, which is subtracted from its logit.
            others: further items, likewise, (M, ...); one with the id of a row's own item is left
                out for that row.
        """
        logits = tf.linalg.matmul(query, others["vectors"], transpose_b=True) / self.temperature
        if "log_share" in others:
            logits -= tf.transpose(others["log_share"])
        same = own["ids"] == tf.transpose(tf.cast(others["ids"], own["ids"].dtype))
        logits = tf.where(same, logits.dtype.min, logits)
        cosine = tf.reduce_sum(query * own["vectors"], axis=1, keepdims=True)
        positive = cosine / self.temperature - own.get("log_share", 0.0)
        return positive - tf.reduce_logsumexp(
            tf.concat([positive, logits], axis=1), axis=1, keepdims=True
        )

    def compute_output_spec(self, query: Any, *_: Any) -> Any:
        """One number a row."""
        return keras.KerasTensor((query.shape[0], 1), "float32")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "temperature": self.temperature}
