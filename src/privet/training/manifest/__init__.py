"""The manifest of a run: the parts that it was started with, compared before a resumed run changes or spends anything."""
