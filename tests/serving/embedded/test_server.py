"""The embedded server: a real one is started, broken, killed and stopped."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from polars.testing import assert_frame_equal
from python_model import python_model
from served_rows import EXPECTED, FRAME
from server_processes import command_of, identity_of, processes, running_in
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from serving import ClientError, EnsembleClient, ServerError, TritonServer
from serving.embedded.flags import server_flags
from serving.embedded.installation import find_tritonserver, prepare
from serving.embedded.process import free_ports, loading_models
from serving.embedded.repository import models_to_load
from serving.embedded.supervisor import SHARED_MEMORY
from triton_models.healthcheck import ProbeError, fetch

ROOT = Path(__file__).parents[3]
ROW = {"userId": [1], "age": [2.0], "genres": [["Drama"]]}


def test_the_ensemble_is_loaded_with_its_steps(server):
    assert server.models == ("movies",)
    assert server.is_ready()
    assert server.grpc_url.startswith("127.0.0.1:")
    for model in ("movies", "prepare", "network"):
        fetch(f"{server.http_url}/v2/models/{model}/ready", timeout=10)
    assert "successfully loaded" in server.log_path.read_text()


def test_the_name_of_the_server_says_nothing_of_its_shared_memory(server):
    name = fetch(f"{server.http_url}/v2", timeout=10)["name"]
    assert [*SHARED_MEMORY.glob(f"{identity_of(server)}*")]
    assert name not in identity_of(server)
    assert identity_of(server).rstrip("-").rpartition("-")[2] not in name


def test_without_http_clients_health_and_administration_use_grpc(repository):
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        TritonServer(
            repository, ["movies"], http=False, http_port=other.getsockname()[1]
        ) as server,
    ):
        with EnsembleClient(server.grpc_url, "movies") as client:
            assert client.predict(ROW)["same_age"].tolist() == [[2.0]]
        server.load("movies")
        assert server.is_ready()
        log = server.log_path.read_text()
        assert "Started GRPCInferenceService" in log
        assert "Started HTTPService" not in log
        with pytest.raises(ServerError, match=r"Expected a server with HTTP.*http=False"):
            _ = server.http_url
    # Nothing failed, and nobody asked for the log.
    assert not server.log_path.parent.exists()
    with pytest.raises(
        ServerError, match=r"Expected a running server. Received: one that has ended\.$"
    ):
        server.load("movies")


def test_starting_twice_is_refused_and_harmless(server):
    with pytest.raises(ServerError, match="This server was started"):
        server.start()
    assert server.is_ready()


def test_no_port_is_taken_for_free_twice():
    """Ports that were let go one by one came twice, once in some thousand starts of a server."""
    wanted = free_ports([None])[0]
    ports = free_ports([None] * 400 + [wanted])
    assert len(set(ports)) == 401
    assert ports[-1] == wanted


def test_a_taken_port_is_refused_and_the_first_server_goes_on(server, repository):
    port = int(server.grpc_url.rpartition(":")[2])
    with pytest.raises(ServerError, match=f"Expected a free port. Received: {port}"):
        TritonServer(repository, grpc_port=port).start()
    assert server.is_ready()


def test_administration_needs_the_key(server):
    with pytest.raises(ProbeError, match="answered 403"):
        fetch(f"{server.http_url}/v2/repository/models/movies/unload", {}, timeout=10)
    with grpc.InferenceServerClient(server.grpc_url) as connection:
        for request in (
            lambda: connection.unload_model("movies"),
            lambda: connection.register_system_shared_memory("region", "/any", 64),
            lambda: connection.update_trace_settings("movies", {"trace_rate": "1"}),
            lambda: connection.update_log_settings({"log_verbose_level": 1}),
        ):
            with pytest.raises(InferenceServerException, match="restricted"):
                request()
    assert server.is_ready()


@pytest.mark.parametrize("key", ["clé", "a\nb"])
def test_a_key_that_no_header_can_carry_is_refused(repository, key):
    with pytest.raises(ServerError, match=f"Expected admin_key.*Received: {re.escape(repr(key))}"):
        TritonServer(repository, admin_key=key)


def test_models_are_unloaded_and_loaded(server):
    server.load("network")
    assert server.models == ("movies", "network")
    server.unload("network")
    server.unload("movies")
    assert server.models == ()
    with pytest.raises(ClientError, match="movies"):
        EnsembleClient(server.grpc_url, "movies")
    server.load("movies")
    assert server.models == ("movies",)
    with EnsembleClient(server.grpc_url, "movies") as client:
        assert client.predict(ROW)["same_user"].tolist() == [[1]]


def test_a_step_that_another_ensemble_has_too_stays(repository, tmp_path):
    shutil.copytree(repository, tmp_path, dirs_exist_ok=True)
    for model, copy in (("movies", "films"), ("prepare", "ready")):
        shutil.copytree(tmp_path / model, tmp_path / copy)
    config = tmp_path / "movies" / "config.pbtxt"
    with TritonServer(tmp_path, ["movies", "films"]) as server:
        for before, after, step in (("prepare", "ready", "prepare"), ("ready", "prepare", "ready")):
            config.write_text(config.read_text().replace(f'"{before}"', f'"{after}"'))
            server.load("movies")
            assert server.is_ready()
            is_loaded = step in server.administration.loaded(60)
            assert is_loaded == (step == "prepare")
        # A step that cannot be loaded leaves the ensemble as it is.
        network = tmp_path / "network" / "config.pbtxt"
        network.write_text(network.read_text().replace("same_age", "age"))
        with pytest.raises(ServerError, match="The model movies could not be loaded"):
            server.load("movies")
        with EnsembleClient(server.grpc_url, "movies") as client:
            assert client.predict(ROW)["same_user"].tolist() == [[1]]


def test_loading_an_unknown_model_says_why(server):
    with pytest.raises(ServerError, match="The model none could not be loaded"):
        server.load("none")


def test_a_stop_leaves_nothing_but_the_log(repository, tmp_path, traces):
    log = tmp_path / "server.log"
    server = TritonServer(repository, ["network"], log_file=log)
    for _ in range(2):  # A stopped server may be started again.
        server.start()
        identity, command = identity_of(server), command_of(server)
        assert traces(identity)
        assert server.log_path == log
        (backends,) = (Path(word[20:]) for word in command if word[:20] == "--backend-directory=")
        assert backends.exists()
        server.stop()
        server.stop()
        assert traces(identity) == []
        assert not backends.exists()
        assert not server.is_ready()
        assert "Signal (15) received" in log.read_text()
    with pytest.raises(ServerError, match="Expected a running server"):
        server.load("network")


def test_a_stop_finds_that_the_system_has_removed_the_log(repository):
    server = TritonServer(repository, ["network"])
    server.start()
    shutil.rmtree(server.log_path.parent)
    server.stop()
    assert not server.is_running()


WIDE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answer = np.zeros((1, 1_100_000), np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", answer)]) for _ in requests]
"""


