"""Heads that grow: bits of old rows and of their optimiser state, and what new rows start from."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ocil.errors import OcilError
from ocil.nets.heads import CosineHead, GrowingHead, GrowingLinear, grow_head

FEATURES = 6


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(kind: type[GrowingHead], seed: int = 0) -> GrowingHead:
    return kind(FEATURES, seeded(seed))


def optimisers(head: nn.Module) -> dict[str, torch.optim.Optimizer]:
    p = list(head.parameters())
    return {
        "adamw": torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        "amsgrad": torch.optim.Adam(p, lr=0.01, amsgrad=True),
        "foreach": torch.optim.AdamW(p, lr=0.01, foreach=True),
        "fused": torch.optim.AdamW(p, lr=0.01, fused=True),
        "momentum": torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "plain": torch.optim.SGD(p, lr=0.1),
    }


def step(head: nn.Module, optimiser: torch.optim.Optimizer, seed: int, classes: int) -> None:
    """One step on data of the first `classes` classes, the loss over those columns only."""
    x = torch.randn(8, FEATURES, generator=seeded(seed))
    y = torch.randint(classes, (8,), generator=seeded(seed + 100))
    optimiser.zero_grad()
    F.cross_entropy(head(x)[:, :classes], y).backward()
    optimiser.step()


@pytest.mark.parametrize("kind", [GrowingLinear, CosineHead])
def test_starts_empty_and_grows_to_a_total(kind: type[GrowingHead]) -> None:
    head, x = make(kind), torch.randn(3, FEATURES)
    assert head(x).shape == (3, 0)
    for classes, want in ((2, 2), (5, 5), (5, 5), (3, 5)):
        head.grow(classes)
        assert head.classes == want
        assert head(x).shape == (3, want)


@pytest.mark.parametrize("kind", [GrowingLinear, CosineHead])
def test_growing_in_parts_or_at_once_gives_the_same_bits(kind: type[GrowingHead]) -> None:
    parts, once = make(kind), make(kind)
    before = torch.get_rng_state()
    for classes in (1, 2, 7, 40):
        parts.grow(classes)
    once.grow(40)
    assert torch.equal(before, torch.get_rng_state())
    assert all(
        torch.equal(a, b) for a, b in zip(parts.parameters(), once.parameters(), strict=True)
    )


def test_rows_are_drawn_as_torch_draws_a_linear_layer() -> None:
    head = GrowingLinear(50, seeded())
    head.grow(2000)
    bound = 1 / math.sqrt(50)
    for values in (head.weight.detach(), head.bias.detach()):
        assert 0.99 * bound < values.abs().max() <= bound
        assert abs(float(values.mean())) < 0.05 * bound
        assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.03)


def test_linear_scores_equal_a_fixed_layer_on_old_rows() -> None:
    head = GrowingLinear(FEATURES, seeded())
    head.grow(3)
    fixed = nn.Linear(FEATURES, 3)
    fixed.load_state_dict(head.state_dict())
    x = torch.randn(4, FEATURES, generator=seeded(1))
    head.grow(5)
    torch.testing.assert_close(head(x)[:, :3], fixed(x))


def test_cosine_scores_are_scaled_cosines() -> None:
    head = CosineHead(FEATURES, seeded(), scale=7.0)
    head.grow(4)
    x = 30 * torch.randn(5, FEATURES, generator=seeded(1))
    want = 7 * F.cosine_similarity(x[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(x), want)
    assert "scale" in dict(head.named_parameters())


@pytest.mark.parametrize("kind", [GrowingLinear, CosineHead])
@pytest.mark.parametrize("name", list(optimisers(GrowingLinear(1, seeded()))))
def test_optimiser_state_after_growth(kind: type[GrowingHead], name: str) -> None:
    head = make(kind)
    head.grow(2)
    optimiser = optimisers(head)[name]
    for seed in range(3):
        step(head, optimiser, seed, 2)
    old = {row: getattr(head, row) for row in head.rows}
    values = {row: p.detach().clone() for row, p in old.items()}
    states = {row: copy.deepcopy(optimiser.state[p]) for row, p in old.items()}
    grow_head(head, 5, optimiser)
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    assert held == {id(p) for p in head.parameters()}
    for row in head.rows:
        new = getattr(head, row)
        assert old[row] not in optimiser.state
        assert torch.equal(new[:2], values[row])
        assert optimiser.state[new].keys() == states[row].keys()
        for key, value in states[row].items():
            got = optimiser.state[new][key]
            if value is None or value.ndim == 0:
                assert got is value or torch.equal(got, value)
            else:
                assert got.shape == new.shape
                assert torch.equal(got[:2], value)
                assert not got[2:].any()
    step(head, optimiser, 9, 5)
    assert not torch.equal(head.weight[2:], torch.zeros(3, FEATURES))


@pytest.mark.parametrize("name", ["adamw", "foreach", "fused", "momentum"])
def test_old_rows_train_on_as_if_nothing_had_grown(name: str) -> None:
    grown, fixed = make(GrowingLinear), make(GrowingLinear)
    grown.grow(3)
    fixed.grow(3)
    a, b = optimisers(grown)[name], optimisers(fixed)[name]
    for seed in range(3):
        step(grown, a, seed, 3)
        step(fixed, b, seed, 3)
    grow_head(grown, 6, a)
    for seed in range(3, 6):  # the loss looks at old columns only
        step(grown, a, seed, 3)
        step(fixed, b, seed, 3)
    torch.testing.assert_close(grown.weight[:3], fixed.weight)
    torch.testing.assert_close(grown.bias[:3], fixed.bias)


def test_an_optimiser_may_hold_the_empty_head() -> None:
    head = make(GrowingLinear)
    optimiser = torch.optim.AdamW(head.parameters(), lr=0.1)
    grow_head(head, 2, optimiser)
    before = head.weight.detach().clone()
    step(head, optimiser, 0, 2)
    assert not torch.equal(head.weight, before)


def test_growth_keeps_a_gradient_and_survives_a_graph_still_alive() -> None:
    head = make(GrowingLinear)
    head.grow(2)
    x = torch.randn(4, FEATURES, generator=seeded(1))
    head(x).sum().backward()
    assert head.weight.grad is not None
    gradient = head.weight.grad.clone()
    alive = head(x)
    head.grow(3)
    assert head.weight.grad is not None
    assert torch.equal(head.weight.grad[:2], gradient)
    assert not head.weight.grad[2:].any()
    head(x).sum().backward()
    assert alive.requires_grad
    torch.testing.assert_close(head.weight.grad[:2], 2 * gradient)


def test_an_optimiser_without_the_head_is_refused() -> None:
    head, other = make(GrowingLinear), nn.Linear(2, 2)
    with pytest.raises(OcilError, match="does not hold"):
        grow_head(head, 2, torch.optim.SGD(other.parameters(), lr=0.1))


@pytest.mark.parametrize("kind", [GrowingLinear, CosineHead])
def test_state_of_a_grown_head_loads_into_an_empty_one_and_trains_on(
    kind: type[GrowingHead],
) -> None:
    head, fresh = make(kind), make(kind, seed=5)
    optimiser = torch.optim.AdamW(head.parameters(), lr=0.05)
    grow_head(head, 4, optimiser)
    step(head, optimiser, 0, 4)
    fresh_optimiser = torch.optim.AdamW(fresh.parameters(), lr=0.05)  # made before the load
    fresh.load_state_dict(copy.deepcopy(head.state_dict()))
    fresh_optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for net, its in ((head, optimiser), (fresh, fresh_optimiser)):
        step(net, its, 1, 4)
    for key, value in head.state_dict().items():
        assert torch.equal(fresh.state_dict()[key], value)


def test_load_inside_a_larger_module_and_of_fewer_rows() -> None:
    small, large = nn.Sequential(make(GrowingLinear)), nn.Sequential(make(GrowingLinear))
    small[0].grow(2)
    large[0].grow(7)
    large.load_state_dict(small.state_dict())
    assert torch.equal(large[0].weight, small[0].weight)


def test_load_refuses_another_number_of_features() -> None:
    head = make(GrowingLinear)
    with pytest.raises(RuntimeError, match="size mismatch"):
        head.load_state_dict(nn.Linear(FEATURES + 1, 3).state_dict())


def test_deep_copy_is_independent() -> None:
    head = make(GrowingLinear)
    head.grow(2)
    twin = copy.deepcopy(head)
    head.grow(4)
    assert twin.classes == 2
    twin.grow(4)
    assert torch.equal(twin.weight, head.weight)
