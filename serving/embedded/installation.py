"""Search for a tritonserver, and preparation of its backends and environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import triton_models.backends
from serving.embedded import this_interpreter
from serving.errors import ServerError

BACKENDS = Path(triton_models.backends.__file__).parent
PACKAGES = BACKENDS.parent.parent
# By default glibc returns memory to the system after a request and requests it again for the next
# one, page by page: a seventh of the processor time of small requests, and more of large ones. Larger
# thresholds than these save no more, and keep the memory of large requests.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": 32 << 20, "MALLOC_MMAP_THRESHOLD_": 4 << 20}

# For users of NumPy 2, as with the extra [gpu] or Python 3.13.
SEPARATE = "for example that of an environment of Python 3.12 with 'parquet-to-triton[cpu,serve]'"


@dataclass(frozen=True)
class Interpreter:
    """The Python interpreter that runs the server's Python models.

    Attributes:
        path: the program, under any name.
        version: for example "3.11".
        numpy: numpy's version there, or None.
        libraries: folders that may contain its shared library.
        unreadable: a .pth file beyond ASCII, with which Python cannot start inside the server, or
            None.
        wheel: the folder `tritonserver` of the package nvidia-pytriton there, or None.
    """

    path: Path
    version: str
    numpy: str | None
    libraries: list[str]
    unreadable: str | None
    wheel: str | None


@dataclass(frozen=True)
class Installation:
    """A tritonserver on this machine.

    Attributes:
        binary: the executable.
        wheel: the folder of the nvidia-pytriton wheel that the program belongs to, or None.
        interpreter: for Python models. None for that of an installed server.
    """

    binary: Path
    wheel: Path | None = None
    interpreter: Interpreter | None = None

    def knows(self, flag: str) -> bool:
        """Whether the program has a command-line flag, since an unknown one ends it."""
        return flag.encode() in self.binary.read_bytes()


def find_tritonserver(
    tritonserver: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
) -> Installation:
    """Find a server: the argument, then $TRITONSERVER, then PATH, then the nvidia-pytriton wheel.

    Args:
        tritonserver: the program.
        python: the interpreter for Python models, in whose environment the wheel may be; by default
            $TRITONSERVER_PYTHON, then this process's.

    Raises:
        ServerError: there is none, or the named one or the interpreter cannot be run.
    """
    interpreter = own = ask_interpreter()
    if python := python or os.environ.get("TRITONSERVER_PYTHON"):
        interpreter = ask_interpreter(python)
    folder = interpreter.wheel or own.wheel
    wheel = None if folder is None else Path(folder)
    named = tritonserver or os.environ.get("TRITONSERVER")
    path = shutil.which(named or "tritonserver")
    if named and path is None:
        raise ServerError(f"Expected the program tritonserver. Received: {named}, cannot be run.")
    if path is not None:
        binary = Path(path).resolve()
        inside = wheel is not None and binary.is_relative_to(wheel)
        needed = interpreter if inside or python else None
        return Installation(binary, wheel if inside else None, needed)
    if wheel is None:
        raise ServerError(
            "Expected a tritonserver: as the argument, in the environment variable TRITONSERVER, "
            "on PATH, or in the package nvidia-pytriton. Received: none of these. Install the extra "
            f"[serve], here or where python= or TRITONSERVER_PYTHON says ({SEPARATE}), or pass the path of "
            "an installed Triton."
        )
    return Installation(wheel / "bin" / "tritonserver", wheel, interpreter)


def cache_directory(installation: Installation) -> Path:
    """The folder with the server's response caches.

    Raises:
        ServerError: the in-memory cache is missing.
    """
    folder = installation.binary.parent.parent / "caches"
    library = folder / "local" / "libtritoncache_local.so"
    if not library.is_file():
        raise ServerError(
            f"Expected the response cache of {installation.binary} in {library}. Received: no such "
            "file. Start the server without response_cache_bytes, or install a Triton with this cache."
        )
    return folder


def ask_interpreter(python: str | os.PathLike[str] | None = None) -> Interpreter:
    """Query the interpreter for the server's Python models; by default this one.

    Raises:
        ServerError: it cannot be run, or is another program.
    """
    if python is None:
        here = this_interpreter.describe_interpreter()
        return Interpreter(Path(sys.executable).absolute(), **here)
    path = Path(python).absolute()
    try:
        answer = subprocess.run(  # noqa: S603
            [path, "-I", this_interpreter.__file__], check=True, capture_output=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"Expected a Python interpreter. Received: {path}: {error}") from error
    try:
        return Interpreter(path, **json.loads(answer.stdout))
    except (ValueError, TypeError) as error:
        raise ServerError(
            f"Expected a Python interpreter. Received: {path}, a program that does not answer as one."
        ) from error


def expect_server() -> None:
    """Check that `TritonServer` can be started on this machine, as far as that is known in advance.

    Raises:
        ServerError: there is no tritonserver, or it cannot run Python models.
    """
    installation = find_tritonserver()
    if installation.wheel is not None and installation.interpreter is not None:
        _check_interpreter(installation.interpreter)


def prepare(installation: Installation, backends: Path) -> dict[str, str]:
    """Fill the backend folder, and return the environment for the server.

    Args:
        installation: the server.
        backends: an empty folder to fill.

    Raises:
        ServerError: the interpreter is not suitable; some would silently compute wrong numbers.
    """
    environment = {**os.environ}
    # TensorFlow's messages would hide important ones; PYTHONHOME belongs to another interpreter.
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name, size in MALLOC.items():
        environment.setdefault(name, str(size))
    environment.pop("PYTHONHOME", None)
    # Otherwise onnxruntime from 1.31 on sends telemetry to its makers.
    environment["ORT_DISABLE_TELEMETRY"] = "1"
    if (interpreter := installation.interpreter) is not None:
        # The server's processes run the first `python3` on PATH.
        folder = interpreter.path.parent
        environment["PATH"] = os.pathsep.join([str(folder), environment.get("PATH", os.defpath)])
        if installation.wheel is not None:
            _check_interpreter(interpreter)
            _copy_wheel_backend(installation.wheel, interpreter, backends)
            libraries = [
                *interpreter.libraries,
                str(installation.wheel.parents[1] / "nvidia_pytriton.libs"),
            ]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
            _check_stub(backends / "python" / "triton_python_backend_stub", environment)
    if installation.wheel is None:
        _link_installed_backends(installation.binary, backends)
    for name in triton_models.backends.BACKENDS:
        if not (backends / name).exists():
            lay_out_backend(name, backends)
    return environment


def lay_out_backend(name: str, backends: Path) -> None:
    """Copy one of our backends into a server's backend folder.

    Example:
        >>> lay_out_backend("tensorflow", Path("/opt/tritonserver/backends"))  # doctest: +SKIP
    """
    folder = backends / name
    folder.mkdir(parents=True)
    shutil.copy(BACKENDS / name / "model.py", folder)
    for file in triton_models.backends.SHARED_FILES:
        shutil.copy(PACKAGES / file, folder)


def _check_interpreter(interpreter: Interpreter) -> None:
    if interpreter.numpy is None or int(interpreter.numpy.split(".")[0]) >= 2:
        raise ServerError(
            f"Expected numpy below 2 in {interpreter.path}. Received: {interpreter.numpy or 'none'}. "
            "The embedded server's python process reads memory wrongly under numpy 2: tensors "
            "would arrive as other numbers, without an error. Install 'numpy<2' there (the extras "
            f"[cpu,serve] do), or name another interpreter, python= or TRITONSERVER_PYTHON ({SEPARATE})."
        )
    if not (interpreter.path.parent / "python3").exists():
        raise ServerError(
            f"Expected a `python3` beside {interpreter.path}, since the embedded server runs that "
            "name. Received: none. Use the interpreter of a virtual environment."
        )
    if interpreter.unreadable is not None:
        raise ServerError(
            "Expected an environment whose .pth files are ASCII, as which the embedded server's Python "
            f"reads them. Received: {interpreter.unreadable}. An editable install writes the path of "
            "its checkout there: move the checkout to a path of ASCII letters, or install the package "
            "without --editable."
        )


def _copy_wheel_backend(wheel: Path, interpreter: Interpreter, backends: Path) -> None:
    """Copies, not links: Triton refuses a library outside its backend folder."""
    stub = wheel / "python_backend_stubs" / interpreter.version / "triton_python_backend_stub"
    if not stub.is_file():
        versions = sorted(path.name for path in stub.parent.parent.iterdir())
        raise ServerError(
            f"Expected a Python among {', '.join(versions)} for the embedded server. "
            f"Received: {interpreter.version} ({interpreter.path})."
        )
    shutil.copytree(wheel / "backends" / "python", backends / "python")
    shutil.copy(stub, backends / "python")


def _check_stub(stub: Path, environment: dict[str, str]) -> None:
    """Run the stub without arguments: it exits at once, but has to find its libraries."""
    answer = subprocess.run(  # noqa: S603
        [stub], env=environment, capture_output=True, check=False, timeout=60
    )
    if answer.returncode == 127:
        raise ServerError(
            "Expected Python's shared library beside the interpreter. Received: "
            f"{answer.stderr.decode(errors='replace').strip()}. Install it (Debian: libpython3.11)."
        )


def _link_installed_backends(binary: Path, backends: Path) -> None:
    installed = binary.parent.parent / "backends"
    if not (installed / "python").is_dir():
        raise ServerError(
            f"Expected the python backend of {binary} in {installed / 'python'}. "
            "Received: no such folder."
        )
    for folder in installed.iterdir():
        (backends / folder.name).symlink_to(folder)
