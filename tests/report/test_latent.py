"""Latent pictures: what is embedded, what a page is given, and files that do not belong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.report import latent
from ocil.report.charts import Chart
from ocil.report.runs import read_runs
from ocil.run.latentfile import Latents, dump

Make = Callable[..., dict[str, Any]]
NAMES = ["zero", "one", "two"]


def blobs(each: int = 30, dims: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Three classes far from each other: points (3 each, dims), labels."""
    draw = np.random.default_rng(1)
    labels = np.repeat(np.arange(3), each).astype(np.int32)
    middles = 20 * np.eye(3, dims)[labels]
    return (middles + draw.normal(size=middles.shape)).astype(np.float32), labels


def content(job: str = "cd" * 32, **changes: Any) -> Latents:
    points, labels = blobs()
    note = {"method": "otc", "data": "mnist", "job": job, "readout": "ema-head"}
    means = np.stack([points[labels == c].mean(0) for c in range(3)])
    ones = np.ones(3, np.float32)
    made = Latents(
        note | {"class_names": NAMES}, points, labels, means, np.arange(3, dtype=np.int32), ones,
        None,
    )  # fmt: skip
    return made._replace(**changes)


@pytest.fixture
def kept(
    tmp_path: Path, make_record: Make, write_record: Callable[[Path, Any], Path]
) -> Callable[..., Path]:
    """A run folder with a record and latents."""

    def make(name: str, latents: Latents | bytes | None = None, **changes: Any) -> Path:
        write_record(tmp_path / name, make_record("otc", **changes))
        blob = latents if isinstance(latents, bytes) else dump(latents or content())
        (tmp_path / name / "latents.safetensors").write_bytes(blob)
        return tmp_path / name

    return make


def pictures(folder: Path, points: int = latent.POINTS, skip_bad: bool = False) -> list[Chart]:
    kept = latent.find_latents(read_runs([folder]), skip_bad)
    return [
        latent.latent_chart(k, t, points) for k, t in zip(kept, latent.titles(kept), strict=True)
    ]


def test_a_series_for_each_class_and_its_centroids(kept: Callable[..., Path]) -> None:
    folder = kept("a")
    (found,) = pictures(folder)
    assert found.title == "otc, mnist, memory 500"
    told = [(s.name, len(s.x), s.look, bool(s.notes)) for s in found.series]
    assert told[:3] == [(name, 30, look, False) for look, name in enumerate(NAMES)]
    assert told[3:] == [(name, 1, look, True) for look, name in enumerate(NAMES)]
    places = np.array([[*zip(s.x, s.y, strict=True)] for s in found.series[:3]])  # (class, 30, 2)
    assert max(abs(v) for s in found.series for v in (*s.x, *s.y)) == pytest.approx(1.0, abs=1e-3)
    # every mark is nearest to the centroid of its own class: all were embedded together
    middles = np.array([[s.x[0], s.y[0]] for s in found.series[3:]])
    distance = ((places[:, :, None] - middles) ** 2).sum(-1)
    assert (distance.argmin(-1) == np.arange(3)[:, None]).all()
    assert pictures(folder) == [found]
    assert [chart.title for chart in latent.clouds(read_runs([folder]))] == [found.title]


def test_runs_are_told_apart_by_what_differs(kept: Callable[..., Path], tmp_path: Path) -> None:
    kept("a", settings={"components": 1})
    kept("b", settings={"components": 4})
    kept("c", settings={"components": 4}, data="digits")
    titles = [chart.title for chart in pictures(tmp_path, points=9)]
    assert titles == [
        "otc, mnist, memory 500, components=1",
        "otc, mnist, memory 500, components=4",
        "otc, digits, memory 500",
    ]
    kept("d", seed=3)
    assert "seed 3" in pictures(tmp_path, points=9)[-1].title


