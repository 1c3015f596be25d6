"""No package holds a call that could run what a file says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["workflow", "loader", "training", "exporter", "triton_models", "serving"]
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
MODULES = {
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "jsonpickle",
    "code",
    "runpy",
}
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
METHODS = {
    "os": {"system", "popen"},
    "yaml": {"load", "load_all", "full_load", "unsafe_load", "unsafe_load_all"},
    "subprocess": {"getoutput", "getstatusoutput"},
    "np": {"load", "loads", "fromregex"},
    "numpy": {"load", "loads", "fromregex"},
}


# The user names a module of their own on the command line; no file of data does.
ALLOWED = {
    "exporter/command_line/user_code.py": ["import_module of a name that is no constant"],
}


def findings(source: str) -> list[str]:
    """The parts of a source that no source here may have."""
    return [
        f"line {node.lineno}: {what}"
        for node in ast.walk(ast.parse(source))
        for what in _look(node)
    ]


def _look(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [n.name for n in node.names if n.name.split(".")[0] in MODULES]
    if isinstance(node, ast.ImportFrom):
        return (
            [node.module] if (node.module or "").split(".")[0] in MODULES and not node.level else []
        )
    if not isinstance(node, ast.Call):
        return []
    return [*_callee(node), *_arguments(node)]


def _callee(node: ast.Call) -> list[str]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in CALLS:
        return [function.id]
    if not isinstance(function, ast.Attribute):
        return []
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if function.attr in METHODS.get(owner, ()):
        return [f"{owner}.{function.attr}"]
    constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
    return ["import_module of a name that is no constant"] * (
        function.attr == "import_module" and not constant
    )


def _arguments(node: ast.Call) -> list[str]:
    unsafe = {"allow_pickle": True, "shell": True, "safe_mode": False}
    return [
        f"{word.arg}={ast.unparse(word.value)}"
        for word in node.keywords
        if word.arg in unsafe
        and not (isinstance(word.value, ast.Constant) and word.value.value is not unsafe[word.arg])
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_file_runs_nothing_that_a_file_says(file):
    found = [what.partition(": ")[2] for what in findings(file.read_text())]
    assert found == ALLOWED.get(str(file.relative_to(ROOT)), [])


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, cloudpickle",
        "from joblib import load",
        "import marshal as m",
        "eval(text)",
        "exec(code)",
        "__import__(name)",
        "importlib.import_module(name)",
        "importlib.import_module(f'{a}.b')",
        "np.load(path)",
        "read(path, allow_pickle=True)",
        "read(path, allow_pickle=flag)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "os.system('ls')",
        "subprocess.run(line, shell=True)",
        "keras.models.load_model(path, safe_mode=False)",
    ],
)
def test_gate_sees_what_it_is_for(source):
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "importlib.import_module('pandas')",
        "json.load(file)",
        "yaml.safe_load(text)",
        "read(path, allow_pickle=False)",
    ],
)
def test_gate_lets_the_rest_pass(source):
    assert not findings(source)


def test_every_package_is_looked_at():
    assert {file.relative_to(ROOT).parts[0] for file in FILES} == set(PACKAGES)
