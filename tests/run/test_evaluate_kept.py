"""Features of a fixed encoder are computed once for each evaluation image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ocil import checks
from ocil.learners import registry
from ocil.run.evaluate import KeptFeatures, evaluate

LABELS = np.array([3, 1, 0, 2] * 5)
IMAGES = checks.images(LABELS.tolist(), seed=7).numpy()


def counts(session: Any, kept: KeptFeatures | None) -> list[dict[str, Any]]:
    names = list(session.learner.readouts())
    return evaluate(session, IMAGES, LABELS, 4, names, kept, np.arange(len(LABELS)))


@pytest.mark.parametrize(
    ("method", "more"), [("slda", {"net": "patches"}), ("er", {"anchor": "patches"})]
)
def test_each_image_is_encoded_once_while_the_encoder_stays(
    method: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, kept = checks.make(registry.get(method), **more), KeptFeatures(len(LABELS))
    checks.feed(session, checks.TWO_TASKS, batches=5)  # 60 samples
    (encoder,) = session.learner.fixed.values()
    assert counts(session, kept) == counts(session, None)
    encoded = []
    plain = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda x: encoded.append(len(x)) or plain(x))
    assert counts(session, kept)
    assert not encoded
    checks.feed(session, ((0, 1),), batches=50)  # 300 more: another encoder
    encoded.clear()
    assert counts(session, kept) == counts(session, None)
    assert sum(encoded) >= len(LABELS)
    assert kept.nbytes == len(LABELS) * 4 * next(iter(kept.rows.values())).shape[1]


def test_images_of_a_part_have_their_own_numbers() -> None:
    session, kept = checks.make(registry.get("slda"), net="patches"), KeptFeatures(len(LABELS))
    checks.feed(session, checks.TWO_TASKS, batches=5)
    x = torch.from_numpy(IMAGES)
    learner: Any = session.learner
    wanted = learner.encoder.encode(x)
    for chosen in (np.array([7, 2]), np.array([2, 3, 11]), np.arange(20)):
        found = kept.of(learner, x[torch.from_numpy(chosen)], chosen)["fixed"]
        assert torch.equal(found, wanted[torch.from_numpy(chosen)])


def test_more_than_fits_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptFeatures, "MOST", 1000)
    session, kept = checks.make(registry.get("slda"), net="patches"), KeptFeatures(len(LABELS))
    checks.feed(session, checks.TWO_TASKS, batches=5)
    assert counts(session, kept) == counts(session, None)
    assert kept.nbytes == 0
