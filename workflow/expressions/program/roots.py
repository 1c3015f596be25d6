"""The lists to which the values of each step of a program belong.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..language.types import Root
from ..language.verbs import element_root
from .program import Program

# The root of scalar columns; the root of elements is the number of the step that made their lists.
ROWS = -1


def roots_of(program: Program) -> list[Root]:
    """Roots of each step's values: `ROWS`, a step's number, or None for constants."""
    roots: list[Root] = []
    for number, step in enumerate(program.steps):
        types = [program.steps[o].type for o in step.operands]
        own_root = None if step.verb == "constant" else number if step.type.is_list else ROWS
        roots.append(
            element_root(step.verb, step.type, types, [roots[o] for o in step.operands], own_root)
        )
    return roots


def is_element(step: int, roots: Sequence[Root]) -> bool:
    """Whether a step works on the elements of lists that another step made."""
    return roots[step] not in (None, ROWS, step)
