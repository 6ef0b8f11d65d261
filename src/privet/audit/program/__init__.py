"""Checks of a user's own program before it trains: model, loss, data and collate."""
