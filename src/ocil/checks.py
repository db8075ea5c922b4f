"""The checks that every learner must pass; run them on yours with `check_learner(MyLearner)`.

Each check is a function of a learner class that raises AssertionError with a sentence when the
contract of `ocil.learners.learner` is broken. They use small synthetic images and take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ocil.learners.learner import Learner
from ocil.session import Session
from ocil.settings import Settings, from_mapping

SHAPE = (1, 8, 8)
Kind = type[Learner]


def small_settings(kind: Kind, **changes: Any) -> Settings:
    """Settings under which a learner learns a toy problem in a few dozen batches."""
    base = kind.settings_type()
    memory = None if base.memory is None else 20
    toy = {"memory": memory, "net": "mlp", "width": 16, "augment": "none", "lr": 5e-3, "ema": 0.9}
    return from_mapping(kind.settings_type, toy | changes)


def make(kind: Kind, **changes: Any) -> Session:
    return Session(kind, small_settings(kind, **changes), SHAPE)


def images(labels: Sequence[int], seed: int = 0) -> torch.Tensor:
    """Noise with one bright row for each label: easy to tell apart. uint8 (n, 1, 8, 8)."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(60, (len(labels), *SHAPE), dtype=torch.uint8, generator=draw)
    for i, label in enumerate(labels):
        x[i, 0, label % 8] += 180
    return x


def feed(session: Session, tasks: Sequence[Sequence[int]], batches: int = 8, n: int = 6) -> None:
    """Task after task, `batches` batches of n images over the task's classes."""
    for t, classes in enumerate(tasks):
        begin(session, t)
        go_on(session, t, classes, range(batches), n)
        end(session, t, classes, batches, n)


def begin(session: Session, task: int) -> None:
    if session.learner.needs_tasks:
        session.learner.begin_task(task)


def go_on(session: Session, task: int, classes: Sequence[int], numbers: range, n: int = 6) -> None:
    """The batches of a task with these numbers."""
    for b in numbers:
        labels = _labels(classes, b, n)
        session.learn(images(labels, seed=1000 * task + b), labels, task=task)


def end(session: Session, task: int, classes: Sequence[int], batches: int, n: int = 6) -> None:
    if session.learner.needs_tasks:
        seen = [label for b in range(batches) for label in _labels(classes, b, n)]
        ids = torch.tensor(session.labels.encode(seen))
        session.learner.end_task(task, images(seen, seed=task), ids)


def _labels(classes: Sequence[int], b: int, n: int) -> list[int]:
    return [classes[(b + i) % len(classes)] for i in range(n)]


TWO_TASKS = ((3, 1), (0, 2))


def learns_from_any_label_order(kind: Kind) -> None:
    for order in ((0, 1), (1, 0), (7, 2), (5, 6)):
        session = make(kind)
        feed(session, [order], batches=60, n=10)
        labels = list(order) * 10
        ids = session.labels.encode(labels)
        answers = session.learner.scores(images(labels, seed=9)).argmax(1).tolist()
        right = sum(a == b for a, b in zip(answers, ids, strict=True))
        assert right >= 18, f"{kind.method} gets {right} of 20 right for the order {order}"


def never_sees_labels_in_advance(kind: Kind) -> None:
    session = make(kind)
    for known, labels in enumerate(([4, 4, 4], [4, 2, 4], [6, 2, 4]), start=1):
        session.learn(images(labels), labels, task=0)
        for name in session.learner.readouts():
            columns = session.learner.scores(images([0]), name).shape[1]
            assert columns == known, f"{name} of {kind.method}: {columns} columns, {known} classes"


def does_not_alter_its_input(kind: Kind) -> None:
    session = make(kind)
    for labels in ([1, 0, 1], [0, 2, 1]):
        x = images(labels)
        before = x.clone()
        session.learn(x, labels, task=0)
        assert torch.equal(x, before), f"{kind.method} alters the images it is given"
        session.learner.scores(x)
        assert torch.equal(x, before), f"{kind.method} alters the images it scores"


def bits(kind: Kind, seed: int) -> str:
    torch.rand(3)  # the global generator must play no part
    session = make(kind, seed=seed)
    feed(session, TWO_TASKS)
    return session.state().sha256()


def same_seed_same_bits(kind: Kind) -> None:
    same = bits(kind, 0) == bits(kind, 0)
    assert same, f"{kind.method} gives other bits for the same seed"


def other_seed_other_bits(kind: Kind) -> None:
    assert bits(kind, 0) != bits(kind, 1), f"{kind.method} ignores the seed"


def state_round_trips(kind: Kind) -> None:
    """A copy made from the state at a task's end goes on to the same bits."""
    first = make(kind)
    feed(first, TWO_TASKS)
    second = copy_of(first, kind)
    need_same(first, second, f"{kind.method}: loading changes the state")
    for session in (first, second):
        feed(session, ((5, 3),))
    need_same(first, second, f"{kind.method} goes on differently after loading its state")


