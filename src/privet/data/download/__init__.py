"""Published files: where they are found, how they are fetched, checked and kept."""
