"""docker-compose.yml starts the server that serving/embedded/flags.py describes, and hardens it."""

import os
import re
import shutil
import subprocess
from functools import reduce
from pathlib import Path

import pytest
import yaml

from serving.embedded.flags import ServerFlags, server_flags
from triton_models.backends import SHARED_FILES

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker-compose.yml"
VARIABLES = {
    "MODEL": "films",
    "MODELS": "/srv/models",
    "TRITON_ADMIN_KEY": "secret",
    "TRITON_DIGEST": f"sha256:{'0' * 64}",
}


def with_variables(text):
    """The file with its variables filled in, for a machine without docker-compose."""
    pattern = r"\$\{(\w+)(?::([-?])([^}]*))?\}"
    return re.sub(pattern, lambda m: VARIABLES.get(m[1], m[3] if m[2] == "-" else m[0]), text)


@pytest.fixture(scope="module")
def service():
    return service_of(FILE)


def service_of(*files):
    """The service of one file, or of the first with the others' changes."""
    program = shutil.which("docker-compose")
    if program is None:
        print("docker-compose is absent: the file is read as YAML, not checked by it")  # noqa: T201
        texts = (with_variables(file.read_text()) for file in files)
        return reduce(merged, map(yaml.safe_load, texts))["services"]["triton"]
    text = subprocess.run(
        [program, *(word for file in files for word in ("-f", file)), "config"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **VARIABLES},
    ).stdout
    return yaml.safe_load(text)["services"]["triton"]


def merged(first, second):
    """Compose's rule for mappings."""
    if not isinstance(second, dict):
        return second
    return first | {key: merged(first.get(key, {}), value) for key, value in second.items()}


def test_the_flags_are_those_of_the_embedded_server(service):
    # Inside a container; the ports are published on loopback.
    flags = ServerFlags("/models", ("films",), "secret", address="0.0.0.0")  # noqa: S104
    assert service["command"] == ["tritonserver", *server_flags(flags)]


def test_with_a_gpu_nothing_else_differs(service):
    on_gpu = service_of(FILE, ROOT / "docker" / "gpu.yml")
    assert on_gpu["build"]["args"].pop("TENSORFLOW") == "tensorflow[and-cuda]==2.21.*"
    assert service["build"]["args"]["TENSORFLOW"] == "tensorflow-cpu==2.21.*"
    assert on_gpu.pop("image") != service["image"]
    (device,) = on_gpu.pop("deploy")["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}
    del on_gpu["build"]
    assert on_gpu == {k: v for k, v in service.items() if k not in {"build", "image"}}


def test_the_health_check_ends_before_it_is_killed(service):
    words = service["healthcheck"]["test"]
    limits = [float(word.split("=")[1]) for word in words if word.startswith("--within=")]
    # A second for the start of Python.
    assert len(limits) == 1
    assert 0 < limits[0] <= float(service["healthcheck"]["timeout"].removesuffix("s")) - 1


def test_the_key_must_be_given():
    program = shutil.which("docker-compose")
    if program is None:
        print("docker-compose is absent: the file's text is looked at")  # noqa: T201
        assert FILE.read_text().count("${TRITON_ADMIN_KEY:?") == 2
        return
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_ADMIN_KEY"}
    result = subprocess.run(
        [program, "-f", FILE, "config"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert result.returncode != 0
    assert "set it to a secret of your own" in result.stderr


def test_the_container_is_hardened(service):
    assert service["user"] == "1000:1000"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["volumes"] == ["/srv/models:/models:ro"]
    assert all(str(port).startswith("127.0.0.1:") for port in service["ports"])
    assert "privileged" not in service
    assert service["restart"] == "unless-stopped"


def test_the_image_holds_what_the_service_runs(service):
    """Every file that the image copies exists, and the health check is among them."""
    lines = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copies = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    ignored, *sent = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().split()
    assert ignored == "*"
    targets = set()
    for *sources, target in copies:
        for source in sources:
            assert (ROOT / source).is_file()
            assert any(source.startswith(pattern.removeprefix("!")) for pattern in sent), source
            name = "" if not target.endswith("/") else Path(source).name
            targets.add(target + name)
    assert service["healthcheck"]["test"][2] in targets
    assert {
        f"/opt/tritonserver/backends/tensorflow/{name}"
        for name in ("model.py", *(Path(file).name for file in SHARED_FILES))
    } <= targets
    assert "USER 1000:1000" in lines
