"""The manifest of an export: its files with their checksums, and the name of its generation.

The version folder of the published model contains the whole manifest, and the config with which
that version is published. The version folder of each step contains the step's part, which the step
compares with its files when a server loads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from exporter.plan.model_name import MODEL_NAME
from exporter.plan.model_spec import NO_BYTE_CODE
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.durable import file_hash
from workflow.files.repository import CONFIG, expect_repository
from workflow.files.sealed import sealed, unsealed
from workflow.schema.names import did_you_mean, listed
from workflow.wire.integrity import MANIFEST

Hashes = dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The content of an export.

    Attributes:
        generation: its name, a hash of `models` and `contract`.
        contract: a hash of the configs without names and versions.
        previous: the previously published version; None for the first one.
        models: the sha256 of each file in the version folders, by model; the published one last.
        configs: the sha256 of each model's config.
        warm_up: the sha256 of each file of the warm-up requests, by model.
        golden: the sha256 of the golden rows with their answers, beside the manifest. It is not a
            part of the generation: another machine may compute the same answers less exactly.
    """

    generation: str
    contract: str
    previous: int | None
    models: dict[str, Hashes]
    configs: Hashes
    warm_up: dict[str, Hashes]
    golden: str

    @property
    def steps(self) -> list[str]:
        """The models other than the published one."""
        return list(self.models)[:-1]

    @property
    def content(self) -> tuple[Any, ...]:
        """The part that does not depend on earlier exports, nor on the process."""
        return self.generation, [*self.models.values()], [*self.warm_up.values()]

    def write(self, stage: Path, version: int) -> None:
        """Write the manifest, and each step's part into its version folder."""
        *steps, published = self.models
        for step in steps:
            part = {"generation": self.generation, "files": self.models[step]}
            (stage / step / str(version) / MANIFEST).write_text(json.dumps(part, indent=1))
        folder = stage / published / str(version)
        (folder / MANIFEST).write_bytes(sealed(asdict(self)))


def file_hashes(folder: Path) -> Hashes:
    """The sha256 of every file under a folder but `NO_BYTE_CODE`, by relative path."""
    return {
        path.relative_to(folder).as_posix(): file_hash(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NO_BYTE_CODE
    }


def generation_of(models: Iterable[Mapping[str, str]], contract: str) -> str:
    """A name for an export, derived from its content: other content has another name.

    Args:
        models: the `file_hashes` of each model's version folder.
        contract: a hash of the configs.

    Example:
        >>> generation_of([{"model.py": "9f86d0"}], "a1b2")
        'd83ae4ffd0fe644e'
    """
    text = json.dumps([*models, contract], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_manifest(repository: Path, name: str, version: int) -> Manifest:
    """Read the manifest of a published version, and verify it by its generation.

    Raises:
        ExportError: it is missing, or differs from the one that an export wrote.
    """
    path = repository / name / str(version) / MANIFEST
    if not path.is_file():
        raise ExportError(
            f"Expected the manifest {path}. Export the model, or name another version."
        )
    try:
        manifest = Manifest(**unsealed(path.read_bytes(), str(path)))
        models = list(manifest.models)
        whole = (
            models[-1] == name
            and all(MODEL_NAME.fullmatch(model) for model in models)
            and manifest.configs.keys() == manifest.models.keys()
            and manifest.warm_up.keys() <= manifest.models.keys()
            and all(map(_are_hashes, (*manifest.models.values(), *manifest.warm_up.values())))
            and isinstance(manifest.previous, int | None)
            and isinstance(manifest.golden, str)
            and manifest.generation == generation_of(manifest.models.values(), manifest.contract)
        )
    except FormatError as error:
        raise ExportError(f"{path} is not what the export wrote.") from error
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        raise ExportError(f"Expected a manifest in {path}. Received: {error}.") from error
    if not whole:
        raise ExportError(f"{path} is not what the export wrote.")
    return manifest


def _are_hashes(files: object) -> bool:
    return isinstance(files, dict) and all(isinstance(each, str) for each in files.values())


def config_of(repository: Path, name: str) -> Path:
    """The config of a model of the repository.

    Raises:
        ExportError: the repository has no such model, or is missing; the text names those it has.
    """
    path = repository / name / CONFIG
    if MODEL_NAME.fullmatch(name) and path.parent.is_dir():
        if path.is_file():
            return path
        raise ExportError(f"Expected the config {path}. Received: no such file. Export it again.")
    expect_repository(repository, ExportError)
    # A running server may have folders of links that begin with a dot.
    names = sorted(file.parent.name for file in repository.glob(f"[!.]*/{CONFIG}"))
    remedy = did_you_mean([name], names) or (
        f" Name {'one of them, or ' if names else ''}the repository of another export."
    )
    raise ExportError(
        f"Expected a model among {listed(names) or 'none'} in {repository}. Received: {name!r}.{remedy}"
    )


def versions_of(repository: Path, name: str) -> list[int]:
    """The versions of a published model that have a manifest, in ascending order."""
    manifests = (repository / name).glob(f"*/{MANIFEST}")
    return sorted(int(path.parent.name) for path in manifests if path.parent.name.isdecimal())
