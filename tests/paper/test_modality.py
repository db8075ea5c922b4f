"""Modality: likelihoods against independent ones, and classes whose modes are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_t, norm

from ocil.errors import OcilError
from ocil.paper import modality
from ocil.paper.modality import Modality
from ocil.report import style
from ocil.report.render import Strong, to_markdown
from ocil.run.latentfile import Latents


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modality, "CUTS", 1)


def latents(*classes: np.ndarray) -> Latents:
    labels = np.concatenate([np.full(len(own), c) for c, own in enumerate(classes)])
    none = np.zeros((0, classes[0].shape[1]), np.float32)
    points = np.concatenate(classes).astype(np.float32)
    return Latents({}, points, labels.astype(np.int32), none, none[:, 0], none[:, 0], None)  # type: ignore[arg-type]


DRAW = np.random.default_rng(0)
ROUND = [DRAW.normal(size=(200, 4)) + 30 * c for c in range(2)]
TWO_MODES = [
    DRAW.normal(size=(200, 4)) + 30 * c + 8 * (np.arange(200) % 2)[:, None] for c in (0, 3)
]
TAILED = [DRAW.standard_t(1.5, size=(300, 1)) * DRAW.normal(size=(300, 4)) for _ in range(2)]


def test_one_gaussian_has_the_likelihood_of_its_moments() -> None:
    points = ROUND[0]
    found = modality.held_out(points)[0]
    expected = [
        -norm.logpdf(b, a.mean(0), np.sqrt(a.var(0) + modality.FLOOR)).sum(1).mean()
        for a, b in modality.halves(points)
    ]
    assert found == pytest.approx(np.mean(expected), rel=1e-6)


@pytest.mark.parametrize("slanted", [False, True])
def test_a_student_t_has_the_likelihood_that_scipy_gives(slanted: bool) -> None:
    a, b = DRAW.normal(size=(2, 80, 3))
    found = modality.fit_student(a, 0.01, slanted)
    oracle = multivariate_t(found.mean, found.scale, found.freedom).logpdf(b)
    assert found.nll(b) == pytest.approx(-oracle.mean())
    assert slanted == bool(np.abs(found.scale - np.diag(np.diag(found.scale))).max() > 0)


def test_fitting_finds_tails_place_and_slant() -> None:
    mix = np.array([[2.0, 0.0], [1.5, 0.5]])
    gauss = DRAW.normal(size=(4000, 2)) @ mix.T + [3.0, -1.0]
    light = modality.fit_student(gauss, 1e-6, slanted=True)
    assert light.freedom == 64.0
    assert np.allclose(light.mean, [3.0, -1.0], atol=0.15)
    assert np.allclose(light.scale, mix @ mix.T, rtol=0.1, atol=0.1)
    cauchy = gauss / np.abs(DRAW.normal(size=(4000, 1)))
    assert modality.fit_student(cauchy, 1e-6, slanted=True).freedom == 1.0


def test_one_round_class_wants_one_component_and_two_modes_want_two() -> None:
    one = modality.modality(latents(*ROUND), "one")
    assert one.best == 1
    assert one.gain(1) == (0.0, 0.0, 0.0)
    two = modality.modality(latents(*TWO_MODES), "two")
    assert two.best == 2
    assert two.gain(2)[1] > 0
    assert two.beyond_one_mode()[1] > 0


def test_heavy_tails_are_not_taken_for_modes() -> None:
    found = modality.modality(latents(*TAILED), "tailed")
    assert found.best > 1  # several Gaussians win over one ...
    assert found.gain(found.best)[0] > 0
    assert found.beyond_one_mode()[0] < 0  # ... but not over one mode with heavy tails


def test_scale_and_turn_of_the_features_do_not_matter() -> None:
    turn = np.linalg.qr(DRAW.normal(size=(4, 4)))[0]
    one = modality.modality(latents(*TWO_MODES), "")
    other = modality.modality(latents(*(1e-3 * own @ turn for own in TWO_MODES)), "")
    assert np.allclose(one.gaussians, other.gaussians, atol=0.05)


def test_the_table_names_its_choices() -> None:
    found = modality.modality(latents(*TWO_MODES), "a|b")
    table = modality.modality_table([found])
    strong = [cell for cell in table.rows[0] if isinstance(cell, Strong)]
    assert strong == [f"{found.gaussians.mean(0).min():.2f}"]
    assert "a\\|b" in to_markdown(table)
    told = modality.explanation(12)
    assert "reduced to the 12 directions of largest variance of their run (PCA" in told
    assert "heavy tails" in told


def test_too_few_points_are_one_sentence() -> None:
    with pytest.raises(OcilError, match="two classes with 40 or more test features"):
        modality.modality(latents(ROUND[0], ROUND[1][:30]), "few")


def test_directions_without_variance_do_no_harm() -> None:
    flat = [np.concatenate([own, np.zeros((200, 2))], 1) for own in ROUND]
    assert np.isfinite(modality.modality(latents(*flat), "").gaussians).all()


def test_modality_is_drawn_against_one_gaussian() -> None:
    nll = np.array([[9.0, 7.0, *[8.0] * 6], [5.0, 1.0, *[4.0] * 6]])
    found = Modality("run", nll, np.array([[6.0, 5.0], [3.0, 2.0]]), 0.9)
    (chart,) = modality.modality_charts([found])
    line, level = chart.series
    assert line.y == pytest.approx([0.0, -3.0, *[-1.0] * 6])
    assert line.low[1] < -3 < line.high[1]
    assert set(level.y) == {-3.5}
    assert (level.x[0], level.x[-1]) == (1.0, 8.0)
    assert style.parts(level.look)[0] == style.parts(line.look)[0]
    assert style.parts(level.look)[1] != style.parts(line.look)[1]
