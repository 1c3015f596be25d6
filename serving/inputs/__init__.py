"""From the caller's data to columns: one file for each kind of data, one rule for all dtypes."""
