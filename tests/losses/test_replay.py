"""Stored logits against a loop over images and columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ocil.losses import stored_logits


def test_only_the_columns_that_existed_count() -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 6, generator=draw, requires_grad=True)
    stored, known = torch.randn(4, 5, generator=draw), torch.tensor([2, 5, 4, 2])
    loss = stored_logits(logits, stored, known)
    total, count = 0.0, 0
    for i, width in enumerate(known.tolist()):
        for c in range(width):
            total += (logits[i, c] - stored[i, c]).item() ** 2
            count += 1
    torch.testing.assert_close(loss.item(), total / count)
    loss.backward()
    assert logits.grad is not None
    there = torch.arange(6) < known[:, None]
    assert torch.equal(logits.grad != 0, there)


def test_with_all_columns_it_is_the_mean_squared_error() -> None:
    draw = torch.Generator().manual_seed(2)
    logits, stored = torch.randn(2, 7, 3, generator=draw)
    found = stored_logits(logits, stored, torch.full((7,), 3))
    torch.testing.assert_close(found, F.mse_loss(logits, stored))


def test_what_is_stored_beyond_the_known_columns_plays_no_part() -> None:
    logits, known = torch.ones(2, 4), torch.tensor([1, 2])
    stored = torch.zeros(2, 4)
    stored[:, 2:] = torch.nan
    assert stored_logits(logits, stored, known).item() == 1.0
