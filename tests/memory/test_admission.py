"""Who gets a slot: in an order of preference, and without asking how many came."""

from __future__ import annotations

import torch

from ocil.memory import Memory, policies
from ocil.memory.admission import by_centroids, choose, first_of_class, in_order, put


def memory_of(labels: list[int], capacity: int) -> Memory:
    memory = Memory(capacity)
    x = torch.zeros(len(labels), 1)
    memory.write(list(range(len(labels))), x, torch.tensor(labels))
    return memory


def test_slots_go_to_the_first_in_order_and_to_no_more():
    assert in_order([5, -1, -1, 2], [3, 1, 0, 2]) == [-1, 2, -1, 5]
    assert in_order([-1, -1], [1, 0]) == [-1, -1]


def test_it_admits_so_many_of_each_class_and_no_more():
    labels = [0, 0, 1, 0, 1, 0, 2]
    order = [3, 4, 0, 6, 1, 2, 5]  # class 0 asks for 3, 0, 1, 5 and class 1 for 4, 2
    assert first_of_class(order, labels, 2) == [3, 4, 0, 6, 2]
    assert first_of_class(order, labels, 1) == [3, 4, 6]


def test_those_that_enter_take_the_free_slots_in_order():
    memory, draw = memory_of([9, 9, 9], capacity=20), torch.Generator().manual_seed(0)
    assert put(memory, [3, 4, 0, 6, 2], 7, draw) == [5, -1, 7, 3, 4, -1, 6]


def test_it_fills_up_and_then_takes_the_places_of_different_old_images():
    left = set()
    for seed in range(40):
        memory = memory_of([9] * 6, capacity=8)
        slots = put(memory, [0, 1, 2, 3], 5, torch.Generator().manual_seed(seed))
        assert slots[:2] == [6, 7] and slots[4] == -1
        assert len({*slots[2:4]}) == 2 and all(0 <= slot < 6 for slot in slots[2:4])
        left |= {*slots[2:4]}
    assert left == {*range(6)}


def test_in_a_full_memory_any_place_is_taken():
    found = set()
    for seed in range(60):
        found |= set(put(memory_of([9] * 4, 4), [0], 1, torch.Generator().manual_seed(seed)))
    assert found == {0, 1, 2, 3}


def draws(seed: int = 0) -> dict[str, torch.Generator]:
    return {name: torch.Generator().manual_seed(seed) for name in ("memory", "method")}


def test_as_printed_the_closest_point_of_every_centroid_enters():
    """Written from the paper's two sentences; a point that two centroids want enters once."""
    g = torch.Generator().manual_seed(3)
    differs = 0
    for _ in range(200):
        distances = torch.rand(10, 4, generator=g).tolist()
        labels = torch.randint(2, (10,), generator=g).tolist()
        wanted = set()
        for k in range(4):
            for c in set(labels):
                wanted.add(min((distances[i][k], i) for i in range(10) if labels[i] == c)[1])
        slots = choose(Memory(50), distances, labels, "centroids", "printed", draws())
        assert {i for i, slot in enumerate(slots) if slot >= 0} == wanted
        left = choose(Memory(50), distances, labels, "centroids", "closest", draws())
        differs += {i for i, slot in enumerate(left) if slot >= 0} != wanted
    assert differs > 100  # the rule of version 0.1: the closest one that is left


def test_as_many_enter_at_random_as_the_centroids_would_choose():
    distances = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 9.0], [9.0, 0.0], [5.0, 5.0]]
    labels, entered = [0, 0, 0, 1, 1, 1], set()
    for seed in range(60):
        slots = choose(Memory(50), distances, labels, "random", "printed", draws(seed))
        chosen = [labels[i] for i, slot in enumerate(slots) if slot >= 0]
        assert sorted(chosen) == [0, 1, 1]  # one point is the closest of both centroids of class 0
        entered |= {i for i, slot in enumerate(slots) if slot >= 0}
    assert entered == {*range(6)}


def test_components_without_weight_choose_nothing():
    inf = float("inf")
    slots = choose(Memory(9), [[2.0, inf], [1.0, inf]], [0, 0], "centroids", "printed", draws())
    assert slots == [-1, 0]


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
