"""Equal shares of the memory, and a fair sample inside of each class."""

from __future__ import annotations

import torch

from ocil.learners.cope import offer
from ocil.memory import Memory


def fed(labels: list[int], capacity: int, seed: int = 0, batch: int = 10) -> Memory:
    """A memory offered images whose pixels say their number in the stream."""
    memory, met = Memory(capacity), list[int]()
    draw = torch.Generator().manual_seed(seed)
    for start in range(0, len(labels), batch):
        y = torch.tensor(labels[start : start + batch])
        x = torch.arange(start, start + len(y), dtype=torch.float32)[:, None]
        offer(memory, met, x, y, draw)
    assert memory.seen == len(labels)
    assert sum(map(len, memory.members)) == len(memory) == min(capacity, len(labels))
    for label, slots in enumerate(memory.members):
        assert all(labels[int(memory.columns["x"][slot])] == label for slot in slots)
    return memory


def sizes(memory: Memory) -> list[int]:
    return [len(slots) for slots in memory.members]


def test_classes_share_equally_however_many_images_they_had():
    assert sizes(fed([0] * 100 + [1] * 30 + [2] * 300, 30)) == [10, 10, 10]


def test_a_rare_class_keeps_all_and_the_rest_is_left_to_the_others():
    found = sizes(fed([0] * 50 + [1] * 3 + [2] * 50 + [3] * 50, 30))
    assert found[1] == 3
    assert min(found) == 3
    assert sum(found) == 30
    assert all(size >= 7 for i, size in enumerate(found) if i != 1)


def test_new_classes_in_one_batch_share_as_well():
    labels = [0, 1] * 20 + [2, 3, 4, 5] * 20
    assert sizes(fed(labels, 12)) == [2] * 6


def test_a_memory_smaller_than_the_classes_never_overflows():
    for seed in range(5):
        memory = fed(list(range(8)) * 5, 3, seed)
        assert sorted(sizes(memory)) == [0] * 5 + [1] * 3
        assert memory.members[7]  # a class that the memory lacks always enters


def test_early_and_late_images_of_a_class_are_kept_equally_often():
    early = late = 0
    for seed in range(100):
        memory = fed([0] * 60 + [1] * 10, 6, seed)
        numbers = [int(memory.columns["x"][slot]) for slot in memory.members[0]]
        early += sum(number < 30 for number in numbers)
        late += sum(number >= 30 for number in numbers)
    # 3 of 60 each time: 150 expected of either half, standard deviation 8.6
    assert early + late == 300
    assert abs(early - 150) < 4 * 8.6


def test_they_are_also_where_other_classes_come_in_between():
    early = total = 0
    for seed in range(100):
        memory = fed([0, 1, 2] * 30, 6, seed)
        numbers = [int(memory.columns["x"][slot]) for slot in memory.members[0]]
        early, total = early + sum(number < 45 for number in numbers), total + len(numbers)
    assert total == 200
    assert abs(early - 100) < 4 * 7.0  # standard deviation of 200 fair draws
