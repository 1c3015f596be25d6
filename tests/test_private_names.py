"""Names of TensorFlow, Keras and Polars that are not public: still there, and used where it is said."""

from __future__ import annotations

import ast
import importlib
import inspect
from importlib.metadata import version
from pathlib import Path

import keras
import polars as pl
import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[1]
LOADER, TRAINING = "loader/tensorflow/private.py", "training/private.py"
FREEZE, BACKEND = (
    "exporter/write/onnx/from_tensorflow/freeze_network.py",
    "triton_models/backends/tensorflow/model.py",
)
# The only files of the product that may know a private name of another library.
FILES = {LOADER, TRAINING, FREEZE, BACKEND, "workflow/expressions/cudf/rows_on_gpu.py"}
# Methods of a base class that ours replace, and protocols; each is in NAMES.
PARTS_OF_OURS = {"training/optimizers/rows.py", "loader/tensorflow/batch_spec.py"}
PRODUCT = ("workflow", "loader", "training", "exporter", "serving", "triton_models")

C_API = "tensorflow.python.client.pywrap_tf_session"
CONVERT = "tensorflow.python.framework.convert_to_constants"
# The module, the name in it, the parameters that we pass or take (None: it is no function), the file.
NAMES = [
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", ["dataset", "components", "element_spec"], LOADER),
    ("tensorflow.python.data.ops.dataset_ops", "DatasetV2._variant_tensor", None, LOADER),
    ("tensorflow.python.data.ops.dataset_ops", "DatasetV2._inputs", ["self"], LOADER),
    ("tensorflow.python.ops.script_ops", "EagerFunc", ["func", "Tout", "is_grad_func"], LOADER),
    ("tensorflow.python.ops.script_ops", "EagerFunc.__call__", ["self", "device", "token", "args"], LOADER),
    ("tensorflow.python.ops.script_ops", "_py_funcs.insert", ["func"], LOADER),
    ("tensorflow", "TypeSpec._component_specs", None, LOADER),
    ("tensorflow", "TypeSpec._from_components", ["self", "components"], LOADER),
    ("tensorflow", "TypeSpec._to_legacy_output_shapes", ["self"], LOADER),
    ("tensorflow.python.eager.context", "Context.abort_collective_ops", ["self", "code", "message"], TRAINING),
    ("tensorflow.python.eager.context", "context", [], TRAINING),
    ("tensorflow.python.eager.context", "Context.configure_coordination_service",
     ["self", "service_type", "service_leader", "enable_health_check", "cluster_register_timeout_in_ms",
      "heartbeat_timeout_in_ms", "shutdown_barrier_timeout_in_ms", "coordinated_jobs"], TRAINING),
    ("tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2", "CoordinatedJob", None, TRAINING),
    ("tensorflow", "Operation._set_attr", ["self", "attr_name", "attr_value"], TRAINING),
    ("keras", "Layer._flatten_layers", ["self", "include_self", "recursive"], TRAINING),
    ("keras", "Model._maybe_symbolic_build", ["self", "iterator", "data_batch"], TRAINING),
    ("keras", "Optimizer._get_variable_index", ["self", "variable"], TRAINING),
    ("keras", "Optimizer._clip_gradients", ["self", "grads"], "training/optimizers/rows.py"),
    (CONVERT, "_FunctionConverterDataInEager", ["func", "lower_control_flow", "aggressive_inlining"], FREEZE),
    (CONVERT, "_FunctionConverterDataInEager._eval", ["self", "tensor"], FREEZE),
    (CONVERT, "_replace_variables_by_constants", ["converter_data"], FREEZE),
    (C_API, "PyGraph", None, BACKEND),
    (C_API, "TF_GraphImportGraphDefWithResults", None, BACKEND),
    (C_API, "TF_NewSessionOptions", ["target", "config"], BACKEND),
    (C_API, "TF_NewSessionRef", None, BACKEND),
    (C_API, "ExtendSession", None, BACKEND),
    (C_API, "TF_SessionMakeCallable", None, BACKEND),
    (C_API, "TF_SessionRunCallable", None, BACKEND),
    ("tensorflow.python.framework.config", "list_physical_devices", ["device_type"], BACKEND),
    ("tensorflow.python.framework.errors", "ResourceExhaustedError", ["node_def", "op", "message"], BACKEND),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name", "parameters", "file"), NAMES, ids=lambda part: str(part)[:60]
)
def test_a_private_name_is_what_it_was(module, name, parameters, file):
    library = module.partition(".")[0]
    release = tf.__version__ if library == "tensorflow" else version(library)
    told = f"{file} builds on {module}.{name}, which {library} {release} "
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        pytest.fail(told + "no longer has.")
    if parameters is not None:
        now = [*inspect.signature(found).parameters]
        assert now[: len(parameters)] == parameters, told + f"calls with {', '.join(now)}."


