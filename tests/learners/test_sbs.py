"""SBS: looks are counted for the current task only, and the extremes of a class leave first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocil.errors import OcilError
from ocil.learners.learner import Learner
from ocil.learners.sbs import Sbs
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


@pytest.fixture
def sbs(learner: Make) -> Callable[..., Sbs]:
    def make(**changes: Any) -> Sbs:
        made = learner("sbs", **changes)
        assert isinstance(made, Sbs)
        return made

    return make


@pytest.mark.parametrize("changes", [{"quick": 0.0, "slow": 0.0}, {"enough": 10**6}])
def test_without_tails_or_reliable_speeds_it_is_er(
    sbs: Callable[..., Sbs], learner: Make, batches: Batches, changes: dict[str, Any]
) -> None:
    mine, er = sbs(memory=8, updates=2, **changes), learner("er", memory=8, updates=2)
    for batch in batches(9):
        assert torch.equal(mine.learn(batch)["loss"], er.learn(batch)["loss"])
    assert er.memory is not None
    assert mine.memory.labels == er.memory.labels
    assert mine.backbone_images == er.backbone_images


def test_looks_are_counted_by_hand(sbs: Callable[..., Sbs], batches: Batches) -> None:
    """A memory that holds the whole stream, replayed whole: every count can be followed."""
    mine = sbs(memory=100, replay=100)
    tries: list[int] = []
    hits: list[float] = []
    tasks: list[int] = []
    for batch in batches(5):  # three batches of task 0, two of task 1
        assert batch.task is not None
        held = mine.memory.columns["x"][: len(tasks)] if tasks else batch.x[:0]
        x = torch.cat([held, batch.x]).float() / 255
        with torch.no_grad():
            mine.add_classes(batch.y)
            right = mine.model(x).argmax(1).tolist()
        labels = mine.memory.labels + batch.y.tolist()
        tasks += [batch.task] * 5
        tries, hits = [*tries, 0, 0, 0, 0, 0], [*hits, 0.0, 0.0, 0.0, 0.0, 0.0]
        for i, (answer, label) in enumerate(zip(right, labels, strict=True)):
            if tasks[i] == batch.task:
                tries[i] += 1
                hits[i] += answer == label
        mine.learn(batch)
        columns = {k: v[: len(tasks)].tolist() for k, v in mine.memory.columns.items()}
        assert columns["task"] == tasks
        assert columns["tries"] == tries
        assert columns["hits"] == hits
    assert 0 < sum(hits) < sum(tries)  # the data let some be right and some be wrong


def test_a_look_may_add_the_probability_of_the_right_answer(sbs: Callable[..., Sbs]) -> None:
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    y = torch.tensor([0, 1])
    soft = sbs(hit="probability").judge(logits, y)
    torch.testing.assert_close(soft, logits.softmax(1)[[0, 1], [0, 1]])
    assert sbs().judge(logits, y).tolist() == [1.0, 0.0]


def filled(mine: Sbs, hits: list[float], task: list[int], tries: int = 10) -> Sbs:
    """A full memory with class 0 in the even slots and class 1 in the odd ones."""
    n = len(hits)
    mine.add_classes(torch.tensor([0, 1]))
    columns = {
        "task": torch.tensor(task, dtype=torch.int32),
        "tries": torch.full((n,), tries, dtype=torch.int32),
        "hits": torch.tensor(hits),
    }
    x = torch.zeros(n, 1, 4, 4, dtype=torch.uint8)
    mine.memory.write(range(n), x, torch.arange(n) % 2, **columns)
    mine.memory.seen = n
    return mine


def test_the_extremes_of_the_victims_class_leave(sbs: Callable[..., Sbs]) -> None:
    # class 0: speeds rise with the slot; class 1: all the same
    mine = filled(
        sbs(memory=20), [float(i // 2) if i % 2 == 0 else 5.0 for i in range(20)], [3] * 20
    )
    gone = Counter[int]()
    for _ in range(300):
        gone.update(mine.leaving([8], task=3))  # slot 8 is of class 0 and of middling speed
    # two of ten at each end: slots 0, 2 are the slowest, 16, 18 the quickest
    assert set(gone) == {0, 2, 16, 18}
    assert min(gone.values()) > 40


@pytest.mark.parametrize(
    ("changes", "gone"),
    [({"slow": 0.0}, {16, 18}), ({"quick": 0.0}, {0, 2}), ({"quick": 0.0, "slow": 0.1}, {0})],
)
def test_each_tail_alone(
    sbs: Callable[..., Sbs], changes: dict[str, float], gone: set[int]
) -> None:
    mine = filled(sbs(memory=20, **changes), [float(i // 2) for i in range(20)], [0] * 20)
    assert {mine.leaving([8], task=0)[0] for _ in range(60)} == gone


def test_the_class_of_the_victim_is_the_reservoirs(sbs: Callable[..., Sbs]) -> None:
    mine = filled(sbs(memory=20), [float(i // 2) for i in range(20)], [0] * 20)
    for _ in range(50):
        even, odd = mine.leaving([4, 7], task=0)
        assert even % 2 == 0 and odd % 2 == 1


def test_older_tasks_and_unreliable_speeds_leave_as_in_a_reservoir(
    sbs: Callable[..., Sbs],
) -> None:
    hits = [float(i // 2) for i in range(20)]
    assert filled(sbs(memory=20), hits, [0] * 20).leaving([8, -1], task=1) == [8, -1]
    assert filled(sbs(memory=20), hits, [0] * 20, tries=3).leaving([8], task=0) == [8]
    # four reliable ones of class 0 are too few to rank
    few = filled(sbs(memory=20), hits, [0 if i < 8 else 9 for i in range(20)])
    assert few.leaving([8], task=0) == [8]


def test_two_items_of_a_batch_never_share_a_victim_by_ranking(sbs: Callable[..., Sbs]) -> None:
    mine = filled(sbs(memory=20), [float(i // 2) for i in range(20)], [0] * 20)
    for _ in range(50):
        slots = mine.leaving([4, 6, 8, 10], task=0)
        assert sorted(slots) == [0, 2, 16, 18]


def test_new_slots_of_a_memory_with_room_stay(sbs: Callable[..., Sbs], batches: Batches) -> None:
    mine = sbs(memory=12)
    for batch in batches(2):
        mine.learn(batch)
    assert mine.leaving([10, 11, -1], task=0) == [10, 11, -1]


def test_a_large_class_is_compared_in_part(sbs: Callable[..., Sbs]) -> None:
    n = 2 * (3 * 64)
    mine = filled(sbs(memory=n), [float(i // 2) for i in range(n)], [0] * n, tries=n)
    found = mine.extremes([0], task=0)[0]
    assert len(found) == 2 * int(0.2 * 64)


def test_a_new_image_starts_with_its_first_look(sbs: Callable[..., Sbs], batches: Batches) -> None:
    mine = sbs(memory=6, updates=3)
    for batch in batches(3):
        mine.learn(batch)
    assert int(mine.memory.columns["tries"].min()) >= 1
    assert (mine.memory.columns["hits"] <= mine.memory.columns["tries"]).all()


def test_without_task_ids_the_stream_is_one_task(sbs: Callable[..., Sbs], batches: Batches) -> None:
    mine = sbs(memory=100, replay=100)
    for batch in batches(5):
        mine.learn(Batch(batch.x, batch.y, batch.step))
    assert (
        mine.memory.columns["tries"][:25].tolist()
        == [5] * 5 + [4] * 5 + [3] * 5 + [2] * 5 + [1] * 5
    )


def test_a_state_without_looks_is_refused(sbs: Callable[..., Sbs], batches: Batches) -> None:
    mine = sbs()
    mine.learn(batches(1)[0])
    state = mine.state_dict()
    del state["memory.column.tries"]
    with pytest.raises(KeyError):
        sbs().load_state_dict(state)


def test_shares_that_do_not_fit_are_refused(sbs: Callable[..., Sbs]) -> None:
    with pytest.raises(OcilError, match="add up to 1 or less"):
        sbs(quick=0.6, slow=0.5)
    with pytest.raises(OcilError, match=r"quick is -0\.1"):
        sbs(quick=-0.1)


@pytest.mark.parametrize(("tries", "ranked"), [(3, False), (4, True)])
def test_a_speed_counts_from_enough_looks_on(
    sbs: Callable[..., Sbs], tries: int, ranked: bool
) -> None:
    mine = filled(sbs(memory=10, enough=4), [0.0] * 5 + [float(tries)] * 5, [0] * 10, tries)
    label = next(iter(mine.memory.filled))
    assert bool(mine.extremes([label], 0)[label]) == ranked
