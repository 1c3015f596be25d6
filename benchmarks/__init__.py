"""Figures of the README. Run one with `python -m benchmarks.<name>` in the repository."""
