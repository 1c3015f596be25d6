"""Models load at once, as many as there are processors, and eight ensembles of a server answer."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from python_model import python_model

from serving import EnsembleClient, ServerError, TritonServer

ROW = {"userId": [1], "age": [2.0], "genres": [["Drama"]]}
MODELS = 6
# A model that loads when all of them have begun to.
WAITING = """
import time
from pathlib import Path
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"]).parent
        (folder / args["model_name"] / "begun").touch()
        deadline = time.monotonic() + 60
        while len([*folder.glob("*/begun")]) < %d:
            if time.monotonic() > deadline:
                raise RuntimeError("the others have not begun")
            time.sleep(0.01)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""

# A model whose process stands still for two seconds, once, so that Triton gives it up: while it is imported,
# or in its first request.
STANDING_STILL = """
import os
import signal
import subprocess
from pathlib import Path
import triton_python_backend_utils as pb_utils

def stand_still():
    begun = Path(__file__).parents[1] / "begun"
    if not begun.exists():
        begun.touch()
        subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)

if %(phase)r == "import":
    stand_still()

class TritonPythonModel:
    def execute(self, requests):
        if %(phase)r == "request":
            stand_still()
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""

# A model that damages the memory it shares with the server whenever it loads.
DAMAGING = """
import re
from pathlib import Path

class TritonPythonModel:
    def initialize(self, args):
        for region in set(re.findall("/dev/shm/.*", Path("/proc/self/maps").read_text())):
            with open(region, "r+b") as memory:
                memory.write(b"\\xff" * Path(region).stat().st_size)
"""


def test_as_many_models_load_at_once_as_there_are_processors(tmp_path, monkeypatch):
    """More than Triton's four."""
    for number in range(MODELS):
        python_model(tmp_path / f"waiting_{number}", WAITING % MODELS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MODELS)))
    with TritonServer(tmp_path) as server:
        assert len(server.models) == MODELS


@pytest.mark.parametrize("phase", ["import", pytest.param("request", marks=pytest.mark.long)])
def test_a_start_is_repeated_in_which_triton_gives_a_process_up(tmp_path, phase, monkeypatch):
    model = python_model(tmp_path / "still", STANDING_STILL % {"phase": phase})
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        with TritonServer(tmp_path) as server:
            assert (model / "begun").exists()
            assert server.is_ready()
        assert not [*Path(temporary).iterdir()]


def test_damage_at_each_start_is_an_error(tmp_path):
    python_model(tmp_path / "damaging", DAMAGING)
    with pytest.raises(ServerError, match=r"ended during its start[\s\S]*lock_exception"):
        TritonServer(tmp_path).start()


@pytest.mark.parametrize("phase", [pytest.param("import", marks=pytest.mark.long), "request"])
def test_a_load_is_repeated_in_which_triton_gives_a_process_up(tmp_path, phase):
    for name in ("plain", "other"):
        python_model(tmp_path / name, WAITING % 1)
    python_model(tmp_path / "still", STANDING_STILL % {"phase": phase})
    with TritonServer(tmp_path, models=["plain", "other"]) as server:
        at = server.grpc_url
        server.load("still")
        assert server.grpc_url == at
        assert server.models == ("plain", "other", "still")
        assert server.is_ready()


def test_a_load_that_fails_without_a_log_is_an_error_of_ours(tmp_path):
    python_model(tmp_path / "models" / "plain", WAITING % 1)
    log = tmp_path / "server.log"
    with TritonServer(tmp_path / "models", log_file=log) as server:
        log.unlink()
        with pytest.raises(ServerError, match="The model nothing could not be loaded"):
            server.load("nothing")
        assert server.is_ready()


@pytest.mark.long
def test_damage_at_each_load_is_an_error(tmp_path):
    python_model(tmp_path / "plain", WAITING % 1)
    python_model(tmp_path / "damaging", DAMAGING)
    error = pytest.raises(ServerError, match=r"damaging could not be loaded[\s\S]*lock_exception")
    with TritonServer(tmp_path, models=["plain"]) as server, error:
        server.load("damaging")


@pytest.mark.long
def test_eight_ensembles_start_and_answer(repository, tmp_path):
    names = [f"movies_{number}" for number in range(8)]
    for name in names:
        number = name.removeprefix("movies")
        for model in ("movies", "prepare", "network"):
            folder = shutil.copytree(repository / model, tmp_path / f"{model}{number}")
            config = folder / "config.pbtxt"
            text = config.read_text()
            for step in ("prepare", "network"):
                text = text.replace(f'model_name: "{step}"', f'model_name: "{step}{number}"')
            config.write_text(text)
    with TritonServer(tmp_path) as server:
        assert sorted(server.models) == names
        for name in names:
            with EnsembleClient(server.grpc_url, name) as client:
                answer = client.predict(ROW)
            assert answer["same_user"].tolist() == [[1]]
            np.testing.assert_array_equal(answer["probabilities"], [[1.0, 2.0]])


def test_a_full_disk_of_temporary_files_is_named(tmp_path, full_disk, monkeypatch):
    """It was an error of the module shutil, with a line for each file of the backend."""
    python_model(tmp_path / "models" / "plain", WAITING % 1)
    # Not in tmp_path, whose length counts in the message.
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        with full_disk(4_000), pytest.raises(ServerError) as raised:
            TritonServer(tmp_path / "models").start()
        assert not [*Path(temporary).iterdir()]
    assert str(raised.value).startswith(
        f"Expected to be able to write temporary files to {temporary}/tritonserver-"
    )
    assert "Received: [Errno 27] File too large" in str(raised.value)
    assert str(raised.value).endswith("permissions of the disk. Or set TMPDIR to another folder.")
    assert len(str(raised.value)) < 600
