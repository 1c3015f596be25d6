"""Memory of one instance of a model, estimated from the exported files.

An instance on our backends is a process. Its runtime takes the memory in `_RUNTIME`, its tables as
much as their files, and each entry of a vocabulary a place in a lookup structure. Libraries, and
weights that onnxruntime maps from a file, are in memory once for all instances. Of lists that the
preprocessing in Python looks up, such as pre-trained vectors, a request reads its own rows in a map of
the file: they need no memory, though the system keeps them there while it has some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec
from exporter.plan.plan import Plan
from exporter.plan.runtime import EMBEDDED_BYTES, INDEX_FILE, INDEX_STEP, RUNTIMES, TABLES_FILE
from workflow.expressions.program.program import Program
from workflow.expressions.program.program_json import program_to_json
from workflow.schema.column import Array, Column, Strings

if TYPE_CHECKING:
    from training.network.network import Network

# Private bytes of a process (`Pss_Anon`) with a minimal model; see the guide on export.
_RUNTIME = {"tensorflow": 58e6, "onnxruntime": 29e6, "python": 21e6, INDEX_STEP: 54e6}
# Bytes for an entry of a vocabulary in addition to its file: integers and texts.
_ENTRY = {"tensorflow": (15, 60), "onnxruntime": (60, 420), "python": (15, 20)}
# Bytes of the position of a list in its table.
_OFFSET = 8


@dataclass(frozen=True)
class InstanceMemory:
    """Estimated bytes of one instance.

    Attributes:
        own: private bytes of each instance.
        mapped: bytes of weights in files, which all instances share.
        on_disk: bytes of lists in files, of which requests read rows, and which need no memory.

    Example:
        >>> str(InstanceMemory(226_000_000, 0))
        '226 MB'
        >>> str(InstanceMemory(61_000_000, 0, 1_024_000_000))
        '61 MB, and reads rows of 1,024 MB on disk'
    """

    own: int
    mapped: int
    on_disk: int = 0

    def __str__(self) -> str:
        mapped = f" and {self.mapped / 1e6:.0f} MB of weights from files" if self.mapped else ""
        disk = f", and reads rows of {self.on_disk / 1e6:,.0f} MB on disk" if self.on_disk else ""
        return f"{self.own / 1e6:.0f} MB{mapped}{disk}"


def instance_memory(plan: Plan, folders: Mapping[str, Path]) -> dict[str, InstanceMemory]:
    """The memory of an instance of each model that has instances, by the model's name.

    Args:
        plan: the plan of an export.
        folders: the version folder of each model, by the model's name.
    """
    return _estimated(
        plan, {model.name: folder_bytes(folders[model.name]) for model in _served(plan)}
    )


def planned_memory(plan: Plan, network: Network) -> dict[str, InstanceMemory]:
    """The result of `instance_memory`, before the files are written."""
    preprocessing, *rest = _served(plan)
    holder = rest[0] if rest else preprocessing
    sizes = {model.name: (0, 0) for model in rest}
    sizes[preprocessing.name] = _table_bytes(plan.features.program), 0
    tables, weights = sizes[holder.name][0], network.weight_bytes
    is_mapped = holder.backend == "onnxruntime" and weights > EMBEDDED_BYTES
    sizes[holder.name] = (tables, weights) if is_mapped else (tables + weights, 0)
    if plan.pipeline.index is not None:
        sizes[rest[-1].name] = 0, plan.pipeline.index.file_bytes
    return _estimated(plan, sizes)


def expect_server_memory(plan: Plan, network: Network) -> None:
    """Check that the models fit into the server's memory, if the option says what it has.

    Raises:
        ExportError: they do not.
    """
    options = plan.pipeline.options
    if options.server_memory_gb is None:
        return
    memory = planned_memory(plan, network)
    # A new version loads beside those that are kept, which the server holds as well.
    versions = 1 + cast("int", options.keep_versions)
    needed = versions * sum(
        model.instances * memory[model.name].own + memory[model.name].mapped
        for model in _served(plan)
    )
    if needed <= options.server_memory_gb * 1e9:
        return
    instances = ", ".join(
        f"{model.instances} of {model.name} with {memory[model.name]}" for model in _served(plan)
    )
    tables = network.weight_bytes + _table_bytes(plan.features.program)
    tables -= sum(instance.on_disk for instance in memory.values())
    shared = [name for name in plan.pipeline.runtimes if not RUNTIMES[name].in_tensorflow]
    is_copied = RUNTIMES[options.runtime].in_tensorflow and network.weight_bytes > EMBEDDED_BYTES
    advice = f'runtime="{shared[0]}", which maps large weights once for all instances, '
    two_steps = [name for name in plan.pipeline.runtimes if not RUNTIMES[name].is_fused]
    from_disk = ""
    if options.is_fused and two_steps and _lists(plan.features.program):
        from_disk = f'runtime="{two_steps[0]}", which reads pre-trained vectors from disk, '
    raise ExportError(
        f"Expected models for server_memory_gb={options.server_memory_gb:g}. Received: weights and "
        f"vocabularies of {tables / 1e9:,.3g} GB, for which the server needs {needed / 1e9:,.3g} GB: "
        f"{instances} as instances, and each {versions} times while a new version loads beside those "
        f"of keep_versions={options.keep_versions}. Use fewer versions (keep_versions=1, without a "
        "rollback), fewer instances (network_instances, preprocess_instances), "
        f"{from_disk}{advice if is_copied and shared else ''}"
        "narrower vectors (max_embedding_dim), fewer ids (ops.Categorify(max_size=...), "
        "ops.HashBucket), or a server with more memory. Nothing was written."
    )


def _served(plan: Plan) -> list[ModelSpec]:
    """The models that have instances: the preprocessing, or a fused model, first."""
    return [model for model in plan.models if model.instances]


def folder_bytes(folder: Path) -> tuple[int, int]:
    """The private and the mapped bytes of a version folder's files."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    mapped = sum(file.stat().st_size for file in files if file.name in (TABLES_FILE, INDEX_FILE))
    return sum(file.stat().st_size for file in files) - mapped, mapped


