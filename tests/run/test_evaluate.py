"""Counts per class against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocil.learners.er import ErSettings
from ocil.run import evaluate as module
from ocil.run.evaluate import evaluate
from ocil.session import Session

SHAPE = (1, 4, 4)


def taught(seen: list[int]) -> Session:
    session = Session("er", ErSettings(width=6, memory=20, ema=0.5, lr=0.01), SHAPE)
    draw = np.random.default_rng(0)
    for _ in range(6):
        session.learn(draw.integers(0, 256, (len(seen), *SHAPE), dtype=np.uint8), seen)
    return session


def test_counts_per_class_and_read_out_against_a_loop() -> None:
    session = taught([4, 1, 2])
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (60, *SHAPE), dtype=np.uint8)
    labels = draw.integers(0, 5, 60)
    rows = evaluate(session, images, labels, 6, list(session.learner.readouts()))
    assert [row["readout"] for row in rows] == list(session.learner.readouts())
    for row in rows:
        correct, total = [0] * 6, [0] * 6
        for image, label in zip(images, labels.tolist(), strict=True):
            if label in (4, 1, 2):
                scores = session.learner.scores(torch.from_numpy(image[None]), row["readout"])
                answer = session.labels.decode([int(scores.argmax())])[0]
                total[label] += 1
                correct[label] += answer == label
        assert row["correct"] == correct
        assert row["total"] == total
        assert total[0] == total[3] == total[5] == 0
        assert sum(correct) > 0


def test_chunks_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    session = taught([0, 1])
    images = np.random.default_rng(2).integers(0, 256, (37, *SHAPE), dtype=np.uint8)
    labels = np.arange(37) % 2
    whole = evaluate(session, images, labels, 2, ["head"])
    monkeypatch.setattr(module, "CHUNK", 5)
    assert evaluate(session, images, labels, 2, ["head"]) == whole


def test_evaluation_changes_no_state() -> None:
    session = taught([0, 1])
    before = session.state().sha256()
    images = np.zeros((4, *SHAPE), np.uint8)
    evaluate(session, images, np.array([0, 1, 0, 1]), 2, session.learner.readouts())
    assert session.state().sha256() == before


def test_no_image_of_a_seen_class() -> None:
    rows = evaluate(taught([3]), np.zeros((2, *SHAPE), np.uint8), np.array([0, 1]), 4, ["head"])
    assert rows == [{"readout": "head", "correct": [0] * 4, "total": [0] * 4}]
