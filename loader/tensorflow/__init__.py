"""Batches as TensorFlow's tensors and datasets."""
