"""What each runtime writes, and what it refuses before it writes anything."""

import json
import resource
import signal

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from small_export import make_workflow, rows, tree

from exporter import ExportError, ServingOptions, onnx_model, verify
from exporter.config import parse_config
from exporter.onnx_network import network_to_onnx
from exporter.options import RUNTIMES
from training import layers, model_signature, models
from training.saved_model import network_function
from workflow import Workflow, get_embedding_sizes, ops
from workflow.wire import parse_columns

BATCHED = {runtime: ServingOptions(runtime=runtime, max_batch_size=64) for runtime in RUNTIMES}
ONNX = ["onnx", "fused_onnx"]
PRICE = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()


def configs(report):
    return {
        model.name: parse_config((report.repository / model.name / "config.pbtxt").read_text())
        for model in report.plan.models
    }


def onnx_file(report, name):
    return report.paths[name] / "model.onnx"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_requests_are_joined_where_a_batch_size_is_given(runtime, export):
    by_name = configs(export(serving=BATCHED[runtime]))
    published = by_name["movies"]
    assert len(by_name) == (1 if runtime.startswith("fused") else 3)
    for config in by_name.values():
        assert config.max_batch_size == 64
        assert config.HasField("dynamic_batching") == (config.platform != "ensemble")
    dims = {tensor.name: list(tensor.dims) for tensor in published.input}
    assert dims == {"userId": [1], "genres": [-1], "genres__nnzs": [1], "price": [1]}
    ragged = {tensor.name for tensor in published.input if tensor.allow_ragged_batch}
    assert ragged == {"genres"}
    columns = parse_columns(published.parameters["inputs"].string_value)
    assert {c.name: c.layout for c in columns}["genres"] == "padded"


