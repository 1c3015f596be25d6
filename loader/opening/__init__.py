"""From a loader's arguments to its opened data, on a CPU or a GPU."""
