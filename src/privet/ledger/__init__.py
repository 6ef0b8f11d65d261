"""The ledger of a run: a record of spent steps, durable before any noise is drawn."""

from privet.ledger.anchor import verify_anchor
from privet.ledger.history import History, read_history
from privet.ledger.journal import Journal, read
from privet.ledger.ledger import Ledger

__all__ = ["History", "Journal", "Ledger", "read", "read_history", "verify_anchor"]
