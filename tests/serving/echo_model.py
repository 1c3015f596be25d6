"""A model that answers `y` with what it takes as `x`, at most four rows at once."""

import shutil
from contextlib import contextmanager

import onnx
from onnx import TensorProto, helper

from serving.embedded.administration import Administration
from serving.embedded.flags import ADMIN_HEADER

TENSORS = (
    "max_batch_size: 4\n"
    'input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]\n'
    'output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]\n'
)


def write_echo(folder, further):
    """Write the model, with further lines of its config."""
    (folder / "1").mkdir(parents=True)
    given, back = (
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["N", 1]) for tensor in "xy"
    )
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "echo", [given], [back])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "1" / "model.onnx"))
    (folder / "config.pbtxt").write_text(
        f'backend: "onnxruntime"\n{TENSORS}instance_group [{{ kind: KIND_CPU count: 1 }}]\n{further}'
    )


def write_cached_echo(folder, step):
    """Write an ensemble of the model `step`, whose answers a server keeps."""
    (folder / "1").mkdir(parents=True)
    maps = 'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }'
    (folder / "config.pbtxt").write_text(
        f'platform: "ensemble"\n{TENSORS}response_cache {{ enable: true }}\n'
        f'ensemble_scheduling {{ step [{{ model_name: "{step}" model_version: 1 {maps} }}] }}'
    )


@contextmanager
def served_echo(server, repository, name, batching="dynamic_batching {}"):
    """Have a server serve it for a while."""
    folder = repository / name
    write_echo(folder, batching)
    # `server.load` waits until the model answers, and a queue may refuse that.
    administration = Administration(server.grpc_url, server.admin_headers[ADMIN_HEADER])
    administration.load(name, timeout=60)
    try:
        yield
    finally:
        administration.unload(name, timeout=60)
        shutil.rmtree(folder)
