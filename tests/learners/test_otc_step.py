"""OTC's whole step written out by hand: losses by loops, weights, shared covariance, memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ocil import augment
from ocil.learners.learner import Learner
from ocil.learners.otc_settings import OtcSettings
from ocil.memory.admission import by_centroids
from ocil.mixture import Mixtures, distances
from ocil.nets.heads import grow_head
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


def forward(model: Any, x: Tensor) -> Tensor:
    """Features (n, d) of float images through the two layers of the MLP."""
    net = model.net
    h = torch.relu(x.flatten(1) @ net.hidden1.weight.T + net.hidden1.bias)
    return torch.relu(h @ net.hidden2.weight.T + net.hidden2.bias)


def unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)


class Reference:
    """A method for each part of the step; the mixtures alone are ocil's: they have own tests."""

    def __init__(self, learner: Learner) -> None:
        assert isinstance(learner.settings, OtcSettings)
        self.s = learner.settings
        self.live, self.slow = copy.deepcopy(learner.model), copy.deepcopy(learner.model)
        self.draws = {
            k: torch.Generator().set_state(g.get_state()) for k, g in learner.generators.items()
        }
        self.live.head.generator = self.draws["init"]
        self.held: list[tuple[Tensor, int]] = []
        self.seen = self.classes = self.updates = self.pools = 0
        dim = self.live.head.features
        self.mixtures = Mixtures(dim, self.s)
        self.covariance = torch.zeros(dim, dim)
        # no AdamW: that turns the rounding of a gradient near zero into a whole step
        self.optimizer = torch.optim.SGD(
            self.live.parameters(), lr=self.s.lr, weight_decay=self.s.weight_decay
        )

    def meet(self, y: Tensor) -> None:
        classes = max(self.classes, int(y.max()) + 1)
        if classes > self.classes:
            known, self.classes = self.classes, classes
            grow_head(self.live.head, classes, self.optimizer)
            for name in ("weight", "bias"):  # the average takes the new rows as they were drawn
                mine, live = getattr(self.slow.head, name), getattr(self.live.head, name)
                mine.data = torch.cat([mine.data[:known], live.data[known:].clone()])

    def replay(self) -> list[tuple[Tensor, int]]:
        count, wanted = len(self.held), self.s.replay
        if count <= wanted:
            return list(self.held)
        chosen: list[int] = []
        draws = torch.rand(wanted, dtype=torch.float64, generator=self.draws["memory"])
        for top, u in zip(range(count - wanted, count), draws.tolist(), strict=True):
            pick = int(u * (top + 1))
            chosen.append(top if pick in chosen else pick)
        return [self.held[i] for i in chosen]

    def cross_entropy(self, logits: Tensor, y: list[int], old: int) -> Tensor:
        total = torch.zeros(())
        present = set(y[old:])
        for i, label in enumerate(y):
            own = self.s.asymmetric and i >= old  # the stream's: among the classes of its batch
            among = [c for c in range(self.classes) if not own or c in present]
            total = total - logits[i, label] + torch.logsumexp(logits[i, among], 0)
        return total / len(y)

    def distillation(self, logits: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            head = self.slow.head
            wanted = forward(self.slow, x) @ head.weight.T + head.bias
        total = torch.zeros(())
        for mine, theirs in zip(logits, wanted, strict=True):
            p, q = torch.softmax(theirs / 4, 0), torch.softmax(mine / 4, 0)
            for a, b in zip(p, q, strict=True):
                total = total + 16 * a * (a.log() - b.log())
        return total / len(logits)

    def centroids(self) -> list[list[Tensor]]:
        """Unit centroids in use, class by class; a class just met has none."""
        found: list[list[Tensor]] = [[] for _ in range(self.classes)]
        for c in range(len(self.mixtures)):
            for k in range(self.s.components):
                if self.mixtures.log_pi[c, k] > -torch.inf:
                    found[c].append(unit(self.mixtures.mu[c, k][None])[0].detach().clone())
        return found

    def preservation(self, z: Tensor, y: list[int]) -> Tensor:
        """-1 / (1 + |P|) [log(mean_k e(mu_k) / D) + sum_P log(e(z_p) / D)], classes alike."""
        mu, tau = self.centroids(), self.s.tau
        each: dict[int, list[Tensor]] = {}
        for i, label in enumerate(y):
            if not mu[label]:
                continue
            d = torch.zeros(())
            for c in range(self.classes):
                members = mu[c] + [z[j] for j in range(len(y)) if y[j] == c and j != i]
                if members:
                    d = d + sum(torch.exp(z[i] @ m / tau) for m in members) / len(members)
            pull = sum(torch.exp(z[i] @ m / tau) for m in mu[label]) / len(mu[label])
            terms = [torch.log(pull / d)]
            terms += [
                torch.log(torch.exp(z[i] @ z[j] / tau) / d)
                for j in range(len(y)) if y[j] == label and j != i
            ]  # fmt: skip
            each.setdefault(label, []).append(-sum(terms) / len(terms))  # type: ignore[arg-type]
        means = [sum(losses) / len(losses) for losses in each.values()]
        return sum(means) / len(means) if means else 0 * z.sum()  # type: ignore[return-value]

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        a = min(self.s.ema, (1 + self.updates) / (10 + self.updates))
        live = self.live.state_dict()
        for name, value in self.slow.state_dict().items():
            value.copy_(a * value + (1 - a) * live[name])
        self.updates += 1

    def learn(self, batch: Batch) -> Tensor:
        self.meet(batch.y)
        shown = augment.build(self.s.augment)
        loss = torch.zeros(())
        raw, y = batch.x, batch.y.tolist()
        for _ in range(self.s.updates):
            old = self.replay()
            raw = torch.stack([*(image for image, _ in old), *batch.x])
            y = [*(label for _, label in old), *batch.y.tolist()]
            x = shown(raw.float() / 255, self.draws["augment"])
            features = forward(self.live, x)
            logits = features @ self.live.head.weight.T + self.live.head.bias
            loss = self.cross_entropy(logits, y, len(old))
            if self.s.distill:
                loss = loss + self.s.distill * self.distillation(logits, x)
            if self.s.fused:
                loss = loss + self.s.preserve * self.preservation(unit(features), y)
            self.descend(loss)
        z = self.cultivate(raw, torch.tensor(y))
        if not self.s.fused:
            x = shown(raw.float() / 255, self.draws["augment"])
            self.descend(self.s.preserve * self.preservation(unit(forward(self.live, x)), y))
        self.remember(batch, z[len(y) - len(batch.y) :])
        return loss.detach()

    @torch.no_grad()
    def cultivate(self, raw: Tensor, y: Tensor) -> Tensor:
        """The mixtures by averaged features, then residuals about the nearest own centroid."""
        z = unit(forward(self.slow, raw.float() / 255))
        self.mixtures.update(z, y, self.draws["method"])
        seen = torch.zeros_like(self.covariance)
        for point, label in zip(z, y.tolist(), strict=True):
            best = None
            for k in range(self.s.components):
                if self.mixtures.log_pi[label, k] == -torch.inf:
                    continue
                gap = point - self.mixtures.mu[label, k]
                far = float((gap**2 / self.mixtures.store["var"][label, k]).sum())
                if best is None or far < best[0]:
                    best = (far, gap)
            assert best is not None
            seen += torch.outer(best[1], best[1]) / len(y)
        rate = max(distances.FOLLOW, 1 / (self.pools + 1))
        self.covariance = (1 - rate) * self.covariance + rate * seen
        self.pools += 1
        return z

    def remember(self, batch: Batch, z: Tensor) -> None:
        """A reservoir says how many enter, the centroids which."""
        n, most, labels = len(batch.y), self.s.memory, batch.y.tolist()
        slots = []
        draws = torch.rand(n, dtype=torch.float64, generator=self.draws["memory"])
        for number, u in enumerate(draws.tolist(), start=self.seen):
            slot = number if number < most else int(u * (number + 1))
            slots.append(slot if slot < most else -1)
        start = int(torch.randint(2**31, (), generator=self.draws["memory"]))
        if self.s.choice == "centroids":
            far = [
                [float(((point - self.mixtures.mu[c, k]) ** 2 / self.mixtures.store["var"][c, k])
                       .sum()) if self.mixtures.log_pi[c, k] > -torch.inf else float("inf")
                 for k in range(self.s.components)]
                for point, c in zip(z, labels, strict=True)
            ]  # fmt: skip
            order = by_centroids(far, labels, start)
            taken = [slot for slot in slots if slot >= 0]
            slots = [-1] * n
            for item, slot in zip(order, taken, strict=False):
                slots[item] = slot
        entering = {slot: (batch.x[i], labels[i]) for i, slot in enumerate(slots) if slot >= 0}
        for slot in sorted(entering):
            self.held[slot : slot + 1] = [entering[slot]]
        self.seen += n


CHANGES: dict[str, dict[str, Any]] = {
    "ours": {"preserve": 0.7, "distill": 1.0, "choice": "centroids"},
    "asymmetric": {"asymmetric": True, "preserve": 0.3, "tau": 0.4},
    "two passes": {"fused": False, "preserve": 0.6, "updates": 2, "augment": "affine"},
    "plain": {"preserve": 0.0},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=list(CHANGES))
def test_otc_is_the_step_written_out_by_hand(
    learner: Make, batches: Batches, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "FOLLOW", 0.2)
    few = {"components": 2, "start.points": 6, "ema": 0.9, "memory": 14}
    few |= {"optimizer": "sgd", "momentum": 0.0, "lr": 0.1}
    otc: Any = learner("otc", **few | changes)
    reference = Reference(otc)
    for batch in batches(9):
        loss, wanted = otc.learn(batch)["loss"], reference.learn(batch)
        torch.testing.assert_close(loss, wanted, rtol=1e-4, atol=1e-5)
        alike(otc, reference)
    assert otc.mixtures.active.all(1).any()  # some class had two centroids to choose from
    for purpose, generator in otc.generators.items():
        assert torch.equal(generator.get_state(), reference.draws[purpose].get_state())


def alike(otc: Any, reference: Reference) -> None:
    """The state after a step is the same up to rounding, which is taken over, not added up."""
    close = {"rtol": 1e-3, "atol": 1e-5}
    pairs = ((otc.model, reference.live), (otc.average.model, reference.slow))
    for ours, theirs in pairs:
        for name, value in ours.state_dict().items():
            torch.testing.assert_close(value, theirs.state_dict()[name], **close)
        theirs.load_state_dict(ours.state_dict())
    mine, wanted = otc.mixtures, reference.mixtures
    torch.testing.assert_close(mine.mu, wanted.mu, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(otc.pooled.covariance, reference.covariance, **close)
    wanted.load_state_dict(mine.state_dict(), otc.classes)
    reference.covariance = otc.pooled.covariance.clone()
    assert otc.memory.labels == [label for _, label in reference.held]
    images = torch.stack([image for image, _ in reference.held])
    assert torch.equal(otc.memory.columns["x"][: len(images)], images)


def test_where_the_classes_are_the_covariance_is_about_the_nearest_centroid(learner: Make) -> None:
    """Two far centroids: about the farther one the covariance would be a hundred times larger."""
    otc: Any = learner("otc", components=2, **{"start.points": 6})
    otc.add_classes(torch.tensor([0]))
    dim = otc.model.head.features
    otc.mixtures.store.grow(1)
    otc.mixtures.store.columns["mu"][0, 1, 0] = 10.0
    otc.mixtures.store.columns["log_pi"][0] = -0.7
    z = torch.zeros(4, dim)
    z[2:, 0] = 10.0
    z[:, 1] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    otc.mixtures.update = lambda *given: None
    otc.update_mixtures(z, torch.zeros(4, dtype=torch.int64))
    expected = torch.zeros(dim, dim)
    expected[1, 1] = 1.0
    torch.testing.assert_close(otc.pooled.covariance, expected)
