from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ocil.data import load
from ocil.data.find import cache_root, roots
from ocil.errors import OcilError


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(OcilError, match="Did you mean 'mnist'"):
        load("mnits")


def test_missing_data_names_command_files_and_folder(
    tmp_path: Path, one_sentence: Callable[..., None]
) -> None:
    with pytest.raises(OcilError) as caught:
        load("mnist", tmp_path)
    one_sentence(
        caught.value, "`ocil data get mnist`", "train-images-idx3-ubyte.gz", str(tmp_path / "mnist")
    )
    with pytest.raises(OcilError) as caught:
        load("tiny-imagenet-20", tmp_path)
    one_sentence(caught.value, "put tiny-imagenet-20.zip", str(tmp_path / "tiny-imagenet-20"))
    assert "data get" not in str(caught.value)


def test_one_missing_file_is_named(make_idx: Callable[..., Path]) -> None:
    root = make_idx()
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(OcilError, match=r"lacks t10k-labels-idx1-ubyte\.gz;"):
        load("mnist", root)


def test_search_order(
    make_idx: Callable[..., Path], own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_idx()
    with pytest.raises(OcilError, match="not in"):
        load("mnist")
    monkeypatch.setenv("OCIL_DATA", str(root))
    assert roots(None) == (root, own_cache)
    assert len(load("mnist").train_images) == 20
    with pytest.raises(OcilError, match="not in"):  # a given folder is the only one searched
        load("mnist", tmp_path / "elsewhere")
    own_cache.mkdir(parents=True)
    (root / "mnist").rename(own_cache / "mnist")
    assert len(load("mnist").train_images) == 20


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", "/home/person")
    assert cache_root() == Path("/home/person/.cache/ocil")


def test_unreadable_file(make_idx: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_idx()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ocil.data.idx.open_plain_or_gzip", refuse)
    with pytest.raises(OcilError, match=r"Cannot read .*Permission denied.*may read\."):
        load("mnist", root)
