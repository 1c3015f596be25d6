"""The folder of a model repository, which exports write and servers read."""

from __future__ import annotations

import re
from pathlib import Path

from .store_commands import copy_command

CONFIG = "config.pbtxt"
# Triton's folder for the requests of a config's warm-up.
WARM_UP = "warmup"
# A URL, as pathlib changes it, which may have put the current folder before it.
_STORE = re.compile("(?:^|/)(s3|gs|az|abfss?):/+(.*)")


def expect_repository(repository: Path, error: type[Exception]) -> None:
    """Check that a model repository is a folder that exists, and not that of one model.

    Args:
        repository: the folder.
        error: the error to raise, which is the caller's own.
    """
    if not repository.is_dir():
        if store := _STORE.search(str(repository)):
            url = f"{store[1]}://{store[2]}"
            raise error(
                f"Expected a model repository in a folder. Received: {url}, in an object store. Copy it "
                f"first, as with `{copy_command(url, 'models')}`, and name the copy."
            )
        received = (
            f"the file {repository}" if repository.exists() else f"{repository}, no such folder"
        )
        raise error(
            f"Expected a model repository. Received: {received}. Name the folder of an export, in a "
            "shell with --repository."
        )
    if (repository / CONFIG).is_file():  # a server would take its versions for models
        raise error(
            f"Expected a model repository. Received: {repository}, the folder of one model. Name the "
            f"folder that it is in: {repository.parent}."
        )
