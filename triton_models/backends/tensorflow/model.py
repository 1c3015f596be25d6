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

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

# Each instance is a process with its own TensorFlow. `import tensorflow` would also import Keras,
# pandas and pyarrow: 130 MB more than the modules below, which can run a session. So these are
# imported from a package that is located, but not executed. `Session` and the loader of SavedModels
# are not among them: their modules take as long to import as the library does, in each instance.
_found = find_spec("tensorflow")
if _found is not None and "tensorflow" not in sys.modules:
    sys.modules["tensorflow"] = module_from_spec(_found)

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saved_model_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import errors

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
        self._run = session.function(
            [tensor.name for tensor in inputs.values()],
            [tensor.name for tensor in outputs.values()],
            in_this_thread=True,
        )

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
    if device is None or device >= _gpu_count():
        made.device_count["GPU"] = 0
    else:
        made.gpu_options.visible_device_list = str(device)
        made.gpu_options.allow_growth = True
    return made


def _gpu_count() -> int:
    # Only an instance on a GPU needs it.
    from tensorflow.python.framework import config  # noqa: PLC0415

    return len(config.list_physical_devices("GPU"))


class GraphSession:
    """A graph in a session of TensorFlow's C interface.

    Args:
        graph: a GraphDef.
        config: a ConfigProto.
    """

    def __init__(self, graph: Any, config: Any) -> None:
        made, options = c_api.PyGraph(), c_api.TF_NewImportGraphDefOptions()
        c_api.TF_ImportGraphDefOptionsSetPrefix(options, "")
        written = c_api.TF_NewBufferFromString(graph.SerializeToString())
        c_api.TF_DeleteImportGraphDefResults(
            c_api.TF_GraphImportGraphDefWithResults(made, written, options)
        )
        c_api.TF_DeleteBuffer(written)
        c_api.TF_DeleteImportGraphDefOptions(options)
        session_options = c_api.TF_NewSessionOptions(config=config)
        # It keeps the graph.
        self._session = c_api.TF_NewSessionRef(made, session_options)
        c_api.TF_DeleteSessionOptions(session_options)
        c_api.ExtendSession(self._session)

    def close(self) -> None:
        """Free the values of the variables."""
        c_api.TF_CloseSession(self._session)
        c_api.TF_DeleteSession(self._session)

    def function(
        self,
        feed: Iterable[str],
        fetch: Iterable[str],
        target: Iterable[str] = (),
        *,
        in_this_thread: bool = False,
    ) -> Callable[..., list[Any]]:
        """A function from arrays to arrays, which keeps its session alive.

        Args:
            feed: the names of the tensors that the arguments replace.
            fetch: the names of the tensors that are returned.
            target: the names of operations to run as well.
            in_this_thread: whether to run in the calling thread if the graph is on one device, since
                waking another thread takes longer than a small network.
        """
        options = config_pb2.CallableOptions(feed=feed, fetch=fetch, target=target)
        options.run_options.inter_op_thread_pool = -1 if in_this_thread else 0
        written = c_api.TF_NewBufferFromString(options.SerializeToString())
        handle = c_api.TF_SessionMakeCallable(self._session, written)
        c_api.TF_DeleteBuffer(written)
        return lambda *arrays: c_api.TF_SessionRunCallable(self._session, handle, arrays, None)


def _open(folder: Path, tag: str, config: Any) -> tuple[GraphSession, dict[str, Any]]:
    """A session with a SavedModel, and the signatures by name.

    Raises:
        ConfigError: no SavedModel with that tag.
    """
    model = _read(folder, tag)
    checks = _add_checks(model.graph_def)
    session = _load(folder, model, config)
    if not checks or all(session.function([], checks)()):
        # TensorFlow's own signatures, which initialise tables, have this prefix.
        mine = model.signature_def.items()
        return session, {n: s for n, s in mine if not n.startswith("__saved_model")}
    session.close()
    # Only TensorFlow 2 finds the values of Keras variables that were saved as such; a model that it
    # loads and saves has plain variables. This runs on the CPU: a session's options do not apply to
    # it, and it would take all memory of the first GPU.
    tf = _whole_tensorflow()
    tf.config.set_visible_devices([], "GPU")
    with tempfile.TemporaryDirectory() as anew:
        loaded = tf.saved_model.load(str(folder), tags=[tag])
        tf.saved_model.save(loaded, anew, signatures=dict(loaded.signatures))
        return _open(Path(anew), tag, config)


