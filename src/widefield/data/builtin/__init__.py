"""Built-in data sets, which need no download."""
