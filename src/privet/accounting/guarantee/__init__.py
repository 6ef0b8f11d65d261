"""The guarantee of a training: the statement, its meaning for an attacker, and independent checks of it."""
