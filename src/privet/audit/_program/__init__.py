"""Checks of a user's program before training: model, loss, data and collate function."""
