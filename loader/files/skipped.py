"""Data that is passed over."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field


@dataclass
class Skipped:
    """Record of data that could not be read and was passed over.

    Attributes:
        files: files of which nothing, or not everything, was read.
        reasons: for each row group replaced since the last report, by file and number.
    """

    files: list[str] = field(default_factory=list)
    reasons: dict[tuple[str, int], Exception] = field(default_factory=dict)

    def add_file(self, path: str, reason: Exception) -> None:
        """Record a file that is left out as a whole, with a warning."""
        warnings.warn(f"Skipping a file: {reason}", stacklevel=2)
        self.files.append(path)

    def add_row_group(self, path: str, number: int, reason: Exception) -> None:
        """Record a row group that is replaced, for the report at the end of the epoch."""
        self.reasons[path, number] = reason
        if path not in self.files:
            self.files.append(path)

    def report(self) -> None:
        """Warn of the row groups that were replaced since the last report, if any."""
        reasons, self.reasons = list(self.reasons.values()), {}
        if reasons:
            warnings.warn(
                f"{len(reasons)} row groups could not be read in this epoch; rows that follow them "
                f"came twice instead. The first: {reasons[0]}",
                stacklevel=2,
            )
