"""A served ensemble of two ONNX models, which start fast, and looks at the server's processes."""

import onnx
import pytest
from onnx import TensorProto, helper
from server_processes import processes

from serving import TritonServer
from serving.embedded.supervisor import SHARED_MEMORY
from workflow.wire.format import WireColumn, dump_columns

ONNX_TYPES = {
    "TYPE_INT64": TensorProto.INT64,
    "TYPE_FP32": TensorProto.FLOAT,
    "TYPE_STRING": TensorProto.STRING,
}
INPUTS = [
    ("userId", "TYPE_INT64", 1),
    ("age", "TYPE_FP32", 1),
    ("genres__values", "TYPE_STRING", 1),
    ("genres__nnzs", "TYPE_INT64", 1),
]
PREPARED = [
    ("user", "TYPE_INT64", 1),
    ("years", "TYPE_FP32", 1),
    ("codes__values", "TYPE_INT64", 1),
    ("codes__nnzs", "TYPE_INT64", 1),
]
OUTPUTS = [
    ("same_user", "TYPE_INT64", 1),
    ("same_age", "TYPE_FP32", 1),
    ("probabilities", "TYPE_FP32", 2),
    ("genre_codes__values", "TYPE_INT64", 1),
    ("genre_codes__nnzs", "TYPE_INT64", 1),
]
INPUT_COLUMNS = [
    WireColumn("userId", "int64", nullable=True),
    WireColumn("age", "float32", nullable=True),
    WireColumn("genres", "string", "flat"),
]
OUTPUT_COLUMNS = [
    WireColumn("same_user", "int64", nullable=True),
    WireColumn("same_age", "float32"),
    WireColumn("probabilities", "float32"),
    WireColumn("genre_codes", "int64", "flat"),
]


def config(folder, inputs, outputs, *lines):
    (folder / "1").mkdir(parents=True)
    tensors = [
        f'{kind} [{{ name: "{name}" data_type: {datatype} dims: [-1, {width}] }}]'
        for kind, specs in (("input", inputs), ("output", outputs))
        for name, datatype, width in specs
    ]
    (folder / "config.pbtxt").write_text("\n".join([*lines, *tensors]))


def onnx_model(folder, inputs, outputs, nodes, constants=()):
    """An ONNX model and its config."""
    cpu = "instance_group [{ kind: KIND_CPU count: 1 }]"
    config(folder, inputs, outputs, 'backend: "onnxruntime"', cpu)

    def infos(specs):
        return [helper.make_tensor_value_info(n, ONNX_TYPES[t], ["N", w]) for n, t, w in specs]

    graph = helper.make_graph(nodes, "graph", infos(inputs), infos(outputs), constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, str(folder / "1" / "model.onnx"))


def identity(source, target):
    return helper.make_node("Identity", [source], [target])


def ensemble_model(folder, steps, parameters):
    def step(name, inputs, outputs):
        maps = "".join(
            f'{kind} {{ key: "{key}" value: "{value}" }}\n'
            for kind, pairs in (("input_map", inputs), ("output_map", outputs))
            for key, value in pairs
        )
        return f'step [{{ model_name: "{name}" model_version: 1\n{maps} }}]'

    def parameter(name, value):
        text = value.replace('"', '\\"')
        return f'parameters {{ key: "{name}" value {{ string_value: "{text}" }} }}'

    scheduling = "\n".join(step(*spec) for spec in steps)
    config(
        folder,
        INPUTS,
        OUTPUTS,
        'platform: "ensemble"',
        f"ensemble_scheduling {{ {scheduling} }}",
        *(parameter(name, value) for name, value in parameters.items()),
    )


def same(specs):
    return [(name, name) for name, _, _ in specs]


def write_repository(folder):
    """An ensemble `movies` of the steps `prepare` and `network`."""
    encoder = helper.make_node(
        "LabelEncoder",
        ["genres__values"],
        ["codes__values"],
        domain="ai.onnx.ml",
        keys_strings=["Drama", "Krimi ü"],
        values_int64s=[3, 4],
        default_int64=2,
    )
    onnx_model(
        folder / "prepare",
        INPUTS,
        PREPARED,
        [
            encoder,
            identity("genres__nnzs", "codes__nnzs"),
            identity("userId", "user"),
            identity("age", "years"),
        ],
    )
    onnx_model(
        folder / "network",
        PREPARED,
        OUTPUTS,
        [
            identity("user", "same_user"),
            identity("years", "same_age"),
            helper.make_node("Cast", ["user"], ["score"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["score", "one"], ["next"]),
            helper.make_node("Concat", ["score", "next"], ["probabilities"], axis=1),
            identity("codes__values", "genre_codes__values"),
            identity("codes__nnzs", "genre_codes__nnzs"),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [1, 1], [1.0])],
    )
    ensemble_model(
        folder / "movies",
        [("prepare", same(INPUTS), same(PREPARED)), ("network", same(PREPARED), same(OUTPUTS))],
        {
            "inputs": dump_columns(INPUT_COLUMNS),
            "outputs": dump_columns(OUTPUT_COLUMNS),
            "label_columns": '["rating"]',
            "generation": "g7",
        },
    )
    return folder


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def server(repository):
    with TritonServer(repository) as server:
        yield server


@pytest.fixture(scope="module", params=["grpc", "http"])
def url(request, server):
    return server.grpc_url if request.param == "grpc" else server.http_url


@pytest.fixture
def traces():
    """A search for what a server has left behind: processes and shared memory."""

    def find(identity):
        return [*processes(identity), *SHARED_MEMORY.glob(f"{identity}*")]

    return find
