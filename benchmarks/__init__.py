"""Measurements behind docs/benchmarks.md: each command prints one of its tables, `--device cpu|gpu`."""

import os

# Before TensorFlow is imported: its start-up chatter hides the tables.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
