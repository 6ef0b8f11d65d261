"""What every layer uses and no user needs: files, documents, compiled kernels, random numbers, objects that exist once."""
