"""Publication of a model's version into a running server, which answers with the old one until then.

Triton has no transaction over several models, so the order matters. The steps are loaded first: a step
whose new version is broken keeps serving the old one, whereas an ensemble is unloaded if one of its
steps cannot be loaded. Then the new version answers golden rows under another name, which no client
uses. Last, the server loads the model under its own name: the new ensemble takes over at once, and the
old steps finish the requests that the old ensemble is answering.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from typing import Any, NamedTuple

from google.protobuf import json_format, text_format

from serving.connection.address import parse_address
from serving.embedded.administration import NOT_FOUND, Administration
from serving.embedded.golden import GOLDEN, GoldenAnswer, expect_golden, read_golden
from serving.embedded.repository import read_config, steps_in, steps_of
from serving.errors import ServerError
from serving.seconds import expect_seconds
from triton_models.healthcheck import ProbeError
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.durable import exclusive, file_hash, set_mode
from workflow.files.repository import CONFIG, WARM_UP, expect_repository
from workflow.files.sealed import unsealed
from workflow.wire.integrity import MANIFEST, IntegrityError, expect_exported

# States of a version that is loaded, or finishes its last requests.
_BUSY = ("READY", "UNLOADING")


def candidate_of(model: str) -> str:
    """A second name for a model, which no client uses and no export has.

    Example:
        >>> candidate_of("movielens")
        '.movielens@candidate'
    """
    return f".{model}@candidate"


@dataclass(frozen=True)
class LiveServer:
    """A running server, and the repository that both the server and this process read.

    Attributes:
        repository: the model repository, as this process sees it.
        url: the server's gRPC address.
        admin_key: the value of the header without which the server refuses to load models.
        seconds: the most seconds for loading one model.

    Raises:
        ClientError: an invalid address.
        ServerError: the address is not one of gRPC without TLS, or the seconds are not above 0 and up
            to 1e9.
    """

    repository: Path
    url: str
    admin_key: str
    seconds: float = 120.0

    def __post_init__(self) -> None:
        expect_seconds("the timeout", self.seconds, ServerError)
        if parse_address(self.url).scheme != "grpc":
            raise ServerError(
                "Expected the address of gRPC without TLS, host:port, by default of port 8001, since "
                f"models are loaded by it. Received: {self.url!r}."
            )

    @property
    def administration(self) -> Administration:
        """The administrative side of the server."""
        return Administration(parse_address(self.url).target, self.admin_key)

    def load(self, name: str) -> None:
        """Load a model with its steps, and wait until it answers; unload steps that it had before.

        Raises:
            ProbeError: the model or a step cannot be loaded, or does not answer.
        """
        steps, before = steps_of(self.repository, name), self.served(name)
        for model in (*steps, name):
            self.administration.load(model, self.seconds)
        self.administration.probe(name, self.seconds)
        self._unload_stale(name, before.steps.keys() - {*steps})

    def publish(self, name: str, *, tolerance: float = 0.0) -> int:
        """Switch the server to the version that the repository publishes, if that answers correctly.

        Exports into the repository wait meanwhile.

        Args:
            name: the model that clients use.
            tolerance: see `expect_golden`.

        Returns:
            The version.

        Raises:
            ServerError: a tolerance that is not finite or below 0, there is no such repository, a file
                was changed, a model cannot be loaded, or a golden row has another answer; says whether
                the version that was served still is.
        """
        if not 0 <= tolerance < math.inf:  # With another one every answer would be right.
            raise ServerError(f"Expected a finite tolerance, 0 or more. Received: {tolerance!r}.")
        # Before the lock, which makes a missing folder.
        expect_repository(self.repository, ServerError)
        with exclusive(self.repository):
            config = _published(self.repository, name)
            self._expect_loading(name)
            version, before = max(config.version_policy.specific.versions), self.served(name)
            generation = config.parameters["generation"].string_value
            names = self._step_names(steps_in(config), before, version, generation)
            try:
                rows = _expect_whole(self.repository, name, version, tuple(names))
                for step, served_as in names.items():
                    self._load_step(step, served_as, version)
                target = (generation, version, dict.fromkeys(names.values(), version))
                if (before.generation, before.version, before.steps) != target:
                    self._switch(_renamed(config, names), rows, tolerance, before)
                else:
                    self._ask(name, rows, tolerance)
            except (ProbeError, ServerError, OSError) as error:
                self._unload({*names.values()} - before.steps.keys())
                raise self._refusal(name, version, before.version, error) from error
            # With what a killed publication left.
            stale = {*before.steps, *map(candidate_of, names)} - {*names.values()}
            with suppress(ProbeError):  # It has ended since.
                self._unload_stale(name, stale)
        return version

    def served(self, name: str) -> Served:
        """The version of a model that the server answers with."""
        try:
            config = self.administration.config(name, self.seconds)
        except ProbeError:
            return Served({}, None, None, None)
        steps = config.get("ensemble_scheduling", {}).get("step", ())
        versions = config.get("version_policy", {}).get("specific", {}).get("versions", ())
        generation = config.get("parameters", {}).get("generation", {}).get("string_value")
        return Served(
            {step["model_name"]: int(step["model_version"]) for step in steps},
            max(map(int, versions), default=None),
            generation,
            config,
        )

    def _expect_loading(self, name: str) -> None:
        """Check that the server is there, and loads and unloads models for this process."""
        try:
            # A killed publication may have left it.
            self.administration.unload(candidate_of(name), self.seconds, dependents=False)
            self._await_versions(candidate_of(name), most=0)
        except ProbeError as error:
            raise ServerError(
                f"Expected a server at {self.url} into which models can be loaded. Received: {error}."
            ) from error

    def _step_names(
        self, steps: Iterable[str], before: Served, version: int, generation: str
    ) -> dict[str, str]:
        """The names under which the server loads the steps of a new version.

        When a server reloads a model, it drops versions that are no longer in the repository, as after
        a rollback, and rereads versions whose files another export has replaced. If it still answers
        with such a version of a step, the new one is loaded under another name.
        """
        outdated = {
            step
            for step, v in before.steps.items()
            if not (self.repository / step / str(v)).is_dir()
            or (v == version and before.generation != generation)
        }
        return {step: candidate_of(step) if step in outdated else step for step in steps}

    def _load_step(self, step: str, served_as: str, version: int) -> None:
        if served_as == step:
            self.administration.load(step, self.seconds)
        else:
            self._load_as(served_as, read_config(self.repository / step), version)

    def _load_as(self, name: str, config: Any, version: int) -> None:
        """Load a version of a model under another name, from a folder of links and a config."""
        source, folder = self.repository / config.name, self.repository / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for entry in (str(version), WARM_UP):
            if (source / entry).is_dir():
                # Relative, since a container may see the repository in another place.
                (folder / entry).symlink_to(Path("..", config.name, entry))
        config.name = name
        config.version_policy.specific.versions[:] = [version]
        # A config in the request would be enough for a model alone, but not for a step of an ensemble.
        (folder / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        # The server may run as another user, whom this user's umask would shut out.
        for entry in (".", CONFIG):
            set_mode(folder / entry, S_IMODE((source / entry).stat().st_mode))
        self.administration.load(name, self.seconds)

    def _switch(
        self, config: Any, rows: list[GoldenAnswer], tolerance: float, before: Served
    ) -> None:
        """Ask golden rows under another name, then let the server answer with a new version."""
        candidate, second = candidate_of(config.name), type(config)()
        version = max(config.version_policy.specific.versions)
        second.CopyFrom(config)
        second.ClearField("response_cache")
        # The server caches answers by name and number, also those of an earlier version with this number.
        if version in self.administration.versions(config.name, self.seconds):
            config.ClearField("response_cache")
        try:
            self._load_as(candidate, second, version)
            self._ask(candidate, rows, tolerance)
        finally:
            self._unload({candidate})
        text = json_format.MessageToJson(config, preserving_proto_field_name=True)
        try:
            self.administration.load(config.name, self.seconds, text)
            self._ask(config.name, rows, tolerance)
        except (ProbeError, ServerError):
            self._restore(config.name, before)
            raise

    def _restore(self, name: str, before: Served) -> None:
        """Let the server answer as before a switch; unload the model if that version is gone, as after a rollback."""
        try:
            if before.config is not None:
                self.administration.load(name, self.seconds, json.dumps(before.config))
                return
        except ProbeError:
            pass
        self._unload({name})

    def _ask(self, name: str, rows: list[GoldenAnswer], tolerance: float) -> None:
        expect_golden(self.administration, name, rows, timeout=self.seconds, tolerance=tolerance)

    def _unload_stale(self, name: str, steps: set[str]) -> None:
        """Unload steps that no ensemble has any more, once an old version has answered all requests."""
        # The one that stays is the new version.
        if steps and self._await_versions(name, most=1):
            loaded = self.administration.loaded(self.seconds)
            self._unload(steps.difference(*(self.served(model).steps for model in loaded)))

    def _await_versions(self, model: str, *, most: int) -> bool:
        """Wait until at most so many versions of a model are loaded; return whether that is so."""
        deadline = time.monotonic() + self.seconds
        while (
            sum(s in _BUSY for s in self.administration.versions(model, self.seconds).values())
            > most
        ):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _unload(self, models: Iterable[str]) -> None:
        """Unload models, and wait until their processes have ended.

        If the python backend starts the process of one model while it ends that of another, it sometimes
        waits forever for the new one.
        """
        for model in models:
            with suppress(ProbeError):  # It may not be loaded.
                # The steps of a candidate are those of the new version.
                self.administration.unload(model, self.seconds, dependents=False)
                self._await_versions(model, most=0)
            if model.endswith(candidate_of("")[1:]):
                shutil.rmtree(self.repository / model, ignore_errors=True)

    def _is_lost(self) -> bool:
        try:
            self.administration.server_name(self.seconds)
        except ProbeError:
            return True
        return False

    def _refusal(
        self, name: str, version: int, served: int | None, error: Exception
    ) -> ServerError:
        state, lost = "The server has no version of it.", self._is_lost()
        if served is not None:
            try:
                self.administration.probe(name, self.seconds)
                state = f"Version {served} continues to serve."
            except ProbeError as down:
                state = f"Version {served} does not answer either: {str(down).removesuffix('.')}."
        reason = str(error).strip().removesuffix(".")
        if isinstance(error, OSError):
            advice = f"`publish` writes links into {self.repository}: run it where that can be written, again."
        elif NOT_FOUND in reason:
            advice = (
                "Name the folder that the server reads, in a shell with --repository, or export the "
                "version there too; a server of another user needs to read its files."
            )
        elif lost:
            advice = (
                "The server has ended or does not answer. Publish again when it does: a server starts with "
                "the version that the repository publishes, which is this one. If it ends again, go back: "
                f"`ensemble rollback {name}`."
            )
        else:
            advice = (
                f"In the repository it is published: `ensemble rollback {name}` publishes the version "
                "before it again, or export a corrected one."
            )
        return ServerError(
            f"Version {version} of {name} was not published into the server at {self.url}. {state} "
            f"Received: {reason}. {advice}"
        )


class Served(NamedTuple):
    """The version of a model with which a server answers, and its config there."""

    steps: Mapping[str, int]
    version: int | None
    generation: str | None
    config: Mapping[str, Any] | None


def _renamed(config: Any, names: Mapping[str, str]) -> Any:
    """An ensemble's config with other names of its steps."""
    for step in config.ensemble_scheduling.step:
        step.model_name = names[step.model_name]
    if "preprocessing" in config.parameters:  # else reading it would add it
        preprocessing = config.parameters["preprocessing"]
        preprocessing.string_value = names[preprocessing.string_value]
    return config


def _published(repository: Path, name: str) -> Any:
    """The config of a published model."""
    path = repository / name / CONFIG
    config = read_config(path.parent) if path.is_file() else None
    versions = () if config is None else config.version_policy.specific.versions
    if not versions:
        raise ServerError(
            f"Expected an exported model in {path.parent}. Received: "
            f"{'no config' if config is None else 'a config without a version'}. `load` loads others."
        )
    return config


def _expect_whole(
    repository: Path, name: str, version: int, steps: tuple[str, ...]
) -> list[GoldenAnswer]:
    """Compare all files with the manifest before a server reads any; returns the golden rows."""
    folder = repository / name / str(version)
    try:
        manifest = unsealed((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))
        for model in steps or (name,):
            published = {"parameters": {"published": {"string_value": name}}}
            expect_exported(repository / model / str(version), published)
        is_golden = file_hash(folder / GOLDEN) == manifest.get("golden")
    except (FormatError, IntegrityError, OSError) as error:
        raise ServerError(str(error)) from error
    if not is_golden:
        raise ServerError(f"{folder / GOLDEN} is not what the export wrote.")
    return read_golden(folder / GOLDEN)
