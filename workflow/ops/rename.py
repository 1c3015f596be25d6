"""Rename: the same columns under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.names import listed

from ._functions import of_name


@dataclass(frozen=True)
class Rename(Operator):
    """Give columns other names; values, tags and properties are unchanged.

    Args:
        f: a function from a name to a name, or a mapping; a column that the mapping lacks keeps its
            name. A function is called when the workflow is fitted, and its results are saved, not
            its code.
        postfix: suffix for each name.
        name: the name of the only column.

    Raises:
        WorkflowError: not exactly one of the three is given; two columns would have one name.

    Example:
        >>> ids = ["user", "item"] >> Rename(postfix="Id")
        >>> label = ["rating"] >> Rename(name="label")
    """

    f: Callable[[str], str] | Mapping[str, str] | None = None
    postfix: str | None = None
    name: str | None = None

    def _check_settings(self) -> None:
        settings = [n for n in ("f", "postfix", "name") if getattr(self, n) is not None]
        require(
            len(settings) == 1,
            f"Rename needs one of f, postfix and name. Received: {', '.join(settings) or 'none'}.",
        )
        for setting in ("postfix", "name"):
            require(getattr(self, setting) != "", f"Rename needs a {setting}. Received: ''.")

    @classmethod
    def examples(cls) -> list[Example]:
        """A function, a mapping, a postfix and a name; columns of every kind."""
        rows = {"user": [7, None], "genres": [["x", None], None]}
        return [
            Example(cls(str.upper), rows),
            Example(cls({"user": "genres", "genres": "user"}), rows),
            Example(cls(postfix="_raw"), rows),
            Example(cls(name="label"), {"rating": [1.5, float("nan")]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The same expressions under other names."""
        require(
            self.name is None or len(columns) == 1,
            f"Rename(name={self.name!r}) takes one column. Received: {listed(columns)}.",
        )
        outputs: Features = {}
        for old, feature in columns.items():
            new = self._renamed(old)
            require(
                new not in outputs,
                f"Rename makes two columns {new!r}, one of them from {old!r}. Give them distinct names.",
            )
            outputs[new] = Feature(feature.expression, feature.schema.with_(name=new))
        return outputs

    def _renamed(self, old: str) -> str:
        if self.name is not None or self.postfix is not None:
            return self.name if self.name is not None else f"{old}{self.postfix}"
        if callable(self.f):
            new: str = of_name(self.label, "f", self.f, old, str)
        else:
            new = (self.f or {}).get(old, old)
        require(bool(new), f"Rename needs a name for {old!r} that is not empty. Received: ''.")
        return new

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The new names in place of the function."""
        config = super().to_config(columns)
        return config if self.f is None else {**config, "f": {n: self._renamed(n) for n in columns}}
