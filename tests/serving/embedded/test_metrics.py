"""The metrics of a server: on a port of their own, on loopback, with quantiles of the latencies."""

import re
import urllib.error
import urllib.request

import pytest

from serving import EnsembleClient, ServerError, TritonServer

ROW = {"userId": [1], "age": [2.0], "genres": [["Drama"]]}


def exposition(server):
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:  # noqa: S310
        return answer.read().decode()


def value(server, sample):
    """The value of a sample, given by its name and labels."""
    (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", exposition(server), re.MULTILINE)
    return float(found)


def test_requests_are_counted_and_timed(server, wait_for):
    answered = 'nv_inference_request_success{model="movies",version="1"}'
    before = value(server, answered)
    with EnsembleClient(server.grpc_url, "movies") as client:
        for _ in range(7):
            client.predict(ROW)
    wait_for(lambda: value(server, answered) == before + 7)  # counted after the answer is sent
    labels = 'model="movies",version="1"'
    assert value(server, f"nv_inference_pending_request_count{{{labels}}}") == 0
    assert value(server, f"nv_inference_queue_duration_us{{{labels}}}") > 0
    for kind in ("request", "queue"):
        assert value(server, f'nv_inference_{kind}_summary_us{{{labels},quantile="0.99"}}') > 0


def test_the_metrics_have_a_port_of_their_own_on_loopback(server):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", server.metrics_url)
    elsewhere = server.metrics_url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(
        urllib.error.URLError, match="refused"
    ):  # at another address of this machine
        urllib.request.urlopen(elsewhere, timeout=10)  # noqa: S310
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{server.http_url}/metrics", timeout=10)  # noqa: S310


def test_a_taken_port_of_the_metrics_is_refused(server, repository):
    port = int(re.search(r":(\d+)/", server.metrics_url)[1])
    with pytest.raises(ServerError, match=f"Expected a free port. Received: {port}"):
        TritonServer(repository, metrics_port=port).start()
