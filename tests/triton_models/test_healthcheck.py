"""Health is a real answer: the script runs as it does inside a container."""

import socket
import subprocess
import sys

import pytest

from triton_models import healthcheck
from triton_models.healthcheck import HttpServer, ProbeError, end_after, one_row, probe


def check(*arguments, interpreter=(sys.executable, "-I", "-S")):
    return subprocess.run(
        [*interpreter, healthcheck.__file__, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_models_that_answer_are_healthy(server):
    result = check(
        "--url", server.http_url, "sums", "codes", "external", "--timeout", "20", "--within", "60"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_check_needs_no_place_to_write(full_disk):
    with full_disk(0):
        result = check("--url", "http://127.0.0.1:1", "codes")
    assert result.stderr.startswith("unhealthy: http")
    assert result.stderr.count("\n") == 1


def test_what_does_not_answer_is_unhealthy_in_one_line(server):
    for arguments, reason in (
        (("--url", server.http_url, "codes", "none"), "answered 4"),
        (("--url", "http://127.0.0.1:1", "codes"), "did not answer"),
    ):
        result = check(*arguments)
        assert result.returncode == 1
        assert result.stderr.startswith("unhealthy: http")
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1


def test_all_models_share_one_limit():
    """Docker kills a check at its time-out, which then counts no failure."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = check("--url", url, "a", "b", "--timeout", "60", "--within", "0.5")
    assert result.returncode == 1
    assert result.stderr == f"unhealthy: {url} did not answer for all models within 0.5 s\n"


def test_one_row_for_every_kind_of_input():
    config = {
        "max_batch_size": 0,
        "input": [
            {"name": "id", "data_type": "TYPE_INT64", "dims": [-1, 1]},
            {"name": "on", "data_type": "TYPE_BOOL", "dims": ["-1", "1"]},
            {"name": "text", "data_type": "TYPE_STRING", "dims": [-1, 2]},
            {"name": "l__values", "data_type": "TYPE_FP32", "dims": [-1, 1]},
            {"name": "l__nnzs", "data_type": "TYPE_INT32", "dims": [-1, 1]},
            {"name": "odd__values", "data_type": "TYPE_FP32", "dims": [-1]},
        ],
    }
    rows = {tensor["name"]: tensor for tensor in one_row(config)}
    assert rows["id"] == {"name": "id", "datatype": "INT64", "shape": [1, 1], "data": [0]}
    assert rows["on"]["data"] == [False]
    assert (rows["text"]["datatype"], rows["text"]["data"]) == ("BYTES", ["", ""])
    assert (rows["l__values"]["shape"], rows["l__values"]["data"]) == ([0, 1], [])
    assert rows["l__nnzs"]["data"] == [0]
    assert rows["odd__values"]["shape"] == [1]
    batched = {"max_batch_size": 4, "input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [3]}]}
    assert one_row(batched)[0]["shape"] == [1, 3]


def test_a_batched_model_is_probed(server, wait_for):
    connection = HttpServer(server.http_url)
    before = connection.answered("batched", timeout=20)
    probe(server.http_url, "batched", timeout=20)
    # The server counts an answer after it has sent it.
    wait_for(lambda: connection.answered("batched", timeout=20) == before + 1)


def test_an_answer_without_its_outputs_is_unhealthy(monkeypatch):
    answers = iter(
        [
            {"input": [], "output": [{"name": "y"}]},
            {"model_stats": []},
            {"outputs": [{"name": "y", "shape": [1, 1], "data": []}]},
        ]
    )
    monkeypatch.setattr(healthcheck, "fetch", lambda *_, **__: next(answers))
    with pytest.raises(ProbeError, match="expected the output 'y'"):
        probe("http://any", "m")


def test_an_unhealthy_server_is_ended_once_it_was_healthy(tmp_path):
    state = tmp_path / "state"
    with subprocess.Popen(["sleep", "60"]) as process:

        def check(healthy):
            end_after(2, healthy=healthy, state=state, process=process.pid)

        for healthy in (False, False, False, True, False, True, False):
            check(healthy)
        assert process.poll() is None
        check(False)
        assert process.wait(10) == -15
    assert not state.exists()


def test_after_0_failures_no_server_is_ended(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as process:
        for healthy in (True, False, False, True):
            end_after(0, healthy=healthy, state=tmp_path / "state", process=process.pid)
        # A signal of ours would come first, and change the status.
        process.kill()
        assert process.wait(10) == -9
