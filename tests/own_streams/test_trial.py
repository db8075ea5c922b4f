"""Trials of the study own-streams: what is learned, what is asked, and what a record says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.classifier import Classifier
from ocil.errors import OcilError
from ocil.own_streams import trial as trials
from ocil.own_streams.rivals import RIVALS
from ocil.own_streams.streams import STREAMS, Arrays, Samples, Source, samples
from ocil.own_streams.trial import Trial, left, plan
from ocil.report.own_streams import read_file

QUICK = ["--set", "data=wine", "--set", "seed=100", "--set", "validate=true"]


def arrays() -> Arrays:
    """Items are their own number; of every class there are fifty."""
    y = np.arange(200) % 4
    return Arrays(np.arange(200.0)[:, None], y, np.arange(1000.0, 1020)[:, None], np.arange(20) % 4)


def drawn(order: Any, seed: int = 100, validate: bool = True, **more: Any) -> Samples:
    return samples(Source("chosen on", lambda _: arrays(), **more), arrays(), order, seed, validate)


def test_classes_come_one_after_the_other_or_mixed() -> None:
    by_class, mixed = drawn("classes"), drawn("shuffled")
    assert (np.diff(by_class.y) != 0).sum() == 3
    assert (np.diff(mixed.y) != 0).sum() > 50
    assert sorted(by_class.x[:, 0]) == sorted(mixed.x[:, 0])
    assert not np.array_equal(by_class.x, drawn("classes", seed=101).x)


def test_held_out_parts_have_no_test_sample_and_nothing_that_is_learned() -> None:
    held, test = drawn("classes"), drawn("classes", seed=0, validate=False)
    assert held.x_test.max() < 200
    assert not set(held.x_test[:, 0]) & set(held.x[:, 0])
    assert len(held.y_test) == 20
    assert test.x_test.min() >= 1000
    assert len(test.y) == 200


def test_the_memory_is_500_or_half_of_a_short_stream() -> None:
    assert drawn("classes", validate=False, seed=0).memory == 100
    assert drawn("classes", validate=False, seed=0, limit=10).memory == 20
    many = Arrays(*(np.zeros((5000, 1)), np.arange(5000) % 4) * 2)
    assert samples(Source("chosen on", lambda _: many), many, "classes", 0, False).memory == 500


def test_ours_is_the_classifier_at_its_defaults() -> None:
    long = Samples(np.zeros((2000, 3)), np.zeros(2000), np.zeros((1, 3)), np.zeros(1), 500)
    model: Any = RIVALS["classifier"](long, 7)
    assert model.get_params() == Classifier(seed=7).get_params()


def test_streams_that_confirm_have_no_held_out_part() -> None:
    confirming = {name for name, source in STREAMS.items() if source.part == "confirms"}
    assert confirming == {"tiny-imagenet-20", "image-segments", "phishing", "bananas"}
    assert not confirming & {trial.data for trial in plan({"validate": True})}
    assert confirming < {trial.data for trial in plan({})}
    with pytest.raises(OcilError, match="No data phishing of held-out parts"):
        plan({"data": "phishing", "validate": True})


@pytest.mark.parametrize("given", [{"seed": 100}, {"seed": 3, "validate": True}])
def test_seeds_of_tests_and_of_choices_differ(given: dict[str, Any]) -> None:
    with pytest.raises(OcilError, match=r"No seed \d+ of (test|held-out) parts"):
        plan(given)


def test_every_trial_of_the_study() -> None:
    assert len(set(plan({}))) == len(STREAMS) * 2 * len(RIVALS) * 5
    with pytest.raises(OcilError, match=r"no setting 'metod'\. .*'method'"):
        plan({"metod": "slda-raw"})


def test_a_finished_trial_is_not_run_again(
    ocil: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["study", "own-streams", *QUICK, "--set", "order=shuffled", "--out", tmp_path]
    few = ["--set", 'method=["slda-fixed", "naive-bayes-raw", "offline"]']
    said = ocil(*words, *few)
    assert said.code == 0, said.err
    assert "3 trials, 0 finished" in said.out
    file = tmp_path / "own-streams" / "wine.jsonl"
    records = read_file(file)
    assert [r["method"] for r in records] == ["slda-fixed", "naive-bayes-raw", "offline"]
    assert all(r["accuracy"] > 80 and r["asked"] == 15 and r["memory"] == 64 for r in records)
    assert records[0]["command"].endswith(
        "--set method=slda-fixed --set seed=100 --set validate=true"
    )
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    monkeypatch.setattr(
        trials, "measure", lambda trial, _: {"slda-fixed": records[0]}[trial.method]
    )
    assert "3 trials, 2 finished" in ocil(*words, *few).out
    given = {"data": "wine", "method": "offline", "seed": 100, "validate": True}
    wanted = Trial("wine", "classes", "offline", 100, "validation")
    assert left(plan(given), file.parent) == [wanted]
    assert sorted(map(str, read_file(file))) == sorted(map(str, records))


def test_the_study_says_that_it_takes_no_cluster(ocil: Callable[..., Any]) -> None:
    said = ocil("study", "own-streams", "--on", "ray")
    assert said.code == 2
    assert "leave out --preset, --workers and --on" in said.err


@pytest.mark.parametrize("method", sorted(RIVALS))
def test_every_rival_learns_a_table_and_says_what_it_holds(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(120) % 4
    x = (10.0 * np.eye(4)[y] + draw.normal(size=(120, 4))).astype(np.float32)
    found = Arrays(x, y, x, y)
    monkeypatch.setattr(trials, "STREAMS", {"blobs": Source("chosen on", lambda _: found)})
    record = trials.measure(Trial("blobs", "classes", method, 0), found)
    assert record["accuracy"] > (60 if method == "ranpac-raw" else 90), record
    assert record["bytes_held"] > 0
    assert record["calibration_error"] is None  # fewer than 1 000 were asked
