"""Latent pictures: test features and centroids of runs with `--latents`, embedded in the plane.

t-SNE (van der Maaten and Hinton, JMLR 2008) places features and centroids together, from a fixed
start, after the directions of largest variance were kept. It shows who is near to whom: distances
between far groups, and the area of a group, say nothing.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocil import text
from ocil.errors import OcilError
from ocil.report.charts import Chart, Series, cloud
from ocil.report.groups import Group, own_labels
from ocil.report.runs import Run
from ocil.run import latentfile
from ocil.run.latentfile import Latents

POINTS = 1_000  # features in a picture, and centroids: t-SNE takes longer with each of them
DIMENSIONS = 50  # kept before t-SNE: the rest is noise that costs time
NEIGHBOURS = 30.0  # perplexity

_log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A run with the content of the file of its latents."""

    run: Run
    latents: Latents


def find_latents(runs: Iterable[Run], skip_bad: bool = False) -> list[Kept]:
    """The runs that kept their latents; a bad file is an error unless `skip_bad`."""
    found = []
    for run in runs:
        file = run.path.with_name(latentfile.NAME)
        if not file.exists():
            continue
        try:
            latents = latentfile.read(file)
            if latents.note["job"] != run.record.get("job"):
                raise OcilError(
                    f"{file} belongs to another run than {run.path}; copy both together again."
                )
            found.append(Kept(run, latents))
        except OcilError as problem:
            if not skip_bad:
                raise
            _log.warning("Left out: %s", problem)
    return found


def clouds(runs: Iterable[Run]) -> list[Chart]:
    """The picture of the first run that kept sound latents; none where no run did."""
    for run in runs:
        if kept := find_latents([run], skip_bad=True):
            return [latent_chart(kept[0], titles(kept)[0])]
    return []


def latent_chart(kept: Kept, title: str, points: int = POINTS) -> Chart:
    """A series for the features of each class, then one for its centroids, within [-1, 1]."""
    latents = kept.latents
    chosen = balanced(latents.labels, points)
    chosen = chosen[np.argsort(latents.labels[chosen], kind="stable")]  # class after class
    stand = balanced(latents.centroid_labels, points)
    place = embed(np.concatenate([latents.features[chosen], latents.centroids[stand]])).round(3)
    parts = ((latents.labels[chosen], place[: len(chosen)]),
             (latents.centroid_labels[stand], place[len(chosen) :]))  # fmt: skip
    looks = {int(c): n for n, c in enumerate(np.unique(np.concatenate([p[0] for p in parts])))}
    found = []
    for is_centre, (labels_, places) in enumerate(parts):
        for c in np.unique(labels_).tolist():
            x, y = places[labels_ == c].T.tolist()
            notes = ["centroid"] * len(x) if is_centre else ()
            name = text.plain(latents.class_names[c], 40)
            found.append(Series(name, x, y, look=looks[c], notes=notes))
    return cloud(title, found)


def titles(kept: Sequence[Kept]) -> list[str]:
    """Method, data, memory and what tells the runs of one method and data set apart."""
    groups = [Group((k.run,)) for k in kept]
    told, several = own_labels(groups), len({g.seeds for g in groups}) > 1
    found = []
    for g in groups:
        memory = [] if g.memory is None else [f"memory {g.memory}"]
        parts = [g.method, g.data, *memory, *([f"seed {g.seeds[0]}"] * several), told[id(g)]]
        found.append(text.plain(", ".join(filter(None, parts))))
    return found


def balanced(classes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Positions of at most `count` points, the first of every class before the second of any.

    >>> balanced(np.array([0, 0, 0, 1, 2], np.int32), 4).tolist()
    [0, 1, 3, 4]
    """
    order = np.argsort(classes, kind="stable")
    _, first, counts = np.unique(classes[order], return_index=True, return_counts=True)
    turn = np.empty(len(classes), np.int64)
    turn[order] = np.arange(len(classes)) - first.repeat(counts)
    return np.sort(np.argsort(turn, kind="stable")[:count])


def embed(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Places (n, 2) in [-1, 1] of points (n, d), the same at every call."""
    reduced = principal(points, DIMENSIONS)[0]
    flat = np.zeros((len(points), 2))
    flat[:, : reduced.shape[1]] = reduced[:, :2]
    spread = flat[:, 0].std()
    if len(points) > 4 and spread > 0:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        near = min(NEIGHBOURS, (len(points) - 1) / 3)
        # The start is small, so that the attraction of neighbours decides.
        start = (flat / spread * 1e-4).astype(np.float32)
        tsne = TSNE(perplexity=near, init=start, random_state=0, n_jobs=1)  # pyright: ignore
        with threadpool_limits(1):  # threads add up in another order, and wait for each other
            flat = tsne.fit_transform(reduced.astype(np.float32)).astype(np.float64)
    flat -= (flat.max(0) + flat.min(0)) / 2
    return flat / max(np.abs(flat).max(initial=0.0), 1e-12)


def principal(points: NDArray[Any], dims: int) -> tuple[NDArray[np.float64], float]:
    """Points (n, d) -> (n, min(dims, n, d)) along the directions of largest variance.

    Beside them the share of the variance that they keep. Signs are fixed, so that the result does
    not depend on the library that computes it.
    """
    centred = points.astype(np.float64) - points.mean(0, dtype=np.float64)
    _, size, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:dims]
    largest = np.abs(directions).argmax(1)
    directions *= np.sign(directions[np.arange(len(directions)), largest])[:, None]
    total = float((size**2).sum())
    return centred @ directions.T, float((size[:dims] ** 2).sum() / total) if total else 1.0
