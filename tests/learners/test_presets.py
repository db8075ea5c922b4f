"""Presets that several methods write alike."""

from __future__ import annotations

from ocil.learners.presets import mixed_in


def test_every_memory_that_is_compared_has_its_share_of_a_batch() -> None:
    found = mixed_in("reference", 512, {"cifar10": 10_000}, share=0.5)
    replay = {200: 5, 500: 12, 1000: 24, 2000: 47, 5000: 102, 5120: 104, 10_000: 171}
    assert found == {
        f"reference/cifar10/{memory}": {"batch": 512 - old, "replay": old}
        for memory, old in replay.items()
    }
