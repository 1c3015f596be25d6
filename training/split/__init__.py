"""A training step of which XLA compiles what it is good at."""

from training.split.compile import compile_model, is_splittable

__all__ = ["compile_model", "is_splittable"]
