"""A batch's type for TensorFlow: parts in transit, tensors where they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.errors import LoaderError

Make = Callable[[Sequence[Any]], Any]


def batch_spec(parts: Sequence[tf.TensorSpec], make: Make) -> tf.TypeSpec:
    """The spec of elements that are split inside the function that uses them.

    A dataset's elements cross from function to function, where TensorFlow would move int32 through
    the host, and where each tensor has a cost. So only the parts cross; when TensorFlow asks the
    spec for the element, the spec adds the operations that make it.

    Args:
        parts: dtype and shape of each part.
        make: makes the element from the parts.
    """

    # A class for each spec: TensorFlow compares and copies specs by class and serialised form, and
    # a function cannot be serialised.
    class BatchSpec(tf.TypeSpec):
        value_type = property(lambda _: tuple)

        def _serialize(self) -> tuple[()]:
            return ()

        @property
        def _component_specs(self) -> list[tf.TensorSpec]:
            return list(parts)

        def _to_components(self, value: Any) -> Any:
            raise NotImplementedError("A batch is split once, and not put together again.")

        def _from_components(self, components: Any) -> Any:
            return make(components)

        def _to_legacy_output_shapes(self) -> Any:
            # TensorFlow calls this first when it cuts batches for replicas.
            raise LoaderError(
                "Expected a loader on the CPU to feed several replicas, since TensorFlow cuts its "
                'batches there. Received: one on a GPU. Pass device="cpu" to it, and its '
                "distribute(strategy) to fit, which hands out whole batches."
            )

    return BatchSpec()
