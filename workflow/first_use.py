"""Public names of a package, each imported at its first use, and errors for what keeps it from that."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

NAME = "parquet-to-triton"
_OWN = ("workflow", "loader", "training", "exporter", "serving", "triton_models")
# The extra that installs a package, where another one is missing without it.
_EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "faiss": "faiss",
    "obstore": "objects",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "tensorflow": "cpu",
    "tf2onnx": "onnx",
}
# Frameworks that no extra installs, since each has wheels of its own for each kind of device.
_FRAMEWORKS = ("jax", "torch")


def at_first_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that imports each name at its first use.

    Args:
        package: its name.
        modules: for each public name the module that defines it; for a module that is public itself,
            its own name.

    Example:
        >>> at_first_use("loader", {"LoaderError": "loader.errors"})("LoaderError").__name__
        'LoaderError'
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with explained_imports():
            module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return get


@contextmanager
def explained_imports() -> Iterator[None]:
    """Imports whose error says what to install or to rename, where that helps.

    Raises:
        ImportError: a package of an extra is missing, does not fit to another one, or a user's own one
            comes before one of ours.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (reason := what_is_missing(error)) is None:
            raise
        raise ImportError(reason, name=error.name) from error
    except AttributeError as error:  # for which Python says no more than that our name is unknown
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        raise ImportError(
            f"Expected packages of versions that fit together. Received: {error}, in {place}. `pip check` "
            "names those that do not fit."
        ) from error


def what_is_missing(error: ModuleNotFoundError) -> str | None:
    """Text that says what to install or to rename for a module that was not found; None if neither helps.

    Example:
        >>> what_is_missing(ModuleNotFoundError("...", name="onnx"))  # doctest: +ELLIPSIS
        'Expected the package onnx: pip install ...[onnx]... Received: an environment without it.'
    """
    first = (error.name or "").split(".")[0]
    if first in _EXTRAS:
        beside = ", or [gpu] beside an NVIDIA GPU" if first == "tensorflow" else ""
        return (
            f"Expected the package {first}: {install_command(_EXTRAS[first])}{beside}. "
            "Received: an environment without it."
        )
    if first in _FRAMEWORKS:
        if any(
            "/keras/src/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)
        ):
            return (
                f"Expected TensorFlow as Keras' backend. Received: {first}, which is not installed. The "
                "environment variable KERAS_BACKEND or the file keras.json in ~/.keras names it: set "
                "KERAS_BACKEND=tensorflow."
            )
        return (
            f"Expected the package {first}: pip install {first}, or as its own pages say for your device. "
            "Received: an environment without it."
        )
    if first in _OWN and first in sys.modules and not (_home(first) / "py.typed").exists():
        return (
            f"Expected the package {first!r} of parquet-to-triton. Received: "
            f"{sys.modules[first].__file__ or _home(first)}, which has the same name and comes before it on "
            "Python's path. Rename it."
        )
    return None


def install_command(extra: str) -> str:
    """The command that installs an extra from where this package itself was installed from.

    An index may lack the package, or have another one of its name.

    Example:
        >>> install_command("gpu")  # doctest: +SKIP
        'pip install "parquet-to-triton[gpu] @ file:///wheels/parquet_to_triton-0.1.0-py3-none-any.whl"'
    """
    place = ""
    with suppress(PackageNotFoundError):  # a copy of the source on Python's path
        place = installed_from(distribution(NAME)) or ""
    return f'pip install "{NAME}[{extra}]{place and f" @ {place}"}"'


def installed_from(installed: Distribution) -> str | None:
    """The URL that an installed package came from, as pip takes it; None if that was an index.

    The record is https://packaging.python.org/en/latest/specifications/direct-url/.
    """
    record = installed.read_text("direct_url.json")
    if record is None:
        return None
    origin = json.loads(record)
    url, repository = str(origin["url"]), origin.get("vcs_info")
    return f"{repository['vcs']}+{url}@{repository['commit_id']}" if repository else url


def _home(package: str) -> Path:
    module = sys.modules[package]
    folders = [*getattr(module, "__path__", [])] or [str(Path(module.__file__ or "").parent)]
    return Path(folders[0])
