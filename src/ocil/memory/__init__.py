"""The replay memory: a tensor store, and policies that choose indices."""

from ocil.memory.memory import Memory

__all__ = ["Memory"]
