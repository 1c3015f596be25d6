"""Batches as TensorFlow tensors and datasets."""
