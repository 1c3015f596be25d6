"""The model repository: staging, publishing and verification."""
