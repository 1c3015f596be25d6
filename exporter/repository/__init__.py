"""The model repository: config files, staging, publishing and verification."""
