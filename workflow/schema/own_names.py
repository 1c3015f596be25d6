"""Classes that show users their own names."""

from __future__ import annotations

from abc import ABCMeta


class OwnNames(ABCMeta):
    """Metaclass that lets `help` and completion of a class show what its user calls.

    That is the public names of the class and of those bases that have this metaclass as well. The
    machinery of dataclasses, and what Keras and TensorFlow add, are left out. Instances are not
    changed.

    Example:
        >>> class Settings(metaclass=OwnNames):
        ...     def reset(self): ...
        >>> [name for name in dir(Settings) if not name.startswith("__")]
        ['reset']
    """

    def __dir__(cls) -> list[str]:
        """The names that `help` describes; it adds the signature by itself."""
        own = [name for base in cls.__mro__ if isinstance(base, OwnNames) for name in vars(base)]
        public = dict.fromkeys(name for name in own if not name.startswith("_"))
        return [*public, "__doc__", "__module__"]
