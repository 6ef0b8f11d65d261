"""Reading of data sets into batches of isolated examples: user code sees one example at a time."""
