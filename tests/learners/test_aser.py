"""ASER: who is replayed and who stays, against loops; ER before the memory is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocil.errors import OcilError
from ocil.learners.aser import Aser
from ocil.learners.learner import Learner
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


@pytest.fixture
def aser(learner: Make) -> Callable[..., Aser]:
    def make(**changes: Any) -> Aser:
        made = learner("aser", **changes)
        assert isinstance(made, Aser)
        return made

    return make


def value(distance: list[float], agrees: list[bool], k: int) -> list[float]:
    """The recursion from the farthest candidate to the nearest, one at a time."""
    order = sorted(range(len(distance)), key=lambda i: distance[i])
    found = [0.0] * len(distance)
    for rank in range(len(order), 0, -1):
        here = order[rank - 1]
        if rank == len(order):
            found[here] = agrees[here] / max(rank, k)
        else:
            after = order[rank]
            gain = (agrees[here] - agrees[after]) / k * min(k, rank) / rank
            found[here] = found[after] + gain
    return found


def all_values(ze: Any, ye: Any, zd: Any, yd: Any, k: int) -> torch.Tensor:
    rows = []
    for z, y in zip(ze, ye, strict=True):
        distance = [float((z - other).norm()) for other in zd]
        rows.append(value(distance, [bool(y == other) for other in yd], k))
    return torch.tensor(rows)


def taught(mine: Aser, stream: list[Batch]) -> Batch:
    """Let it learn all batches but the last, which is returned."""
    *before, last = stream
    for batch in before:
        mine.learn(batch)
    return last


def spied(mine: Aser, monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Tensor, ...]]:
    """The parts whose features are asked for, a list that fills as it learns."""
    seen: list[tuple[torch.Tensor, ...]] = []
    judged = mine.judged
    monkeypatch.setattr(mine, "judged", lambda *parts: (seen.append(parts), judged(*parts))[1])
    return seen


def test_it_is_er_until_the_memory_is_full(
    aser: Callable[..., Aser], learner: Make, batches: Batches
) -> None:
    # replayed whole, so that both draw the same: nothing
    mine, er = aser(memory=20, replay=20), learner("er", memory=20, replay=20)
    for batch in batches(4):
        assert torch.equal(mine.learn(batch)["loss"], er.learn(batch)["loss"])
    assert mine.backbone_images == er.backbone_images
    assert mine.memory is not None and er.memory is not None
    assert torch.equal(mine.memory.columns["x"], er.memory.columns["x"])


def test_the_replayed_are_the_candidates_of_largest_score(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=20, candidates=8, replay=3, width=12)
    batch = taught(mine, batches(6))
    seen = spied(mine, monkeypatch)
    old = mine.adversaries(batch)
    x, x_stream, x_own = seen[0]
    assert len(x) == 8 and len(x_own) == 8
    slots = zip(mine.memory.columns["x"], mine.memory.labels, strict=True)
    held = {bytes(image.numpy()): c for image, c in slots}
    label = lambda images: [held[bytes(i.numpy())] for i in images]  # noqa: E731
    with torch.no_grad():
        z, zs, zo = (mine.model.net(p.float() / 255) for p in (x, x_stream, x_own))
    a = all_values(zs, batch.y.tolist(), z, label(x), 3)
    q = all_values(zo, label(x_own), z, label(x), 3)
    score = (q.mean(0) - a.mean(0)).tolist()
    best = sorted(range(8), key=lambda i: -score[i])[:3]
    assert torch.equal(old["x"], x[best])
    assert old["y"].tolist() == [label(x)[i] for i in best]


def test_candidates_and_points_of_the_memory_are_disjoint_and_balanced(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=12, candidates=4, replay=4)
    for each in batches(5):
        mine.learn(each)
    assert mine.drawn == 4
    seen = spied(mine, monkeypatch)
    for _ in range(20):
        mine.adversaries(batches(6)[-1])
    for x, _, x_own in seen:
        images = [bytes(i.numpy()) for i in (*x, *x_own)]
        assert len(set(images)) == len(images) == 8
        slots = zip(mine.memory.columns["x"], mine.memory.labels, strict=True)
        held = {bytes(image.numpy()): c for image, c in slots}
        spread = Counter(held[bytes(i.numpy())] for i in x)
        assert max(spread.values()) - min(spread.values()) <= 1


def test_of_equal_candidates_those_drawn_first_are_replayed(
    aser: Callable[..., Aser], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one class in memory and stream all are worth the same."""
    mine = aser(memory=80, candidates=40, replay=5, shape=(4,), net="identity")
    mine.add_classes(torch.tensor([0]))
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    mine.memory.write(range(80), x, torch.zeros(80, dtype=torch.int64))
    seen = spied(mine, monkeypatch)
    old = mine.adversaries(Batch(x[:3], torch.zeros(3, dtype=torch.int64)))
    assert torch.equal(old["x"], seen[0][0][:5])


