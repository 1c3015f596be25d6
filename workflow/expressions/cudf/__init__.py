"""Differences of cuDF's engine for Polars."""
