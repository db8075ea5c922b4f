"""Class moments against numpy, scipy and scikit-learn in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from ocil.moments import ClassMoments, shrinkage
from ocil.moments.kept import MOST


def samples(
    n: int, d: int, classes: int, seed: int = 0, far: float = 0.0, apart: float = 0.7
) -> tuple[Tensor, Tensor]:
    """Gaussian classes with a common, uneven covariance; every class occurs."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.cat([torch.arange(classes), torch.randint(classes, (n - classes,), generator=draw)])
    mix = torch.randn(d, d, generator=draw) / d**0.5
    centres = apart * torch.randn(classes, d, generator=draw)
    return centres[y] + torch.randn(n, d, generator=draw) @ mix + far, y


def counted(z: Tensor, y: Tensor, size: int = 10**6, rho: float | None = None) -> ClassMoments:
    moments = ClassMoments(z.shape[1], keeps=rho is None)
    for rows, labels in zip(z.split(size), y.split(size), strict=True):
        moments.add(rows, labels)
    if rho is not None:  # everything enters, so that all of it can be compared
        moments.enter()
        moments.choice[0] = len(y) * rho / (1 - rho)
    return moments


def within(z: Tensor, y: Tensor) -> np.ndarray:
    """The covariance within classes, by its definition."""
    x, c = z.double().numpy(), y.numpy()
    centred = x - np.stack([x[c == k].mean(0) for k in range(c.max() + 1)])[c]
    return centred.T @ centred / len(x)


@pytest.mark.parametrize("far", [0.0, 300.0])
def test_counts_means_and_covariance(far: float) -> None:
    z, y = samples(700, 9, 4, far=far)
    moments = counted(z, y, 37, rho=0.1)
    x, c = z.double().numpy(), y.numpy()
    assert moments.counts.tolist() == np.bincount(c).tolist()
    for k in range(4):
        np.testing.assert_allclose(moments.means[k].numpy(), x[c == k].mean(0), rtol=1e-12)
    wanted = within(z, y)
    error = np.abs(moments.covariance().numpy() - wanted).max()
    assert error < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("rho", [0.003, 0.2, 0.9])
def test_the_discriminant_is_that_of_scikit_learn(rho: float) -> None:
    z, y = samples(600, 12, 5, seed=1)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Drawn(rho, z, y))
    oracle.set_params(priors=np.full(5, 0.2)).fit(z.double().numpy(), y.numpy())
    new, _ = samples(50, 12, 5, seed=1, far=0.1)
    found = counted(z, y, rho=rho).scores(new).double().numpy()
    wanted = oracle.decision_function(new.double().numpy())
    apart = found - found.mean(1, keepdims=True), wanted - wanted.mean(1, keepdims=True)
    np.testing.assert_allclose(*apart, atol=2e-5 * np.abs(wanted).max())


class Drawn:
    """Hands the whole shrunk covariance within classes to scikit-learn, class for class."""

    def __init__(self, rho: float, z: Tensor, y: Tensor) -> None:
        s = within(z, y)
        self.whole = (1 - rho) * s + rho * np.trace(s) / len(s) * np.eye(len(s))

    def fit(self, x: np.ndarray) -> Drawn:
        self.covariance_ = self.whole
        return self


def test_leaving_one_out_is_exact() -> None:
    """Every score, every rho, against statistics made anew without the sample."""
    z, y = samples(30, 6, 3, seed=3)
    x, c = z.double(), y.numpy()
    moments = counted(z, y, rho=0.5)
    means = moments.means - moments.shift.double()
    values, basis = torch.linalg.eigh(torch.from_numpy(within(z, y)))
    for rho in (shrinkage.GRID[0], 0.1, 0.9):
        found = shrinkage._left_out_scores(
            values, (x - moments.shift) @ basis, means @ basis, moments.counts, y, rho
        )
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            s = within(z[rest], y[rest])
            sigma = (1 - rho) * s + rho * np.trace(s) / 6 * np.eye(6)
            a = moments.shift.double().numpy()
            mu = np.stack([x[rest & (c == k)].numpy().mean(0) for k in range(3)]) - a
            w = np.linalg.solve(sigma, mu.T).T
            wanted = w @ (x[i].numpy() - a) - (w * mu).sum(1) / 2
            np.testing.assert_allclose(found[i].numpy(), wanted, rtol=1e-6, atol=1e-8)


def test_the_loss_chooses_near_the_best() -> None:
    z, y = samples(900, 60, 6, seed=4, apart=0.12)
    moments = counted(z[:400], y[:400])
    rho = float(moments.choice[0] / (moments.choice[0] + moments.choice[1]))
    assert any(rho == pytest.approx(known) for known in shrinkage.GRID)
    right = {}
    for known in shrinkage.GRID:
        answers = counted(z[:400], y[:400], rho=known).scores(z[400:]).argmax(1)
        right[known] = float((answers == y[400:]).float().mean())
    own = float((moments.scores(z[400:]).argmax(1) == y[400:]).float().mean())
    assert own > max(right.values()) - 0.03
    assert max(right.values()) - min(right.values()) > 0.03  # else the test says nothing


# ------------------------------------------------------------------ calls, order, merging


@pytest.mark.parametrize("size", [1, 7, 300, 2000])
def test_equal_bits_in_any_chunking(size: int) -> None:
    z, y = samples(1300, 5, 3, seed=5)
    one, other = counted(z, y, 10), counted(z, y, size)
    assert float(one.choice[1]) > 0
    assert len(one.kept.kept) > MOST // 4
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert torch.equal(one.scores(z[:9]), other.scores(z[:9]))