def resumes_within_a_task(kind: Kind) -> None:
    """So does one made between two batches of a task, which is not told that the task began."""
    first, batches = make(kind), 9
    feed(first, TWO_TASKS[:1])
    begin(first, 1)
    go_on(first, 1, TWO_TASKS[1], range(4))
    second = copy_of(first, kind)
    for session in (first, second):
        go_on(session, 1, TWO_TASKS[1], range(4, batches))
        end(session, 1, TWO_TASKS[1], batches)
    where = "after loading its state in the middle of a task"
    need_same(first, second, f"{kind.method} goes on differently {where}")


def need_same(first: Session, second: Session, complaint: str) -> None:
    assert first.state().sha256() == second.state().sha256(), complaint


def copy_of(session: Session, kind: Kind) -> Session:
    """Another session that took up the state of this one."""
    state = session.state()
    tensors = {k: v.detach().clone() for k, v in state.tensors.items()}
    other = make(kind, seed=session.settings.seed)
    other.load(type(state)(tensors, dict(state.scalars)))
    return other


def scores_change_nothing(kind: Kind) -> None:
    session = make(kind)
    feed(session, TWO_TASKS)
    before = session.state().sha256()
    x = images([0, 1, 2, 3])
    for name in session.learner.readouts():
        first = session.learner.scores(x, name)
        assert torch.equal(first, session.learner.scores(x, name)), f"{name} differs when repeated"
        assert not first.isnan().any(), f"{name} of {kind.method} gives NaN"
    assert session.state().sha256() == before, f"scores of {kind.method} change its state"


def a_batch_of_one(kind: Kind) -> None:
    session = make(kind)
    for label in (2, 2, 0, 1):
        session.learn(images([label]), [label], task=0)
    assert session.learner.scores(images([1])).shape == (1, 3)


def a_class_that_never_comes_back(kind: Kind) -> None:
    session = make(kind)
    session.learn(images([7]), [7], task=0)
    feed(session, ((0, 1), (2, 3), (4, 5)), batches=20)
    for name in session.learner.readouts():
        scores = session.learner.scores(images([7, 0]), name)
        assert scores.shape == (2, 7), f"{name} of {kind.method} lost a class"
        assert not scores.isnan().any(), f"{name} of {kind.method} gives NaN for an absent class"


def memory_smaller_than_the_replay_batch(kind: Kind) -> None:
    if kind.settings_type().memory is None:
        return
    session = make(kind, memory=3, replay=64)
    feed(session, TWO_TASKS)
    memory = session.learner.memory
    assert len(memory) <= 3, f"{kind.method} keeps {len(memory)} images in a memory of 3"


def a_new_class_in_the_middle_of_a_task(kind: Kind) -> None:
    session = make(kind)
    begin(session, 0)
    for b, labels in enumerate(([0, 1, 0], [1, 0, 1], [0, 5, 1], [5, 5, 0])):
        session.learn(images(labels, seed=b), labels, task=0)
    assert session.learner.scores(images([5])).shape == (1, 3)


def forgets_a_class(kind: Kind) -> None:
    """Nothing with a row for each class keeps that of the class, and its name can come back."""
    session = make(kind)
    feed(session, TWO_TASKS)
    session.forget(1)
    assert session.labels.classes == [3, 0, 2]
    copy = copy_of(session, kind)  # a state with a row too many is refused
    for one in (session, copy):
        for name in one.learner.readouts():
            scores = one.learner.scores(images([0, 3]), name)
            assert scores.shape == (2, 3), f"{name} of {kind.method} keeps a class it forgot"
            assert not scores.isnan().any(), f"{name} of {kind.method} gives NaN after forgetting"
        feed(one, ((1, 2),))
        assert one.labels.classes == [3, 0, 2, 1]
    need_same(session, copy, f"{kind.method} goes on differently after forgetting")


def takes_a_new_label_for_an_old_image(kind: Kind) -> None:
    session = make(kind)
    feed(session, TWO_TASKS)
    session.relabel(images(_labels((3, 1), 0, 6))[:1], [3], [9])
    copy = copy_of(session, kind)
    for name in session.learner.readouts():
        scores = session.learner.scores(images([0, 3]), name)
        assert scores.shape == (2, 5), f"{name} of {kind.method} misses a class of new labels"
        assert not scores.isnan().any(), f"{name} of {kind.method} gives NaN for a new label"
    for one in (session, copy):
        feed(one, ((9, 2),))
    need_same(session, copy, f"{kind.method} goes on differently after a label was mended")


CHECKS: tuple[Callable[[Kind], None], ...] = (
    learns_from_any_label_order, never_sees_labels_in_advance, does_not_alter_its_input,
    same_seed_same_bits, other_seed_other_bits, state_round_trips, resumes_within_a_task,
    scores_change_nothing, a_batch_of_one, a_class_that_never_comes_back,
    memory_smaller_than_the_replay_batch, a_new_class_in_the_middle_of_a_task, forgets_a_class,
    takes_a_new_label_for_an_old_image,
)  # fmt: skip


def check_learner(kind: Kind) -> None:
    """Run every check on a learner class."""
    for check in CHECKS:
        check(kind)
