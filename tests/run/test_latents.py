"""`--latents`: test features beside the record, which change nothing of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil import data
from ocil.errors import OcilError
from ocil.run import latents, record
from ocil.run.folder import RunFolder
from ocil.run.latentfile import read
from ocil.run.loop import resume_run, start_run
from ocil.stream import probe_indices

Run = Callable[..., dict[str, Any]]
MakePlan = Callable[..., Any]


def test_they_change_neither_the_job_nor_the_bits(run: Run, tmp_path: Path) -> None:
    without, kept = run("a", "otc"), run("b", "otc", latents=True)
    for key in ("job", "state_sha256", "evaluations", "stream_sha256"):
        assert kept[key] == without[key]
    assert not (tmp_path / "a" / "latents.safetensors").exists()
    assert "--latents" in kept["command"]
    assert "latents" not in without["command"]


def test_what_the_file_holds(run: Run, tmp_path: Path) -> None:
    made = run("a", "otc", latents=True)
    found = read(tmp_path / "a" / "latents.safetensors")
    test = data.load("digits").test_labels
    assert len(found.features) == min(2000, len(test)) == len(found.labels)
    assert found.class_names == made["class_names"]
    counts = np.bincount(found.labels)
    assert counts.tolist() == np.bincount(test).tolist()
    assert found.note["job"] == made["job"]
    assert found.note["readout"] == made["readout"]
    assert sorted(set(found.centroid_labels.tolist())) == list(range(10))
    assert found.variances is not None
    # the centroids' labels are the data set's, not the order of arrival: they lie in their class
    distance = ((found.features[:, None] - found.centroids[None]) ** 2).sum(2)
    nearest = found.centroid_labels[distance.argmin(1)]
    assert (nearest == found.labels).mean() > 0.3  # by chance 0.1


def test_the_choice_is_balanced_and_the_same_for_every_seed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latents, "POINTS", 40)
    for name, seed in (("a", 0), ("b", 1)):
        run(name, seed=seed, latents=True)
    one, two = (read(tmp_path / name / "latents.safetensors") for name in "ab")
    test = data.load("digits").test_labels
    assert np.bincount(one.labels).tolist() == [4] * 10
    assert one.labels.tolist() == two.labels.tolist() == test[probe_indices(test, 40)].tolist()
    assert one.features.shape == two.features.shape
    assert not np.array_equal(one.features, two.features)


def test_wide_features_and_many_centroids_keep_the_file_small(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latents, "BUDGET", 4 * 16 * 20)  # 20 rows of width 16
    run("a", "otc", latents=True, **{"start.points": 4})
    found = read(tmp_path / "a" / "latents.safetensors")
    assert found.features.shape == (20, 16)
    assert len(found.centroids) <= 20


def test_a_method_without_memory_has_features_only(run: Run, tmp_path: Path) -> None:
    run("a", "finetune", latents=True)
    found = read(tmp_path / "a" / "latents.safetensors")
    assert len(found.features) > 0
    assert found.centroids.shape == (0, found.features.shape[1])


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_kill_at_the_end_leaves_a_run_that_can_be_finished(
    run: Run, plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Killed before the file is written, while it is, or just before the record is."""
    run("whole", latents=True)
    folder = RunFolder(tmp_path / "cut")

    def kill(*_: Any) -> None:
        if where == "within":
            folder.latents.with_name(".latents.safetensors.1.tmp").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        if where == "after":
            dying.setattr(record, "write", kill)
        else:
            dying.setattr("ocil.run.loop.write_atomic", kill)
        with pytest.raises(KeyboardInterrupt):
            start_run(plan(latents=True), folder.path)
    assert not folder.record.exists()
    assert folder.latents.exists() == (where == "after")
    resume_run(folder.path)
    assert folder.record.exists()
    assert folder.latents.read_bytes() == (tmp_path / "whole/latents.safetensors").read_bytes()


def test_a_learner_that_shows_nothing_still_has_its_record(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr("ocil.learners.learner.Learner.latent_points", broken)
    assert run("a", latents=True)["state_sha256"]
    assert (tmp_path / "a" / "record.json").exists()
    assert not (tmp_path / "a" / "latents.safetensors").exists()
    assert "The latents could not be collected" in caplog.text


def test_a_full_disk_is_one_sentence(
    plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocil import files

    def full(path: Path, _: bytes) -> None:
        raise files.cannot_write(path, OSError(28, "No space left on device"))

    monkeypatch.setattr("ocil.run.loop.write_atomic", full)
    with pytest.raises(OcilError, match=r"latents.safetensors: No space left"):
        start_run(plan(latents=True), tmp_path / "a")
    assert not (tmp_path / "a" / "record.json").exists()
