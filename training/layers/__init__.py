"""Keras layers for tabular features, single values and lists."""

from training.layers.cross_network import CrossNetwork
from training.layers.dense_features import DenseFeatures
from training.layers.dot_product import DotProductInteraction
from training.layers.embedding_bag import EmbeddingBag
from training.layers.embedding_collection import EmbeddingCollection
from training.layers.linear_features import LinearFeatures
from training.layers.outer_product import XDeepFMOuterProduct
from training.layers.sequence_embedding import SequenceEmbedding

__all__ = [
    "CrossNetwork",
    "DenseFeatures",
    "DotProductInteraction",
    "EmbeddingBag",
    "EmbeddingCollection",
    "LinearFeatures",
    "SequenceEmbedding",
    "XDeepFMOuterProduct",
]
