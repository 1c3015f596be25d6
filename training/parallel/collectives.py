"""Tensors exchanged between the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Groups of devices, and their operations, have numbers that are the same on all workers. TensorFlow
# counts groups from 1, and operations from 100.
_HOSTS, _DEVICES, _COMPILED = 7001, 7002, 7003
_FIRST = 1 << 20
# The collection of a graph that has the exchanges that XLA compiles, in their order.
_ORDER = "exchanges_between_workers"


class Collectives:
    """Operations in which all workers take part, in the same order.

    Each has a number, to which TensorFlow ties the shape of its tensor, for as long as the process
    lives. So an operation of a training step has the same number in each step, or if its shape
    changes one for each shape: a new number every time would take 0.8 KB of memory every time.

    None of them has TensorFlow's own time limit, for which it starts two threads that sleep as long
    as that limit: a process with some thousand operations could start no more. See `failures`.

    Args:
        size: number of workers.
        rank: number of this worker.
        device: the device on which this worker trains.
        timeout: seconds to wait for other workers.
    """

    def __init__(self, size: int, rank: int, device: str, timeout: float) -> None:
        self.size = size
        self.rank = rank
        self.device = device
        self.host = (
            tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string()
        )
        self.timeout = timeout
        self.on_gpu = tf.DeviceSpec.from_string(device).device_type == "GPU"
        self._tokens = {}
        for place in (self.host, device):
            with tf.device(place):
                self._tokens[place] = tf.Variable(0.0, trainable=False)
        self._next = _FIRST

    def reserve(self, count: int) -> int:
        """The first of `count` numbers for operations; called on all workers in the same order."""
        first, self._next = self._next, self._next + count
        return first

    def total(self, tensor: tf.Tensor, number: int) -> tf.Tensor:
        """The sum over the workers of a tensor, which has the same shape on all of them."""
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor, merge_op="Add", final_op="Id", **self._common(self.device, number)
        )

    def gathered(self, tensor: tf.Tensor, number: int | tf.Tensor, place: str = "") -> tf.Tensor:
        """The rows of all workers, by rank, of a tensor with the same shape on all of them."""
        if tensor.dtype == tf.bfloat16:  # TensorFlow sums such tensors alone
            return tf.cast(self.gathered(tf.cast(tensor, tf.float32), number, place), tf.bfloat16)
        return tf.raw_ops.CollectiveGatherV2(
            input=tensor, **self._common(place or self.device, number)
        )

    def exchanged(self, tensor: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
        """The parts that all workers have for this one; on CPUs.

        Not on GPUs: between processes TensorFlow's all-to-all over NCCL takes the GPUs of this
        process for all of them, and mixes up the parts without an error (TensorFlow 2.21).

        Args:
            tensor: (workers, ...), a part for each worker, with the same shape on all of them.
            number: of the operation.

        Raises:
            TypeError: on a GPU.
        """
        if self.on_gpu:
            raise TypeError("all-to-all is for CPUs")
        return tf.raw_ops.CollectiveAllToAllV2(input=tensor, **self._common(self.device, number))

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """`work` as one function of XLA, whose exchanges are `summed` and `joined`; on GPUs.

        NCCL's kernels wait in the queue of the GPU, as all others do. TensorFlow's own operations
        end only when the GPU has ended them, so that the host, which sends no work meanwhile, can
        never be ahead of it. XLA joins exchanges of one dtype.

        Args:
            work: takes tensors and returns tensors, at least one.
        """
        function = tf.function(work, autograph=False, jit_compile=True, reduce_retracing=True)

        def call(*arguments: Any) -> Any:
            if tf.executing_eagerly():
                return function(*arguments)
            earlier = tf.compat.v1.get_default_graph().get_collection_ref(_ORDER)
            # In the same order on all workers: else one waits for what another has not begun.
            with tf.control_dependencies(earlier[-1:]):
                results = function(*arguments)
            earlier += tf.nest.flatten(results)[:1]
            return results

        return call

    def summed(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum over the workers of a tensor, in a function of XLA.

        Args:
            tensor: of the same shape on all workers.
        """
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor,
            merge_op="Add",
            final_op="Id",
            group_size=self.size,
            group_key=_COMPILED,
            instance_key=_COMPILED,
            ordering_token=[],
            communication_hint="nccl",
        )

    def joined(self, part: tf.Tensor, kind: tf.DType) -> tf.Tensor:
        """The rows of all workers by rank, (workers * n, ...), in a function of XLA.

        XLA exchanges sums alone: rows are sent as sums with zeros.

        Args:
            part: this worker's rows, (n, ...), of the same shape on all workers.
            kind: dtype in which they travel.
        """
        sent = tf.cast(part, kind)
        zeros = tf.zeros_like(sent)
        parts = [sent if rank == self.rank else zeros for rank in range(self.size)]
        return tf.cast(self.summed(tf.concat(parts, axis=0)), part.dtype)

    def texts(self, text: str) -> list[str]:
        """The text that each worker gives."""
        content = text.encode()
        with tf.device(self.host):
            lengths = self.gathered(tf.constant([len(content)]), self.reserve(1), self.host)
            # An operation on nothing ends the process.
            longest = max(int(tf.reduce_max(lengths)), 1)
            codes = tf.constant(list(content.ljust(longest)), tf.int32)
            together = self.gathered(codes[tf.newaxis], self.reserve(1), self.host).numpy()
        return [
            bytes(codes[:length].tolist()).decode()
            for codes, length in zip(together, lengths.numpy(), strict=True)
        ]

    def copy_from_first(self, variables: Sequence[tf.Variable]) -> None:
        """Set variables to their values on the first worker, a few million values at a time."""
        for variable in variables:
            for rows in _parts(variable):
                self._copy(variable, rows)

    def _copy(self, variable: tf.Variable, rows: range | None) -> None:
        # Not by a slice of the variable, which holds a copy of all of it if rows were updated, as of a table,
        # and else while it is assigned to.
        # Integers of GPUs are on the host; unsigned ones and bfloat16 cannot be sent.
        kind = variable.dtype if variable.dtype.is_floating else tf.int64
        kind = tf.float32 if kind == tf.bfloat16 else kind
        common = self._common(self.device, self.reserve(1))
        del common["ordering_token"]
        with tf.device(self.device):
            if self.rank == 0:
                value = variable
                if rows is not None:
                    value = tf.gather(variable, tf.range(rows.start, rows.stop))
                tf.raw_ops.CollectiveBcastSendV2(input=tf.cast(value, kind), **common)
                return
            shape = variable.shape if rows is None else (len(rows), *variable.shape[1:])
            received = tf.raw_ops.CollectiveBcastRecvV2(T=kind, shape=shape, **common)
            value = tf.cast(received, variable.dtype)
            if rows is None:
                variable.assign(value)
                return
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=variable.handle,
                begin=[rows.start],
                end=[rows.stop],
                strides=[1],
                value=value,
            )

    def _common(self, place: str, number: int | tf.Tensor) -> dict[str, Any]:
        on_gpu = self.on_gpu and place != self.host
        return {
            "group_size": self.size,
            "group_key": _HOSTS if place == self.host else _DEVICES,
            "instance_key": number,
            "ordering_token": [self._tokens[place].handle],
            "communication_hint": "nccl" if on_gpu else "ring",
        }


def _parts(variable: tf.Variable, values: int = 1 << 22) -> list[range | None]:
    """Ranges of rows with at most `values` values; None for a variable that is small enough as a whole."""
    size = variable.shape.num_elements()
    if size <= values:
        return [None]
    height = variable.shape[0]
    rows = max(values * height // size, 1)
    return [range(start, min(start + rows, height)) for start in range(0, height, rows)]
