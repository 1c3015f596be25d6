"""Settings of searches for a counterexample."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A multiple of the examples, drawn anew: CONFORMANCE_DEPTH=20 searches for minutes.
DEPTH = int(os.environ.get("CONFORMANCE_DEPTH", "1"))


def searched(examples: int) -> settings:
    """Settings for the number of cases in which a counterexample is searched."""
    return settings(
        max_examples=examples * DEPTH,
        derandomize=DEPTH == 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
