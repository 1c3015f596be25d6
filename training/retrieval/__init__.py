"""Retrieval: softmax training of two towers, vectors of items, nearest items and their metrics."""

from training.item_vectors import ItemVectors
from training.retrieval.loss import SoftmaxLoss
from training.retrieval.metrics import ranking_metrics
from training.retrieval.softmax import InBatchSoftmax, SampledSoftmax
from training.retrieval.towers import tower
from training.retrieval.write_vectors import write_item_vectors

__all__ = [
    "InBatchSoftmax",
    "ItemVectors",
    "SampledSoftmax",
    "SoftmaxLoss",
    "ranking_metrics",
    "tower",
    "write_item_vectors",
]
