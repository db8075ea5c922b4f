"""The built wheel, installed outside the tree, runs and has all its files."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

import ocil

ROOT = Path(ocil.__file__).parents[2]


def call(*words: object, at: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=at,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_outside_the_tree(tmp_path: Path) -> None:
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    call(*build, at=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("ocil-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("page.html", "page.css", "page.js"):
        assert f"ocil/report/{part}" in names
    assert {"ocil/study/paper/tune-er-mnist.toml", "ocil/data/sources.toml"} <= set(names)
    assert "ocil/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tree = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*.py")}
    assert tree <= set(names)
    assert not any(name.startswith(("tests/", "results/")) for name in names)

    target = tmp_path / "site"
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", target)
    call(*install, wheel, at=tmp_path)
    only = {"PYTHONPATH": str(target)}
    where = "import ocil, pathlib; print(pathlib.Path(ocil.__file__).parent)"
    assert call("-c", where, at=tmp_path, **only).strip() == str(target / "ocil")
    words = ("-m", "ocil", "run", "er", "--limit-per-class", 20, "--out", "first")
    assert "Accuracy in percent" in call(*words, at=tmp_path, **only)
    assert "Page:" in call("-m", "ocil", "report", "first", "--out", "page", at=tmp_path, **only)
    assert "<html" in (tmp_path / "page" / "index.html").read_text()
    said = call("-m", "ocil", "study", "tune-er-mnist", "--dry-run", at=tmp_path, **only)
    assert "Study tune-er-mnist: " in said
    record = (tmp_path / "first" / "record.json").read_text()
    assert '"commit": null' in record  # an installed package knows no commit


def test_no_module_has_the_name_of_something_its_package_exports() -> None:
    """Or who imports the module first would hide the function behind it."""
    for found in pkgutil.walk_packages(ocil.__path__, "ocil."):
        if found.ispkg:
            package = importlib.import_module(found.name)
            for module in pkgutil.iter_modules(package.__path__):
                there = getattr(package, module.name, None)
                assert there is None or isinstance(there, types.ModuleType), module.name
