"""Columns described: dtypes, schemas, tags, and what is known of their values."""
