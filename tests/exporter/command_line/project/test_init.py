"""A new project's files work at once, from made-up data to the proof."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml
from ensemble_command import PROGRAM
from typer.testing import CliRunner

from exporter.command_line.app import make_app
from exporter.command_line.commands.init import FILES
from workflow import Workflow

ROOT = Path(__file__).parents[4]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "a shop"
    result = CliRunner().invoke(make_app(), ["init", str(folder), "--name", "shop"])
    assert result.exit_code == 0, result.output
    return folder


def make(project, target):
    # The command that is tested, whatever is installed; the path of the tests has no space.
    program = project.parent / "ensemble"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
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


@pytest.mark.long
def test_it_proves_itself_and_predicts(project):
    assert "Parity passed: shop, 2,000 rows" in make(project, "parity")
    assert "scores/*.parquet: 2,000 rows of user, item, output" in make(project, "predict")


def test_its_files_name_the_ensemble_and_what_is_installed(project):
    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert found == set(FILES.values())
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
    words = (project / "requirements.txt").read_text().split("==")
    version = CliRunner().invoke(make_app(), ["--version"]).stdout.split()[-1]
    assert words == ["parquet-to-triton[cpu,serve,onnx]", f"{version}\n"]