def test_a_run_without_latents_has_no_picture(
    tmp_path: Path, make_record: Make, write_record: Callable[[Path, Any], Path]
) -> None:
    write_record(tmp_path / "a", make_record())
    assert pictures(tmp_path) == []
    assert latent.clouds(read_runs([tmp_path])) == []


def test_hostile_names_are_one_visible_line(kept: Callable[..., Path]) -> None:
    note = content().note | {"class_names": ["a\nb\x1b[31m", "b" * 200, "\u202ec"]}
    names = [s.name for s in pictures(kept("a", content(note=note)), points=9)[0].series]
    assert names[0] == "a\\x0ab\\x1b[31m"
    assert max(map(len, names)) <= 40
    assert "\u202e" not in "".join(names)


@pytest.mark.parametrize(
    ("latents", "said"),
    [
        (b"no", "cut off"),
        (content(job="00" * 32), "belongs to another run"),
        (content(features=np.full((90, 5), np.nan, np.float32)), "NaN"),
    ],
)
def test_a_bad_file_is_one_sentence_or_left_out(
    kept: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    latents: Any,
    said: str,
) -> None:
    kept("bad", latents)
    kept("good")
    with pytest.raises(OcilError, match=said) as caught:
        pictures(tmp_path)
    assert "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING):
        assert len(pictures(tmp_path, points=9, skip_bad=True)) == 1
    assert said in caplog.text


# ------------------------------------------------------------------ embedding


def test_classes_stay_together_and_the_same_points_give_the_same_places() -> None:
    points, labels = blobs()
    places = latent.embed(points)
    assert np.array_equal(places, latent.embed(points))
    assert places.shape == (90, 2)
    middles = np.stack([places[labels == c].mean(0) for c in range(3)])
    nearest = ((places[:, None] - middles) ** 2).sum(2).argmin(1)
    assert np.array_equal(nearest, labels)


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((1, 3)),
        np.zeros((40, 3)),
        np.arange(3.0)[:, None],
        np.arange(40.0)[:, None],
        np.repeat([[0.0, 1.0]], 5, 0),
        np.full((40, 2), 1e30),
        np.eye(7),
    ],
)
def test_few_or_equal_points_have_a_place_too(points: np.ndarray) -> None:
    places = latent.embed(points.astype(np.float32))
    assert places.shape == (len(points), 2)
    assert np.isfinite(places).all()
    assert np.abs(places).max() <= 1 + 1e-9


def test_principal_directions_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(1, 7)
    oracle = PCA(3, svd_solver="full").fit(points)
    found, kept = latent.principal(points, 3)
    assert np.allclose(np.abs(found), np.abs(oracle.transform(points)))
    assert kept == pytest.approx(oracle.explained_variance_ratio_.sum())
    assert latent.principal(np.ones((4, 2)), 5)[1] == 1.0


def test_a_subset_is_balanced() -> None:
    labels = np.array([0] * 50 + [1] * 3 + [2] * 20, np.int32)
    chosen = latent.balanced(labels, 23)
    assert np.bincount(labels[chosen]).tolist() == [10, 3, 10]
    assert latent.balanced(labels, 1000).tolist() == list(range(73))


def test_many_centroids_and_classes_take_no_longer(kept: Callable[..., Path]) -> None:
    """t-SNE of 20 000 centroids took 25 seconds; as many are drawn as features at most."""
    count = 20_000
    draw = np.random.default_rng(0)
    many = content(
        centroids=draw.normal(size=(count, 5)).astype(np.float32),
        centroid_labels=(np.arange(count) % 3).astype(np.int32),
        weights=np.ones(count, np.float32),
    )
    (found,) = pictures(kept("a", many), points=60)
    assert [len(s.x) for s in found.series] == [20] * 6


def test_choosing_points_is_not_quadratic_in_the_classes() -> None:
    classes = np.arange(60_000, dtype=np.int32).repeat(2)
    began = time.process_time()
    assert latent.balanced(classes, 60_000).tolist() == list(range(0, 120_000, 2))
    assert time.process_time() - began < 2
