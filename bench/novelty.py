"""How well what is unknown is told: `python bench/novelty.py [DATA ...] [--seeds 100 101]`.

Methods learn a stream class by class; asked are held-out training items (every fifth) of its
classes and items of none: of clinc150 those out of scope, of digits and MNIST three classes that
never came, drawn by the seed. Printed are, in percent and as means over the seeds, AUROC and the
share of unknown items that pass where 95 % of known ones do (FPR95), by `novelty` and, for the same
scores, by the largest softmax and by the energy -log sum exp; and the share of known items that
`predict(unknown=...)` flags, which is to be 5. No test item is read.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import ocil
from ocil.data.find import roots

METHODS = {
    "slda": {"method": "slda"},
    "otc": {"method": "otc"},
    "otc, no anchor": {"method": "otc", "anchor": "none"},
}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x, y to learn; known, unknown


def clinc() -> Split:
    """All 150 intents, and the first half of what is out of scope."""
    places = (root / "clinc150" / "clinc150.npz" for root in roots(None))
    with np.load(next(place for place in places if place.exists())) as found:
        x, y = found["x_train"].astype(np.float32), found["y_train"]
        unknown = found["x_unknown"].astype(np.float32)[:500]
    held = np.arange(len(y)) % 5 == 0
    return x[~held], y[~held], x[held], unknown


def without_three(name: str, seed: int, most: int) -> Split:
    """Seven classes, at most so many items of each."""
    data = ocil.load_data(name)
    strange = np.random.default_rng(seed).permutation(10)[:3]
    labels = data.train_labels
    rows = np.concatenate([np.flatnonzero(labels == c)[:most] for c in range(10)])
    x, y = data.train_images[rows], labels[rows]
    known, held = ~np.isin(y, strange), np.arange(len(y)) % 5 == 0
    return x[known & ~held], y[known & ~held], x[known & held], x[~known]


def figures(known: np.ndarray, unknown: np.ndarray) -> tuple[float, float]:
    """AUROC and FPR95 in percent."""
    truth = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    auroc = roc_auc_score(truth, np.r_[known, unknown])
    return 100 * float(auroc), 100 * float((unknown <= np.quantile(known, 0.95)).mean())


def one(split: Split, seed: int, given: dict[str, Any]) -> list[float]:
    """Three pairs of figures, and the share of known items that is flagged."""
    x, y, known, unknown = split
    classes, ids = np.unique(y, return_inverse=True)
    order = np.argsort(np.random.default_rng(seed).permutation(len(classes))[ids], kind="stable")
    model = ocil.Classifier(memory=500, seed=seed, **given).partial_fit(x[order], y[order]).flush()
    found: list[float] = []
    parts = (known, unknown)
    scores = [torch.from_numpy(model.scores(part)).double() for part in parts]
    ways = [
        [model.novelty(part) for part in parts],
        [-s.log_softmax(1).amax(1).numpy() for s in scores],
        [-s.logsumexp(1).numpy() for s in scores],
    ]
    for way in ways:
        found += figures(*way)
    return [*found, 100 * float((ways[0][0] > model.novelty_threshold()).mean())]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", default=["clinc150", "digits", "mnist"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':26}{'novelty':>14}{'max-softmax':>14}{'energy':>14}{'flagged':>9}")
    for name in options.data:
        for method in options.methods:
            plain = name == "clinc150" and method == "slda"  # vectors as they are
            given = METHODS[method] | ({"net": "identity"} if plain else {})
            rows = []
            for seed in options.seeds:
                split = clinc() if name == "clinc150" else without_three(name, seed, 500)
                rows.append(one(split, seed, given))
            mean = np.mean(rows, 0)
            pairs = "".join(f"{mean[i]:8.1f}{mean[i + 1]:6.1f}" for i in (0, 2, 4))
            print(f"{name:10}{method:16}{pairs}{mean[6]:9.1f}", flush=True)


if __name__ == "__main__":
    main()
