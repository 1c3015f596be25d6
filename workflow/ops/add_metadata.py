"""AddMetadata, AddTags, AddProperties and related operators: the user's facts about columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar

from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.schema import Tags
from workflow.schema.tags import add_tags, is_fact

_Plain = bool | int | float | str | None
_Value = _Plain | Sequence[_Plain] | Mapping[str, _Plain]


@dataclass(frozen=True)
class _Metadata(Operator, abstract=True):
    """An operator that changes the schema alone: values pass through.

    It adds its fields `tags` and `properties`; a subclass has one of them or both.
    """

    def _check_settings(self) -> None:
        if "tags" in self.settings():
            tags = self._tags
            object.__setattr__(self, "tags", one_or_several(tags))
            require(
                all(self._tags),
                f"{self.label} needs tags of a letter or more. Received: {tags!r}.",
            )
        for name, value in self._properties.items():
            require(
                is_fact(name, value),
                f"{self.label} needs `cardinality` and `embedding_size` as whole numbers from 1, and "
                f'`domain` and `value_count` as {{"min": ..., "max": ...}} of whole numbers. '
                f"Received: {value!r} for {name!r}.",
            )

    @property
    def _tags(self) -> Any:
        return getattr(self, "tags", ())

    @property
    def _properties(self) -> Mapping[str, Any]:
        return getattr(self, "properties", {})

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The same expressions, with an extended schema."""
        tags, properties = self._tags, self._properties
        return {
            name: Feature(
                feature.expression,
                feature.schema.with_(
                    tags=add_tags(feature.schema.tags, tags),
                    properties={**feature.schema.properties, **properties},
                ),
            )
            for name, feature in columns.items()
        }


@dataclass(frozen=True)
class AddMetadata(_Metadata):
    """Add tags and properties to columns; values pass through.

    Args:
        tags: members of `Tags` or your own words. `workflow/schema/tags.py` lists the tags that
            exclude or imply each other.
        properties: facts by name: numbers, texts, booleans, lists and mappings of these. Other
            parts use `cardinality` and `embedding_size` (rows and width of an embedding), `domain`
            and `value_count` (each {"min": ..., "max": ...}); an existing property is replaced.

    Example:
        >>> ages = ["age"] >> AddMetadata(tags=["user"], properties={"unit": "years"})
    """

    tags: str | Sequence[str] | AbstractSet[str] = ()
    properties: Mapping[str, _Value] = field(default_factory=dict)

    @classmethod
    def examples(cls) -> list[Example]:
        """Tags, properties, both and none, of columns of every kind."""
        rows = {"age": [31, None], "genres": [["x"], None]}
        properties: dict[str, _Value] = {
            "unit": "years",
            "domain": {"min": -(2**63), "max": 2**63 - 1},
            "odd": [1, None],
        }
        return [
            Example(cls([Tags.USER, "mine"]), rows),
            Example(cls(tags="user", properties=properties), {"age": [31, None]}),
            Example(cls(), rows),
        ]


@dataclass(frozen=True)
class AddTags(_Metadata):
    """Add tags to columns; values pass through (see AddMetadata).

    Args:
        tags: members of `Tags` or your own words.

    Example:
        >>> prices = ["price"] >> AddTags(["item", "continuous"])
    """

    tags: str | Sequence[str] | AbstractSet[str]

    @classmethod
    def examples(cls) -> list[Example]:
        """One tag and several."""
        return [
            Example(cls("continuous"), {"price": [1.5, None]}),
            Example(cls([Tags.ITEM_ID, "own"]), {"item": ["a", None]}),
        ]


@dataclass(frozen=True)
class AddProperties(_Metadata):
    """Add properties to columns; values pass through (see AddMetadata).

    Args:
        properties: facts by name.

    Example:
        >>> ids = ["userId"] >> AddProperties({"cardinality": 5000})
    """

    properties: Mapping[str, _Value]

    @classmethod
    def examples(cls) -> list[Example]:
        """A fact that an embedding needs."""
        return [Example(cls({"cardinality": 5000}), {"user": [7, None]})]


@dataclass(frozen=True)
class _Tagging(_Metadata, abstract=True):
    """An operator that adds one fixed tag."""

    tags: ClassVar[Sequence[str]]

    @classmethod
    def examples(cls) -> list[Example]:
        """A column to tag."""
        return [Example(cls(), {"column": [7, None]})]


@dataclass(frozen=True)
class TagAsUserID(_Tagging):
    """Tag columns as the user's id: `user_id`, `user` and `id`.

    Example:
        >>> user = ["userId"] >> TagAsUserID()
    """

    tags: ClassVar[Sequence[str]] = (Tags.USER_ID.value,)


@dataclass(frozen=True)
class TagAsItemID(_Tagging):
    """Tag columns as the item's id: `item_id`, `item` and `id`.

    Example:
        >>> item = ["movieId"] >> TagAsItemID()
    """

    tags: ClassVar[Sequence[str]] = (Tags.ITEM_ID.value,)


@dataclass(frozen=True)
class TagAsUserFeatures(_Tagging):
    """Tag columns as features of the user: `user`.

    Example:
        >>> user = ["age", "country"] >> TagAsUserFeatures()
    """

    tags: ClassVar[Sequence[str]] = (Tags.USER.value,)


@dataclass(frozen=True)
class TagAsItemFeatures(_Tagging):
    """Tag columns as features of the item: `item`.

    Example:
        >>> item = ["genres", "year"] >> TagAsItemFeatures()
    """

    tags: ClassVar[Sequence[str]] = (Tags.ITEM.value,)
