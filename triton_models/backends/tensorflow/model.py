"""The TensorFlow backend: serves SavedModels as NVIDIA's backend, gone since Triton 25.03, did.

Models stay as they are: `platform: "tensorflow_savedmodel"`, the model in
`<model>/<version>/model.savedmodel`, and the parameters TF_SIGNATURE_DEF, TF_GRAPH_TAG,
TF_NUM_INTRA_THREADS and TF_NUM_INTER_THREADS. Runs inside the server, on Python 3.10 and above
with numpy and TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from triton_models.backends.joint_calls import Tensors
    from triton_models.backends.model_backend import (
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        parameter,
        thread_count,
    )
else:  # In the server these files lie beside this one, outside any package.
    from joint_calls import Tensors
    from model_backend import (
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        parameter,
        thread_count,
    )

DATATYPES = {
    tf.bool: "TYPE_BOOL",
    tf.uint8: "TYPE_UINT8",
    tf.uint16: "TYPE_UINT16",
    tf.uint32: "TYPE_UINT32",
    tf.uint64: "TYPE_UINT64",
    tf.int8: "TYPE_INT8",
    tf.int16: "TYPE_INT16",
    tf.int32: "TYPE_INT32",
    tf.int64: "TYPE_INT64",
    tf.float16: "TYPE_FP16",
    tf.float32: "TYPE_FP32",
    tf.float64: "TYPE_FP64",
    tf.string: "TYPE_STRING",
}


class TritonPythonModel(ModelBackend):
    """A SavedModel's signature, called eagerly. The name is the one Triton looks for."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill inputs and outputs from the signature where the config leaves them out."""
        return complete_config(TritonPythonModel(), auto_complete_model_config)

    def load(self, path: Path, config: Mapping[str, Any], device: int | None) -> None:
        """Load the SavedModel and find its signature.

        Raises:
            ConfigError: no SavedModel with that tag, no such signature, or a dtype that Triton
                does not know.
        """
        _configure(config, device)
        folder = path / (config.get("default_model_filename") or "model.savedmodel")
        tag = parameter(config, "TF_GRAPH_TAG", "serve")
        # The signature does not keep the variables alive, the loaded object does.
        self._loaded = tf.saved_model.load(str(folder), tags=[tag])
        name = parameter(config, "TF_SIGNATURE_DEF", "serving_default")
        if name not in self._loaded.signatures:
            raise ConfigError(
                f"Expected the signature {name!r} (parameter TF_SIGNATURE_DEF) in {folder}. "
                f"Received: a SavedModel with the signatures {sorted(self._loaded.signatures)}."
            )
        signature = self._loaded.signatures[name]
        self.inputs = _types(signature.structured_input_signature[1])
        self.outputs = _types(signature.structured_outputs)
        self._run = _positional(signature, list(self.inputs), list(self.outputs), device)

    def call(self, tensors: Tensors) -> Tensors:
        """Call the signature once. Dtypes are as the config says; nothing is cast."""
        # An operation takes arrays, and faster than what `tf.constant` makes of them; but of an
        # empty array of objects it could not tell that they are strings. DLPack would save a copy,
        # and aborts the process on a buffer that is not aligned.
        arguments = [
            tf.constant(array, tf.string) if array.dtype == object else array
            for array in map(tensors.__getitem__, self.inputs)
        ]
        answered = self._run(arguments)
        return {name: tensor.numpy() for name, tensor in zip(self.outputs, answered, strict=True)}

    def is_server_fault(self, error: Exception) -> bool:
        """Out of memory and TensorFlow's own failures are not the request's fault."""
        faults = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)
        return isinstance(error, faults) or super().is_server_fault(error)


def _positional(
    signature: Any, inputs: Sequence[str], outputs: Sequence[str], device: int | None
) -> Callable[[list[Any]], Sequence[Any]]:
    """A signature as a function of tensors in the order of `inputs`, to those of `outputs`."""

    def in_order(*tensors: Any) -> list[Any]:
        answered = signature(**dict(zip(inputs, tensors, strict=True)))
        return [answered[name] for name in outputs]

    specs = signature.structured_input_signature[1]
    traced = tf.function(in_order, autograph=False)
    function = traced.get_concrete_function(*[specs[name] for name in inputs])
    if device is not None:
        # The operation below would first copy all of its arguments to the GPU, even strings.
        return lambda arguments: function(*map(tf.constant, arguments))
    captured = function.captured_inputs
    dtypes = [tensor.dtype for tensor in function.outputs]

    def run(arguments: list[Any]) -> Sequence[Any]:
        # What TensorFlow's own call comes to, without the Python before it, which binds
        # arguments, watches for gradients, and takes longer than a small network.
        return tf.raw_ops.StatefulPartitionedCall(
            args=[*arguments, *captured], Tout=dtypes, f=function
        )

    return run


def _types(specs: Mapping[str, Any]) -> dict[str, TensorType]:
    types = {}
    for name, spec in specs.items():
        if spec.dtype not in DATATYPES:
            raise ConfigError(f"Triton has no datatype for {name!r}. Received: {spec.dtype.name}.")
        dims = None if spec.shape.rank is None else spec.shape.as_list()
        shape = None if dims is None else tuple(-1 if dim is None else dim for dim in dims)
        types[name] = TensorType(DATATYPES[spec.dtype], shape)
    return types


def _configure(config: Mapping[str, Any], device: int | None) -> None:
    """Set threads and the visible GPU, before TensorFlow's first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(
        thread_count(config, "TF_NUM_INTRA_THREADS", 0)
    )
    tf.config.threading.set_inter_op_parallelism_threads(
        thread_count(config, "TF_NUM_INTER_THREADS", 0)
    )
    gpus = tf.config.list_physical_devices("GPU")
    if device is None or device >= len(gpus):
        tf.config.set_visible_devices([], "GPU")
        return
    tf.config.set_visible_devices(gpus[device], "GPU")
    tf.config.experimental.set_memory_growth(gpus[device], True)
