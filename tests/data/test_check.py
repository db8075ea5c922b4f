from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ocil.commands.data import overview, report_table, show_progress
from ocil.data import SOURCES, Source, download
from ocil.data.check import check
from ocil.data.download import get
from ocil.errors import OcilError


def shown(renderable: object) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=250)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_list(make_idx: Callable[..., Path]) -> None:
    root = make_idx("mnist")
    make_idx("fashion-mnist")
    (root / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    text = shown(overview(root))
    rows = {
        cells[1].strip(): cells[5].strip()
        for row in text.splitlines()
        if len(cells := row.split("│")) > 5
    }
    assert list(rows) == list(SOURCES)
    assert rows["digits"] == "bundled"
    assert rows["mnist"] == str(root / "mnist")
    assert "lacks t10k-labels-idx1-ubyte.gz" in rows["fashion-mnist"]
    assert rows["cifar10"] == "-"
    assert "170.5 MB" in text
    assert "CC BY-SA 3.0" in text
    assert "LeCun" in text


def test_one_unreadable_folder_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(source: Source, data_dir: object) -> None:
        if source.name == "mnist":
            raise OcilError("Cannot look into it.")

    monkeypatch.setattr("ocil.commands.data.find", find)
    text = shown(overview())
    assert "Cannot look into it." in text and "cifar100" in text


def test_get(
    make_idx: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def fetch(source: object, root: Path, progress: object) -> Path:
        asked.append(root)
        return root

    monkeypatch.setattr(download, "fetch", fetch)
    assert get("digits") is None
    assert get("mnist", make_idx()) == tmp_path / "mnist"  # it is there
    assert not asked
    with pytest.raises(OcilError, match=r"put tiny-imagenet-20\.zip"):
        get("tiny-imagenet-20", tmp_path)
    with pytest.raises(OcilError, match="Did you mean"):
        get("cifar-10", tmp_path)
    get("cifar10", tmp_path)
    assert asked == [tmp_path]


def test_get_writes_where_it_may(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "fetch", lambda source, root, progress: root)
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    monkeypatch.setenv("OCIL_DATA", str(blocked))
    assert get("mnist") == own_cache
    monkeypatch.setenv("OCIL_DATA", str(tmp_path / "new"))
    assert get("mnist") == tmp_path / "new"


def test_check_of_files_that_are_not_the_published_ones(make_idx: Callable[..., Path]) -> None:
    report = check("mnist", make_idx())
    assert not report.ok
    wrong = {finding.what for finding in report.findings if finding.ok is False}
    assert "train-images-idx3-ubyte.gz" in wrong
    assert "train images" in wrong  # 20 of 60000
    text = shown(report_table(report))
    assert "20 of 60000" in text
    assert "expected 6bbc9ace898e44ae57da46a324031adb" in text


def test_check_of_digits() -> None:
    report = check("digits")
    assert report.ok
    assert report.where == "bundled"


def test_check_sees_a_changed_cache(make_batches: Callable[..., Path], own_cache: Path) -> None:
    root = make_batches()
    check("cifar10", root)
    (path,) = (own_cache / "decoded").glob("*/train_images.npy")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # same size and shape: only the checksum tells
    path.write_bytes(bytes(data))
    findings = {finding.what: finding for finding in check("cifar10", root).findings}
    assert findings["cached train images"].ok is False
    assert str(path.parent) in findings["cached train images"].detail
    assert findings["cached test images"].ok is True


def test_check_of_missing_data(tmp_path: Path) -> None:
    with pytest.raises(OcilError, match="ocil data get cifar100"):
        check("cifar100", tmp_path)


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        progress("file", 1, 2)
        progress("file", 2, 2)
    assert capsys.readouterr() == ("", "")
