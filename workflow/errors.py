"""The errors of the workflow."""

from __future__ import annotations

from collections.abc import Iterable


class WorkflowError(ValueError):
    """A workflow was built or used in a way that cannot work; the text says how to fix it."""


class WorkflowFormatError(WorkflowError):
    """A saved workflow is damaged, or has content that no workflow can have."""


def listed(names: Iterable[str], most: int = 30) -> str:
    """Names for a readable message: of very many names the first ones and the last.

    Example:
        >>> listed((f"C{n}" for n in range(1, 40)), most=4)
        'C1, C2, C3, ... C39 (39 in all)'
    """
    texts = [f"{name:.100}" for name in names]
    if len(texts) <= most:
        return ", ".join(texts)
    return f"{', '.join(texts[: most - 1])}, ... {texts[-1]} ({len(texts)} in all)"
