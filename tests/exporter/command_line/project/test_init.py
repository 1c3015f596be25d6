"""A new project's files work at once, from made-up data to the proof."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import polars as pl
import pytest
import yaml
from ensemble_command import PROGRAM
from typer.testing import CliRunner

from exporter.command_line.app import make_app
from exporter.command_line.commands.init import FILES
from exporter.command_line.guard import CommandError
from exporter.command_line.package import installed_package
from workflow import Workflow

ROOT = Path(__file__).parents[4]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "a shop"
    result = CliRunner().invoke(make_app(), ["init", str(folder), "--name", "shop"])
    assert result.exit_code == 0, result.output
    return folder


def programs(folder):
    """The command that is tested, whatever is installed, and Python, as an environment has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in (("ensemble", f'-c "{PROGRAM}"'), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def make(project, target):
    program = programs(project.parent) / "ensemble"  # the path of the tests has no space
    words = ["make", target, f"ENSEMBLE={program}", f"PYTHON={sys.executable}"]
    result = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_its_first_targets_work(project):
    make(project, "valid/_schema.json")
    made = pl.read_parquet(project / "valid" / "*.parquet")
    assert made.columns == ["user", "item", "price", "clicked"]
    assert made.height == 2_000
    # Some prices were missing.
    assert made["price"].is_finite().all()
    assert Workflow.load(project / "workflow").output_schema["clicked"].tags == ("target",)
    # Nothing is made twice.
    assert "up to date" in make(project, "valid/_schema.json")


def test_files_of_ones_own_stay_though_they_are_older(project):
    mine = pl.DataFrame({"user": [1], "item": ["a"], "price": [2.0], "clicked": [0]})
    (project / "raw").mkdir()
    mine.write_parquet(project / "raw" / "train.parquet")
    os.utime(project / "raw" / "train.parquet", (0, 0))  # as `mv` and `cp -p` leave it
    make(project, "raw/train.parquet")
    make(project, "raw/valid.parquet")
    assert pl.read_parquet(project / "raw" / "train.parquet").equals(mine)
    assert pl.read_parquet(project / "raw" / "valid.parquet").height == 2_000


def test_a_run_that_was_killed_before_the_data_is_made_again(project):
    make(project, "fit")
    shutil.rmtree(project / "train")  # `fit` saves the workflow first
    make(project, "valid/_schema.json")
    assert pl.read_parquet(project / "train" / "*.parquet").height == 20_000


@pytest.mark.parametrize("target", ["train/_schema.json", "models/shop/config.pbtxt"])
def test_what_was_made_outlives_an_error_behind_it(project, target):
    file = project / target
    for ready in ("features.py", "raw/train.parquet", "raw/valid.parquet", "train/_schema.json"):
        if ready != target:
            (project / ready).parent.mkdir(exist_ok=True)
            (project / ready).touch()
    (project / "late").write_text(f'#!/bin/sh\nmkdir -p "{file.parent}"\n>"{file}"\nexit 1\n')
    (project / "late").chmod(0o755)
    skipped = [f"--assume-old={name}" for name in ("valid/_schema.json", "model.keras")]
    words = ["make", target, *skipped, "ENSEMBLE=./late"]
    result = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stdout + result.stderr
    assert file.is_file()


BARE = {"PATH": "/usr/bin:/bin"}


def test_its_own_environment_needs_not_be_active(project):
    programs(project / ".venv" / "bin")
    words = ["make", "fit"]
    result = subprocess.run(
        words, cwd=project, env=BARE, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (project / "workflow" / "workflow.json").is_file()


@pytest.mark.parametrize("active", [True, False])
def test_the_printed_command_finds_the_environment_of_init(tmp_path, monkeypatch, active):
    environment = programs(tmp_path / "an environment")
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    path = f"{environment}:{BARE['PATH']}" if active else BARE["PATH"]
    monkeypatch.setenv("PATH", path)
    result = CliRunner().invoke(make_app(), ["init", str(tmp_path / "a shop")])
    command = result.stdout.splitlines()[-1].removeprefix("try ").strip()
    assert command.startswith("make" if active else "PATH=")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} raw/train.parquet"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "a shop" / "raw" / "train.parquet").is_file()


@pytest.mark.long
def test_it_proves_itself_and_predicts(project):
    assert "Parity passed: shop, 2,000 rows" in make(project, "parity")
    assert "scores/*.parquet: 2,000 rows of user, item, output" in make(project, "predict")


WHEEL = "parquet_to_triton-9.8.7-py3-none-any.whl"
EXTRAS = "[cpu,serve,onnx]"


def init(*words):
    result = CliRunner().invoke(make_app(), ["init", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_wheel_is_in_the_project(tmp_path):
    (tmp_path / WHEEL).write_bytes(b"the wheel")
    for number, place in enumerate([tmp_path / WHEEL, (tmp_path / WHEEL).as_uri()]):
        folder = tmp_path / f"shop {number}"
        made = init(folder, "--package", place)
        assert (folder / "wheels" / WHEEL).read_bytes() == b"the wheel"
        # From the project's folder, in which CI installs.
        assert (folder / "requirements.txt").read_text() == f"./wheels/{WHEEL}{EXTRAS}\n"
        assert str(folder / "wheels" / WHEEL) in made["files"]


@pytest.mark.parametrize(
    "url", [f"https://example.com/{WHEEL}", "git+ssh://git@example.com/a/b.git@v1.0.0"]
)
def test_a_url_is_required(tmp_path, url):
    made = init(tmp_path / "shop", "--package", url)
    assert made["requirement"] == f"parquet-to-triton{EXTRAS} @ {url}"
    assert (tmp_path / "shop" / "requirements.txt").read_text() == made["requirement"] + "\n"


def test_a_folder_says_that_others_do_not_have_it(tmp_path):
    result = CliRunner().invoke(
        make_app(), ["init", str(tmp_path / "shop"), "--package", str(ROOT)]
    )
    assert "on this machine alone: for CI give --package WHEEL or URL" in result.stdout
    *comment, line = (tmp_path / "shop" / "requirements.txt").read_text().splitlines()
    assert all(words.startswith("# ") for words in comment)
    assert line == f"parquet-to-triton{EXTRAS} @ {ROOT.as_uri()}"


@pytest.mark.parametrize(
    ("record", "line"),
    [
        # From an index: there it has a version.
        (None, f"parquet-to-triton{EXTRAS}==9.8.7"),
        (
            {"url": "https://example.com/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            f"parquet-to-triton{EXTRAS} @ git+https://example.com/a.git@abc",
        ),
        (
            {"url": f"https://example.com/{WHEEL}", "archive_info": {}},
            f"parquet-to-triton{EXTRAS} @ https://example.com/{WHEEL}",
        ),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"parquet-to-triton{EXTRAS} @ {ROOT.as_uri()}"),
        ({"url": "file:///none", "dir_info": {}}, "no --package, and file:///none."),
        ({"url": f"file:///none/{WHEEL}", "archive_info": {}}, "from is gone. Received: no"),
    ],
)
def test_it_is_installed_from_where_it_came(tmp_path, record, line):
    (tmp_path / "METADATA").write_text("Name: parquet-to-triton\nVersion: 9.8.7\n")
    if record is not None:
        (tmp_path / "direct_url.json").write_text(json.dumps(record))
    try:
        assert installed_package(Distribution.at(tmp_path)).requirement == line
    except CommandError as error:
        assert line in str(error)  # noqa: PT017 - the others have none


@pytest.mark.parametrize("place", ["none.whl", "other-1.0-py3-none-any.whl", ".", "", "parquet"])
def test_another_package_is_refused(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other-1.0-py3-none-any.whl").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    result = CliRunner().invoke(make_app(), ["init", "shop", "--package", place])
    assert result.exit_code == 1
    assert "Expected --package as a wheel of parquet-to-triton" in result.stderr
    assert f"Received: {place!r}." in result.stderr
    assert not (tmp_path / "shop").exists()


def test_its_files_name_the_ensemble(project):
    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert found == {*FILES.values(), "requirements.txt"}
    folder = ROOT / "exporter" / "command_line" / "project"
    assert {path.name for path in folder.iterdir()} - {"__init__.py", "__pycache__"} == set(FILES)
    assert "NAME := shop" in (project / "Makefile").read_text()
    compose = yaml.safe_load((project / "docker-compose.yml").read_text())
    service = compose["services"]["triton"]
    assert "--load-model=shop" in service["command"]
    # By digest, which cannot be moved to another image.
    assert service["image"].startswith("nvcr.io/nvidia/tritonserver@${TRITON_DIGEST:?")
    flags = (ROOT / "docker-compose.yml").read_text()
    own = {word.split("=")[0] for word in service["command"][1:]}
    known = {w.split("=")[0] for w in yaml.safe_load(flags)["services"]["triton"]["command"][1:]}
    assert own <= known
    steps = yaml.safe_load((project / FILES["ci.yml"]).read_text())["jobs"]["proof"]["steps"]
    assert {"run": "make parity"} in steps
    assert {"run": "pip install -r requirements.txt"} in steps
