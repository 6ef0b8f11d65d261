"""The guarantee of a training: the statement, what it means for an attacker, and second opinions on it."""