def test_an_answer_may_have_a_million_numbers(tmp_path):
    """As the scores of all items: 4.4 MB, where gRPC takes 4 MiB by default."""
    config = python_model(tmp_path / "wide", WIDE) / "config.pbtxt"
    before, _, after = config.read_text().rpartition("[-1, 1]")
    config.write_text(f"{before}[-1, 1100000]{after}")
    with TritonServer(tmp_path) as server:
        assert server.is_ready()


# It answers at once unless it is told to wait, which it does until it may answer.
PATIENT = """
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils

FOLDER = Path(__file__).parent


class TritonPythonModel:
    def execute(self, requests):
        if (FOLDER / "wait").exists():
            (FOLDER / "asked").touch()
            while not (FOLDER / "answer").exists():
                time.sleep(0.02)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""


def test_a_request_under_way_is_answered_before_it_stops(tmp_path, wait_for):
    files = python_model(tmp_path / "models" / "patient", PATIENT) / "1"
    server = TritonServer(tmp_path / "models", log_file=tmp_path / "server.log")
    server.start()
    (files / "wait").touch()
    given = grpc.InferInput("x", [2, 1], "FP32")
    given.set_data_from_numpy(np.array([[1], [2]], np.float32))
    with (
        grpc.InferenceServerClient(server.grpc_url) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        asked = pool.submit(client.infer, "patient", [given])
        wait_for((files / "asked").exists)
        stopped = pool.submit(server.stop)
        wait_for(lambda: "Timeout 8: Found 1 live models" in server.log_path.read_text())
        assert server.is_running()
        (files / "answer").touch()
        assert asked.result().as_numpy("y").tolist() == [[1.0], [2.0]]
        stopped.result()
    assert not server.is_running()


def test_a_killed_server_is_noticed(repository, traces, wait_for):
    with TritonServer(repository) as server, EnsembleClient(server.grpc_url, "movies") as client:
        identity = identity_of(server)
        (pid,) = [p for p, n in processes(identity).items() if n == "tritonserver"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not traces(identity))
        assert not server.is_ready()
        with pytest.raises(ClientError, match="UNAVAILABLE"):
            client.predict(ROW)
        with pytest.raises(ServerError, match="Expected a running server"):
            server.load("movies")
    assert "successfully loaded 'movies'" in server.log_path.read_text()
    shutil.rmtree(server.log_path.parent)


def test_a_failure_of_the_callers_own_keeps_the_log(repository):
    server = TritonServer(repository, ["network"])
    with pytest.raises(ValueError, match="the caller's"), server:
        raise ValueError("the caller's")
    assert "successfully loaded 'network'" in server.log_path.read_text()
    shutil.rmtree(server.log_path.parent)


@pytest.mark.timeout(60)  # The server itself would wait for a process that is no more.
def test_a_killed_model_process_is_not_ready(repository, traces, monkeypatch):
    def patient(flags):
        return server_flags(replace(flags, exit_timeout=600))

    monkeypatch.setattr("serving.embedded.process.server_flags", patient)
    monkeypatch.setattr("serving.embedded.process.STOP_TIMEOUT", 600.0)
    with TritonServer(repository, ["network"]) as server:
        identity = identity_of(server)
        stubs = [p for p, n in processes(identity).items() if n.startswith("triton_python")]
        os.kill(stubs[0], signal.SIGKILL)
        assert not server.is_ready()
    assert traces(identity) == []


def test_a_killed_owner_takes_the_server_along(repository, traces, wait_for):
    script = (
        "import sys, time; from serving import TritonServer; from server_processes import identity_of\n"
        f"server = TritonServer({str(repository)!r}, ['network']); server.start()\n"
        "print(identity_of(server), flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with owner:
        identity = owner.stdout.readline().strip()
        assert traces(identity)
        owner.kill()
    wait_for(lambda: not traces(identity))


def test_a_model_that_cannot_be_loaded_shows_the_reason(repository, tmp_path):
    shutil.copytree(repository / "network", tmp_path / "network")
    config = tmp_path / "network" / "config.pbtxt"
    config.write_text(config.read_text().replace("same_age", "age"))
    server = TritonServer(tmp_path)
    with pytest.raises(ServerError) as failure:
        server.start()
    text = str(failure.value)
    assert text.startswith("tritonserver ended during its start.")
    assert "declares the output 'age', but the model has ['genre_codes__nnzs'" in text
    assert str(server.log_path) in text
    assert running_in(server.log_path.parent) == []


def test_a_model_that_does_not_answer_is_not_ready(tmp_path):
    from onnx import TensorProto, helper

    # The id 0 lies beyond the table of no rows, so the model loads and cannot answer.
    folder = tmp_path / "empty"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'backend: "onnxruntime" instance_group [{ kind: KIND_CPU }]'
        'input [{ name: "id" data_type: TYPE_INT64 dims: [-1, 1] }]'
        'output [{ name: "row" data_type: TYPE_FP32 dims: [-1, 1, 4] }]'
    )
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "id"], ["row"])],
        "graph",
        [helper.make_tensor_value_info("id", TensorProto.INT64, ["N", 1])],
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, ["N", 1, 4])],
        [helper.make_tensor("table", TensorProto.FLOAT, [0, 4], [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ServerError, match=r"The model empty does not answer: .* INVALID_ARGUMENT"):
        TritonServer(tmp_path).start()


def test_the_environment_is_on_no_command_line(repository, monkeypatch):
    """Every user may read a command line, and one argument may have 128 KiB."""
    for number in range(20):
        monkeypatch.setenv(f"SECRET_{number}", "hidden-" * 2_000)
    with TritonServer(repository, ["network"]) as server:
        key = server.admin_headers["admin-key"]
        seen = {
            name: Path(f"/proc/{pid}/cmdline").read_text()
            for pid, name in processes(identity_of(server)).items()
        }
        assert seen.keys() >= {"tritonserver", Path(sys.executable).name}
        assert not any("hidden-" in text for text in seen.values())
        # The server takes it on no other way.
        assert [name for name, text in seen.items() if key in text] == ["tritonserver"]
        (pid,) = [p for p, n in processes(identity_of(server)).items() if n == "tritonserver"]
        assert b"hidden-hidden-" in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_start_that_fails_leaves_no_files(repository, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    log_file = tmp_path / "none" / "server.log"
    with pytest.raises(
        ServerError, match=rf"Expected a log_file .* Received: {log_file}: No such file"
    ):
        TritonServer(repository, log_file=log_file).start()
    assert list(temporary.iterdir()) == []
    # A folder cannot be a log, and a program that cannot be run is no supervisor.
    with pytest.raises(ServerError, match=f"Received: {tmp_path}: Is a directory"):
        TritonServer(repository, log_file=tmp_path).start()
    python = sys.executable
    monkeypatch.setattr(sys, "executable", "/none/python")
    with pytest.raises(ServerError, match=r"supervisor could not be started: .*'/none/python'"):
        TritonServer(repository, python=python).start()
    assert list(temporary.iterdir()) == []


def test_a_start_that_takes_too_long_is_ended(repository):
    server = TritonServer(repository, startup_timeout=0.01)
    text = r"within 0\.01 seconds \(startup_timeout\): .* Still loading: .*a larger startup_timeout"
    with pytest.raises(ServerError, match=text):
        server.start()
    assert running_in(server.log_path.parent) == []


def test_the_log_tells_what_is_still_loading(server):
    # Other tests of this server load further models later.
    log = "".join(server.log_path.read_text().partition("successfully loaded 'movies'")[:2])
    loaded, loading = loading_models(log)
    assert (sorted(loaded), loading) == (["movies", "network", "prepare"], [])
    before_the_ensemble = log[: log.index('"loading: movies:1"')]
    loaded, loading = loading_models(before_the_ensemble[: before_the_ensemble.rindex('"success')])
    assert len(loaded) == len(loading) == 1
    assert {*loaded, *loading} == {"network", "prepare"}


def test_a_port_that_cannot_be_is_refused(repository):
    for port in (99999, -1, 65_536, "8001", True):
        with pytest.raises(ServerError, match=rf"to 65535\. Received: {port!r}\.$"):
            TritonServer(repository, grpc_port=port).start()


def test_a_server_of_this_machine_is_used(repository, tmp_path, monkeypatch):
    """An installed Triton has its own backends; ours are added where it lacks them."""
    wheel = find_tritonserver()
    made = tmp_path / "made"
    made.mkdir()
    libraries = prepare(wheel, made)["LD_LIBRARY_PATH"]
    installed = tmp_path / "opt"
    shutil.copytree(made / "python", installed / "backends" / "python")
    program = installed / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ntouch {tmp_path}/used\nLD_LIBRARY_PATH={libraries} exec {wheel.binary} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TRITONSERVER", str(program))
    with TritonServer(repository) as server, EnsembleClient(server.grpc_url, "movies") as client:
        assert client.predict(ROW)["same_age"].tolist() == [[2.0]]
        assert (tmp_path / "used").exists()


def test_the_search_for_a_server_follows_its_order(tmp_path, monkeypatch):
    def program(name):
        path = tmp_path / name / "tritonserver"
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    wheel = find_tritonserver()
    assert wheel.wheel is not None
    on_path, named, argument = program("path"), program("named"), program("argument")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_tritonserver().binary == on_path
    monkeypatch.setenv("TRITONSERVER", str(named))
    assert find_tritonserver().binary == named
    assert find_tritonserver(argument).binary == argument
    assert find_tritonserver(wheel.binary) == wheel
    with pytest.raises(ServerError, match="Received: /none/tritonserver, cannot be run"):
        find_tritonserver("/none/tritonserver")


def answering(folder, **answer):
    """A stand-in for an interpreter of another environment."""
    text = json.dumps(
        {
            "version": "3.11",
            "numpy": "1.26.4",
            "libraries": [],
            "unreadable": None,
            "wheel": None,
            **answer,
        }
    )
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\necho '{text}'\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"numpy": "2.4.6"}, "Expected numpy below 2 in .* Received: 2.4.6.*arrive as other num"),
        ({"numpy": None}, "Expected numpy below 2 in .* Received: none"),
        ({"unreadable": "/é/a.pth"}, "are ASCII, .* Received: /é/a.pth.*without --editable"),
        ({"version": "3.7"}, r"Expected a Python among .*3\.11.* Received: 3\.7"),
    ],
)
def test_an_interpreter_that_would_serve_wrongly_is_refused(repository, tmp_path, answer, reason):
    python = answering(tmp_path, **answer)
    with pytest.raises(ServerError, match=reason):
        TritonServer(repository, python=python).start()


SERVE = """
import importlib.util
import os
import sys

