"""The geodesic flow kernel against a geodesic followed numerically, and the loss upon it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.linalg import expm, logm

from ocil.learners import geodl

FORMS = ("cosine", "difference")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def basis(d: int, k: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(draw(d, k, seed=seed)).Q


def dense(kernel: geodl.FlowKernel) -> torch.Tensor:
    """G from its quadratic form alone, entry by entry."""
    d = len(kernel.a)
    eye = torch.eye(d, dtype=kernel.a.dtype)
    rows = [kernel.product(eye[i].expand(d, d), eye) for i in range(d)]
    return torch.stack(rows)


def numeric(p0: torch.Tensor, p1: torch.Tensor, points: int) -> torch.Tensor:
    """The mean projection along the shortest path, the path from a matrix exponential.

    On projectors Q the path is e^(nu X) Q0 e^(-nu X) with e^X = ((1 - 2 Q1)(1 - 2 Q0))^(1/2)
    (Bendokat et al. 2020): no principal angle is used. Gauss-Legendre does the integral.
    """
    q0, q1 = (p @ p.T for p in (p0, p1))
    eye = torch.eye(len(q0), dtype=q0.dtype)
    x = 0.5 * logm(((eye - 2 * q1) @ (eye - 2 * q0)).numpy()).real
    nodes, weights = legendre(points)
    total = torch.zeros_like(q0)
    for nu, weight in zip(nodes, weights, strict=True):
        turn = torch.from_numpy(expm(nu * x))
        total += weight * turn @ q0 @ turn.T
    end = torch.from_numpy(expm(x))
    torch.testing.assert_close(end @ q0 @ end.T, q1)  # it does lead there
    return total


def legendre(points: int) -> tuple[list[float], list[float]]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(points)
    return ((nodes + 1) / 2).tolist(), (weights / 2).tolist()


@pytest.mark.parametrize(("d", "k"), [(4, 1), (5, 2), (8, 3), (6, 4)])
def test_the_kernel_is_the_mean_projection_along_the_geodesic(d, k):
    p0, p1 = basis(d, k, seed=1), basis(d, k, seed=2)
    found = dense(geodl.flow_kernel(p0, p1))
    torch.testing.assert_close(found, numeric(p0, p1, points=20), rtol=0, atol=1e-9)


def test_two_lines_in_a_plane_by_hand():
    # From the x axis to the diagonal: mean over 0..45 degrees of the projection on a line.
    p0 = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    p1 = torch.tensor([[0.5**0.5], [0.5**0.5]], dtype=torch.float64)
    quarter = math.pi / 4
    cc, cs = 0.5 + math.sin(2 * quarter) / (4 * quarter), math.sin(quarter) ** 2 / (2 * quarter)
    wanted = torch.tensor([[cc, cs], [cs, 1 - cc]], dtype=torch.float64)
    torch.testing.assert_close(dense(geodl.flow_kernel(p0, p1)), wanted)


def test_equal_subspaces_give_the_projection_whatever_their_bases():
    p0 = basis(7, 3, seed=3)
    p1 = p0 @ basis(3, 3, seed=4)
    torch.testing.assert_close(dense(geodl.flow_kernel(p0, p1)), p0 @ p0.T)
    axes = torch.eye(4, 2)  # here the angles are exactly zero
    torch.testing.assert_close(dense(geodl.flow_kernel(axes, axes)), axes @ axes.T)


def test_tiny_angles_are_exact_enough_in_single_precision():
    p0 = basis(7, 3, seed=3)
    p1 = torch.linalg.qr(p0 + 1e-4 * draw(7, 3, seed=5)).Q
    found = dense(geodl.flow_kernel(p0.float(), p1.float()))
    wanted = dense(geodl.flow_kernel(p0, p1))
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(5, 9), (9, 5)])
def test_a_subspace_holds_the_main_directions(n, d):
    z = draw(n, d) * torch.linspace(1, 5, d, dtype=torch.float64)
    p = geodl.subspace(z, 3)
    torch.testing.assert_close(p.T @ p, torch.eye(3, dtype=torch.float64))
    top = torch.linalg.eigh(z.T @ z).eigenvectors[:, -3:]
    torch.testing.assert_close(p @ p.T, top @ top.T)


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_is_its_formula_sample_by_sample(form):
    z, past = draw(8, 5, seed=6), draw(8, 5, seed=7)
    units = [[row / row.norm() for row in each] for each in (z, past)]
    spans = [torch.linalg.svd(torch.stack(rows).T).U[:, :3] for rows in units]
    g = numeric(spans[1], spans[0], points=20)
    total = 0.0
    for now, before in zip(*units, strict=True):
        if form == "cosine":
            total += 1 - float(before @ g @ now / ((before @ g @ before) * (now @ g @ now)).sqrt())
        else:
            total += float((before - now) @ g @ (before - now))
    found = geodl.geodesic_distillation(z, past, 3, form)
    assert float(found) == pytest.approx(total / 8, rel=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_the_kernel_is_a_constant_and_the_past_has_no_gradient(form):
    z, past = draw(8, 5, seed=6).requires_grad_(), draw(8, 5, seed=7).requires_grad_()
    geodl.geodesic_distillation(z, past, 3, form).backward()
    assert past.grad is None
    spans = [geodl.subspace(F.normalize(v.detach(), dim=1), 3) for v in (past, z)]
    g = dense(geodl.flow_kernel(*spans))
    again = z.detach().clone().requires_grad_()
    now, before = F.normalize(again, dim=1), F.normalize(past.detach(), dim=1)
    if form == "cosine":
        lengths = ((before @ g * before).sum(1) * (now @ g * now).sum(1)).sqrt()
        (1 - (before @ g * now).sum(1) / lengths).mean().backward()
    else:
        ((before - now) @ g * (before - now)).sum(1).mean().backward()
    torch.testing.assert_close(z.grad, again.grad)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_small_batches_and_dead_features_stay_finite(n, form):
    z = draw(n, 5).requires_grad_()
    past = torch.zeros(n, 5, dtype=torch.float64)
    loss = geodl.geodesic_distillation(z, past, 32, form)
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None and z.grad.isfinite().all()


def test_two_images_fall_back_to_the_plain_cosine():
    z, past = draw(2, 5, seed=8), draw(2, 5, seed=9)
    wanted = (1 - F.cosine_similarity(z, past)).mean()
    torch.testing.assert_close(geodl.geodesic_distillation(z, past, 32), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_features_that_did_not_move_cost_nothing(form):
    z = draw(8, 5)
    assert float(geodl.geodesic_distillation(z, 3 * z, 4, form)) == pytest.approx(0, abs=1e-12)
