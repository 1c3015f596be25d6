"""A training step that looks up outside of XLA and computes inside of it."""

from training.split.compile import compile_model

__all__ = ["compile_model"]
