"""Parts of Categorify: values with ids, their counts, and the layout of ids."""