def test_order_matters_only_up_to_rounding() -> None:
    z, y = samples(500, 8, 3, seed=6, far=20.0)
    turned = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    one, other = counted(z, y, rho=0.1), counted(z[turned], y[turned], rho=0.1)
    torch.testing.assert_close(one.covariance(), other.covariance(), rtol=1e-3, atol=1e-5)
    a, b = one.scores(z), other.scores(z)
    torch.testing.assert_close(a - a[:, :1], b - b[:, :1], rtol=1e-3, atol=1e-3)


def test_merged_sums_are_those_of_all() -> None:
    z, y = samples(600, 8, 5, seed=7, far=50.0)
    first, second = y < 3, y >= 2
    second &= ~first
    one, other = counted(z[first], y[first], rho=0.1), counted(z[second], y[second])
    before = {k: v.clone() for k, v in other.state_dict().items()}
    assert other.pending > 0
    one.merge(other)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in before.items())
    assert one.counts.tolist() == torch.bincount(y).tolist()
    np.testing.assert_allclose(one.covariance().numpy(), within(z, y), atol=2e-5)
    fresh = ClassMoments(8)
    fresh.merge(one)
    np.testing.assert_allclose(fresh.covariance().numpy(), within(z, y), atol=2e-5)


def test_means_are_current_and_the_covariance_is_that_of_the_last_block() -> None:
    z, y = samples(400, 6, 3, seed=8)
    moments = counted(z[:300], y[:300])
    start = moments.total - moments.pending
    factor = moments.factor()
    moments.add(z[300:301], y[300:301])
    assert moments.total - moments.pending == start
    assert moments.factor() is factor
    x = z[:301].double()
    torch.testing.assert_close(moments.means[int(y[300])], x[y[:301] == y[300]].mean(0))
    np.testing.assert_allclose(
        moments.covariance().numpy(), within(z[:start], y[:start]), atol=1e-5
    )


def test_one_sample_and_classes_of_one_sample_are_nearest_means() -> None:
    moments = ClassMoments(3)
    moments.add(torch.eye(3)[:1], torch.tensor([0]))
    assert moments.scores(torch.eye(3)).shape == (3, 1)
    moments.add(torch.eye(3)[1:], torch.tensor([1, 2]))
    assert moments.scores(torch.eye(3)).argmax(1).tolist() == [0, 1, 2]


def test_only_what_changed_is_solved_anew_with_equal_bits() -> None:
    """Weights that were brought up to date class by class are those of a state read afresh."""
    z, y = samples(900, 6, 40, seed=11)
    moments = counted(z[:880], y[:880])
    for i in range(880, 900):
        moments.scores(z[:1])
        moments.add(z[i : i + 1], y[i : i + 1])
    other = ClassMoments(6)
    other.load_state_dict(moments.state_dict(), 40)
    assert torch.equal(moments.scores(z), other.scores(z))


def test_a_class_without_samples_is_never_the_answer() -> None:
    z, y = samples(60, 4, 3, seed=12)
    moments = ClassMoments(4)
    moments.add(z, y + (y > 0).long())  # class 1 never came
    scores = moments.scores(z)
    assert bool((scores[:, 1] == -torch.inf).all())
    assert not scores.isnan().any()


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("at", [1, 130, 299, 777])
def test_a_state_taken_up_goes_on_to_the_same_bits(at: int) -> None:
    z, y = samples(1100, 5, 4, seed=9)
    one = counted(z[:at], y[:at], 10)
    one.scores(z[:3])  # what is kept for reading is no state
    other = ClassMoments(5)
    other.load_state_dict({k: v.clone() for k, v in one.state_dict().items()}, one.classes)
    assert torch.equal(one.scores(z), other.scores(z))
    for each in (one, other):
        each.add(z[at:], y[at:])
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert torch.equal(one.scores(z), other.scores(z))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("counts", lambda v: v[:-1]),
        ("counts", lambda v: -v),
        ("second", lambda v: v * torch.nan),
        ("sums", lambda v: v.float()),
        ("labels", lambda v: v + 100),
        ("kept_labels", lambda v: v + 100),
        ("choice", lambda v: -v),
        ("rows", lambda v: v[:1]),
        ("second", lambda v: v[:-1]),
        ("kept_at", lambda v: v.float()),
    ],
)
def test_a_state_that_is_not_sound_is_refused(name: str, change: object) -> None:
    z, y = samples(290, 5, 4, seed=10)
    moments = counted(z, y)
    assert moments.pending > 1
    state = moments.state_dict()
    state[name] = change(state[name])  # type: ignore[operator]
    with pytest.raises(ValueError, match="moments"):
        ClassMoments(5).load_state_dict(state, 4)


def test_without_samples_all_have_entered() -> None:
    z, y = samples(290, 5, 4, seed=13)
    moments = counted(z, y)
    before = {k: v.clone() for k, v in moments.state_dict().items()}
    bare = moments.state_dict(samples=False)
    assert all(torch.equal(v, moments.state_dict()[k]) for k, v in before.items())
    assert not any(len(bare[name]) for name in ("rows", "labels", "kept", "kept_labels", "kept_at"))
    other = ClassMoments(5)
    other.load_state_dict(bare, 4)
    np.testing.assert_allclose(other.covariance().numpy(), within(z, y), atol=1e-5)
    assert torch.equal(other.means, moments.means)


def test_bytes_are_those_of_the_state() -> None:
    moments = counted(*samples(300, 5, 4))
    held = sum(t.numel() * t.element_size() for t in moments.state_dict().values())
    assert moments.nbytes == held > 4 * 25
