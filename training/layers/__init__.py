"""Keras layers for tabular features, single values and lists."""

from training.layers.dense_features import DenseFeatures
from training.layers.embedding_bag import EmbeddingBag

__all__ = ["DenseFeatures", "EmbeddingBag"]
