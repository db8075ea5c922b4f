"""`ocil learn --on ray`: the model of one machine, also when a node is lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import ocil as package
from ocil.commands import learn_ray
from ocil.merging import statistics

Ocil = Callable[..., Any]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """1 500 digits of 16 pixels a side in six files, and the rest in another."""
    found = load_digits()
    x, y = (found.images * 15).astype(np.uint8).repeat(2, 1).repeat(2, 2), found.target
    (tmp_path / "shards").mkdir()
    for i, rows in enumerate(np.array_split(np.arange(1500), 6)):
        np.savez(tmp_path / "shards" / f"{i}.npz", x=x[rows], y=y[rows])
    np.savez(tmp_path / "test.npz", x=x[1500:], y=y[1500:])
    return tmp_path / "shards"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "slurm"), "--on is 'slurm' but must be local, ray or ray:ADDRESS"),
        (("--on", "local:1"), "--on is 'local:1' but must be"),
    ],
)
def test_bad_words(ocil: Ocil, shards: Path, words: tuple[str, ...], said: str) -> None:
    found = ocil("learn", shards, "--model", shards.parent / "a.ocil", *words)
    assert found.is_sentence(), found
    assert said in found.err


@pytest.mark.slow
def test_a_node_is_killed_and_no_sample_is_lost_or_counted_twice(
    two_nodes: Any, ocil: Ocil, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, killed = learn_ray._Lesson._tasks, list[int]()

    def tasks(*given: Any) -> Iterator[Any]:
        for count, result in enumerate(usual(*given), start=1):
            yield result
            if count == 3:  # others are under way, and results lie on both nodes
                (node,) = two_nodes.worker_nodes
                two_nodes.remove_node(node, allow_graceful=False)
                killed.append(count)

    monkeypatch.setattr(learn_ray._Lesson, "_tasks", tasks)
    first, rest = shards.parent / "first.ocil", shards.parent / "rest.npz"
    there, here = shards.parent / "there.ocil", shards.parent / "here.ocil"
    x, y = (np.load(shards / "0.npz")[name] for name in "xy")
    np.savez(rest, x=x, y=y)
    maker = package.Classifier("slda", memory=None, net="patches", width=60)
    maker.partial_fit(x, y).partial_fit(x[:60], y[:60]).save(first)
    on = ("--on", f"ray:{two_nodes.address}")
    found = ocil("learn", shards, "--model", there, "--encoder-of", first, *on)
    assert found.code == 0, found.err
    assert killed == [3]
    assert ocil("learn", shards, "--model", here, "--encoder-of", first).code == 0
    one, other = package.load(there), package.load(here)
    assert one.counts_ == other.counts_ and sum(one.counts_.values()) == 1500
    mine, theirs = (
        next(iter(statistics(m._fitted().session.learner).values())).state_dict()
        for m in (one, other)
    )
    for name, value in theirs.items():
        scale = float(value.double().abs().max())
        torch.testing.assert_close(mine[name], value, rtol=1e-5, atol=1e-5 * scale, msg=name)
    test = np.load(shards.parent / "test.npz")["x"]
    assert one.predict(test).tolist() == other.predict(test).tolist()
