"""`ocil figure`: each kind from real runs, bad input in one sentence, no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.paper import modality

Ocil = Callable[..., Any]

WITHOUT_TORCH = """
import sys
from ocil.cli import main
for kind in ("latent", "through-tasks", "centroids"):
    try:
        main(["figure", kind, {runs!r}, "--out", {out!r} + kind + ".png"])
    except SystemExit as stop:
        assert not stop.code, kind
assert "torch" not in sys.modules
"""


def test_every_kind_is_drawn_without_torch(run: Callable[..., Any], tmp_path: Path) -> None:
    for k in (1, 3):
        run(f"runs/{k}", "otc", components=k, latents=True)
    script = WITHOUT_TORCH.format(runs=str(tmp_path / "runs"), out=str(tmp_path / "f-"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kind in ("latent", "through-tasks", "centroids"):
        assert (tmp_path / f"f-{kind}.png").read_bytes()[:4] == b"\x89PNG"


def test_modality_prints_a_table_with_its_choices(
    ocil: Ocil, run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modality, "MIN_FEATURES", 30)
    monkeypatch.setattr(modality, "CUTS", 1)
    run("a", "otc", latents=True)
    out = tmp_path / "a.pdf"
    said = ocil("figure", "modality", tmp_path / "a", "--out", out, "--dims", 5)
    assert said.code == 0, said.err
    assert "| run | K=1 | K=2 |" in said.out
    assert "reduced to the 5 directions" in " ".join(said.out.split())
    rows = [line for line in said.out.splitlines() if line.startswith("| otc, digits")]
    assert len(rows) == 1
    assert rows[0].endswith("|")  # lines of the table are not folded
    assert out.read_bytes()[:4] == b"%PDF"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("latent", "a"), "No run below a kept its latents; run one with `ocil run METHOD"),
        (("modality", "a"), "No run below a kept its latents"),
        (("centroids", "a"), "run `ocil study figure-centroids`"),
        (("through-tasks", "empty"), "There is no record below empty"),
        (("latent", "nowhere"), "There is no folder nowhere"),
        (("latent", "a", "--out", "x.svg"), "ends in .pdf or .png, not in '.svg'"),
        (("modality", "a", "--dims", "0"), "--dims is 0 but must be at least 1"),
        (("latent",), "needs a folder with records"),
        (("cloud", "a"), "See `ocil figure --help`"),
        ((), "See `ocil figure --help`"),
    ],
)
def test_bad_words_are_one_sentence(
    ocil: Ocil,
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    if "a" in words:
        run("a")
    found = ocil("figure", *words)
    assert found.is_sentence(), found
    assert said in found.err
    assert not (tmp_path / "figure.pdf").exists()


def test_a_hostile_file_is_one_sentence(
    ocil: Ocil, run: Callable[..., Any], tmp_path: Path
) -> None:
    run("a")
    (tmp_path / "a" / "latents.safetensors").write_bytes(b"\xff" * 64)
    for kind in ("latent", "modality"):
        found = ocil("figure", kind, tmp_path / "a", "--out", tmp_path / "a.png")
        assert found.is_sentence(), found
        assert "its header would have" in found.err
