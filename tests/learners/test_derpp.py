"""DER++ against a step written out by hand, and what it stores."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil import augment
from ocil.errors import OcilError
from ocil.learners.learner import Learner
from ocil.memory import policies
from ocil.nets.heads import grow_head
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


class Reference:
    """DER++ in the plainest form: a list of (image, label, logits), one image at a time."""

    def __init__(self, learner: Learner) -> None:
        self.s: Any = learner.settings
        self.model = copy.deepcopy(learner.model)
        self.draws = {
            k: torch.Generator().set_state(g.get_state()) for k, g in learner.generators.items()
        }
        self.model.head.generator = self.draws["init"]
        self.held: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        self.seen = 0
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.s.lr, weight_decay=self.s.weight_decay
        )

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        x = torch.stack(images).float() / 255
        return self.model(augment.build(self.s.augment)(x, self.draws["augment"]))

    def drawn(self) -> list[tuple[torch.Tensor, int, torch.Tensor]]:
        slots = policies.uniform(len(self.held), self.s.replay, self.draws["memory"])
        return [self.held[i] for i in slots]

    def learn(self, batch: Batch) -> torch.Tensor:
        grow_head(self.model.head, int(batch.y.max()) + 1, self.optimizer)
        out = self.forward(list(batch.x))
        loss = F.cross_entropy(out, batch.y)
        if self.held:
            dark = self.drawn()
            o = self.forward([image for image, _, _ in dark])
            gaps = [
                (o[i, c] - z[c]) ** 2 for i, (_, _, z) in enumerate(dark) for c in range(len(z))
            ]
            count = len(gaps)
            if self.s.outputs:  # all logits: later classes are held at 0, those to come are 0
                for i, (_, _, z) in enumerate(dark):
                    gaps += [o[i, c] ** 2 for c in range(len(z), o.shape[1])]
                count = len(dark) * self.s.outputs
            loss = loss + self.s.alpha * sum(gaps) / count
            again = self.drawn()
            o = self.forward([image for image, _, _ in again])
            loss = loss + self.s.beta * F.cross_entropy(o, torch.tensor([y for _, y, _ in again]))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        slots = policies.reservoir(self.seen, self.s.memory, len(batch.y), self.draws["memory"])
        self.seen += len(batch.y)
        for i, slot in enumerate(slots):
            entry = (batch.x[i], int(batch.y[i]), out[i].detach().clone())
            if slot == len(self.held):
                self.held.append(entry)
            elif slot >= 0:
                self.held[slot] = entry
        return loss.detach()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"augment": "affine", "memory": 8, "alpha": 0.7},
        {"beta": 0.0, "alpha": 1.0},
        {"outputs": 10, "alpha": 0.7},
    ],
    ids=["plain", "augmented", "DER", "all logits"],
)
def test_the_step_written_out_by_hand(learner: Make, batches: Batches, changes: dict) -> None:
    ours = learner("derpp", **changes)
    theirs = Reference(ours)
    for batch in batches(9):
        loss = ours.learn(batch)["loss"]
        torch.testing.assert_close(loss, theirs.learn(batch), rtol=1e-4, atol=1e-5)
    memory = ours.memory
    assert memory is not None
    for slot, (image, label, logits) in enumerate(theirs.held):
        assert torch.equal(memory.columns["x"][slot], image)
        assert memory.labels[slot] == label
        assert memory.columns["known"][slot] == len(logits)
        stored = memory.columns["logits"][slot]
        torch.testing.assert_close(stored[: len(logits)], logits, rtol=1e-3, atol=1e-4)
        assert not stored[len(logits) :].any()
    for purpose, generator in ours.generators.items():
        assert torch.equal(generator.get_state(), theirs.draws[purpose].get_state())


def test_logits_are_those_of_before_the_first_step(learner: Make, batches: Batches) -> None:
    ours = learner("derpp", updates=3)
    first = batches(1)[0]
    ours.add_classes(first.y)
    with torch.no_grad():
        wanted = ours.model(first.x.float() / 255)
    ours.learn(first)
    assert ours.memory is not None
    assert torch.equal(ours.memory.columns["logits"][:5], wanted)


def test_stored_logits_keep_their_bits_while_classes_come(learner: Make, batches: Batches) -> None:
    ours = learner("derpp", memory=50)
    memory, kept = ours.memory, []
    assert memory is not None
    for n, batch in enumerate(batches(9)):
        ours.learn(batch)
        kept.append(memory.columns["logits"][5 * n : 5 * n + 5].clone())
        for m, rows in enumerate(kept):
            assert torch.equal(memory.columns["logits"][5 * m : 5 * m + 5, : rows.shape[1]], rows)
    assert memory.columns["logits"].shape == (50, 6)
    assert memory.columns["known"][:45].tolist() == [2] * 15 + [4] * 15 + [6] * 15


def test_two_draws_of_the_replay_batch_go_through_the_net(learner: Make, batches: Batches) -> None:
    ours = learner("derpp", updates=2, memory=9)
    for batch in batches(3):
        ours.learn(batch)
    assert ours.backbone_images == 2 * (5 + (5 + 2 * 5) + (5 + 2 * 7))


@pytest.mark.parametrize(("again", "seen"), [(True, 30), (False, 15)])
def test_later_epochs_offer_again_or_not(
    learner: Make, batches: Batches, again: bool, seen: int
) -> None:
    ours = learner("derpp", offer_every_epoch=again, epochs=2)
    for epoch in range(2):
        for batch in batches(3):
            ours.learn(replace(batch, epoch=epoch, epochs=2))
    assert ours.memory is not None
    assert ours.memory.seen == seen
    assert len(ours.memory) == min(20, seen)


def test_the_learning_rate_drops_late_in_each_task(learner: Make, batches: Batches) -> None:
    ours, batch = learner("derpp", schedule="steps", lr=0.5), batches(1)[0]
    for epoch, lr in ((0, 0.5), (34, 0.5), (35, 0.05), (44, 0.05), (45, 0.005), (0, 0.5)):
        ours.learn(replace(batch, epoch=epoch, epochs=50))
        assert ours.optimizer.param_groups[0]["lr"] == pytest.approx(lr)
    ours = learner("derpp")
    ours.learn(replace(batch, epoch=49, epochs=50))
    assert ours.optimizer.param_groups[0]["lr"] == 0.01


def test_a_state_with_other_logits_is_refused(learner: Make, batches: Batches) -> None:
    ours = learner("derpp")
    for batch in batches(4):
        ours.learn(batch)
    good = {k: v.clone() for k, v in ours.state_dict().items()}
    learner("derpp").load_state_dict(good)
    logits, known = good["memory.column.logits"], good["memory.column.known"]
    for change in (
        {"memory.column.logits": torch.zeros(len(logits), 9)},
        {"memory.column.known": known + 1},
        {"memory.column.known": known * 0},
        {"memory.column.known": known[:, None]},
    ):
        with pytest.raises(ValueError, match="stored logits"):
            learner("derpp").load_state_dict(good | change)
    for name in ("logits", "known"):
        with pytest.raises(KeyError):
            learner("derpp").load_state_dict(
                {k: v for k, v in good.items() if k != f"memory.column.{name}"}
            )


def test_no_memory_is_one_sentence(learner: Make) -> None:
    with pytest.raises(OcilError, match="derpp cannot do without a memory"):
        learner("derpp", memory=None)