from serving import EnsembleClient, ServerError, TritonServer

assert importlib.util.find_spec("pytriton") is None
repository, python = sys.argv[1:]
try:
    TritonServer(repository).start()
except ServerError as error:
    print(error)
os.environ["TRITONSERVER_PYTHON"] = python
with TritonServer(repository) as server, EnsembleClient(server.grpc_url, "movies") as client:
    print(client.predict({"userId": [1], "age": [2.0], "genres": [["Drama"]]})["same_age"])
"""


def test_a_server_of_another_environment_is_used(repository, tmp_path):
    """One with the extra [gpu], or with Python 3.13, has no nvidia-pytriton."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(np.__file__).parents[1].iterdir():
        if "pytriton" not in path.name:
            (packages / path.name).symlink_to(path)
    environment = os.environ | {"PYTHONPATH": f"{packages}:{ROOT}"}
    command = [sys.executable, "-S", "-c", SERVE, repository, sys.executable]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    without, answer = said.stdout.splitlines()
    assert "Received: none of these. Install the extra [serve], here or where python=" in without
    assert answer == "[[2.]]"


@pytest.mark.parametrize("python", ["/none/python", "/bin/ls", "/bin/echo"])
def test_a_python_that_cannot_be_run_is_refused(repository, python):
    with pytest.raises(
        ServerError, match=rf"Expected a Python interpreter\. Received: {python}[:,]"
    ):
        TritonServer(repository, python=python).start()


