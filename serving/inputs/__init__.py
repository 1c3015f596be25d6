"""Conversion of the caller's data to columns: a file for each kind of data, one rule for dtypes."""
