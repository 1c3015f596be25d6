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
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

from exporter.command_line.app import make_app

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


def test_the_page_of_the_package_names_its_pythons(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(metadata.get_all("Classifier")))
    assert pythons == ["3.11", "3.12", "3.13"]
    taken = SpecifierSet(metadata["Requires-Python"])
    assert [n for n in range(16) if f"3.{n}.1" in taken] == [11, 12, 13]
    # numpy below 2, which the server needs, has no wheels for 3.13.
    for minor, has_server in ((12, True), (13, False)):
        there = {"python_version": f"3.{minor}", "extra": "serve"}
        needed = map(Requirement, metadata.get_all("Requires-Dist"))
        names = {n.name for n in needed if n.marker is None or n.marker.evaluate(there)}
        assert ("nvidia-pytriton" in names) == has_server
        assert "onnxruntime" in names
    # Where an address is unknown the checklist says so, and both change together.
    page = (ROOT / "docs" / "releasing.md").read_text()
    assert ("neither `[project.urls]`" in page) == (metadata.get_all("Project-URL") is None)


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """A folder with `dist/`, as after `make dist`, and a function that runs a line of a shell there.

    The commands are those of a new environment in the folder, and the installer is pip.
    """
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "dist").mkdir()
    shutil.copy(wheel, folder / "dist")

    def shell(line, at=".", environment="venv"):
        place = folder / environment
        if not place.exists():
            run(sys.executable, "-m", "venv", place)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        own["PATH"] = f"{place / 'bin'}:{os.environ['PATH']}"
        own["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        return run("bash", "-euc", line, cwd=folder / at, env=own)

    return folder, shell


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_readmes_commands_work_in_a_fresh_environment(fresh):
    folder, shell = fresh
    (extras,) = re.findall(r"^pip install 'parquet-to-triton(\[.+\])'$", README, re.MULTILINE)
    (line,) = re.findall(r"`(pip install 'dist/[^`]+')`", README)
    assert line.endswith(f"{extras}'")
    # TensorFlow has no wheels for 3.14.
    other = "--no-deps --python-version 3.14 --only-binary=:all: --dest other"
    refused = shell(f"! pip download {other} dist/*.whl 2>&1")
    assert "requires a different Python: 3.14.0 not in" in refused
    shell(line)
    assert "No broken requirements found" in shell("pip check")
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (folder / "example").mkdir()
    (folder / "example" / "example.py").write_text(example)
    said = shell("python example.py", at="example")
    assert "Parity passed: movielens, 1,000 rows" in said
    (project,) = re.findall(r"`(ensemble init .+? && make -C .+?)`", README)
    assert "Parity passed: clicks, 2,000 rows" in shell(project)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_project_proves_itself_in_ci(fresh):
    """The steps of the workflow that `ensemble init` writes, on a machine that has the project alone."""
    folder, shell = fresh
    (wheel,) = (folder / "dist").glob("*.whl")
    words = ["init", str(folder / "shop in ci"), "--package", str(wheel)]
    assert CliRunner().invoke(make_app(), words).exit_code == 0
    workflow = yaml.safe_load((folder / "shop in ci/.github/workflows/proof.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["proof"]["steps"] if "run" in step]
    said = [shell(step, at="shop in ci", environment="runner") for step in steps]
    assert "Parity passed: clicks, 2,000 rows" in said[-1]
    made = folder / "shop in ci"
    for step in workflow["jobs"]["proof"]["steps"]:
        for page in step.get("with", {}).get("path", "").split():
            assert (made / page).is_file()


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
    assert len(rows) == 6
    for number, file, constant in rows:
        assert re.search(rf"^{constant} = {number}$", (ROOT / file).read_text(), re.MULTILINE), file
