"""Requests and answers are bytes, as Triton's own client would send and read them."""

import asyncio
import re
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable

import grpc
import numpy as np
import pytest
from tritonclient import grpc as tritonclient
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from serving import ClientError, DtypeError
from serving.connection import http_messages
from serving.connection.address import parse_address
from serving.connection.calls import read_answer
from serving.connection.grpc_async import AsyncGrpcConnection
from serving.connection.grpc_connection import GrpcConnection
from serving.connection.grpc_messages import infer_request, infer_response
from serving.connection.shared_memory import Regions
from serving.connection.tensors import Place, WireTensor, encode_tensors, from_bytes, to_bytes

SIZES = [0, 1, 15, 16, 2_047, 2_048, 300_000]  # Lengths of one byte to three, of 8 each.


@pytest.mark.parametrize("rows", SIZES)
def test_a_grpc_request_is_what_tritonclient_sends(rows):
    texts = np.array([f"number {n}".encode() for n in range(rows)], object).reshape(-1, 1)
    tensors = {
        "userId": np.arange(rows).reshape(-1, 1),
        "price": np.ones((rows, 3), np.float32),
        "name": texts,
    }
    request = infer_request("movies", "3", encode_tensors(tensors))
    theirs = []
    for name, tensor in tensors.items():
        made = tritonclient.InferInput(name, tensor.shape, np_to_triton_dtype(tensor.dtype))
        theirs.append(made.set_data_from_numpy(tensor))
    expected = service_pb2.ModelInferRequest(
        model_name="movies",
        model_version="3",
        inputs=[tensor._get_tensor() for tensor in theirs],
        raw_input_contents=[tensor._get_content() for tensor in theirs],
    )
    assert request == expected


@pytest.mark.parametrize("dtype", [">i8", ">f4", "M8[us]"])
def test_numbers_that_triton_would_read_as_others_are_refused(dtype):
    tensors = {"x": np.zeros((2, 1), dtype)}
    with pytest.raises(DtypeError, match=re.escape(f"Received: {np.dtype(dtype)}.")):
        encode_tensors(tensors)
    with (
        pytest.raises(DtypeError, match="'x'"),
        Regions(None).holding(tensors, time.monotonic() + 60),
    ):
        pass


@pytest.mark.parametrize("value", [None, 1.5, "\ud800"])
def test_an_object_that_is_no_text_is_refused(value):
    texts = np.array([["a"], [value]], object)
    with pytest.raises(DtypeError, match="Expected strings"):
        encode_tensors({"x": texts})


def test_a_string_of_numpy_is_sent_as_one():
    texts = np.array([["a"], [np.bytes_(b"b")], [np.str_("c")]], object)
    assert from_bytes("BYTES", (3, 1), to_bytes(texts)).tolist() == [[b"a"], [b"b"], [b"c"]]


def test_a_request_of_shared_memory_names_the_places():
    tensors = [
        WireTensor("a", "INT64", (2, 1), Place("region", 64, 16)),
        WireTensor("b", "INT64", (2, 1), bytes(16)),
    ]
    request = infer_request("movies", "", tensors)
    place = request.inputs[0].parameters
    assert place["shared_memory_region"].string_param == "region"
    assert place["shared_memory_offset"].int64_param == 64
    assert place["shared_memory_byte_size"].int64_param == 16
    assert not request.inputs[1].parameters
    assert list(request.raw_input_contents) == [bytes(16)]


def test_the_same_tensors_of_another_size_are_another_request():
    for size in (2, 3, 2):
        tensor = np.arange(size).reshape(-1, 1)
        request = infer_request("movies", "", encode_tensors({"a": tensor}))
        assert list(request.inputs[0].shape) == [size, 1]
        assert request.raw_input_contents[0] == tensor.tobytes()
        over_http = http_messages.infer_request("movies", "", encode_tensors({"a": tensor}))
        assert f'"binary_data_size": {8 * size}'.encode() in over_http.body
        assert over_http.body.endswith(tensor.tobytes())


def answer(tensors):
    return service_pb2.ModelInferResponse(
        outputs=[
            {"name": name, "datatype": np_to_triton_dtype(t.dtype), "shape": t.shape}
            for name, t in tensors.items()
        ],
        raw_output_contents=[
            b"".join(serialize_byte_tensor(t).ravel()) if t.dtype == object else t.tobytes()
            for t in tensors.values()
        ],
    )


@pytest.mark.parametrize("rows", SIZES)
def test_an_answer_is_read(rows):
    tensors = {
        "rating": np.linspace(0, 1, rows, dtype=np.float32).reshape(-1, 1),
        "none": np.zeros((rows, 0), np.int64),
        "name": np.array([b"x" * (n % 200) for n in range(rows)], object).reshape(-1, 1),
    }
    found = infer_response(answer(tensors)).tensors
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor, strict=True)


BROKEN = {
    "no contents": lambda good: good.ClearField("raw_output_contents"),
    "too many contents": lambda good: good.raw_output_contents.append(b""),
    "too few bytes": lambda good: good.outputs[0].shape.append(2),
    "an unknown dtype": lambda good: setattr(good.outputs[0], "datatype", "FP7"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_answer_that_is_none(case):
    broken = answer({"rating": np.ones((3, 1), np.float32)})
    BROKEN[case](broken)
    with pytest.raises(ClientError, match="Expected the answer of a Triton server") as error:
        read_answer(infer_response, broken)
    assert error.value.code == "INTERNAL"


@pytest.mark.parametrize("call", ["infer", "config"])
@pytest.mark.parametrize("connect", [GrpcConnection, AsyncGrpcConnection])
def test_what_is_no_message_is_an_error_of_the_client(connect, call):
    handler = grpc.unary_unary_rpc_method_handler(lambda *_: b"<html>")
    service = "inference.GRPCInferenceService"
    server = grpc.server(ThreadPoolExecutor(1))
    methods = {"ModelInfer": handler, "ModelConfig": handler}
    handlers = grpc.method_handlers_generic_handler(service, methods)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def ask():
        connection = connect(parse_address(f"127.0.0.1:{port}"), {}, 0)
        arguments = ("movies", "", [], 10) if call == "infer" else ("movies", "", 10)
        answered = getattr(connection, call)(*arguments)
        return await answered if isawaitable(answered) else answered

    try:
        with pytest.raises(ClientError) as error:
            asyncio.run(ask())
    finally:
        server.stop(None).wait()
    assert error.value.code == "INTERNAL"


def test_many_strings_become_bytes_in_memory_that_these_take():
    """Each string is a Python object, and so was its length: 0.9 GB for four million empty ones."""
    tensor = np.full((8, 1 << 17), b"", object)
    tensor[3, :5] = [b"", b"a", "ä", b"\xff", b"long" * 1_000]
    tracemalloc.start()
    made = to_bytes(tensor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made == b"".join(serialize_byte_tensor(tensor).ravel())
    assert peak <= 4 * len(made)
