"""A description of the interpreter that runs this file, which is a script for others than this one.

Standard library only, of any Python 3.8 and above.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import sysconfig
from typing import Any


def describe_interpreter() -> dict[str, Any]:
    """The version, numpy's version or None, and the folders that may contain the shared library.

    Example:
        >>> sorted(describe_interpreter())
        ['libraries', 'numpy', 'version']
    """
    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = None
    libraries = [f"{sys.base_prefix}/lib", sysconfig.get_config_var("LIBDIR") or ""]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        libraries.append(f"{libraries[-1]}/{multiarch}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"version": version, "numpy": numpy, "libraries": libraries}


if __name__ == "__main__":
    print(json.dumps(describe_interpreter()))  # noqa: T201 - a script's answer
