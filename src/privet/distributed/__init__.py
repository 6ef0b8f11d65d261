"""Training in several processes: who they are, what they tell each other, and how they share a sum and its noise."""

from privet.distributed.world import World, WorldError

__all__ = ["World", "WorldError"]
