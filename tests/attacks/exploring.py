"""Random cases for a check: a few that never change, or as many as a time allows.

`make fuzz` sets FUZZ_SECONDS, which all checks share, and runs them with seeds that differ each
time; it prints the first, and FUZZ_SEED repeats them. Hypothesis keeps a case that fails in
`.hypothesis/` and tries it first the next time.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import wraps

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
# A round of random cases; between two of them the clock is looked at.
ROUND = 25
STEADY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

Check = Callable[[st.DataObject], str]


class Explorer:
    """The cases of one test, and how often each outcome came.

    Args:
        seconds: how long to search; 0 for a number of cases that never change.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.outcomes: Counter[str] = Counter()

    def __call__(
        self, check: Check, cases: int = 100, outcomes: Collection[str] = ("refused",)
    ) -> None:
        """Run a check, which draws its case and returns the name of the outcome.

        Args:
            check: the check.
            cases: the number of cases that never change.
            outcomes: those that some of these cases have.
        """

        @wraps(check)  # Hypothesis keeps failed cases by the source of the function
        def counted(data: st.DataObject) -> None:
            self.outcomes[check(data)] += 1

        draw_cases = hypothesis.given(st.data())
        if not self.seconds:
            settings(STEADY, max_examples=cases, derandomize=True)(draw_cases(counted))()
            assert self.outcomes.keys() >= {*outcomes}
            return
        end, seed = time.monotonic() + self.seconds, SEED
        while time.monotonic() < end:
            seeded = hypothesis.seed(seed)(draw_cases(counted))
            settings(STEADY, max_examples=ROUND)(seeded)()
            seed += 1
