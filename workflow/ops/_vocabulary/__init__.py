"""Parts of Categorify: the values that have ids, how they are counted, and where ids lie."""
