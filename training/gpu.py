"""Whether there is a GPU to train on."""

from __future__ import annotations

import tensorflow as tf


def has_gpu() -> bool:
    """Whether TensorFlow computes on a GPU here."""
    return bool(tf.config.list_logical_devices("GPU"))