def test_those_in_the_way_of_the_stream_come_first(aser: Callable[..., Aser]) -> None:
    """Of class 0 some lie where the stream's images of class 1 are, nearer than class 1 itself."""
    mine = aser(memory=40, candidates=20, replay=2, shape=(4,), net="identity", score="adversarial")
    where = torch.cat([torch.zeros(12), torch.ones(8), torch.full((20,), 0.6)])
    noise = 0.01 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    mine.add_classes(torch.tensor([0, 1]))
    mine.memory.write(range(40), where[:, None] + noise, torch.tensor([0] * 20 + [1] * 20))
    for _ in range(10):
        old = mine.adversaries(Batch(torch.ones(5, 4), torch.ones(5, dtype=torch.int64)))
        assert old["y"].tolist() == [0, 0]
        assert (old["x"].mean(1) > 0.9).all()


def test_who_stays_by_hand(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=20, candidates=6, width=12)
    batch = taught(mine, batches(6))
    monkeypatch.setattr(mine, "rare", lambda labels: [1, 3])
    seen = spied(mine, monkeypatch)
    found = mine.contest(batch.x, batch.y)
    x_judge, x_rival, x_new = seen[0]
    slot_of = {bytes(i.numpy()): s for s, i in enumerate(mine.memory.columns["x"])}
    judges = [slot_of[bytes(i.numpy())] for i in x_judge]
    rivals = [slot_of[bytes(i.numpy())] for i in x_rival]
    assert not set(judges) & set(rivals)
    assert len(judges) == len(rivals) == 6
    with torch.no_grad():
        zj, zr, zn = (mine.model.net(p.float() / 255) for p in (x_judge, x_rival, x_new))
    label = mine.memory.labels
    new = batch.y.tolist()
    points = torch.cat([zj, zn[[1, 3]]]), [label[s] for s in judges] + [new[1], new[3]]
    candidates = torch.cat([zr, zn]), [label[s] for s in rivals] + new
    total = all_values(*points, *candidates, 3).sum(0).tolist()
    order = sorted(range(len(total)), key=lambda i: -total[i])
    stay, go = order[:6], order[6:]
    assert [i for i, slot in enumerate(found) if slot >= 0] == sorted(i - 6 for i in stay if i >= 6)
    assert {slot for slot in found if slot >= 0} == {rivals[i] for i in go if i < 6}


def test_rare_items_are_those_below_a_random_share(aser: Callable[..., Aser]) -> None:
    mine = aser(memory=20, shape=(4,), net="identity")
    mine.add_classes(torch.tensor([0, 1, 2, 3]))
    labels = [0] * 15 + [1] * 2 + [2] * 3
    mine.memory.write(range(20), torch.zeros(20, 4), torch.tensor(labels))
    runs, counts = 4000, Counter[int]()
    for _ in range(runs):
        counts.update(mine.rare([0, 1, 2, 3]))
    # t ~ U(0, 1/4) exceeds a share s with probability 1 - 4 s
    assert counts[0] == 0
    assert counts[1] / runs == pytest.approx(1 - 4 * 0.1, abs=0.03)
    assert counts[2] / runs == pytest.approx(1 - 4 * 0.15, abs=0.03)
    assert counts[3] / runs > 0.99


