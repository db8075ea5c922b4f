"""Reverse self-distillation against loops, and whom it teaches."""

from __future__ import annotations

import math

import torch

from ocil.learners.mose import reverse_distillation


def test_distance_is_the_frobenius_norm_of_unit_features() -> None:
    draw = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 6, 4, generator=draw)
    total = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        a, b = math.hypot(*s), math.hypot(*t)
        total += sum((u / a - v / b) ** 2 for u, v in zip(s, t, strict=True))
    found = reverse_distillation(student, teacher)
    torch.testing.assert_close(found, torch.tensor(total).sqrt())


def test_it_grows_with_the_root_of_the_number_of_points() -> None:
    student, teacher = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    one = reverse_distillation(student, teacher)
    four = reverse_distillation(student.repeat(4, 1), teacher.repeat(4, 1))
    torch.testing.assert_close(four, 2 * one)


def test_only_the_student_learns() -> None:
    student = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), requires_grad=True)
    teacher = torch.ones(5, 3, requires_grad=True)
    reverse_distillation(student, teacher).backward()
    assert student.grad is not None and student.grad.abs().sum() > 0
    assert teacher.grad is None


def test_a_student_like_its_teacher_has_no_slope() -> None:
    student = torch.ones(2, 3, requires_grad=True)
    reverse_distillation(student, torch.ones(2, 3)).backward()
    assert student.grad is not None and torch.equal(student.grad, torch.zeros(2, 3))
