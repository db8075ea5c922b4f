"""Class mixtures by optimal transport; usable on their own, without learners or data.

>>> import torch
>>> from ocil.mixture import Mixtures, MixtureSettings
>>> generator = torch.Generator().manual_seed(0)
>>> mixtures = Mixtures(2, MixtureSettings(components=2))
>>> z = torch.randn(40, 2, generator=generator)
>>> mixtures.update(z, torch.zeros(40, dtype=torch.long), generator)
>>> mixtures.class_distances(z).shape
torch.Size([40, 1])
"""

from ocil.mixture.diagnostics import Diagnostics
from ocil.mixture.distances import PooledCovariance
from ocil.mixture.mixtures import Mixtures, MixtureSettings

__all__ = ["Diagnostics", "MixtureSettings", "Mixtures", "PooledCovariance"]
