"""The preprocessing step in Python: its program, the model that runs it, and what that needs."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import triton_models.preprocess
import workflow as workflow_package
from exporter.runtimes.runtime import Writer
from workflow.expressions import RUNTIME_FILES
from workflow.expressions.fold import fold_tables
from workflow.expressions.program import Program
from workflow.expressions.program_json import save_program

RUNTIME_PACKAGE = "preprocess_runtime"


def writer(program: Program) -> Writer:
    """Writes a version folder that a stock Triton image serves: the files of ours word for word."""
    return partial(_write, fold_tables(program))


def _write(program: Program, folder: Path) -> None:
    save_program(program, folder)
    source = Path(triton_models.preprocess.__file__).parent
    shutil.copyfile(source / "model.py", folder / "model.py")
    package = Path(workflow_package.__file__).parent
    for name in RUNTIME_FILES:
        target = folder / RUNTIME_PACKAGE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, target)
    limits = source.parent / "backends" / "limits.py"
    shutil.copyfile(limits, folder / RUNTIME_PACKAGE / limits.name)
    (folder / RUNTIME_PACKAGE / "__init__.py").write_text(
        '"""What preprocessing needs, as it was when exported."""\n'
    )
