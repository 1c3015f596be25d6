"""Parquet files and the layout of their columns."""
