"""A damaged repository is refused in one error by each of its readers, or not damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import keras
import pytest
from damages import damaged, kept, with_another_value
from google.protobuf import text_format
from hypothesis import strategies as st
from small_export import make_workflow

from exporter import ExportError, export_tensorflow_ensemble, verify
from exporter.plan.config_pbtxt import read_config
from exporter.repository.manifest import read_manifest
from exporter.repository.versions import recover_repository, rollback
from serving import ClientError, ServerError
from serving.contract import read_contract
from serving.embedded.repository import models_to_load, steps_of
from training import models
from workflow import get_embedding_sizes
from workflow.files.sealed import sealed
from workflow.wire.integrity import IntegrityError, expect_exported

FILES = {
    "manifest": "movies/2/manifest.json",
    "published config": "movies/config.pbtxt",
    "config of a version": "movies/1/config.pbtxt",
    "config of a step": "movies_nvt/config.pbtxt",
    "manifest of a step": "movies_nvt/2/manifest.json",
}
# Protobuf reads a changed escape in a config, and warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*invalid escape sequence:DeprecationWarning")


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Two versions of an ensemble."""
    workflow = make_workflow()
    keras.utils.set_random_seed(0)
    model = models.mlp(get_embedding_sizes(workflow), ["price"], max_embedding_dim=4)
    folder = tmp_path_factory.mktemp("good") / "models"
    for version in (1, 2):
        export_tensorflow_ensemble(model, workflow, "movies", folder, ["rating"], version=version)
    return folder


def outcome(read: Callable[[], object], *errors: type[Exception]) -> str:
    try:
        read()
    except errors:
        return "refused"
    return "read"


def readers(repository: Path) -> dict[str, Callable[[], object]]:
    """The readers that change nothing."""
    return {
        "verify": lambda: verify(repository, "movies"),
        "manifest": lambda: read_manifest(repository, "movies", 2),
        "recover": lambda: recover_repository(repository, "movies"),
        "config": lambda: read_config(repository / "movies" / "config.pbtxt"),
        "server": lambda: models_to_load(repository, None),
        "steps": lambda: steps_of(repository, "movies"),
    }


@pytest.mark.parametrize("name", FILES)
def test_damaged_bytes_of_a_repository(explore, repository, name):
    """`verify` finds each change, and no reader fails otherwise than it says."""

    assert {outcome(read) for read in readers(repository).values()} == {"read"}

    def check_repository_bytes(data: st.DataObject) -> str:
        with kept(repository / FILES[name]) as raw:
            changed = damaged(data.draw, raw)
            (repository / FILES[name]).write_bytes(changed)
            found = {
                reader: outcome(read, ExportError, ServerError)
                for reader, read in readers(repository).items()
            }
            assert found["verify"] == ("read" if changed == raw else "refused")
            return found["verify"]

    explore(check_repository_bytes, cases=15)


def test_a_manifest_of_other_values_whose_sum_is_right(explore, repository):
    assert outcome(lambda: verify(repository, "movies")) == "read"

    def check_manifest_values(data: st.DataObject) -> str:
        with kept(repository / FILES["manifest"]) as raw:
            document = json.loads(raw)
            del document["sum"]
            changed = with_another_value(data, document)
            if not isinstance(changed, dict):
                changed = {"manifest": changed}
            (repository / FILES["manifest"]).write_bytes(sealed(changed))
            return outcome(lambda: verify(repository, "movies"), ExportError)

    explore(check_manifest_values, cases=40)


def test_a_rollback_to_a_manifest_of_other_values_changes_nothing(explore, repository):
    def check_rollback(data: st.DataObject) -> str:
        config = repository / FILES["published config"]
        with kept(repository / "movies/1/manifest.json") as raw, kept(config) as published:
            document = json.loads(raw)
            place = data.draw(st.sampled_from(["generation", "contract", "models", "configs"]))
            document[place] = with_another_value(data, document[place])
            del document["sum"]
            (repository / "movies/1/manifest.json").write_bytes(sealed(document))
            if outcome(lambda: rollback(repository, "movies", 1), ExportError) == "refused":
                assert config.read_bytes() == published
                return "refused"
            assert document == {k: v for k, v in json.loads(raw).items() if k != "sum"}
            return "read"

    explore(check_rollback, cases=15)


def test_a_step_with_a_manifest_of_other_values_does_not_load(explore, repository):
    folder = repository / "movies_nvt" / "2"
    config = {"parameters": {"published": {"string_value": "movies"}}}
    assert outcome(lambda: expect_exported(folder, config)) == "read"

    def check_step(data: st.DataObject) -> str:
        with kept(folder / "manifest.json") as raw:
            changed = with_another_value(data, json.loads(raw))
            (folder / "manifest.json").write_text(json.dumps(changed))
            return outcome(lambda: expect_exported(folder, config), IntegrityError)

    explore(check_step, cases=40)


def test_other_parameters_of_a_config_that_a_client_reads(explore, repository):
    good = text_format.MessageToString(read_config(repository / "movies" / "config.pbtxt"))

    def check_parameters(data: st.DataObject) -> str:
        config = text_format.Parse(
            good, type(read_config(repository / FILES["published config"]))()
        )
        name = data.draw(st.sampled_from(sorted(config.parameters)))
        text = config.parameters[name].string_value
        try:
            changed = json.dumps(with_another_value(data, json.loads(text)))
        except ValueError:
            changed = data.draw(st.text(max_size=20))
        config.parameters[name].string_value = changed
        return outcome(lambda: read_contract(config).encoder, ClientError)

    explore(check_parameters, cases=40, outcomes=["refused", "read"])
