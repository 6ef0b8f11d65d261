"""Internal utilities: files, documents, compiled kernels, random numbers, and objects that cannot be copied."""
