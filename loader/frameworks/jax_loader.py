"""`JaxLoader`: parquet straight into JAX."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from loader.errors import LoaderError
from loader.files.layout import BatchLayout, refuse_strings
from loader.frameworks.array_loader import ArrayLoader
from loader.gpu.exported_tensor import ExportedTensor
from loader.opening.open_loader import Data, OpenedDevice

# From this size on, JAX borrows an array's memory faster than a compiled function copies it.
_BORROWED = 1 << 17


class JaxLoader(ArrayLoader):
    """Batches of a parquet data set as JAX arrays, read in the background.

    It has the arguments of `ArrayLoader`, and the same rows in the same order. Arrays are on JAX's
    default device. With `device="gpu:0"` cuDF decodes, TensorFlow has to be installed, and they are
    on that GPU.

    Unless `jax_enable_x64` is set, JAX has no numbers of 64 bits: int64 becomes int32, uint64
    uint32 and float64 float32. An integer that does not fit is an error, and so is a column of
    64-bit integers on a GPU.

    On a CPU, arrays of 128 KiB and more are the memory that was read, without a copy; nothing
    writes to it, and JAX copies what it is to overwrite (`donate_argnums`).

    If `jax.distributed` is initialised, each process takes its own share; pass the same `seed` to
    all.

    Raises:
        LoaderError: as `ArrayLoader` does; columns of strings, which JAX has no arrays for. While
            reading: an integer beyond 32 bits.

    Example:
        >>> train = JaxLoader(  # doctest: +SKIP
        ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
        ... )
        >>> for x, y in train:  # doctest: +SKIP
        ...     parameters = step(parameters, x, y)
    """

    def _current_worker(self) -> tuple[int, int] | None:
        return jax.process_count(), jax.process_index()

    def _check(self, layout: BatchLayout) -> None:
        refuse_strings(layout, "JAX")

    def _open(self, device: Any, data: Data) -> OpenedDevice:
        opened = super()._open(device, data)
        if opened.name != "cpu" and not jax.config.jax_enable_x64:
            _expect_32_bits(data.layout)
        return opened

    def _from_gpu(self, tensor: Any) -> Any:
        return jax.dlpack.from_dlpack(ExportedTensor(tensor))

    def _columns_of_gpu(self, batch: Any, transport: Any) -> Sequence[Any] | None:
        from loader.gpu.dlpack import ExportedView  # noqa: PLC0415 - it imports TensorFlow

        matrices = batch.matrices()
        sizes = {matrix.itemsize for matrix in matrices}
        if 8 in sizes and not jax.config.jax_enable_x64:
            return None
        # As integers, which nothing rounds or makes another NaN.
        bits = [matrix.view(f"i{matrix.itemsize}") for matrix in matrices]
        arrays = [jax.dlpack.from_dlpack(ExportedView(each, transport.number)) for each in bits]
        return _cut(arrays, transport.format.dtypes)

    def _tensors(self, arrays: Sequence[Any]) -> Iterable[Any]:
        if not jax.config.jax_enable_x64:
            arrays = [_in_32_bits(each) if each.dtype.itemsize == 8 else each for each in arrays]
        # The function is compiled for each shape, so it cannot take the values of lists.
        copied = [len(a) == self.batch_size and a.nbytes < _BORROWED for a in arrays]
        pairs = list(zip(arrays, copied, strict=True))
        copies = iter(_copy(*(each for each, is_copied in pairs if is_copied)))
        rest = [each for each, is_copied in pairs if not is_copied]
        borrowed = iter(jax.device_put(rest, may_alias=True))
        return [next(copies if is_copied else borrowed) for is_copied in copied]


@jax.jit
def _copy(*arrays: Any) -> Any:
    return arrays


@functools.partial(jax.jit, static_argnums=1)
def _cut(matrices: Sequence[Any], dtypes: Sequence[Sequence[tuple[str, str]]]) -> list[Any]:
    """The columns of matrices, by one compiled function: an array costs JAX more than its copy.

    Args:
        matrices: integers (columns, rows, 1).
        dtypes: for each of their columns the dtype of the bits, and its own.
    """
    return [
        jax.lax.bitcast_convert_type(column, bits).astype(dtype)
        for matrix, pairs in zip(matrices, dtypes, strict=True)
        for column, (bits, dtype) in zip(matrix, pairs, strict=True)
    ]


def _expect_32_bits(layout: BatchLayout) -> None:
    """Refuse integers of 64 bits, which JAX would cut on a GPU, where a check would wait for it."""
    for column in layout.columns:
        if column.type.dtype in ("int64", "uint64"):
            raise LoaderError(
                "Expected integers of 32 bits or fewer on a GPU, as JAX holds them. Received: "
                f"{column.name!r}, of {column.type}. Call "
                'jax.config.update("jax_enable_x64", True) first, or write the column as int32: '
                f'workflow.output_dtypes[{column.name!r}] = "int32".'
            )


def _in_32_bits(array: Any) -> Any:
    """Numbers of 64 bits as JAX holds them."""
    narrow = np.dtype(f"{array.dtype.kind}4")
    if array.dtype.kind != "f" and array.size:
        least, most = array.min(), array.max()
        limits = np.iinfo(narrow)
        if least < limits.min or most > limits.max:
            raise LoaderError(
                f"Expected integers that fit in {narrow}, as JAX holds them. Received: {least} to "
                f'{most}. Call jax.config.update("jax_enable_x64", True) first, or encode the column '
                "with Categorify."
            )
    return array.astype(narrow)
