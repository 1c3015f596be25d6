"""The package: its page, its archives, and its way into a fresh environment."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv():
    """The program that `make env` installs with."""
    beside = ROOT / ".venv-uv" / "bin" / "uv"
    return shutil.which("uv") or str(beside)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [uv(), "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    run(*command, "--out-dir", folder, ROOT)
    archives = sorted(folder.glob("*.tar.gz")) + sorted(folder.glob("*.whl"))
    assert len(archives) == 2
    # The script beside this Python, as `make dist` runs it.
    twine = Path(sys.executable).parent / "twine"
    said = run(twine, "check", "--strict", *archives, env=os.environ | {"NO_COLOR": "1"})
    assert said.count("PASSED") == 2
    return archives[1]


def test_the_page_of_the_package_has_no_link_into_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
        assert "workflow/ops/categorify.py" in archive.namelist()
        assert "triton_models/backends/tensorflow/model.py" in archive.namelist()
    page = metadata.get_payload()
    assert "# From parquet to a served, proven Triton ensemble" in page
    assert "Tutorials: notebooks on ratings" in page
    assert not re.findall(r"\]\((?!https?://)", page)
    assert metadata["Description-Content-Type"] == "text/markdown"


@pytest.mark.long
def test_the_readme_works_in_a_fresh_environment(wheel, tmp_path):
    (line,) = re.findall(r"^pip install 'parquet-to-triton(\[.+\])'$", README, re.MULTILINE)
    python = tmp_path / "venv" / "bin" / "python"
    run(uv(), "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    run(uv(), "pip", "install", "--quiet", "--python", python, f"{wheel}{line}", timeout=280)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = tmp_path / "project"
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    said = run(python, "-c", example, cwd=folder, env=environment, timeout=240)
    assert "Parity passed: movielens, 1,000 rows" in said


def test_the_readmes_example_has_twenty_lines_of_code():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    lines = [line for line in example.splitlines() if line and "import " not in line]
    assert len(lines) <= 20


def test_the_readmes_figures_are_those_of_the_benchmarks_summary():
    def figures(text, ratio):
        (table,) = re.findall(r"^\| \| ours \|.*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
        rows = [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        return {label: (found[0], found[ratio]) for label, *found in rows}

    # The page has the floor as well, and the goal.
    page = figures((ROOT / "docs" / "benchmarks.md").read_text(), 3)
    readme = figures(README, 2)
    assert readme
    assert {label: page.get(label) for label in readme} == readme


def test_the_readme_names_extras_that_there_are():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    table = README.partition("| extra | for |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:25])}
    assert named == {"cpu", "gpu", "serve", "onnx", "dask", "objects"}
    assert named <= extras.keys()


def test_the_formats_of_files_are_those_of_the_code():
    page = (ROOT / "docs" / "releasing.md").read_text()
    rows = re.findall(r"\| (\d+) \| `([\w/.]+)` `(\w+)` \|", page)
    assert len(rows) == 5
    for number, file, constant in rows:
        assert re.search(rf"^{constant} = {number}$", (ROOT / file).read_text(), re.MULTILINE), file
