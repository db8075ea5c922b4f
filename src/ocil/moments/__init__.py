"""Exact statistics of classes in a space that never moves, and the discriminant they make.

>>> import torch
>>> moments = ClassMoments(2)
>>> moments.add(torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 1.0]]), torch.tensor([0, 0, 1]))
>>> moments.means.tolist()
[[0.0, 2.0], [4.0, 1.0]]
"""

from ocil.moments.discriminant import ClassMoments

__all__ = ["ClassMoments"]