def _estimated(plan: Plan, sizes: Mapping[str, tuple[int, int]]) -> dict[str, InstanceMemory]:
    """The memory of instances, from the private and the mapped bytes of each model's tables."""
    preprocessing, *_ = served = _served(plan)
    entries = _entries(plan.features.program)
    memory = {}
    for model in served:
        if model.backend not in _ENTRY:
            raise NotImplementedError(
                f"exporter/report/memory.py has no figures for the backend {model.backend!r}."
            )
        tables, mapped = sizes[model.name]
        counts = entries if model is preprocessing else (0, 0)
        places = sum(n * b for n, b in zip(counts, _ENTRY[model.backend], strict=True))
        runtime = _RUNTIME[INDEX_STEP if INDEX_STEP in model.parameters else model.backend]
        is_python = model is preprocessing and model.backend == "python"
        lists = _lists(plan.features.program) if is_python else []
        on_disk = sum(column.array.nbytes for column in lists)
        offsets = sum(_OFFSET * column.rows for column in lists)
        own_bytes = runtime + tables - on_disk + offsets + places
        memory[model.name] = InstanceMemory(int(own_bytes), int(mapped), on_disk)
    return memory


def _lists(program: Program) -> list[Column]:
    """The tables of lists of numbers from which rows are taken, each once."""
    tables = (step.parameters["table"] for step in program.steps if step.verb == "gather")
    lists = {id(table): table for table in tables if table.is_list}
    return [table for table in lists.values() if not isinstance(table.values, Strings)]


def _table_bytes(program: Program) -> int:
    """The bytes of a program's tables."""
    tables: dict[str, Array] = {}
    program_to_json(program, tables)
    return sum(array.nbytes for array in tables.values())


def _entries(program: Program) -> tuple[int, int]:
    """The numbers of integers and of texts in a program's lookup tables."""
    tables = {
        id(keys): keys
        for step in program.steps
        if isinstance(keys := step.parameters.get("keys"), Column)
    }.values()
    texts = sum(keys.rows for keys in tables if isinstance(keys.values, Strings))
    return sum(keys.rows for keys in tables) - texts, texts
