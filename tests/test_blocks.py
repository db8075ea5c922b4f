"""Learning in blocks: whatever the workers, blocks and order, the model of one machine."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from ocil import modelfile
from ocil.blocks import Tally, absorb, check_countable, count_first, plan_work, tally
from ocil.classifier import Classifier
from ocil.data.own import Part, read_own
from ocil.data.pieces import Pieces, Reading, find_pieces
from ocil.errors import OcilError
from ocil.merging import statistics
from ocil.modelfile import Learned
from ocil.moments import ClassMoments
from ocil.moments.schedule import schedule
from ocil.samples import Form

METHODS: dict[str, dict[str, Any]] = {
    "slda": {"memory": None},
    "slda-memory": {"memory": 40},
    "ncm": {"memory": None},
    "ranpac": {"memory": None},
    "fecam": {"memory": None},
    "knn": {"memory": 40},
    "otc": {"memory": 40, "net": "mlp", "anchor": "patches", "anchor_width": 20, "updates": 1},
}


@pytest.fixture(scope="module")
def data() -> Part:
    found = load_digits()
    order = np.random.default_rng(0).permutation(1797)
    x, y = (found.images * 15).astype(np.uint8)[order, None], found.target[order]
    return Part(x, [f"class {label}" for label in y])


def new(method: str) -> Classifier:
    usual = {"net": "patches", "width": 20}
    return Classifier(method.partition("-")[0], **usual | METHODS[method])


def in_blocks(model: Classifier, part: Part, first: int, size: int, seed: int) -> None:
    """As workers do it: in any order, by copies of the model, the results sent as bytes."""
    now = model._learned
    if now is None:
        form = Form.of(part.items)
        now = model._learned = Learned(model._begin(form.shape), form, "auto")
        count_first(now, torch.from_numpy(part.items[:first]), part.labels[:first])
    work = plan_work(now, len(part.labels) - first)
    blob = modelfile.dump(*modelfile.content_of(now, memory=False))
    pieces = Pieces(len(part.labels), part=part)
    cut = list(pieces.cut(np.arange(len(part.labels)), first, len(part.labels), size))
    results = []
    for i in np.random.default_rng(seed).permutation(len(cut)):
        model = modelfile.restore(modelfile.parse(blob), None)  # pyright: ignore
        found, at = cut[i].read(Reading())
        result = tally(model, work, found, at + work.plan.start - first)  # pyright: ignore
        results.append(pickle.loads(pickle.dumps(result)))
    absorb(now, work, functools.reduce(Tally.add, results))


def state(model: Classifier) -> dict[str, torch.Tensor]:
    found = {}
    for part in statistics(model._fitted().session.learner).values():
        found |= part.state_dict()
    return found


@pytest.mark.parametrize(
    "method",
    [m if m[0] in "so" else pytest.param(m, marks=pytest.mark.slow) for m in METHODS],
)
@pytest.mark.parametrize("size", [37, pytest.param(900, marks=pytest.mark.slow)])
def test_blocks_in_any_order_make_the_model_of_one_machine(
    data: Part, method: str, size: int
) -> None:
    late = [f"late {y}" if i > 700 and i % 7 == 0 else y for i, y in enumerate(data.labels[:1400])]
    part = Part(data.items[:1400], late)  # some classes come while blocks are counted
    model, alone = new(method), new(method)
    in_blocks(model, part, 300, size, seed=size)
    alone.partial_fit(*part).flush()
    assert model.classes_.tolist() == alone.classes_.tolist()
    assert model.counts_ == alone.counts_
    mine, theirs = state(model), state(alone)
    for name, value in theirs.items():
        assert mine[name].shape == value.shape, name
        scale = float(value.double().abs().max()) if value.numel() else 0.0
        torch.testing.assert_close(mine[name], value, rtol=1e-5, atol=1e-5 * scale, msg=name)
    memory, held = (m._fitted().session.learner.memory for m in (model, alone))
    assert memory.seen == held.seen and len(memory) == len(held)
    if method != "otc":
        assert memory.labels == held.labels
        assert model.predict(data.items).tolist() == alone.predict(data.items).tolist()
        assert model._fitted().session.step == alone._fitted().session.step
    else:
        assert model._fitted().session.learner.readout == "anchor"


@pytest.mark.parametrize("method", ["slda", "slda-memory"])
def test_a_model_goes_on_after_blocks_and_blocks_after_it(data: Part, method: str) -> None:
    model, alone = new(method), new(method)
    for each in (model, alone):
        each.partial_fit(data.items[:333], data.labels[:333]).flush()
    in_blocks(model, Part(data.items[333:1500], data.labels[333:1500]), 0, 100, seed=1)
    model.partial_fit(data.items[1500:], data.labels[1500:])
    alone.partial_fit(data.items[333:], data.labels[333:])
    model.flush()
    alone.flush()
    assert model.predict(data.items).tolist() == alone.predict(data.items).tolist()
    assert model._fitted().session.learner.memory.labels == (
        alone._fitted().session.learner.memory.labels
    )


@pytest.mark.parametrize("more", [1, 7, 300, 304, 1000, 2500, 6000])
@pytest.mark.parametrize("known", [0, 1, 50, 1234])
def test_the_schedule_is_that_of_sums_that_count_one_by_one(known: int, more: int) -> None:
    z = torch.randn(known + more, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(known + more) % 3
    sums = ClassMoments(2)
    if known:
        sums.add(z[:known], y[:known])
    plan = schedule(sums, more, memory=False)
    before = int(sums.choice[1])
    sums.add(z[known:], y[known:])
    assert plan.entered == sums.total - sums.pending
    assert (plan.choice or before) == int(sums.choice[1])
    assert plan.share == float(sums.choice[2])
    at = sums.kept.kept_at.numpy()
    assert plan.kept(at[at >= known]).all()


def test_methods_that_train_are_refused() -> None:
    with pytest.raises(OcilError, match="Method er trains a net, which blocks in any order cannot"):
        check_countable(Classifier("er", net="mlp")._begin((1, 8, 8)).learner)


def test_pieces_of_shards_and_of_pictures_are_all_samples_once(data: Part, tmp_path: Path) -> None:
    from PIL import Image

    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    shards, tables, pictures = (tmp_path / name for name in ("npz", "tables", "pictures"))
    for folder in (shards, tables, pictures):
        folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(100), 3)):
        x, y = data.items[rows, 0], [data.labels[j] for j in rows]
        np.savez(shards / f"{i}.npz", x=x, y=y)
        flat = [row.ravel().astype(float).tolist() for row in x]
        table = pyarrow.table({"x": flat, "label": y})
        pyarrow.parquet.write_table(table, tables / f"{i}.parquet")
        for j in rows:
            place = pictures / data.labels[j] / f"{j}.png"
            place.parent.mkdir(exist_ok=True)
            Image.fromarray(data.items[j, 0]).save(place)
    for path in (shards, tables, pictures):
        whole = read_own(path)["train"]
        order = np.random.default_rng(1).permutation(100)
        pieces = find_pieces(path, Reading())
        assert pieces.total == 100
        for start, end in ((0, 13), (13, 100)):
            seen = []
            for piece in pieces.cut(order, start, end, 17):
                part, at = piece.read(Reading())
                assert len(at) <= 17
                np.testing.assert_array_equal(part.items, whole.items[order[at]])
                assert part.labels == [whole.labels[i] for i in order[at]]
                seen += at.tolist()
            assert sorted(seen) == list(range(start, end))


def test_shards_that_differ_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), np.float32), y=[0, 1, 2])
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 4), np.float32), y=[0, 1, 2])
    with pytest.raises(OcilError, match="its files differ"):
        read_own(tmp_path)
