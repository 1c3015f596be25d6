"""The preprocessing step in Python: its program, the model that runs it, and their dependencies."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import triton_models.preprocess
import workflow as workflow_package
from exporter.plan.model_spec import NO_BYTE_CODE
from exporter.plan.plan import Writer
from workflow.expressions import RUNTIME_FOLDERS
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.program.program import Program
from workflow.expressions.program.program_json import save_program
from workflow.expressions.program.safetensors_file import write_json
from workflow.schema.training_data import TRAINING_DATA, TrainingData

RUNTIME_PACKAGE = "preprocess_runtime"


def writer(program: Program, training: TrainingData) -> Writer:
    """Write a version folder that a stock Triton image serves, with exact copies of our files.

    Args:
        program: the program.
        training: facts about the data that it was fitted to.
    """
    return partial(_write, fold_tables(program), training)


def _write(program: Program, training: TrainingData, folder: Path) -> None:
    save_program(program, folder)
    source = Path(triton_models.preprocess.__file__).parent
    for name in ("model.py", "input_metrics.py"):
        shutil.copyfile(source / name, folder / name)
    write_json(str(folder / TRAINING_DATA), training.keep(program.inputs).to_json())
    package = Path(workflow_package.__file__).parent
    copied = [file for name in RUNTIME_FOLDERS for file in (package / name).glob("*.py")]
    for file in (package / "expressions/__init__.py", *sorted(copied)):
        target = folder / RUNTIME_PACKAGE / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    (folder / RUNTIME_PACKAGE / "__init__.py").write_text(
        '"""Dependencies of the preprocessing, as of the export."""\n'
    )
    (folder / NO_BYTE_CODE).touch()
