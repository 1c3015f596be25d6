"""Ways to spoil a saved folder: an attack takes a good one and makes it bad."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workflow.expressions.program.safetensors_file import read_arrays, write_arrays

Attack = Callable[[Path], None]
# Under this name an attack finds the state, which lies under one of its content else.
STATE = "state.safetensors"

# The nodes of the good workflow, in the order in which they are saved; see conftest.py.
CATEGORIFY, JOIN, NORMALIZE, FILL, LAMBDA = (
    "Categorify",
    "JoinExternal",
    "Normalize",
    "FillMissing",
    "LambdaOp",
)


def spoil(folder: Path, attack: Attack) -> None:
    """Attack a saved workflow, and put right all sums, as an attacker would."""
    (state,) = folder.glob("state-*.safetensors")
    state.rename(folder / STATE)
    attack(folder)
    named = state.name
    if (folder / STATE).is_file() and (folder / STATE).stat().st_size < 2**30:
        total = hashlib.sha256((folder / STATE).read_bytes()).hexdigest()
        named = f"state-{total[:16]}.safetensors"
        seal(folder / "workflow.json", total)
    if os.path.lexists(folder / STATE):
        (folder / STATE).rename(folder / named)


def seal(path: Path, state: str) -> None:
    """Put the sum of the state and that of the text itself into a document, if it has a place for them."""
    if not path.is_file() or path.stat().st_size > 2**29:
        return
    text = re.sub(rb'"state": "[0-9a-f]{64}"', b'"state": "%s"' % state.encode(), path.read_bytes())
    text = re.sub(rb'"sum": "[0-9a-f]{64}"', b'"sum": "%s"' % (b"0" * 64), text, count=1)
    total = hashlib.sha256(text).hexdigest().encode()
    path.write_bytes(text.replace(b'"sum": "%s"' % (b"0" * 64), b'"sum": "%s"' % total, 1))


def document_of(folder: Path) -> Any:
    return json.loads((folder / "workflow.json").read_text())


def node(document: Any, operator: str) -> Any:
    return next(n for n in document["nodes"] if n.get("operator") == operator)


def edit(change: Callable[[Any], None]) -> Attack:
    """Change the document."""

    def attack(folder: Path) -> None:
        document = document_of(folder)
        change(document)
        (folder / "workflow.json").write_text(json.dumps(document))

    return attack


def config(operator: str, name: str, value: Any) -> Attack:
    return edit(lambda d: node(d, operator)["config"].__setitem__(name, value))


def trace(change: Callable[[Any], None]) -> Attack:
    """Change what a LambdaOp had traced over the column rating."""
    return edit(lambda d: change(node(d, LAMBDA)["config"]["f"]["rating"]))


def verb_of(document: Any, verb: str) -> Any:
    return next(step for step in document["steps"] if step["verb"] == verb)


def replaced(old: str, new: str) -> Attack:
    def attack(folder: Path) -> None:
        text = (folder / "workflow.json").read_text()
        assert old in text
        (folder / "workflow.json").write_text(text.replace(old, new, 1))

    return attack


def written(name: str, content: bytes) -> Attack:
    return lambda folder: (folder / name).write_bytes(content) and None


def arrays(change: Callable[[dict[str, np.ndarray]], None]) -> Attack:
    """Change the arrays of the state; `*` in a name stands for the number of its node."""

    def attack(folder: Path) -> None:
        path = folder / STATE
        held = {name: array.copy() for name, array in read_arrays(path).items()}
        change(held)
        write_arrays(path, held)

    return attack


def number_of(held: dict[str, np.ndarray], suffix: str) -> str:
    return next(name for name in held if name.endswith(suffix))


def set_array(suffix: str, array: Any) -> Attack:
    return arrays(lambda held: held.__setitem__(number_of(held, suffix), np.asarray(array)))


def header(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change the header of the state, its data left as it is."""

    def attack(folder: Path) -> None:
        path = folder / STATE
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        entries = json.loads(raw[8 : 8 + length])
        changed = change(entries)
        text = changed if isinstance(changed, bytes) else json.dumps(changed or entries).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])

    return attack


def first(entries: dict[str, Any]) -> Any:
    return next(iter(entries.values()))


def sparse(name: str, size: int, start: bytes) -> Attack:
    """A file that says it is large and takes no room on disk."""

    def attack(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.write(start)
            file.truncate(size)

    return attack


def linked(name: str) -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).rename(folder.parent / f"{folder.name}-{name}")
        (folder / name).symlink_to(folder.parent / f"{folder.name}-{name}")

    return attack


def replaced_by(name: str, make: Callable[[Path], Any]) -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return attack


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "raise SystemExit(42)")


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("echo attacked",)


def state(name: str) -> Attack:
    return arrays(lambda held: held.pop(number_of(held, name)) is None)


DEEP = 100_000
