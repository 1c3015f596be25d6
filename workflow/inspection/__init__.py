"""Facts about the columns of raw data, operators that suit them, and synthetic data like it."""
