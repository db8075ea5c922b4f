"""Draws the settings of preset `paper` that its search tries, and writes the study.

    python bench/search_paper.py > src/ocil/study/paper/tune-paper-mnist.toml

The paper names no hyper-parameter. Forty random settings (seed 0) of all that it leaves open are
tried on held-out images of MNIST, 500 a class; `ocil study tune-paper-mnist` runs them.
"""

from __future__ import annotations

import random
from typing import Any

TRIALS = 40
OPEN: dict[str, list[Any]] = {
    "lr": [5e-4, 1e-3, 2e-3],
    "updates": [1, 2, 3],  # "some initial training steps"
    "components": [2, 3, 4],
    "preserve": [0.1, 0.3, 1.0],
    "tau": [0.1, 0.2, 0.5, 1.0],
    "preserve_form": ["printed", "printed-others"],
    "features": ["unit", "raw"],
    "admission": ["printed", "reservoir"],  # "some closest data points": one a centroid, or fewer
    "dual.cost": ["mahalanobis", "euclidean"],
    "dual.eps": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    "dual.phi": ["class", "shared"],
    "dual.ascents": [1, 3, 5, 10],
    "dual.descents": [1, 3, 5, 10],
    "dual.optimizer": ["adam", "adam", "adam", "sgd"],
    "dual.rate_phi": [0.003, 0.01, 0.03],
    "dual.rate_mu": [0.02, 0.05, 0.1, 0.2],
    "dual.rate_sigma": [0.002, 0.01, 0.03],
    "dual.floor": [1e-3, 0.1, 0.25, 0.5, 1.0],
}
HEAD = """# What the paper leaves open, chosen on held-out training images: forty random settings of preset
# `paper` (drawn by bench/search_paper.py), then the best eight with two more seeds.
name = "tune-paper-mnist"

[base]
method = "otc"
preset = "paper"
data = "mnist"
limit_per_class = 500
memory = 500
validate = true
eval_every = 0
seed = 100
"""


def drawn(draw: random.Random) -> dict[str, Any]:
    return {name: draw.choice(values) for name, values in OPEN.items()}


def main() -> None:
    draw = random.Random(0)
    print(HEAD, end="")
    for number in range(1, TRIALS + 1):
        print(f"\n[[grid]]  # {number}")
        for name, value in drawn(draw).items():
            key = f'"{name}"' if "." in name else name
            print(f"{key} = {value!r}".replace("'", '"'))


if __name__ == "__main__":
    main()
