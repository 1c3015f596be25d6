"""Descriptions of columns: dtypes, schemas, tags, and facts about their values."""
