"""What is unknown: novelty, its threshold, and the label that stands for no class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ocil
from ocil.errors import OcilError

DRAW = np.random.default_rng(0)
CENTRES = 4 * DRAW.normal(size=(5, 8))


def points(label: int, count: int) -> np.ndarray:
    return (CENTRES[label] + DRAW.normal(size=(count, 8))).astype(np.float32)


ORDER = DRAW.permutation(2400) % 4
X = np.stack([points(c, 1)[0] for c in ORDER])
TEST = np.concatenate([points(c, 100) for c in range(4)])
STRANGE = points(4, 200)

WAYS: list[dict[str, Any]] = [
    {"method": "slda", "net": "identity"},
    {"method": "slda", "net": "identity", "memory": None},
    {"method": "er", "anchor": "random", "anchor_width": 40, "readout": "fused", "width": 8},
    {"method": "er", "width": 16, "lr": 1e-2},
    {"method": "otc", "width": 16, "lr": 5e-3},
    {"method": "otc", "net": "identity", "anchor_width": 100},
    {"method": "ncm", "net": "identity", "memory": None},
    {"method": "fecam", "net": "identity", "memory": None},
    {"method": "knn", "net": "identity"},
    {"method": "logistic", "net": "identity"},
    {"method": "ranpac", "net": "random", "memory": None, "width": 60},
]


@pytest.mark.parametrize("given", WAYS, ids=lambda g: "-".join(map(str, g.values())))
def test_a_class_that_never_came_is_told_from_known_ones(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    model = ocil.Classifier(**given).partial_fit(X, ORDER)
    before = model.state_sha256()
    known, strange = model.novelty(TEST), model.novelty(STRANGE)
    assert known.shape == (400,)
    auroc = (known[:, None] < strange).mean() + (known[:, None] == strange).mean() / 2
    least = {"er": 0.9 if "anchor" in given else 0.6, "ranpac": 0.8, "logistic": 0.6}
    assert auroc > least.get(given["method"], 0.9), auroc
    said = model.predict(TEST, unknown=-1)
    flagged = float((said == -1).mean())
    assert flagged < 0.12, flagged  # 5 % of known ones are wanted
    assert (said[said != -1] == model.predict(TEST)[said != -1]).all()
    assert (model.predict(STRANGE, unknown=-1) == -1).mean() > flagged
    assert model.state_sha256() == before
    model.save(tmp_path / "m.ocil")
    again = ocil.load(tmp_path / "m.ocil")
    assert again.novelty_threshold() == model.novelty_threshold()


def test_a_handful_of_samples_tells_nothing_of_the_unknown() -> None:
    model = ocil.Classifier("er", width=8).partial_fit(X[:20], ORDER[:20])
    with pytest.raises(OcilError, match="cannot be told from 0 samples; give 20 or more"):
        model.predict(TEST, unknown=-1)
    with pytest.raises(OcilError, match="several kinds"):
        model.predict(TEST, unknown="?")
    assert model.predict(TEST).shape == (400,)


def test_the_share_of_known_samples_that_is_flagged_is_5_percent() -> None:
    model = ocil.Classifier("slda", net="identity").partial_fit(X, ORDER)
    fresh = np.concatenate([points(c, 1000) for c in range(4)])
    assert 0.03 < (model.predict(fresh, unknown=-1) == -1).mean() < 0.07


def test_fit_announces_classes_that_no_sample_has_come_of() -> None:
    model = ocil.Classifier("er", width=8).fit(np.eye(4, dtype=np.float32), [0, 1, 2, 3])
    assert model._fitted().arrivals == []
    model.partial_fit(X[:10, :4], ORDER[:10])
    assert model.classes_.tolist() == [0, 1, 2, 3]
