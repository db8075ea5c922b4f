"""One random generator per purpose, so that using one never shifts the draws of another."""

from __future__ import annotations

import hashlib

import torch

PURPOSES = ("init", "memory", "augment", "method")


def derive_seed(seed: int, purpose: str) -> int:
    """First 63 bits of sha256("seed/purpose").

    >>> derive_seed(0, "stream") != derive_seed(0, "init")
    True
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator; draws are made on the CPU and moved, so every device sees the same ones."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose))


def generators(seed: int) -> dict[str, torch.Generator]:
    return {purpose: generator(seed, purpose) for purpose in PURPOSES}
