"""Tags and properties of a column on its way through operators.

Tags pass through every operator. A tag that an operator adds replaces the tags that it contradicts,
and adds the tags that it implies:

| added         | replaces                | adds            |
|---------------|-------------------------|-----------------|
| `categorical` | `continuous`            |                 |
| `continuous`  | `categorical`           |                 |
| `user_id`     | `item_id`, `session_id` | `user`, `id`    |
| `item_id`     | `user_id`, `session_id` | `item`, `id`    |
| `session_id`  | `user_id`, `item_id`    | `session`, `id` |

A column computed from several columns, with another meaning, has the tags that they share, except
for tags about a column's own identity (`OWN`): the mean rating of a user is not a user's id.

Properties are the user's own words and facts about values. The user's properties pass through every
operator; a column computed from several columns has the properties of all of them that do not
contradict each other. Facts hold only while values are unchanged: `FACTS` while each value is, and
`value_count` while a list keeps its length. An operator that changes them states them again or
drops them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .python_number import plain
from .schema import ColumnSchema, Tags

# A column has at most one of each of these sets.
EXCLUSIVE = (
    {Tags.CATEGORICAL.value, Tags.CONTINUOUS.value},
    {Tags.USER_ID.value, Tags.ITEM_ID.value, Tags.SESSION_ID.value},
)
IMPLIED: Mapping[str, tuple[str, ...]] = {
    Tags.USER_ID.value: (Tags.USER.value, Tags.ID.value),
    Tags.ITEM_ID.value: (Tags.ITEM.value, Tags.ID.value),
    Tags.SESSION_ID.value: (Tags.SESSION.value, Tags.ID.value),
}
# All tags, except those that name the owner or context of a value, or mark it as a number.
OWN = frozenset(
    tag.value
    for tag in Tags
    if tag not in (Tags.USER, Tags.ITEM, Tags.SESSION, Tags.CONTEXT, Tags.CONTINUOUS)
)
# Properties that describe the values, and are dropped when these change.
FACTS = frozenset({"cardinality", "domain", "embedding_size"})
# The same of a column whose lists have other lengths as well.
_ALL_FACTS = FACTS | {"value_count"}

# The digest of what was learnt on the way to a column: see `workflow/graph/fits.py`.
FIT = "fit_digest"


def fits_of(columns: Iterable[ColumnSchema]) -> dict[str, str]:
    """The digests of the columns' fits, "" for a column on whose way nothing was learnt.

    Empty if no column has a digest: then it is unknown whether a workflow has made them.

    Example:
        >>> fits_of([ColumnSchema("user", "int64", properties={FIT: "9f"}), ColumnSchema("age", "int8")])
        {'user': '9f', 'age': ''}
    """
    found = {column.name: str(column.properties.get(FIT, "")) for column in columns}
    return found if any(found.values()) else {}


def other_fits(recorded: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """The columns whose digests are known on both sides and differ.

    Example:
        >>> other_fits({"user": "9f", "item": "3a"}, {"user": "77", "age": "c0"})
        ['user']
    """
    return [column for column, fit in recorded.items() if given.get(column, fit) != fit]


def add_tags(tags: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """A column's tags and further ones, which win where they contradict each other.

    Example:
        >>> add_tags(["continuous", "user"], ["categorical"])
        ('user', 'categorical')
        >>> add_tags([], [Tags.ITEM_ID])
        ('item', 'id', 'item_id')
    """
    made = dict.fromkeys(map(_name, tags))
    for name in map(_name, added):
        for other in (other for kind in EXCLUSIVE if name in kind for other in kind - {name}):
            made.pop(other, None)
        made.update(dict.fromkeys((*IMPLIED.get(name, ()), name)))
    return tuple(made)


def computed_of(*columns: ColumnSchema) -> ColumnSchema:
    """A template of tags and properties for a column computed from several columns.

    Only its tags and properties matter; its dtype is that of the first column.

    Example:
        >>> user = ColumnSchema("userId", "int64", True, tags=("user_id", "user", "mine"))
        >>> age = ColumnSchema("age", "int64", tags=("user",), properties={"unit": "years"})
        >>> both = computed_of(user, age)
        >>> both.tags, both.properties
        (('user',), {'unit': 'years'})
    """
    first, *others = columns
    shared = (tag for tag in first.tags if all(tag in column.tags for column in others))
    tags = tuple(tag for tag in shared if tag not in OWN)
    kept = [properties_after(column, is_list=False) for column in columns]
    merged = {name: value for properties in kept for name, value in properties.items()}
    agreed = {
        name: value
        for name, value in merged.items()
        if all(properties.get(name, value) == value for properties in kept)
    }
    return ColumnSchema(first.name, first.dtype, tags=tags, properties=agreed)


def _name(tag: str) -> str:
    return tag.value if isinstance(tag, Tags) else str(tag)


def properties_after(before: ColumnSchema, *, is_list: bool) -> dict[str, Any]:
    """The properties of a column that still hold after an operator changes each value.

    Args:
        before: the column.
        is_list: whether the result is a list too, with as many elements.

    Example:
        >>> age = ColumnSchema("age", "int64", properties={"unit": "years", "cardinality": 9})
        >>> properties_after(age, is_list=False)
        {'unit': 'years'}
    """
    ended = FACTS if is_list and before.is_list else _ALL_FACTS
    return {name: value for name, value in before.properties.items() if name not in ended}


def facts_of(column: ColumnSchema) -> dict[str, Any]:
    """The facts among a column's properties, without those of a form that is the user's own.

    Example:
        >>> site = ColumnSchema("site", "int64", properties={"cardinality": 9, "domain": "a.com"})
        >>> facts_of(site)
        {'cardinality': 9}
    """
    # In the column's order: that of a set changes from process to process, and with it an export's files.
    found = {name: plain(value) for name, value in column.properties.items() if name in _ALL_FACTS}
    return {name: value for name, value in found.items() if is_fact(name, value)}


def part_of(column: ColumnSchema, name: str, part: str) -> Any:
    """A part of a property such as `domain`; None if it is missing, or of a form of the user's own.

    Example:
        >>> part_of(ColumnSchema("site", "int64", properties={"domain": "a.com"}), "domain", "name")
    """
    value = column.properties.get(name)
    return value.get(part) if isinstance(value, Mapping) else None


def is_fact(name: str, value: Any) -> bool:
    """Whether a property with the name of a fact has its form; a user's own words may lack it."""
    if name in ("cardinality", "embedding_size"):
        return type(value) is int and value >= 1
    if name not in ("domain", "value_count"):
        return True
    if not isinstance(value, Mapping) or not {"min", "max"} <= value.keys():
        return False
    least, most = value["min"], value["max"]
    return type(least) is type(most) is int and least <= most
