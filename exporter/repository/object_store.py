"""A model repository in an object store, in which a server sees a new model complete or not at all.

A store renames nothing, so a repository is made and proven in a folder of this machine and then copied,
object by object. The order is what protects a server that starts or polls meanwhile: a model's config is
there before the file that its backend loads, everything that this file needs is there before both, and
steps are there before the config of their ensemble, which is the last object of all. An object beside the
models, which is none to a server, excludes a second export of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from workflow import WorkflowError
from workflow.data.bucket import Bucket
from workflow.data.object_stores import Objects
from workflow.files.repository import CONFIG
from workflow.files.store_commands import remove_command

# The files that Triton's backends load; without them a model is refused, whatever its config.
_LOADED = ("model.py", "model.onnx", "saved_model.pb")


class StoredRepository:
    """A folder of an object store with models.

    Args:
        url: its path, such as "s3://bucket/models".
        storage_options: how to connect to the store.

    Raises:
        ExportError: the store is unknown or cannot be reached.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        with _store_errors():
            self._folder = Objects(storage_options).path(url)
        # As the objects' keys have it, and tools of the store take it.
        self.url = str(self._folder).rstrip("/")

    @property
    def _bucket(self) -> Bucket:
        return self._folder.bucket

    def expect_new(self, models: Sequence[str]) -> None:
        """Check that no export has written any of these models or begun to, before it takes time.

        Args:
            models: the steps, and the published model last.

        Raises:
            ExportError: there is one, or another export has begun and not ended.
        """
        lock = self._lock(models)
        with _store_errors():
            is_begun = lock in self._bucket.list(self._folder.key, deep=False)[0]
        if is_begun:
            raise self._taken(models)
        self._expect_none(models)

    def _expect_none(self, models: Sequence[str]) -> None:
        if present := self._present(models[::-1]):
            raise ExportError(
                f"Expected no model {present[0]!r} in {self.url}, since a store replaces files one by one, "
                f"and a server would see a mixture. Received: objects of {', '.join(present)}. Export to "
                "another folder, such as one for each version, and point the server there; or, if no "
                "server reads it, as after an export that was killed, remove it: "
                f"{self._removal(present)}."
            )

    def _present(self, models: Sequence[str]) -> list[str]:
        """The models, of those given, that have objects in the store."""
        with _store_errors():
            return [m for m in models if self._bucket.list(self._key(m), deep=True)[0]]

    def _removal(self, models: Sequence[str]) -> str:
        return "; ".join(remove_command(f"{self.url}/{m}") for m in models)

    def copy(self, repository: Path, models: Sequence[str]) -> None:
        """Copy the models of a repository that has no others.

        Args:
            repository: the repository.
            models: the steps, and the published model last.

        Raises:
            ExportError: there are such models already, or the store cannot be written; nothing is left.
        """
        refusal = partial(self._taken, models)
        reserved = self._bucket.reserved(self._lock(models), refusal, " ".join(models))
        with _store_errors(), reserved as put:
            self._expect_none(models)
            # The config of the ensemble last: it is also the first that an error removes.
            for file in in_order(repository, models):
                put(self._key(file.relative_to(repository).as_posix()), file)

    def _taken(self, models: Sequence[str]) -> ExportError:
        """The error if another export has begun; it names what that one has written by now."""
        other_models: list[str] = []  # the models of that one, maybe for another runtime
        with suppress(WorkflowError):  # keys that may list and write are enough
            other_models = (self._bucket.note_of(self._lock(models)) or "").split()
        mark = remove_command(f"{self._bucket.root}/{self._lock(models)}", recursive=False)
        leftovers = self._present([*dict.fromkeys([*other_models, *models])])
        return ExportError(
            f"Expected no other export of {models[-1]!r} to {self.url} at the same time. Received: "
            "one that has begun and not ended. Wait for it. If it was killed, remove its mark"
            f"{' and what it has written' if leftovers else ''}: "
            f"{'; '.join(filter(None, [mark, self._removal(leftovers)]))}."
        )

    def _lock(self, models: Sequence[str]) -> str:
        return self._key(f".{models[-1]}.export")

    def _key(self, path: str) -> str:
        return f"{self._folder.key}/{path}".lstrip("/")


def in_order(repository: Path, models: Sequence[str]) -> list[Path]:
    """The files of models in an order in which a server sees each of them complete or not at all.

    Args:
        repository: the model repository.
        models: the steps, and the published model last.
    """

    def place(file: Path) -> tuple[int, bool, bool, str]:
        model = file.relative_to(repository).parts[0]
        is_config = file == repository / model / CONFIG
        return models.index(model), file.name in _LOADED, is_config, file.as_posix()

    files = [f for model in models for f in (repository / model).rglob("*") if f.is_file()]
    return sorted(files, key=place)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except WorkflowError as error:
        raise ExportError(str(error)) from error
