"""Selections of columns: by name, by tag or all, and in groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflow.errors import WorkflowError
from workflow.operator.feature import Groups
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import Tags

EVERY = "*"


@dataclass(frozen=True)
class Selection:
    """A selection of columns, made before the available columns are known.

    Attributes:
        groups: names in the order of selection; a group of names stays together, a single name is a
            group of one.
        tags: also selects every column with one of these tags.
        every: also selects all columns.
        subgroups: selections each of which makes one group, if the available columns decide its
            content.
        if_there: a missing name is not an error, and selects nothing.

    Example:
        >>> Selection.of([["a", "b"], "c"]).groups
        (('a', 'b'), ('c',))
        >>> Selection.of([["a", "*"]]).pick({"a": (), "b": (), "c": ()}, "the data")
        (('a', 'b', 'c'),)
    """

    groups: Groups = ()
    tags: tuple[str, ...] = ()
    every: bool = False
    subgroups: tuple[Selection, ...] = ()
    if_there: bool = False

    @classmethod
    def of(cls, names: Any = (), tags: Any = (), subgroups: Any = ()) -> Selection:
        """The selection that a user wrote.

        Args:
            names: a name, or a list of names, lists of names and selections, where each item that
                is not a name is a group; "*" is every column, also in a group.
            tags: a tag or a list of tags.
            subgroups: further groups: a selection, or a list of selections and lists of names.

        Raises:
            WorkflowError: anything else, or groups within groups.
        """
        items = _items(names) + [
            [group] if isinstance(group, str) else group for group in _items(subgroups)
        ]
        named = [item for item in items if not _is_every(item)]
        chosen = tuple(str(tag.value if isinstance(tag, Tags) else tag) for tag in _items(tags))
        if not (named or chosen or len(named) < len(items)):
            raise WorkflowError(f"Expected column names. Received: {names!r}.")
        parsed = [_flat(item) for item in named]
        groups = dict.fromkeys(tuple(names_of(s.groups)) for s in parsed if not s.is_dynamic)
        dynamic = tuple(selection for selection in parsed if selection.is_dynamic)
        return cls(tuple(groups), chosen, len(named) < len(items), dynamic)

    @classmethod
    def as_one_group(cls) -> Selection:
        """All columns, as one group."""
        return cls(subgroups=(cls(every=True),))

    @classmethod
    def of_saved(cls, names: list[Any]) -> Selection:
        """The selection in a saved workflow: names and groups, where "*" is a name like any other.

        Raises:
            WorkflowError: a group is empty.
        """
        return cls(tuple(_group(item) for item in names))

    @property
    def is_dynamic(self) -> bool:
        """Whether the available columns decide the selection."""
        return self.every or bool(self.tags or self.subgroups)

    @property
    def has_groups(self) -> bool:
        """Whether some columns form a group."""
        return bool(self.subgroups) or any(len(group) > 1 for group in self.groups)

    def pick(self, columns: Mapping[str, Collection[str]], where: str) -> Groups:
        """The selected groups among some columns.

        Args:
            columns: the tags of each column.
            where: a name for the columns, for messages.

        Raises:
            WorkflowError: a name is missing, or no column has one of the tags.
        """
        missing = [n for group in self.groups for n in group if n not in columns]
        if self.if_there:
            return tuple(group for group in self.groups if not set(group) & set(missing))
        if missing:
            raise WorkflowError(
                f"No column {listed(map(repr, missing))} in {where}. It has: {listed(columns) or 'none'}."
                + did_you_mean(missing, columns)
            )
        tagged = [
            (name,)
            for name, tags in (columns.items() if self.every or self.tags else ())
            if self.every or any(tag in tags for tag in self.tags)
        ]
        if self.tags and not tagged:
            have = [f"{name} ({', '.join(tags) or 'no tag'})" for name, tags in columns.items()]
            raise WorkflowError(
                f"No column in {where} is tagged {' or '.join(self.tags)}. It has: {listed(have) or 'none'}."
            )
        together = [tuple(names_of(group.pick(columns, where))) for group in self.subgroups]
        return tuple(dict.fromkeys([*self.groups, *tagged, *together]))

    def __str__(self) -> str:
        tags = [f"tag {tag}" for tag in self.tags] + ([EVERY] if self.every else [])
        return (
            "["
            + ", ".join([*map(_group_text, self.groups), *tags, *map(str, self.subgroups)])
            + "]"
        )


def names_of(groups: Groups) -> list[str]:
    """The columns of some groups, each once.

    Example:
        >>> names_of((("a", "b"), ("a",)))
        ['a', 'b']
    """
    return list(dict.fromkeys(name for group in groups for name in group))


def regroup(groups: Groups, names: Collection[str]) -> Groups:
    """The groups that are complete, and every other column as its own group.

    The result is in the order of the names.

    Example:
        >>> regroup((("a", "b"), ("c", "d")), ["d", "b", "a"])
        (('d',), ('a', 'b'))
    """
    holding: dict[str, list[tuple[str, ...]]] = {name: [] for name in names}
    for group in groups:
        if all(name in holding for name in group):
            for name in group:
                holding[name].append(group)
    in_order = (group for name, holders in holding.items() for group in holders or [(name,)])
    return tuple(dict.fromkeys(in_order))


def one_or_several(setting: Any) -> list[Any]:
    """A setting that may be given alone or in a list, as a list; empty for None.

    Example:
        >>> one_or_several("userId"), one_or_several(("a", "b")), one_or_several(3)
        (['userId'], ['a', 'b'], [3])
    """
    if setting is None:
        return []
    is_collection = isinstance(setting, Sequence) and not isinstance(setting, str | bytes)
    return list(setting) if is_collection else [setting]


def to_nested(groups: Groups) -> list[Any]:
    """Groups in the form that a user writes.

    Example:
        >>> to_nested((("a", "b"), ("c",)))
        [['a', 'b'], 'c']
    """
    return [list(group) if len(group) > 1 else group[0] for group in groups]


def _items(value: Any) -> list[Any]:
    if isinstance(value, str | Selection):
        return [value]
    if not isinstance(value, Iterable):
        raise WorkflowError(f"Expected column names. Received: {value!r}.")
    return list(value)


def _is_every(item: Any) -> bool:
    return isinstance(item, str) and item == EVERY


def _flat(item: Any) -> Selection:
    """One group as a user wrote it: a selection without groups."""
    if isinstance(item, Selection):
        parts = [item]
    elif isinstance(item, list | tuple):
        parts = [part if isinstance(part, Selection) else _single(part, item) for part in item]
    else:
        parts = [_single(item, item)]
    if not parts or any(part.has_groups for part in parts):
        raise _too_deep(item)
    groups = dict.fromkeys(group for part in parts for group in part.groups)
    tags = dict.fromkeys(tag for part in parts for tag in part.tags)
    return Selection(tuple(groups), tuple(tags), any(part.every for part in parts))


def _single(name: Any, item: Any) -> Selection:
    if not isinstance(name, str):
        raise _too_deep(item)
    return Selection(every=True) if name == EVERY else Selection(((name,),))


def _group(item: Any) -> tuple[str, ...]:
    names = (item,) if isinstance(item, str) else item
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(n, str) for n in names)
    ):
        raise _too_deep(item)
    return tuple(dict.fromkeys(names))


def _too_deep(item: Any) -> WorkflowError:
    return WorkflowError(
        f"Expected a column name, or a group of them as in [['a', 'b'], 'c'], one level deep. Received: {item!s:.200}."
    )


def _group_text(group: tuple[str, ...]) -> str:
    return group[0] if len(group) == 1 else f"[{', '.join(group)}]"
