"""The real files, against the facts published or recorded about them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ocil.data import SOURCES, load
from ocil.data.check import check

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give one cache to all tests of this file: each data set is decoded once."""
    folder = tmp_path_factory.mktemp("decoded")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def shared_cache(own_cache: Path, decoded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the cache of the single test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(decoded))


@pytest.mark.parametrize(
    "name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet-20"]
)
def test_real_data_pass_their_check(real_data: Callable[[str], Path], name: str) -> None:
    root = real_data(name)
    report = check(name, root)
    assert report.ok, [finding for finding in report.findings if finding.ok is False]
    source, dataset = SOURCES[name], load(name, root)
    assert dataset.train_images.shape == (source.train, *source.shape)
    assert dataset.test_images.shape == (source.test, *source.shape)


def test_mnist_content_is_the_published_one(real_data: Callable[[str], Path]) -> None:
    findings = {f.what: f.ok for f in check("mnist", real_data("mnist")).findings}
    for file in SOURCES["mnist"].files:
        assert findings[file.name] is True


@pytest.mark.parametrize(
    ("name", "first"),
    [("cifar10", [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]), ("cifar100", [19, 29, 0, 11, 1])],
)
def test_cifar_is_in_the_published_order(
    real_data: Callable[[str], Path], name: str, first: list[int]
) -> None:
    dataset = load(name, real_data(name))
    assert dataset.train_labels[: len(first)].tolist() == first
    assert isinstance(dataset.train_images, np.memmap)


def test_tiny_20(real_data: Callable[[str], Path]) -> None:
    dataset = load("tiny-imagenet-20", real_data("tiny-imagenet-20"))
    assert np.bincount(dataset.train_labels).tolist() == [500] * 20
    assert np.bincount(dataset.test_labels).tolist() == [50] * 20
    assert dataset.class_names[:2] == ("goldfish", "centipede")
    assert len(set(dataset.class_names)) == 20


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "tiny-imagenet-20"])
def test_mean_and_deviation_are_those_of_the_training_images(
    real_data: Callable[[str], Path], name: str
) -> None:
    images, source = load(name, real_data(name)).train_images, SOURCES[name]
    for channel, (mean, std) in enumerate(zip(source.mean, source.std, strict=True)):
        counts = np.bincount(images[:, channel].ravel(), minlength=256)
        values = np.arange(256) / 255
        found = np.average(values, weights=counts)
        assert found == pytest.approx(mean, abs=1e-4)
        square = np.average((values - found) ** 2, weights=counts)
        assert np.sqrt(square) == pytest.approx(std, abs=1e-4)