def test_models_and_optimizers_have_the_attributes_that_training_reads():
    told = f"{TRAINING} builds on it, and Keras {keras.__version__} no longer has it."
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    operation, number, _ = model.outputs[0]._keras_history
    assert operation is model.layers[-1], told
    assert operation._inbound_nodes[number].input_tensors[0] is model.inputs[0], told
    model.compile("sgd", "mse", loss_weights=[0.5], metrics=["mae"])
    compiled = {"loss": "mse", "loss_weights": [0.5], "metrics": ["mae"], "weighted_metrics": None}
    assert model._compile_config.config.items() >= compiled.items(), told
    assert model._compile_metrics is not None, told
    assert model._loss_tracker.name == "loss", told
    assert model._compile_loss.metrics == [], told
    masked = keras.layers.Masking()(tf.zeros((1, 2, 3)))
    assert masked._keras_mask.shape == (1, 2), told
    for kind, names in {
        "Adam": ["_momentums", "_velocities", "_velocity_hats"],
        "Adagrad": ["_accumulators"],
        "SGD": ["momentums"],
    }.items():
        settings = {"Adam": {"amsgrad": True}, "SGD": {"momentum": 0.5}}.get(kind, {})
        optimizer = getattr(keras.optimizers, kind)(**settings)
        optimizer.build(model.trainable_variables)
        assert len(optimizer._trainable_variables) == 2, told
        for name in names:
            assert [v.shape for v in getattr(optimizer, name)] == [(1, 1), (1,)], f"{name}: {told}"


def test_a_variable_has_the_name_that_a_saved_model_contains():
    variable = tf.Variable(1.0, name="weight")
    told = f"{TRAINING} builds on it, and TensorFlow {tf.__version__} no longer has it."
    assert variable._handle_name == "weight:0", told


def test_columns_of_shared_embeddings_have_their_settings():
    told = f"{TRAINING} builds on it, and TensorFlow {tf.__version__} no longer has it."
    with tf.Graph().as_default():
        ids = [tf.feature_column.categorical_column_with_identity(n, 3) for n in ("a", "b")]
        first, _ = tf.feature_column.shared_embeddings(ids, 4, trainable=False)
    names = vars(first.shared_embedding_column_creator)
    assert names.keys() >= {"_initializer", "_trainable", "_ckpt_to_load_from"}, told
    assert names["_trainable"] is False, told
    assert first.shared_embedding_column_creator.dimension == 4, told


def test_a_query_has_the_plan_that_cudf_translates():
    told = f"workflow/expressions/cudf/rows_on_gpu.py builds on it, and Polars {version('polars')} no longer has it."
    assert callable(getattr(pl.LazyFrame()._ldf, "visit", None)), told


def test_a_compiled_step_asks_an_iterator_for_its_known_parts():
    from loader.tensorflow.private import ITERATOR_PARTS, OwnedIterator

    asked = set()

    class Late(OwnedIterator):
        def __init__(self, dataset):
            self._late = dataset

        def __getattr__(self, name):
            asked.add(name)
            if name not in ITERATOR_PARTS:
                raise AttributeError(name)
            super().__init__(self._late)
            return object.__getattribute__(self, name)

    @tf.function
    def step(iterator):
        return next(iterator)

    assert int(step(Late(tf.data.Dataset.range(3)))) == 0
    assert asked & set(ITERATOR_PARTS), "TensorFlow asks for none of them."


def foreign_names(path: Path, own: set[str]) -> list[str]:
    """Private names of others: modules below tensorflow.python or keras.src, and `_names` nobody here makes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            private = parts[:2] in (["tensorflow", "python"], ["keras", "src"])
            found += [node.module] if private else []
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            found += [node.attr] if not node.attr.startswith("__") and node.attr not in own else []
    return found


def made_here() -> set[str]:
    """Every name that the product itself defines, assigns or gives a named tuple."""
    own = {"_replace", "_exit"}  # of named tuples, of the C library
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
    return own - {
        "_keras_history",
        "_keras_mask",
        "_maybe_symbolic_build",
        "_from_components",
        "_component_specs",
    }


def product_files() -> list[Path]:
    return [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]


def test_private_names_of_others_stand_in_their_files_alone():
    own = made_here()
    found = {
        str(path.relative_to(ROOT)): names
        for path in product_files()
        if (names := foreign_names(path, own))
    }
    assert found.keys() - FILES - PARTS_OF_OURS == set(), found
    assert found.keys() >= FILES, "A file that knows no private name any more leaves this list."
