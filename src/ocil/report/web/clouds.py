"""Latent pictures: test features and centroids in a plane, from the file beside a record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocil import text
from ocil.report.charts import Chart, Series, cloud

LATENTS = "latents.safetensors"


def clouds(folders: Sequence[Path]) -> list[Chart]:
    """The pictures of the first folder that has any; none where no run kept its latents."""
    for folder in folders:
        if (folder / LATENTS).is_file():
            from ocil.report.latent import pictures

            return [_cloud(picture) for picture in pictures(folder, skip_bad=True)]
    return []


def _cloud(picture: Mapping[str, Any]) -> Chart:
    """A series for the features of each class, then one for its centroids."""
    count = len(picture["x"])
    kinds = [picture["kind"]] * count if isinstance(picture["kind"], str) else picture["kind"]
    names = list(dict.fromkeys(text.plain(label, 60) for label in picture["label"]))
    parts: dict[tuple[bool, str], list[tuple[float, float]]] = {}
    for x, y, label, kind in zip(picture["x"], picture["y"], picture["label"], kinds, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            key = ("centroid" in str(kind), text.plain(label, 60))
            parts.setdefault(key, []).append((float(x), float(y)))
    found = []
    for (centre, name), points in sorted(parts.items(), key=lambda item: item[0][0]):
        x, y = ([p[axis] for p in points] for axis in (0, 1))
        notes = ["centroid"] * len(points) if centre else ()
        found.append(Series(name, x, y, look=names.index(name), notes=notes))
    return cloud(text.plain(picture["title"]), found)
