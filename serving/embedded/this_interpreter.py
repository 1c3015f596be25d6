"""A description of the interpreter that runs this file, which is a script for others than this one.

Standard library only, of any Python 3.8 and above.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any


def describe_interpreter() -> dict[str, Any]:
    """Its version, numpy's version, folders of its shared library, a file that the server can't read, a server.

    Example:
        >>> sorted(describe_interpreter())
        ['libraries', 'numpy', 'unreadable', 'version', 'wheel']
    """
    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = None
    libraries = [f"{sys.base_prefix}/lib", sysconfig.get_config_var("LIBDIR") or ""]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        libraries.append(f"{libraries[-1]}/{multiarch}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    files = [path for folder in site.getsitepackages() for path in Path(folder).glob("*.pth")]
    # Embedded in a server, Python reads these as ASCII, and an editable install writes its path.
    unreadable = sorted(str(path) for path in files if not path.read_bytes().isascii())
    return {
        "version": version,
        "numpy": numpy,
        "libraries": libraries,
        "unreadable": unreadable[0] if unreadable else None,
        "wheel": _wheel(),
    }


def _wheel() -> str | None:
    """The folder `tritonserver` of the package nvidia-pytriton, found without importing the package."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        return None
    folder = (Path(spec.origin).parent / "tritonserver").resolve()
    return str(folder) if (folder / "bin" / "tritonserver").is_file() else None


if __name__ == "__main__":
    print(json.dumps(describe_interpreter()))  # noqa: T201 - a script's answer