def _whole_tensorflow() -> Any:
    """TensorFlow as imported by `import tensorflow`."""
    if not hasattr(sys.modules["tensorflow"], "saved_model"):
        del sys.modules["tensorflow"]
    return import_module("tensorflow")


def _read(folder: Path, tag: str) -> Any:
    """The MetaGraphDef with a tag."""
    saved, binary = saved_model_pb2.SavedModel(), folder / "saved_model.pb"
    try:
        if binary.is_file():
            saved.ParseFromString(binary.read_bytes())
        else:
            text_format.Parse((folder / "saved_model.pbtxt").read_text(encoding="utf-8"), saved)
        models = {" ".join(model.meta_info_def.tags): model for model in saved.meta_graphs}
        return models[tag]
    except (OSError, ValueError, KeyError, DecodeError, text_format.ParseError) as error:
        is_other = isinstance(error, KeyError)
        raise ConfigError(
            f"Expected a SavedModel with the tag {tag!r} (parameter TF_GRAPH_TAG) in {folder}. "
            f"Received: {f'one with {sorted(models)}' if is_other else error}."
        ) from error


def _load(folder: Path, model: Any, config: Any) -> GraphSession:
    """A session with a graph, the values of its variables and its tables."""
    session, saver = GraphSession(model.graph_def, config), model.saver_def
    variables = folder / "variables" / "variables"
    if saver.restore_op_name and variables.with_suffix(".index").is_file():
        _run(session, saver.restore_op_name, {saver.filename_tensor_name: variables})
    if initializer := _initializer(model):
        _run(session, initializer, _assets(folder, model))
    return session


def _run(session: GraphSession, operation: str, files: Mapping[str, Path]) -> None:
    """Run an operation with the paths of files, by the names of the tensors that take them."""
    run = session.function(files, [], [operation.partition(":")[0]])
    run(*(np.array(str(file), object) for file in files.values()))


def _initializer(model: Any) -> str:
    """The operation that fills the tables; empty if there is none."""
    key = "__saved_model_init_op"
    if key in model.signature_def:
        return str(model.signature_def[key].outputs[key].name)
    for name in ("saved_model_main_op", "legacy_init_op"):  # of TensorFlow 1
        if name in model.collection_def:
            return str(model.collection_def[name].node_list.value[0])
    return ""


def _assets(folder: Path, model: Any) -> dict[str, Path]:
    """The files that the graph reads, by the names of the tensors that take their paths."""
    files = [*model.asset_file_def]
    for packed in model.collection_def["saved_model_assets"].any_list.value:  # of TensorFlow 1
        files.append(meta_graph_pb2.AssetFileDef())
        packed.Unpack(files[-1])
    return {file.tensor_info.name: folder / "assets" / file.filename for file in files}


def _add_checks(graph: Any) -> list[str]:
    """Add operations that return whether each variable has a value. Returns their tensors."""
    variables = [node for node in graph.node if node.op == "VarHandleOp"]
    for variable in variables:
        check = graph.node.add(name=f"triton/{variable.name}", op="VarIsInitializedOp")
        check.input.append(variable.name)
    return [f"triton/{variable.name}:0" for variable in variables]


def _types(tensors: Mapping[str, Any]) -> dict[str, TensorType]:
    types = {}
    for name, tensor in tensors.items():
        dtype = types_pb2.DataType.Name(tensor.dtype).removeprefix("DT_").lower()
        if dtype not in DATATYPES:
            raise ConfigError(f"Triton has no datatype for {name!r}. Received: {dtype}.")
        shape = tensor.tensor_shape
        dims = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        types[name] = TensorType(DATATYPES[dtype], dims)
    return types
