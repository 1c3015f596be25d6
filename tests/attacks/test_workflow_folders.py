"""A hostile folder is refused before anything is made of it, soon and in little memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hostile_documents import DOCUMENTS
from hostile_programs import PROGRAMS
from hostile_states import STATES
from spoiling import Attack, spoil

WORKFLOWS = DOCUMENTS | STATES
Reports = dict[str, dict[str, Any]]


def spoil_and_load(kind: str, good: Path, attacks: Mapping[str, Attack], where: Path) -> Reports:
    """Load a spoilt copy of a good folder for each attack, all in one watched process."""
    folders = []
    for number, attack in enumerate(attacks.values()):
        folders.append(where / str(number))
        shutil.copytree(good, folders[-1])
        spoil(folders[-1], attack) if kind == "workflow" else attack(folders[-1])
    script = Path(__file__).with_name("load_watched.py")
    command = [sys.executable, script, kind, good, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    reports = json.loads(done.stdout)
    return {
        name: report | {"folder": str(folder)}
        for name, folder, report in zip(attacks, folders, reports, strict=True)
    }


@pytest.fixture(scope="module")
def workflow_reports(good_folder, tmp_path_factory) -> Reports:
    return spoil_and_load("workflow", good_folder, WORKFLOWS, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def program_reports(good_program, tmp_path_factory) -> Reports:
    return spoil_and_load("program", good_program, PROGRAMS, tmp_path_factory.mktemp("hostile"))


def assert_refused(report: dict[str, Any]) -> None:
    assert report["outcome"] == "refused", f"{report['outcome']}: {report['message'][:500]}"
    assert 0 < len(report["message"]) < 1500, "a message is no copy of the file"
    assert "with the checksum" not in report["message"], (
        "the checksums are right, their content is not"
    )
    # Processor time; what is not bounded takes minutes, and a busy machine doubles what is.
    assert report["seconds"] < 5
    assert report["megabytes"] < 200
    touched = [e for e in report["events"] if not e.startswith(f"open {report['folder']}/")]
    assert touched == [], "nothing is imported, run or opened outside the folder"


@pytest.mark.xdist_group("watched")
@pytest.mark.parametrize("attack", WORKFLOWS)
def test_hostile_workflow_is_refused(attack, workflow_reports):
    assert_refused(workflow_reports[attack])


@pytest.mark.xdist_group("watched")
@pytest.mark.parametrize("attack", PROGRAMS)
def test_hostile_program_is_refused(attack, program_reports):
    assert_refused(program_reports[attack])
