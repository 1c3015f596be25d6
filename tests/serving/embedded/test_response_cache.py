"""A server with a response cache answers an equal request from memory."""

import shutil

import numpy as np
import pytest
from tritonclient import grpc as tritonclient

from serving import ClientError, EnsembleClient, ServerError, TritonServer
from serving.embedded.installation import Installation, cache_directory

ROW = {"userId": [1], "age": [2.0], "genres": [["Drama"]]}


@pytest.fixture
def cached(repository, tmp_path):
    """The ensemble, exported so that its answers are kept."""
    folder = shutil.copytree(repository, tmp_path / "models")
    with (folder / "movies" / "config.pbtxt").open("a") as config:
        config.write("\nresponse_cache { enable: true }\n")
    return folder


def hits_and_misses(server, model):
    with tritonclient.InferenceServerClient(server.grpc_url) as client:
        (stats,) = client.get_inference_statistics(model).model_stats
    return stats.inference_stats.cache_hit.count, stats.inference_stats.cache_miss.count


def test_an_equal_request_is_answered_from_the_cache(cached):
    with TritonServer(cached, response_cache_bytes=2**20) as server:
        before = hits_and_misses(server, "movies")
        with EnsembleClient(server.grpc_url, "movies") as client:
            answers = [client.predict(ROW) for _ in range(5)]
            other = client.predict({**ROW, "age": [3.0]})
        after = hits_and_misses(server, "movies")
    assert [answer["same_age"].tolist() for answer in answers] == [[[2.0]]] * 5
    assert other["same_age"].tolist() == [[3.0]]
    assert (after[0] - before[0], after[1] - before[1]) == (4, 2)


def test_a_client_of_some_outputs_is_named_for_those_that_are_missing(cached):
    tensors = {
        "userId": ([1], np.int64, "INT64"),
        "age": ([2.0], np.float32, "FP32"),
        "genres__values": ([b"Drama"], object, "BYTES"),
        "genres__nnzs": ([1], np.int64, "INT64"),
    }
    inputs = []
    for name, (values, dtype, datatype) in tensors.items():
        one = tritonclient.InferInput(name, (1, 1), datatype)
        inputs.append(one.set_data_from_numpy(np.array([values], dtype)))
    asked = [tritonclient.InferRequestedOutput("same_age")]
    with (
        TritonServer(cached, response_cache_bytes=2**20) as server,
        tritonclient.InferenceServerClient(server.grpc_url) as other,
        EnsembleClient(server.grpc_url, "movies") as client,
    ):
        assert other.infer("movies", inputs, outputs=asked).as_numpy("same_age").tolist() == [[2.0]]
        with pytest.raises(
            ClientError, match=r"Received: same_age\. .*have all clients ask for all"
        ):
            client.predict(ROW)


def test_without_a_cache_such_a_model_computes_each_answer(cached):
    with (
        TritonServer(cached) as server,
        EnsembleClient(server.grpc_url, "movies") as client,
    ):
        assert client.predict(ROW)["same_age"].tolist() == [[2.0]]
        assert hits_and_misses(server, "movies") == (0, 0)


@pytest.mark.parametrize("size", [-1, 1.5, True, "64MB"])
def test_a_size_that_is_no_number_of_bytes_is_refused(repository, size):
    with pytest.raises(ServerError, match="Expected response_cache_bytes as a number of bytes"):
        TritonServer(repository, response_cache_bytes=size)


def test_a_server_without_the_cache_library_is_refused(tmp_path):
    program = tmp_path / "bin" / "tritonserver"
    with pytest.raises(ServerError, match=r"libtritoncache_local.so. Received: no such file"):
        cache_directory(Installation(program))
