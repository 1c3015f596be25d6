"""Wrong arguments of clients and servers are errors of ours, before anything is sent."""

import pytest

from exporter import NearestItems
from serving import AsyncEnsembleClient, ClientError, EnsembleClient, ServerError, TritonServer
from serving.embedded.publication import LiveServer
from serving.prove.parity import check_parity
from training import TrainingError


@pytest.mark.parametrize("url", [None, 8001, b"127.0.0.1:8001"])
@pytest.mark.parametrize("client", [EnsembleClient, AsyncEnsembleClient])
def test_an_address_that_is_no_text(client, url):
    with pytest.raises(ClientError, match="Expected the address of a server"):
        client(url, "model")


@pytest.mark.parametrize("timeout", ["1", 0, -1, True, float("nan"), [1], float("inf"), 1e10])
@pytest.mark.parametrize("client", [EnsembleClient, AsyncEnsembleClient])
def test_a_timeout_that_is_no_time(client, timeout):
    with pytest.raises(
        ClientError, match=r"Expected timeout as seconds above 0 and up to 1e9\. Rec"
    ):
        client("127.0.0.1:1", "model", timeout=timeout)


@pytest.mark.parametrize("client", [EnsembleClient, AsyncEnsembleClient])
def test_headers_that_cannot_be_sent(client):
    for headers, received in (
        ("☃", "headers as a dictionary of name -> value. Received: str"),
        ([("token", "☃")], "headers as a dictionary of name -> value. Received: list"),
        ({"a b": "c"}, "names of headers of letters.*Received: 'a b'"),
        ({3: "c"}, "names of headers of letters.*Received: 3"),
        ({"token": "☃"}, "header 'token' as text of printable ASCII. Received: other characters"),
        ({"token": "a\r\nb: c"}, "Received: other characters"),
        ({"token": b"c"}, "Received: bytes"),
        ({"Content-Length": "3"}, "that do not describe the body.* Received: 'Content-Length'"),
        ({"transfer-encoding": "chunked"}, "Received: 'transfer-encoding'"),
        ({"trace-bin": "c"}, "do not end in -bin.* Received: 'trace-bin'"),
    ):
        with pytest.raises(ClientError, match=received) as error:
            client("127.0.0.1:1", "model", headers=headers)
        assert "☃" not in str(error.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "9"])
def test_a_time_of_a_server_that_is_none(tmp_path, seconds):
    refused = [
        ("startup_timeout", lambda: TritonServer(tmp_path, startup_timeout=seconds)),
        ("timeout", lambda: TritonServer(tmp_path).is_ready(seconds)),
        ("the timeout", lambda: LiveServer(tmp_path, "127.0.0.1:1", "key", seconds)),
    ]
    for name, call in refused:
        with pytest.raises(ServerError, match=rf"Expected {name} as seconds above 0 and up to 1e9"):
            call()


def test_models_as_one_name(tmp_path):
    with pytest.raises(ServerError, match=r"such as \['shop'\]. Received: 'shop'"):
        TritonServer(tmp_path, "shop").start()


def test_a_server_in_a_line(tmp_path):
    server = TritonServer(tmp_path)
    assert repr(server) == f"TritonServer('{tmp_path}', not running)"
    assert "<td>running</td><td>False</td>" in server._repr_html_()


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "3", None])
def test_a_number_of_items_that_is_none(k):
    with pytest.raises(TrainingError, match=r"Expected k as a whole number from 1\. Received"):
        NearestItems("tower.keras", "items.parquet", k)


def test_parity_with_the_path_of_a_workflow(tmp_path):
    with pytest.raises(ClientError, match=r"Workflow\.load reads a saved one. Received: 'flow'"):
        check_parity(None, "flow", tmp_path, {"a": [1]})
