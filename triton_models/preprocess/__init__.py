"""The preprocessing step of an ensemble."""