def test_names_that_come_once_are_all_loaded(repository):
    assert models_to_load(repository, (name for name in ["network"])) == ("network",)
    with pytest.raises(ServerError, match="Received: no name"):
        models_to_load(repository, iter([]))


def test_repositories_without_the_models_are_refused(repository, tmp_path):
    cases = {
        "no such folder": TritonServer(tmp_path / "none"),
        "Received: none": TritonServer(tmp_path),
        "movies, network, prepare .* Received: other": TritonServer(repository, ["other"]),
        "Received: no name": TritonServer(repository, []),
    }
    for reason, server in cases.items():
        with pytest.raises(ServerError, match=reason):
            server.start()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.pbtxt").write_text("nonsense: 1")
    with pytest.raises(ServerError, match=r'config\.pbtxt\. Received: .*"nonsense"'):
        TritonServer(tmp_path).start()


def test_any_path_can_be_served(repository, tmp_path, monkeypatch):
    """Triton itself takes neither spaces nor letters beyond ASCII, in no folder that it uses."""
    temporary = tmp_path / "été à la mer"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    models = shutil.copytree(repository, tmp_path / "mes modèles")
    with TritonServer(models) as server, EnsembleClient(server.grpc_url, "movies") as client:
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert server.model_repository == models
    assert sorted(path.name for path in models.iterdir()) == ["movies", "network", "prepare"]


def test_a_server_that_never_started_has_no_address(repository):
    with pytest.raises(ServerError, match="never started"):
        _ = TritonServer(repository).grpc_url


def test_threads_share_a_client(server):
    from concurrent.futures import ThreadPoolExecutor

    with EnsembleClient(server.grpc_url, "movies") as client, ThreadPoolExecutor(8) as threads:

        def ask(number):
            rows = {"userId": [number] * 3, "age": [0.5] * 3, "genres": [["Drama"]] * 3}
            return client.predict(rows)["same_user"]

        answers = list(threads.map(ask, range(40)))
    assert np.array_equal(np.concatenate(answers)[:, 0], np.arange(40).repeat(3))
