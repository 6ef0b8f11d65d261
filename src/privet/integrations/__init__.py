"""Integrations with libraries that own the training loop or the interface of a model; each is an extra, imported when used."""
