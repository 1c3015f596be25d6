"""Errors of an environment or a folder that keeps a package from its modules."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import distribution, version

import pytest
from packaging.requirements import Requirement

import loader
from workflow.first_use import install_command

WITHOUT = """
from importlib.machinery import PathFinder
import sys

find = PathFinder.find_spec

def found(name, path=None, target=None):
    return None if name in {absent!r} else find(name, path, target)

PathFinder.find_spec = found
"""


def last_line(code, folder, **environment):
    """The last line of the error with which a program ends."""
    (folder / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "wanted",
    ["from loader import KerasSequenceLoader", "from training import train, models"],
)
def test_a_missing_extra_is_named(wanted, tmp_path):
    told = last_line(WITHOUT.format(absent=["tensorflow"]) + wanted, tmp_path)
    assert told.startswith("ImportError: Expected the package tensorflow: pip install ")
    assert '"parquet-to-triton[cpu]' in told


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.long)])
@pytest.mark.parametrize("setting", ["variable", "file"])
def test_a_platforms_backend_of_keras_is_not_to_be_installed(tmp_path, backend, setting):
    """It would be refused next."""
    (tmp_path / "keras.json").write_text(json.dumps({"backend": backend}))
    program = WITHOUT.format(absent=[backend]) + "import training"
    chosen = {"KERAS_BACKEND": backend} if setting == "variable" else {"KERAS_HOME": str(tmp_path)}
    line = last_line(program, tmp_path, **chosen)
    assert "Expected TensorFlow as Keras' backend" in line
    assert line.endswith("set KERAS_BACKEND=tensorflow.")


@pytest.mark.parametrize(("package", "wanted"), [("torch", "TorchLoader"), ("jax", "JaxLoader")])
def test_a_missing_framework_is_named(package, wanted, tmp_path):
    told = last_line(WITHOUT.format(absent=[package]) + f"from loader import {wanted}", tmp_path)
    assert told.startswith(f"ImportError: Expected the package {package}: pip install {package}")


def test_a_star_import_does_without_frameworks():
    """It asks for each name of `__all__`, which are those without the frameworks that are missing."""
    program = WITHOUT.format(absent=["torch", "jax"]) + "import loader\nprint(*loader.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = set(done.stdout.split())
    assert "KerasSequenceLoader" in names
    assert names.isdisjoint({"TorchLoader", "JaxLoader"})
    assert all(hasattr(loader, name) for name in names)


def test_the_advice_installs_from_where_the_package_came():
    """An index may lack the package, or have a stranger's of its name."""
    installed = distribution("parquet-to-triton")
    words = shlex.split(install_command("gpu"))
    assert words[:2] == ["pip", "install"]
    requirement = Requirement(words[2])
    assert (requirement.name, requirement.extras) == ("parquet-to-triton", {"gpu"})
    record = installed.read_text("direct_url.json")
    assert requirement.url == (json.loads(record)["url"] if record else None)
    assert "gpu" in installed.metadata.get_all("Provides-Extra")


def test_a_command_names_it_too(tmp_path):
    program = (
        "sys.argv = ['ensemble', 'demo', 'out']\nfrom exporter.command_line import main\nmain()"
    )
    told = last_line(WITHOUT.format(absent=["tensorflow"]) + program, tmp_path)
    assert told.startswith("error: Expected the package tensorflow: pip install ")
    assert "Traceback" not in told


def test_a_module_of_ones_own_with_the_name_of_a_package_is_named(tmp_path):
    (tmp_path / "training.py").write_text("")
    told = last_line("from exporter import export_tensorflow_ensemble", tmp_path)
    assert told.startswith("ImportError: Expected the package 'training' of parquet-to-triton.")
    assert str(tmp_path / "training.py") in told
    assert told.endswith("Rename it.")


def test_a_folder_of_ones_own_is_named_where_another_package_imports_it(tmp_path):
    (tmp_path / "loader").mkdir()
    (tmp_path / "loader" / "__init__.py").write_text("")
    told = last_line("from training import train", tmp_path)
    assert told.startswith("ImportError: Expected the package 'loader' of parquet-to-triton.")
    assert str(tmp_path / "loader") in told
    assert told.endswith("Rename it.")


def test_a_bug_inside_is_not_taken_for_either(tmp_path):
    told = last_line(WITHOUT.format(absent=["numpy"]) + "from loader import ArrayLoader", tmp_path)
    assert told == "ModuleNotFoundError: No module named 'numpy'"


def test_packages_that_do_not_fit_together_are_named(tmp_path):
    """Python calls the name of ours unknown, and says nothing else, if its import ends like this."""
    (tmp_path / "polars.py").write_text("import numpy\nnumpy.dtypes.NewDType")
    told = last_line("from exporter import export_ensemble", tmp_path)
    assert told.startswith(
        "ImportError: Expected packages of versions that fit together. Received: "
    )
    assert "module 'numpy.dtypes' has no attribute 'NewDType'" in told
    assert f"in {tmp_path / 'polars.py'}" in told
    assert "pip check" in told


def test_the_package_is_a_program_and_tells_its_version():
    command = [sys.executable, "-m", "exporter.command_line", "--version"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text == f"parquet-to-triton {version('parquet-to-triton')}\n"


@pytest.mark.parametrize("package", ["exporter", "loader", "serving", "training"])
def test_a_workflow_of_ones_own_is_named(package, tmp_path):
    (tmp_path / "workflow.py").write_text("")
    told = last_line(f"import {package}", tmp_path)
    assert told.startswith("ImportError: Expected the package 'workflow' of parquet-to-triton.")
    assert f"Received: {tmp_path / 'workflow.py'}, which has the same name" in told
