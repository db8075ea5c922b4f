from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ocil.data import SOURCES, command
from ocil.errors import OcilError


def shown(renderable: object) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_list(make_idx: Callable[..., Path]) -> None:
    root = make_idx("mnist")
    make_idx("fashion-mnist")
    (root / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    rows = {row.name: row for row in command.list_sources(root)}
    assert list(rows) == list(SOURCES)
    assert [name for name, row in rows.items() if row.present] == ["digits", "mnist"]
    assert rows["mnist"].where == str(root / "mnist")
    assert "lacks t10k-labels-idx1-ubyte.gz" in rows["fashion-mnist"].where
    assert rows["cifar10"].download_bytes == 170_498_071
    text = shown(command.render_list(list(rows.values())))
    for row in rows.values():
        assert row.name in text
    assert "CC BY-SA 3.0" in text
    assert "LeCun" in text


def test_get(
    make_idx: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def fetch(source: object, root: Path, progress: object) -> Path:
        asked.append(root)
        return root

    monkeypatch.setattr(command, "fetch", fetch)
    assert command.get("digits") is None
    assert command.get("mnist", make_idx()) == tmp_path / "mnist"  # it is there
    assert not asked
    with pytest.raises(OcilError, match=r"put tiny-imagenet-20\.zip"):
        command.get("tiny-imagenet-20", tmp_path)
    with pytest.raises(OcilError, match="Did you mean"):
        command.get("cifar-10", tmp_path)
    command.get("cifar10", tmp_path)
    assert asked == [tmp_path]


def test_get_writes_where_it_may(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "fetch", lambda source, root, progress: root)
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    monkeypatch.setenv("OCIL_DATA", str(blocked))
    assert command.get("mnist") == own_cache
    monkeypatch.setenv("OCIL_DATA", str(tmp_path / "new"))
    assert command.get("mnist") == tmp_path / "new"


def test_check_of_files_that_are_not_the_published_ones(make_idx: Callable[..., Path]) -> None:
    report = command.check("mnist", make_idx())
    assert not report.ok
    wrong = {finding.what for finding in report.findings if finding.ok is False}
    assert "train-images-idx3-ubyte.gz" in wrong
    assert "train images" in wrong  # 20 of 60000
    text = shown(command.render_report(report))
    assert "20 of 60000" in text
    assert "expected 6bbc9ace898e44ae57da46a324031adb" in text


def test_check_of_digits() -> None:
    report = command.check("digits")
    assert report.ok
    assert report.where == "bundled"


def test_check_sees_a_changed_cache(make_batches: Callable[..., Path], own_cache: Path) -> None:
    root = make_batches()
    command.check("cifar10", root)
    (path,) = (own_cache / "decoded").glob("*/train_images.npy")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # same size and shape: only the checksum tells
    path.write_bytes(bytes(data))
    findings = {finding.what: finding for finding in command.check("cifar10", root).findings}
    assert findings["cached train images"].ok is False
    assert str(path.parent) in findings["cached train images"].detail
    assert findings["cached test images"].ok is True


def test_check_of_missing_data(tmp_path: Path) -> None:
    with pytest.raises(OcilError, match="ocil data get cifar100"):
        command.check("cifar100", tmp_path)


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with command.show_progress() as progress:
        progress("file", 1, 2)
        progress("file", 2, 2)
    assert capsys.readouterr() == ("", "")
