"""The text of a progress line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

_BAR = 14


@dataclass
class Count:
    """Work with the amount that is done.

    Attributes:
        title: the work.
        total: how much there is to do; None if that is unknown.
        unit: the unit of both numbers.
        started: when it began, by `time.monotonic`.
        done: how much is done.
        work: the part of it that is at work.
    """

    title: str
    total: int | None
    unit: str
    started: float
    done: float = 0
    work: str = ""

    @property
    def share(self) -> float | None:
        """The part that is done, from 0 to 1; None if the total is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None

    def numbers(self, now: float) -> list[str]:
        """The count, the speed and the time that is left, as far as they are known.

        Example:
            >>> Count("fit", 400, "rows", started=0.0, done=100).numbers(now=5.0)
            ['100 of 400 rows', '20 rows/s', '0:15 left']
            >>> Count("fit", 8_000_000, "rows", started=0.0, done=6_000_000).numbers(now=5.0)
            ['6.00M of 8.00M rows', '1.20M rows/s', '0:02 left']
        """
        count = int(self.done if self.total is None else min(self.done, self.total))
        passed = now - self.started
        unit = self.unit.removesuffix("s") if self.total == 1 else self.unit
        if not count or passed <= 0:
            return [f"0 of {short(self.total)} {unit}"] if self.total else []
        of = "" if self.total is None else f" of {short(self.total)}"
        texts = [f"{short(count)}{of} {unit}"]
        if self.unit == "rows":
            texts.append(f"{short(count / passed)} {self.unit}/s")
        if self.total is not None and count < self.total:
            texts.append(f"{clock(passed * (self.total - count) / count)} left")
        return texts


def short(number: float) -> str:
    """A number in three digits.

    Example:
        >>> short(999), short(12_345), short(8_000_000), short(4.2e9)
        ('999', '12.3k', '8.00M', '4.20G')
    """
    if round(number) < 1000:
        return f"{number:.0f}"
    for unit in "kMG":
        number /= 1000
        # As 999.95 would be shown with four digits.
        if number < 999.5 or unit == "G":
            break
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{unit}"


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, or with hours.

    Example:
        >>> clock(75), clock(3675)
        ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def text_of(chain: Sequence[Count], *, bar: bool = False) -> str:
    """One line for stages inside each other, the innermost last, whose numbers are shown.

    Args:
        chain: the stages.
        bar: whether to draw the share of the innermost one that is done.
    """
    now, last = time.monotonic(), chain[-1]
    parts = [chain[0].title]
    if bar and last.share is not None:
        full = round(_BAR * last.share)
        parts[0] += f" {'━' * full}{'─' * (_BAR - full)} {last.share:.0%}"
    elif last.share is not None:
        parts[0] += f" {last.share:.0%}"
    numbers = last.numbers(now)
    is_estimated = any(text.endswith(" left") for text in numbers)
    parts += numbers if is_estimated else [*numbers, clock(now - chain[0].started)]
    works = [text for count in chain for text in (count.title, count.work) if text][1:]
    return " · ".join(parts + works)
