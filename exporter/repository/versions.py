"""Versions of a published model: removal of old ones, and rollback to an older one."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from exporter.errors import ExportError
from exporter.plan.model_name import expect_name
from exporter.repository.manifest import (
    Manifest,
    config_of,
    read_manifest,
    versions_of,
)
from exporter.repository.publish import (
    changing,
    config_after,
    expect_published,
    move,
    newest_version,
    published_version,
    remove,
)
from exporter.repository.staging import leftovers, staging
from exporter.repository.verify import verify_version
from workflow.files.durable import sync
from workflow.files.repository import CONFIG, WARM_UP, expect_repository


def rollback(repository: str | os.PathLike[str], name: str, version: int | None = None) -> int:
    """Publish an older version of an ensemble or fused model again, by one rename.

    Later versions are removed, since a server loads every version of a step; their numbers are not used
    again. A running server follows with `TritonServer.publish`.

    Args:
        repository: the model repository.
        name: the model that clients use.
        version: the version; by default the previously published one, or after a rollback that was
            interrupted the one that it published.

    Returns:
        The version.

    Raises:
        ExportError: there is no such repository or version, or its files have changed.

    Example:
        >>> rollback("models", "movielens")  # doctest: +SKIP
        1
    """
    root = Path(repository)
    # Before the lock, which makes a missing folder.
    expect_repository(root, ExportError)
    with changing(root, name):
        current, versions = expect_published(root, name), versions_of(root, name)
        if version is None and versions and versions[-1] > current:
            version = current
        elif version is None:
            version = read_manifest(root, name, current).previous
        if version not in versions:
            raise ExportError(
                f"Expected a version of {name} to go back to, of {versions}. Received: "
                f"{f'none before {current}' if version is None else f'{version}, which is not there'}. "
                "To keep more of them, export with --option keep_versions=5, in Python with "
                "ServingOptions(keep_versions=5)."
            )
        verify_version(root, version, read_manifest(root, name, version))
        with staging(root, name) as stage:
            (stage / name).mkdir()
            config = (root / name / str(version) / CONFIG).read_bytes()
            published = config_after(config, version, newest_version(root, name))
            (stage / name / CONFIG).write_bytes(published)
            move(stage, root, name, [f"{name}/{CONFIG}"])
        collect(root, name, keep=len(versions))
    return version


def recover_repository(repository: str | os.PathLike[str], name: str) -> int | None:
    """Remove the remains of killed exports and rollbacks of an ensemble; returns the published version.

    Raises:
        ExportError: the repository has nothing of that name, or is missing, cannot be written or cannot
            be locked.
    """
    expect_name(name)
    root = Path(repository)
    expect_repository(root, ExportError)
    if not (root / name).exists() and not leftovers(root, name):
        config_of(root, name)  # raises, and names the models
    with changing(root, name) as alone:
        if not alone:
            raise ExportError(
                f"Expected a file system that can lock {root}, since an export may be running. "
                "Received: one that cannot. Recover it where it can, as on the disk's own machine."
            )
        complete_rollback(root, name)
        return published_version(root, name)


def complete_rollback(repository: Path, name: str) -> None:
    """Remove versions after the published one, which a rollback that was interrupted left.

    The repository is locked, and without remains of exports.
    """
    try:
        published = published_version(repository, name)
    except ExportError:  # another kind of model, which `expect_free` refuses
        return
    versions = versions_of(repository, name)
    if published is not None and versions and versions[-1] > published:
        collect(repository, name, keep=len(versions))


def collect(repository: Path, name: str, keep: int) -> None:
    """Remove all but the newest versions of a published model, with their steps.

    The repository is locked. Files that cannot be removed cause a warning, since the new version is
    already published.

    Args:
        repository: the model repository.
        name: the model that clients use.
        keep: the number of versions to keep: the published one, the one before it, and so on.
    """
    try:
        if paths := _unneeded(repository, name, keep):
            with staging(repository, name) as stage:
                for path in paths:
                    remove(path, stage)
                sync(repository)
    except OSError as error:
        warnings.warn(f"Older versions of {name} could not be removed: {error}.", stacklevel=3)


def _unneeded(repository: Path, name: str, keep: int) -> list[Path]:
    """Files and folders of older versions: steps before the manifest that describes them."""
    manifests = _manifests(repository, name)
    published = published_version(repository, name)
    if published is None or published not in manifests:  # its steps are not known
        return []
    recent = sorted(version for version in manifests if version <= published)[-keep:]
    needed = {(step, version) for version in recent for step in manifests[version].steps}
    paths = []
    for version in manifests.keys() - recent:
        steps = [step for step in manifests[version].steps if (step, version) not in needed]
        for step in steps:
            is_last = not any(model == step for model, _ in needed)
            paths.append(repository / step if is_last else repository / step / str(version))
        paths.append(repository / name / str(version))
    requests = {file for version in recent for file in manifests[version].warm_up.get(name, ())}
    warm_up = repository / name / WARM_UP
    paths += [p for p in warm_up.glob("*") if p.name not in requests] if requests else [warm_up]
    return [path for path in dict.fromkeys(paths) if path.exists()]


def _manifests(repository: Path, name: str) -> dict[int, Manifest]:
    """The manifests by version; a damaged one causes a warning, since another version is published."""
    manifests = {}
    for version in versions_of(repository, name):
        try:
            manifests[version] = read_manifest(repository, name, version)
        except ExportError as error:
            warnings.warn(
                f"{error} Version {version} of {name} is of no use, and stays. Remove "
                f"{repository / name / str(version)}, and the folders {version} of its steps.",
                stacklevel=5,
            )
    return manifests
