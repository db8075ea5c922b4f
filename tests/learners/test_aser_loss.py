"""Shapley values of nearest-neighbour voting against the definition, over all orders."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from ocil.learners import aser


def worth(order: list[int], members: set[int], agrees: list[bool], k: int) -> float:
    """Share of right labels among the k members nearest to the point; order is by distance."""
    nearest = [i for i in order if i in members][:k]
    return sum(agrees[i] for i in nearest) / k


def by_definition(distance: list[float], agrees: list[bool], k: int) -> list[float]:
    """Mean, over all orders in which candidates may join, of what each adds when it does."""
    n = len(distance)
    order = sorted(range(n), key=lambda i: distance[i])
    value = [0.0] * n
    for joining in itertools.permutations(range(n)):
        members: set[int] = set()
        for i in joining:
            before = worth(order, members, agrees, k)
            members.add(i)
            value[i] += worth(order, members, agrees, k) - before
    return [v / math.factorial(n) for v in value]


@pytest.mark.parametrize(("n", "k"), [(6, 3), (5, 1), (5, 5), (2, 3), (1, 2)])
def test_values_are_those_of_the_definition(n: int, k: int) -> None:
    draw = torch.Generator().manual_seed(10 * n + k)
    distance = torch.rand(4, n, generator=draw)
    agrees = torch.rand(4, n, generator=draw) < 0.5
    found = aser.knn_shapley(distance, agrees, k)
    for e in range(4):
        wanted = by_definition(distance[e].tolist(), agrees[e].tolist(), k)
        torch.testing.assert_close(found[e], torch.tensor(wanted))


def test_the_values_of_a_row_add_up_to_the_worth_of_all() -> None:
    draw = torch.Generator().manual_seed(0)
    distance = torch.rand(7, 40, generator=draw)
    agrees = torch.rand(7, 40, generator=draw) < 0.3
    nearest = distance.argsort(1)[:, :3]
    wanted = agrees.gather(1, nearest).float().mean(1)
    torch.testing.assert_close(aser.knn_shapley(distance, agrees, 3).sum(1), wanted)


def test_a_close_point_of_another_class_is_worth_least() -> None:
    distance = torch.tensor([[0.1, 0.2, 0.9, 1.0]])
    agrees = torch.tensor([[False, True, True, False]])
    value = aser.knn_shapley(distance, agrees, 1)[0]
    assert value.argmin() == 0 and value[0] < 0
    assert value.argmax() == 1


def test_equal_distances_keep_their_order() -> None:
    agrees = torch.tensor([[True, False, True]])
    equal, apart = torch.ones(1, 3), torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(aser.knn_shapley(equal, agrees, 2), aser.knn_shapley(apart, agrees, 2))


def test_no_points_to_evaluate_give_no_rows() -> None:
    value = aser.knn_shapley(torch.empty(0, 5), torch.empty(0, 5, dtype=torch.bool), 3)
    assert value.shape == (0, 5)


@pytest.mark.parametrize("form", ["mean", "extreme", "adversarial"])
def test_adversarial_values_by_hand(form: str) -> None:
    draw = torch.Generator().manual_seed(4)
    stream, memory = torch.randn(3, 5, generator=draw), torch.randn(4, 5, generator=draw)
    found = aser.adversarial_shapley(stream, memory, form)
    for d in range(5):
        a, q = stream[:, d].tolist(), memory[:, d].tolist()
        wanted = {
            "mean": sum(q) / 4 - sum(a) / 3,
            "extreme": max(q) - min(a),
            "adversarial": -sum(a),
        }
        assert float(found[d]) == pytest.approx(wanted[form], abs=1e-6)


@pytest.mark.parametrize("form", ["mean", "extreme"])
def test_without_other_points_of_the_memory_the_stream_decides(form: str) -> None:
    stream = torch.tensor([[0.1, -0.2, 0.0]])
    found = aser.adversarial_shapley(stream, torch.empty(0, 3), form)
    assert torch.equal(found, -stream[0])
