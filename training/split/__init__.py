"""A training step in two parts: XLA compiles the dense layers, TensorFlow's own kernels update tables."""

from training.split.compile import compile_model, is_splittable

__all__ = ["compile_model", "is_splittable"]