@pytest.mark.parametrize("runtime", ONNX)
def test_onnx_models_run_on_the_stock_backend(runtime, export):
    for config in configs(export(serving=BATCHED[runtime])).values():
        if config.platform == "ensemble":
            continue
        assert config.backend == "onnxruntime"
        assert config.parameters["intra_op_thread_count"].string_value == "1"
        ragged = [tensor.name for tensor in config.input if tensor.allow_ragged_batch]
        made = {(i.source_input[0], i.target_name[0], i.kind) for i in config.batch_input}
        kind = 5  # BATCH_ITEM_SHAPE_FLATTEN
        assert made == {(name, f"{name}__widths", kind) for name in ragged}
        assert ragged == ["genres"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_fused_model_and_an_ensemble_can_follow_each_other(runtime, export):
    export(serving=ServingOptions(runtime="fused_onnx"))
    report = export(version=2, serving=ServingOptions(runtime=runtime))
    assert verify(report.repository, "movies") == report.generation
    older = list(configs(report)["movies"].version_policy.specific.versions)
    assert older == ([1, 2] if runtime == "fused_onnx" else [2])


def test_a_fused_model_may_not_take_the_place_of_a_step(export):
    export()
    with pytest.raises(ExportError, match="Expected movies_nvt to be what clients ask"):
        export(name="movies_nvt", version=2, serving=ServingOptions(runtime="fused_onnx"))


def test_few_versions_stay_loadable_if_so_asked(export):
    options = ServingOptions(runtime="fused_onnx", keep_versions=2)
    for version in (1, 2, 3):
        report = export(version=version, serving=options)
    assert list(configs(report)["movies"].version_policy.specific.versions) == [2, 3]


def test_options_reach_the_config(export):
    options = ServingOptions(
        max_batch_size=32,
        max_queue_delay_us=100,
        max_queue_size=9,
        queue_timeout_us=5000,
        response_cache=True,
        network_instances=2,
        network_kind="KIND_GPU",
        max_rows=7,
        max_list_length=8,
        max_string_bytes=9,
    )
    report = export(serving=options)
    nvt, tf_, ensemble = configs(report).values()
    for config in (nvt, tf_):
        batching = config.dynamic_batching
        assert batching.max_queue_delay_microseconds == 100
        assert batching.default_queue_policy.max_queue_size == 9
        assert batching.default_queue_policy.default_timeout_microseconds == 5000
    assert [(group.count, group.kind) for group in tf_.instance_group] == [(2, 1)]
    assert ensemble.response_cache.enable
    assert json.loads(nvt.parameters["limits"].string_value) == options.limits
    shown = " ".join(str(report).split())
    for words in ("joined to 32 rows", "max_queue_size 9", "max_rows 7", "network on KIND_GPU"):
        assert words in shown


@pytest.mark.parametrize("runtime", [r for r in RUNTIMES if r != "tensorflow"])
def test_a_limit_that_a_runtime_cannot_check_is_refused(runtime, export, tmp_path):
    with pytest.raises(ExportError, match=r'Expected no max_rows: .*Use runtime="tensorflow"'):
        export(serving=ServingOptions(runtime=runtime, max_rows=10))
    assert not (tmp_path / "models").exists()


def mixed_case():
    """Names that differ from their lower case, and an output's name of two words."""
    data = {"userID": [1.0, 2.0], "Price": [1.0, 2.0]}
    inputs = {name: keras.Input((1,), name=name, dtype="float64") for name in data}
    joined = keras.layers.Concatenate()([keras.ops.cast(t, "float32") for t in inputs.values()])
    network = keras.Model(inputs, {"TheScore": keras.layers.Dense(1)(joined)})
    return network, Workflow(list(data)).fit(data)


@pytest.mark.parametrize("runtime", ONNX)
def test_names_are_kept_to_the_letter(runtime, export):
    report = export(*mixed_case(), labels=[], serving=ServingOptions(runtime=runtime))
    model = onnx.load(onnx_file(report, report.plan.models[-2 if runtime == "onnx" else -1].name))
    assert {tensor.name for tensor in model.graph.input} == {"userID", "Price"}
    assert [tensor.name for tensor in model.graph.output] == ["TheScore"]


def ask_fused(report, feed):
    session = onnxruntime.InferenceSession(
        str(onnx_file(report, "movies")), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)[0]


def test_large_tables_lie_beside_the_model(export, monkeypatch):
    sizes = {"userId": (30_000, 8)}
    network = models.mlp(sizes, ["price"], hidden=(4,), id_dtypes={"userId": "int64"})
    pipeline = Workflow(PRICE + (["userId"] >> ops.Categorify())).fit(rows())
    options = ServingOptions(runtime="fused_onnx")
    inside = export(network, pipeline, labels=[], serving=options)
    assert [path.name for path in inside.paths["movies"].iterdir() if "data" in path.name] == []
    monkeypatch.setattr(onnx_model, "EMBEDDED_BYTES", 100_000)
    beside = export(network, pipeline, labels=[], version=2, serving=options)
    tables = beside.paths["movies"] / "tables.data"
    assert tables.stat().st_size >= 30_000 * 8 * 4
    assert onnx_file(beside, "movies").stat().st_size < 100_000
    feed = {"userId": np.array([[2], [7]]), "price": np.array([[1.0], [np.nan]])}
    np.testing.assert_array_equal(ask_fused(beside, feed), ask_fused(inside, feed))
    assert verify(beside.repository, "movies") == beside.generation


@keras.saving.register_keras_serializable(package="tests")
class Mystery(keras.layers.Layer):
    """A layer of an operation that ONNX does not have."""

    def call(self, x):
        return tf.math.igamma(tf.ones_like(x), x)

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("runtime", ONNX)
def test_a_hash_of_strings_is_refused_before_anything_is_written(runtime, export, tmp_path):
    data = {"city": ["a", "b"], "price": [1.0, 2.0]}
    pipeline = Workflow((["city"] >> ops.HashBucket(10)) + PRICE).fit(data)
    network = models.mlp({"city": (10, 4)}, ["price"], hidden=(4,), id_dtypes={"city": "int32"})
    with pytest.raises(ExportError, match=r'city.*Use runtime="tensorflow"'):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", ONNX)
def test_a_network_that_onnx_cannot_express_is_refused(runtime, export, tmp_path):
    price = keras.Input((1,), name="price")
    network = keras.Model({"price": price}, {"score": Mystery()(price)})
    with pytest.raises(ExportError, match=r'Igamma.*Use runtime="tensorflow"'):
        export(
            network,
            Workflow(PRICE).fit(rows()),
            labels=[],
            serving=ServingOptions(runtime=runtime),
        )
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", ONNX)
def test_a_network_of_strings_is_refused(runtime, export, tmp_path):
    word = keras.Input((1,), name="word", dtype="string")
    layer = keras.layers.StringLookup(vocabulary=["a", "b"])
    network = keras.Model({"word": word}, {"id": layer(word)})
    pipeline = Workflow(["word"]).fit({"word": ["a", "b"]})
    with pytest.raises(ExportError, match=r"without strings.*word.*Use runtime"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


def test_a_column_that_a_saved_model_would_rename_is_refused(export, tmp_path):
    data = {"user-id": [1.0, 2.0]}
    doubled = (["user-id"] >> ops.LambdaOp(lambda x: x * 2)) >> ops.Rename(name="x")
    network = keras.Model(
        {"x": (x := keras.Input((1,), name="x", dtype="float64"))},
        {"y": keras.layers.Identity(dtype="float64")(x)},
    )
    pipeline = Workflow(doubled).fit(data)
    with pytest.raises(ExportError, match=r"TensorFlow renames .*user-id.*or one of ONNX"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime="fused_tensorflow"))
    assert not (tmp_path / "models").exists()
    export(network, pipeline, labels=[], serving=ServingOptions(runtime="fused_onnx"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_output_named_as_an_input_is_refused(runtime, export, tmp_path):
    price = keras.Input((1,), name="price", dtype="float64")
    network = keras.Model(
        {"price": price}, {"price": keras.layers.Identity(dtype="float64")(price)}
    )
    with pytest.raises(ExportError, match=r"'price' is made twice.*Give one of them another name"):
        export(
            network,
            Workflow(["price"]).fit(rows()),
            labels=[],
            serving=ServingOptions(runtime=runtime),
        )
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_full_disk_leaves_the_old_version_as_it_was(runtime, export, tmp_path):
    """What is written by Python, by onnx and by TensorFlow is refused alike."""
    options = ServingOptions(runtime=runtime)
    export(serving=options)
    before = tree(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, limits[1]))
    try:
        with pytest.raises(ExportError, match=r"Expected to be able to write.*too large"):
            export(version=2, serving=options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert tree(tmp_path) == before


def fixed_network(width):
    genres = keras.Input((width,), name="genres", dtype="int64")
    vectors = keras.layers.Embedding(16, 4)(genres)
    score = keras.layers.Dense(1, name="score")(keras.layers.Flatten()(vectors))
    return keras.Model({"genres": genres}, score)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_list_of_a_fixed_width_is_sent_cut(runtime, export):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    options = BATCHED[runtime]
    report = export(
        fixed_network(3), pipeline, labels=[], sparse_max={"genres": 3}, serving=options
    )
    (column,) = report.plan.pipeline.client_columns
    assert (column.layout, column.width) == ("padded", 3)
    (tensor, _) = configs(report)["movies"].input
    assert (list(tensor.dims), tensor.allow_ragged_batch) == ([3], False)


@pytest.mark.parametrize(
    ("sparse_max", "reason"),
    [
        ({"genres": 4}, "Expected sparse_max of 'genres' to be 3.*Received: 4"),
        ({"userId": 3}, r"Received: 'userId'.*keras.Input\(\(3,\), name='userId'\)"),
    ],
)
def test_a_width_that_is_not_the_networks_is_refused(sparse_max, reason, export, tmp_path):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    with pytest.raises(ExportError, match=reason):
        export(fixed_network(3), pipeline, labels=[], sparse_max=sparse_max)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": -1},
        {"max_batch_size": 2.0},
        {"max_queue_size": 5},
        {"queue_timeout_us": 5},
        {"warm_up": True},
        {"keep_versions": 0},
        {"max_rows": 0},
        {"max_string_bytes": "9"},
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(ExportError, match=r"Expected|Set max_batch_size as well"):
        ServingOptions(**options)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_users_objects_are_not_changed(runtime, export):
    pipeline = make_workflow()
    network = models.mlp(get_embedding_sizes(pipeline), ["price"], max_embedding_dim=4)
    weights = [np.array(weight) for weight in network.get_weights()]
    config, nodes = network.get_config(), len(network._inbound_nodes)
    dtypes = dict(pipeline.output_dtypes)
    export(network, pipeline, serving=BATCHED[runtime])
    assert network.get_config() == config
    assert len(network._inbound_nodes) == nodes
    assert dict(pipeline.output_dtypes) == dtypes
    for before, after in zip(weights, network.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def lists_network():
    """An embedding bag, beside a table that is large enough to be left out of the conversion."""
    values, nnzs = (
        keras.Input((1,), name=f"x__{half}", dtype="int64") for half in ("values", "nnzs")
    )
    bag = layers.EmbeddingBag(30_000, 8, combiner="sqrtn", embeddings_initializer="normal")
    return keras.Model([values, nnzs], {"y": keras.layers.Dense(1)(bag((values, nnzs)))})


def dense_network():
    x = keras.Input((1,), name="x")
    hidden = keras.layers.Dense(4, activation="gelu")(keras.layers.BatchNormalization()(x))
    return keras.Model(
        x, [keras.layers.Dense(1, name="a")(hidden), keras.layers.Softmax(name="b")(hidden)]
    )


FEEDS = {
    "lists": (lists_network, {"x__values": [[1], [29_999], [3]], "x__nnzs": [[2], [0], [1]]}),
    "empty lists": (lists_network, {"x__values": np.empty((0, 1)), "x__nnzs": [[0], [0]]}),
    "no rows": (lists_network, {"x__values": np.empty((0, 1)), "x__nnzs": np.empty((0, 1))}),
    "activations": (dense_network, {"x": [[-3.0], [0.0], [5.0]]}),
}


@pytest.mark.parametrize("case", FEEDS)
def test_a_converted_network_answers_as_keras(case, tmp_path):
    make, feed = FEEDS[case]
    network = make()
    signature = model_signature(network)
    network_to_onnx(network, signature).write(tmp_path)
    feed = {spec.name: np.array(feed[spec.name], spec.dtype) for spec in signature.inputs}
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    expected = network_function(network, signature)(**{n: tf.constant(t) for n, t in feed.items()})
    assert [output.name for output in session.get_outputs()] == list(expected)
    for answer, (name, tensor) in zip(session.run(None, feed), expected.items(), strict=True):
        np.testing.assert_allclose(answer, tensor.numpy(), atol=1e-6, err_msg=name)
