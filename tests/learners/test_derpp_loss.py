"""Stored logits against a loop over images and columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ocil.learners.derpp import stored_logits


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


def test_over_all_outputs_later_columns_are_held_at_zero() -> None:
    """The reference's mean over images and all outputs, later classes stored near their start."""
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, generator=draw)
    stored, known = torch.randn(4, 5, generator=draw), torch.tensor([2, 5, 4, 2])
    wanted = torch.zeros(4, 10)
    for i, width in enumerate(known.tolist()):
        wanted[i, :width] = stored[i, :width]
    found = stored_logits(logits, stored, known, outputs=10)
    torch.testing.assert_close(found, F.mse_loss(F.pad(logits, (0, 4)), wanted))
    more = stored_logits(logits, stored, known, outputs=3)  # fewer than there are: all there are
    torch.testing.assert_close(more, F.mse_loss(logits, wanted[:, :6]))
