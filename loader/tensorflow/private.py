"""All private names of TensorFlow that the loader uses.

Figures are processor time for a batch of 16,384 and of 65,536 rows of 40 scalar columns on two
cores, beside the public way.

- `OwnedIterator`: `iter(loader)` serves Python loops without a copy, and compiled steps. A Python
  loop takes 7.3 and 25 ms; 9.6 and 28 by the iterator of `tf.data`, 12.6 and 37 by
  `Dataset.from_generator`.
- `Dataset._variant_tensor` and `_inputs`: the loader is a `tf.data.Dataset` that knows its length.
  A compiled step takes 12.2 and 31 ms; 13.2 and 36 by `from_generator`, 18.7 and 58 by
  `keras.utils.PyDataset`, which Keras feeds through a queue and `from_generator`.
- `OwnedIterator._dataset`: workers compare the loaders that they train on.
- `TypeSpec._component_specs`, `_from_components` and `_to_legacy_output_shapes`: on a GPU a batch
  is split where it is used. Otherwise int32 would go through the host.
- `EagerFunc` and `_py_funcs`: a GPU operation calls Python without the checks of `tf.py_function`
  on every tensor, a fifth of such a call.

`tests/test_private_names.py` fails and names any of them that TensorFlow changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator as OwnedIterator  # noqa: PLC0414 - mypy's syntax for a re-export
from tensorflow.python.ops import script_ops

from workflow.schema.own_names import OwnNames

# The attributes that TensorFlow reads from an iterator that is passed to a function.
ITERATOR_PARTS = ("_element_spec", "_iterator_resource", "_get_next_call_count")


class HandleDataset(tf.data.Dataset, metaclass=OwnNames):
    """The dataset behind a handle of TensorFlow's runtime.

    Args:
        handle: a variant tensor, a dataset's only state.
        spec: dtypes and shapes of an element.
        inputs: the datasets that it derives from.
    """

    def __init__(
        self, handle: tf.Tensor, spec: Any, inputs: Sequence[tf.data.Dataset] = ()
    ) -> None:
        self._spec, self._sources = spec, list(inputs)
        super().__init__(handle)

    @property
    def element_spec(self) -> Any:
        """Dtypes and shapes of an element, as `tf.TypeSpec`s in its structure."""
        return self._spec

    @property
    def _variant_tensor(self) -> tf.Tensor:
        """The handle, which TensorFlow's transformations and iterators ask for."""
        self._check_reader()
        return super()._variant_tensor

    def _check_reader(self) -> None:
        """Raise an error if TensorFlow cannot read the elements."""

    def _inputs(self) -> list[tf.data.Dataset]:
        return self._sources


def handle_of(dataset: tf.data.Dataset) -> tf.Tensor:
    """The handle of a dataset in TensorFlow's runtime."""
    return dataset._variant_tensor  # noqa: SLF001


def dataset_of(iterator: tf.data.Iterator) -> tf.data.Dataset:
    """The dataset that an iterator reads."""
    return iterator._dataset  # noqa: SLF001


def parts_of(spec: tf.TypeSpec) -> list[tf.TensorSpec]:
    """Specs of the tensors that travel for one element."""
    return list(spec._component_specs)  # noqa: SLF001


def element_of(spec: tf.TypeSpec, parts: Sequence[Any]) -> Any:
    """The element made from its parts."""
    return spec._from_components(parts)  # noqa: SLF001


class DirectCall(script_ops.EagerFunc):
    """A Python function as an operation whose result TensorFlow takes without checks.

    `tf.py_function` checks whether each result is a tensor, on which device, and whether gradients
    are wanted: a fifth of the time of such a call. Here tensors stay on their device.

    Args:
        function: takes eager tensors and returns a list of them; called for as long as this object
            lives.
        dtypes: dtypes of the results.
    """

    def __init__(self, function: Callable[..., Any], dtypes: Sequence[tf.DType]) -> None:
        super().__init__(function, dtypes, is_grad_func=False)
        self._dtypes = list(dtypes)
        # As tf.py_function does.
        self._token = script_ops._py_funcs.insert(self)  # noqa: SLF001

    def __call__(self, device: str, token: bytes, args: Sequence[tf.Tensor]) -> Any:
        """The function's result; `device` and `token` are not needed."""
        del device, token
        return self._func(*args)

    def operation(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The operation that calls the function."""
        return tf.raw_ops.EagerPyFunc(input=inputs, token=self._token, Tout=self._dtypes)
