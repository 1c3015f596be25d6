"""The data of one call: files and frames, parsed once and read as often as needed."""
