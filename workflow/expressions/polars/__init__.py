"""The Polars interpreter, for fit and transform."""
