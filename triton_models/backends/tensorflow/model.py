"""The TensorFlow backend: serves SavedModels like NVIDIA's backend, removed in Triton 25.03.

Models need no change: `platform: "tensorflow_savedmodel"`, the model in
`<model>/<version>/model.savedmodel`, and the parameters TF_SIGNATURE_DEF, TF_GRAPH_TAG,
TF_NUM_INTRA_THREADS and TF_NUM_INTER_THREADS. Runs inside the server, on Python 3.10 and above with
numpy and TensorFlow.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Each instance is a process with its own TensorFlow. `import tensorflow` would also import Keras,
# pandas and pyarrow: 130 MB more than the modules below, which can run a session. So these are
# imported from a package that is located, but not executed.
_found = find_spec("tensorflow")
if _found is not None and "tensorflow" not in sys.modules:
    sys.modules["tensorflow"] = module_from_spec(_found)

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client.session import Session
from tensorflow.python.framework import config as devices
from tensorflow.python.framework import dtypes, errors
from tensorflow.python.framework.ops import Graph
from tensorflow.python.ops.gen_resource_variable_ops import var_is_initialized_op
from tensorflow.python.platform import tf_logging
from tensorflow.python.saved_model import loader_impl

if TYPE_CHECKING:
    from triton_models.backends.joint_calls import Tensors
    from triton_models.backends.model_backend import (
        DATATYPES,
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        parameter,
        thread_count,
    )
else:  # In the server these files are beside this one, outside any package.
    from joint_calls import Tensors
    from model_backend import (
        DATATYPES,
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        parameter,
        thread_count,
    )


class TritonPythonModel(ModelBackend):
    """A SavedModel's signature in a session. Triton requires this class name."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill inputs and outputs from the signature if the config omits them."""
        return complete_config(TritonPythonModel(), auto_complete_model_config)

    def load(self, path: Path, config: Mapping[str, Any], device: int | None) -> None:
        """Load the SavedModel into a session and find its signature.

        Raises:
            ConfigError: no SavedModel with that tag, no such signature, or a dtype that Triton does
                not know.
        """
        folder = path / (config.get("default_model_filename") or "model.savedmodel")
        tag = parameter(config, "TF_GRAPH_TAG", "serve")
        session, signatures = _open(folder, tag, _session_config(config, device))
        name = parameter(config, "TF_SIGNATURE_DEF", "serving_default")
        if name not in signatures:
            raise ConfigError(
                f"Expected the signature {name!r} (parameter TF_SIGNATURE_DEF) in {folder}. "
                f"Received: a SavedModel with the signatures {sorted(signatures)}."
            )
        inputs, outputs = dict(signatures[name].inputs), dict(signatures[name].outputs)
        self.inputs, self.outputs = _types(inputs), _types(outputs)
        self._run = _callable(session, inputs.values(), outputs.values())

    def call(self, tensors: Tensors) -> Tensors:
        """Call the signature once. Dtypes are as in the config; nothing is cast."""
        answered = self._run(*map(tensors.__getitem__, self.inputs))
        return dict(zip(self.outputs, answered, strict=True))

    def is_server_fault(self, error: Exception) -> bool:
        """Whether it is out of memory, or an internal failure of TensorFlow."""
        faults = (errors.ResourceExhaustedError, errors.InternalError)
        return isinstance(error, faults) or super().is_server_fault(error)


def _session_config(config: Mapping[str, Any], device: int | None) -> Any:
    """The numbers of threads, and the only GPU that an instance sees, if any."""
    made = config_pb2.ConfigProto(
        intra_op_parallelism_threads=thread_count(config, "TF_NUM_INTRA_THREADS", 0),
        inter_op_parallelism_threads=thread_count(config, "TF_NUM_INTER_THREADS", 0),
        allow_soft_placement=True,
    )
    if device is None or device >= len(devices.list_physical_devices("GPU")):
        made.device_count["GPU"] = 0
    else:
        made.gpu_options.visible_device_list = str(device)
        made.gpu_options.allow_growth = True
    return made


def _open(folder: Path, tag: str, config: Any) -> tuple[Any, dict[str, Any]]:
    """A session with a SavedModel, and the signatures by name.

    Raises:
        ConfigError: no SavedModel with that tag.
    """
    session, signatures = _load(folder, tag, config)
    if _is_complete(session):
        return session, signatures
    session.close()
    # Only TensorFlow 2 finds the values of Keras variables that were saved as such; a model that it
    # loads and saves has plain variables. This runs on the CPU: a session's options do not apply to
    # it, and it would take all memory of the first GPU.
    tf = _whole_tensorflow()
    tf.config.set_visible_devices([], "GPU")
    with tempfile.TemporaryDirectory() as anew:
        loaded = tf.saved_model.load(str(folder), tags=[tag])
        tf.saved_model.save(loaded, anew, signatures=dict(loaded.signatures))
        return _load(Path(anew), tag, config)


def _whole_tensorflow() -> Any:
    """TensorFlow as imported by `import tensorflow`."""
    if not hasattr(sys.modules["tensorflow"], "saved_model"):
        del sys.modules["tensorflow"]
    return import_module("tensorflow")


def _load(folder: Path, tag: str, config: Any) -> tuple[Any, dict[str, Any]]:
    # TensorFlow logs that this loader, the one for C++ servers, is deprecated.
    tf_logging.get_logger().setLevel("ERROR")
    session = Session(graph=Graph(), config=config)
    try:
        with session.graph.as_default():
            loaded = loader_impl.load(session, [tag], str(folder))
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"Expected a SavedModel with the tag {tag!r} (parameter TF_GRAPH_TAG) in {folder}. "
            f"Received: {error}"
        ) from error
    # TensorFlow's own signatures, which initialise tables, have this prefix.
    mine = {n: s for n, s in loaded.signature_def.items() if not n.startswith("__saved_model")}
    return session, mine


def _is_complete(session: Any) -> bool:
    """Whether all variables of a session have values."""
    with session.graph.as_default():
        known = [
            var_is_initialized_op(operation.outputs[0])
            for operation in session.graph.get_operations()
            if operation.type == "VarHandleOp"
        ]
    return all(session.run(known))


def _callable(
    session: Any, inputs: Iterable[Any], outputs: Iterable[Any]
) -> Callable[..., list[Any]]:
    """A function from arrays to arrays, which keeps its session alive.

    `Session.run` without its Python code. It runs in the calling thread if the graph is on one
    device, since waking another thread takes longer than a small network.
    """
    options = config_pb2.CallableOptions(
        feed=[tensor.name for tensor in inputs], fetch=[tensor.name for tensor in outputs]
    )
    options.run_options.inter_op_thread_pool = -1
    run: Callable[..., list[Any]] = session._make_callable_from_options(options)  # noqa: SLF001
    return run


def _types(tensors: Mapping[str, Any]) -> dict[str, TensorType]:
    types = {}
    for name, tensor in tensors.items():
        dtype = dtypes.as_dtype(tensor.dtype).name
        if dtype not in DATATYPES:
            raise ConfigError(f"Triton has no datatype for {name!r}. Received: {dtype}.")
        shape = tensor.tensor_shape
        dims = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        types[name] = TensorType(DATATYPES[dtype], dims)
    return types
