"""The plan of an export: models that fit together, before anything is written, and their config.pbtxt."""