def test_images_through_the_net_are_counted(aser: Callable[..., Aser], batches: Batches) -> None:
    mine = aser(memory=20, candidates=6, replay=4, updates=2)
    batch = taught(mine, batches(6))
    count = mine.backbone_images
    mine.learn(batch)
    retrieve, train, update = 5 + 2 * 6, 5 + 4, 2 * 6 + 5
    assert mine.backbone_images - count == 2 * (retrieve + train) + update


def test_half_the_memory_at_most_is_drawn(aser: Callable[..., Aser], batches: Batches) -> None:
    mine = aser(memory=9, candidates=90)
    for each in batches(4):
        mine.learn(each)
    assert mine.drawn == 4
    assert aser(memory=20, per_class=3).drawn == 1  # nothing is there yet


def test_what_is_left_of_a_batch_when_the_memory_fills_has_to_win(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=8)
    offered = []
    contest = mine.contest
    monkeypatch.setattr(mine, "contest", lambda x, y: (offered.append(x), contest(x, y))[1])
    first, second = batches(2)
    mine.learn(first)
    mine.learn(second)
    assert len(mine.memory) == 8 and mine.memory.seen == 10
    assert len(offered) == 1 and torch.equal(offered[0], second.x[3:])


def test_a_reservoir_may_keep_the_memory(
    aser: Callable[..., Aser], learner: Make, batches: Batches
) -> None:
    # nothing is replayed, so that both draw for their memories alone
    mine, er = aser(memory=9, update="reservoir", replay=0), learner("er", memory=9, replay=0)
    for batch in batches(6):
        mine.learn(batch)
        er.learn(batch)
    assert torch.equal(mine.memory.columns["x"], er.memory.columns["x"])
    assert mine.backbone_images == 30  # no contest


def test_a_memory_of_one(aser: Callable[..., Aser], batches: Batches) -> None:
    mine = aser(memory=1)
    for batch in batches(6):
        mine.learn(batch)
    assert len(mine.memory) == 1


def test_scoring_leaves_no_gradient_and_no_trace_in_the_net(
    aser: Callable[..., Aser], batches: Batches
) -> None:
    mine = aser(memory=10, net="resnet18", width=2, shape=(1, 8, 8), candidates=4)
    for batch in batches(3, (1, 8, 8)):
        mine.learn(batch)
    before = {k: v.clone() for k, v in mine.model.state_dict().items()}
    old = mine.adversaries(batches(4, (1, 8, 8))[-1])
    assert not old["x"].requires_grad and mine.model.training
    assert all(torch.equal(v, before[k]) for k, v in mine.model.state_dict().items())


@pytest.mark.parametrize("name", ["neighbours", "candidates"])
def test_settings_out_of_range_are_refused(aser: Callable[..., Aser], name: str) -> None:
    with pytest.raises(OcilError, match=f"{name} is 0 but must be at least 1"):
        aser(**{name: 0})


def test_it_cannot_do_without_a_memory(aser: Callable[..., Aser]) -> None:
    with pytest.raises(OcilError, match="aser cannot do without a memory"):
        aser(memory=None)


def test_the_reference_draws_for_every_class(aser: Callable[..., Aser], batches: Batches) -> None:
    mine = aser(memory=40, per_class=2)
    for batch in batches(9):
        mine.learn(batch)
    assert mine.drawn == 2 * len(mine.memory.filled)


def test_those_who_may_leave_are_as_many_from_the_first_task_on(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=20, per_class=2, candidates=9, replay=4)
    batch = taught(mine, batches(6))
    seen = spied(mine, monkeypatch)
    mine.learn(batch)
    judges = 2 * len(mine.memory.filled)
    sizes = [[len(part) for part in parts] for parts in seen]
    assert sizes == [[judges, 5, judges], [judges, 9, 5]]  # D, stream, C; E, D', stream


def test_there_are_as_many_candidates_as_are_replayed(
    aser: Callable[..., Aser], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = aser(memory=10, candidates=90, replay=8)
    batch = taught(mine, batches(4))
    seen = spied(mine, monkeypatch)
    x, _ = mine.with_replay(batch)
    assert [[len(part) for part in parts] for parts in seen] == [[8, 5, 2]] and len(x) == 8 + 5
