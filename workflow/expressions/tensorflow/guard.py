"""Guard against Grappler's rewriting of arithmetic.

Grappler, which optimises graphs before they run, trades exactness for speed: it multiplies with a
reciprocal instead of dividing, merges constants and sums, and turns 0 - x into a negation, which
unsigned integers lack. A guard hides a value from it, so that arithmetic is computed as written,
bit for bit.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

# Operations that Grappler merges with later arithmetic.
REWRITABLE = {"AddV2", "Sub", "Mul", "RealDiv", "Sqrt", "Neg", "Exp"}


def guarded(values: Any) -> Any:
    """The same values, hidden from Grappler. Eager tensors need no guard.

    Args:
        values: a tensor of any type and shape.

    Example:
        >>> third = tf.function(lambda x: x / guarded(x * 0 + 3))(tf.constant(1.0))
    """
    if not tf.is_symbolic_tensor(values):
        return values
    return tf.raw_ops.PlaceholderWithDefault(input=values, shape=values.shape)


def guarded_arithmetic(values: Any) -> Any:
    """The same values, guarded if they are floats that arithmetic made, or differences of integers.

    Of the square of a difference Grappler makes an operation that integers lack, except for int32 and int64.
    """
    if not tf.is_symbolic_tensor(values) or values.op.type not in REWRITABLE:
        return values
    squared = values.op.type == "Sub" and values.dtype not in (tf.int32, tf.int64)
    return guarded(values) if values.dtype.is_floating or squared else values
