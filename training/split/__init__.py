"""A training step of which XLA compiles the dense part."""

from training.split.compile import compile_model, is_splittable

__all__ = ["compile_model", "is_splittable"]
