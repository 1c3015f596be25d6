"""Installation and every stage in a hostile place: no home, no cache, no ASCII, no locale."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflow", "loader", "training", "exporter", "serving", "triton_models")


@pytest.fixture
def checkout(tmp_path):
    """The files that `make env` reads, in a folder with a space and letters beyond ASCII."""
    folder = tmp_path / "été à la mer"
    for name in (*PACKAGES, "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def environment(checkout):
    """No home, a cache that cannot be made, a zone of 45 minutes, and bytes beyond ASCII unknown."""
    temporary = checkout / "für später"
    temporary.mkdir()
    path = f"{ROOT / '.venv-uv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # From uv's own cache, since the packages are more than a gigabyte.
    cache = subprocess.run(
        ["uv", "cache", "dir"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_"))},
        "PATH": path,
        "UV_CACHE_DIR": cache.stdout.strip(),
        "LC_ALL": "C",
        "TZ": "Pacific/Chatham",
        "XDG_CACHE_HOME": "/proc/none",
        "TMPDIR": str(temporary),
    }


def run(*command, folder, environment):
    """Run a program to its end, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    printed = done.stdout.decode()
    assert done.returncode == 0, printed
    return printed


@pytest.mark.parametrize("home", [{}, {"HOME": "/proc/none"}], ids=["no home", "another's home"])
def test_packages_have_a_cache_where_the_home_has_none(checkout, environment, home):
    del environment["UV_CACHE_DIR"]
    known = run("make", "-pn", "help", folder=checkout, environment=environment | home)
    assert f"UV_CACHE_DIR := {checkout}/.venv-uv/cache" in known.splitlines()


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")
def test_it_installs_and_serves_in_a_hostile_place(checkout, environment):
    run("make", "env", folder=checkout, environment=environment)
    ensemble = checkout / ".venv" / "bin" / "ensemble"
    demo = (ensemble, "demo", "mes modèles", "--rows", "2000")
    assert "Parity passed" in run(*demo, folder=checkout, environment=environment)
