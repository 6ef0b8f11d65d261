"""Federated training on the data of many users, against central training with and without user-level privacy."""
