"""Who gets a slot: in an order of preference, and without asking how many came."""

from __future__ import annotations

import torch

from ocil.memory import Memory, policies
from ocil.memory.admission import admit_closest, by_centroids, choose, in_order


def memory_of(labels: list[int], capacity: int) -> Memory:
    memory = Memory(capacity)
    x = torch.zeros(len(labels), 1)
    memory.write(list(range(len(labels))), x, torch.tensor(labels))
    return memory


def test_slots_go_to_the_first_in_order_and_to_no_more():
    assert in_order([5, -1, -1, 2], [3, 1, 0, 2]) == [-1, 2, -1, 5]
    assert in_order([-1, -1], [1, 0]) == [-1, -1]


def test_it_admits_so_many_of_each_class_and_no_more():
    memory = memory_of([9, 9, 9], capacity=20)
    labels = [0, 0, 1, 0, 1, 0, 2]
    order = [3, 4, 0, 6, 1, 2, 5]  # class 0 asks for 3, 0, 1, 5 and class 1 for 4, 2
    draw = torch.Generator().manual_seed(0)
    # free slots from 3 on, in order of entering: 3, 4, 0, 6, then 2
    assert admit_closest(memory, order, labels, 2, draw) == [5, -1, 7, 3, 4, -1, 6]
    assert admit_closest(memory, order, labels, 1, draw) == [-1, -1, -1, 3, 4, -1, 5]


def test_it_fills_up_and_then_takes_the_places_of_different_old_images():
    left = set()
    for seed in range(40):
        memory = memory_of([9] * 6, capacity=8)
        draw = torch.Generator().manual_seed(seed)
        slots = admit_closest(memory, [0, 1, 2, 3, 4], [0] * 5, 4, draw)
        assert slots[:2] == [6, 7] and slots[4] == -1
        assert len({*slots[2:4]}) == 2 and all(0 <= slot < 6 for slot in slots[2:4])
        left |= {*slots[2:4]}
    assert left == {*range(6)}


def test_in_a_full_memory_any_place_is_taken():
    found = set()
    for seed in range(60):
        draw = torch.Generator().manual_seed(seed)
        found |= set(admit_closest(memory_of([9] * 4, 4), [0], [1], 3, draw))
    assert found == {0, 1, 2, 3}


def test_centroids_take_turns_and_classes_take_turns():
    # class 0: items 0, 1, 4; class 1: items 2, 3
    distances = [[5, 1], [1, 9], [2, 2], [1, 7], [2, 3]]
    labels = [0, 0, 1, 1, 0]
    # centroid 0 of class 0 takes 1, then centroid 1 takes 0, then 4; class 1: 3, then 2
    assert by_centroids(distances, labels) == [1, 3, 0, 2, 4]
    # started one turn later: class 1 leads, and the second centroids choose first
    assert by_centroids(distances, labels, start=1) == [2, 0, 3, 1, 4]


def test_every_centroid_gets_its_turn_where_few_items_enter():
    """With one slot a batch the memory must not hold the neighbours of one centroid only."""
    first = [by_centroids([[0, 1], [1, 0]], [3, 3], start)[0] for start in range(4)]
    assert first == [0, 1, 0, 1]


def test_a_component_takes_its_turn_with_the_items_it_is_closest_to():
    """Three items at component 1, one at component 0; a full memory has one place for one."""
    first: dict[int, set[int]] = {0: set(), 1: set()}
    for seed in range(200):
        draw = {name: torch.Generator().manual_seed(seed) for name in ("memory", "method")}
        memory = memory_of([0] * 4, capacity=4)
        memory.seen = 12
        twin = torch.Generator().manual_seed(seed)
        slots = policies.reservoir(12, 4, 4, twin)
        turn = int(torch.randint(2**31, (), generator=twin)) % 2
        distances = [[9.0, 1.0], [9.0, 1.0], [9.0, 1.0], [1.0, 9.0]]
        found = choose(memory, distances, [0] * 4, "components", "reservoir", draw)
        if sum(slot >= 0 for slot in slots) == 1:
            first[turn].add(next(i for i, slot in enumerate(found) if slot >= 0))
    assert first == {0: {3}, 1: {0, 1, 2}}
