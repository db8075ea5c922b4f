"""latents.safetensors: test features, their labels and what stands for the classes beside them.

    features          (n, d) float16 or float32, in the space of the read-out that counts
    labels            (n,) int32, positions in `class_names`
    centroids         (m, d) float32; m may be 0
    centroid_labels   (m,) int32
    weights           (m,) float32, a centroid's share in its class
    variances         (m, d) float32, only where the method has them

The metadata holds one JSON note ("ocil.latents"): version, method, data, job, readout and
class_names. Reports read this file without torch; like every file it is hostile until checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocil.errors import OcilError, refusing
from ocil.files import read_plain
from ocil.run.reading import AGAIN, MAX_CLASSES, Wrong, is_json, need

NAME = "latents.safetensors"
VERSION = 1
KEY = "ocil.latents"
MAX_BYTES = 64 << 20  # bytes
MAX_HEADER = 16 << 20


class Latents(NamedTuple):
    """Content of a file: plain values and arrays, shapes as in the module's docstring."""

    note: dict[str, Any]
    features: NDArray[np.float32]
    labels: NDArray[np.int32]
    centroids: NDArray[np.float32]
    centroid_labels: NDArray[np.int32]
    weights: NDArray[np.float32]
    variances: NDArray[np.float32] | None

    @property
    def class_names(self) -> list[str]:
        return self.note["class_names"]


def dump(latents: Latents) -> bytes:
    """The bytes of a file; features in 16 bits where their range allows it."""
    from safetensors.numpy import save

    arrays: dict[str, Any] = {k: v for k, v in latents._asdict().items() if k != "note"}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if np.abs(latents.features).max(initial=0.0) < np.finfo(np.float16).max:
        arrays["features"] = latents.features.astype(np.float16)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    note = json.dumps({"version": VERSION, **latents.note}, sort_keys=True)
    return save(arrays, metadata={KEY: note})


def read(path: Path) -> Latents:
    """The checked content of a file, features as float32."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    blob = read_plain(path, MAX_BYTES)
    header = int.from_bytes(blob[:8], "little")
    try:
        sound = 8 + header <= len(blob) and header <= MAX_HEADER
        need(sound, f"is no file of latents or cut off: its header would have {header} bytes")
        with refusing(f"{path} is no whole file of latents", AGAIN, SafetensorError):
            note = json.loads(json.loads(blob[8 : 8 + header])["__metadata__"][KEY])
            arrays = load(blob)
        return _checked(note, arrays)
    except Wrong as problem:
        raise OcilError(f"{path} {problem}") from None


def _checked(note: Any, arrays: dict[str, NDArray[Any]]) -> Latents:
    need(isinstance(note, dict) and type(note.get("version")) is int, "has no version")
    need(note["version"] <= VERSION, "was made by a newer ocil", "upgrade ocil")
    for key in ("method", "data", "job", "readout"):
        need(is_json(note.get(key), str), f"has no text for '{key}'")
    names: Any = note.get("class_names")
    need(isinstance(names, list) and 0 < len(names) <= MAX_CLASSES, "has no class names")
    need(all(is_json(name, str) for name in names), "has class names that are not text")
    for name in Latents._fields[1:-1]:
        need(name in arrays, f"lacks '{name}'")
    dims = {"features": 2, "centroids": 2, "weights": 1, "variances": 2}
    for name in dims.keys() & arrays.keys():
        kind = arrays[name].dtype in (np.float16, np.float32) and arrays[name].ndim == dims[name]
        need(kind, f"has '{name}' of a wrong type or shape")
        need(np.isfinite(arrays[name]).all(), f"has NaN or infinite numbers in '{name}'")
        arrays[name] = arrays[name].astype(np.float32)
    features, labels, centroids, centroid_labels, weights = (
        arrays[name] for name in Latents._fields[1:-1]
    )
    need(features.size > 0, "holds no features")
    fits = centroids.shape[1] == features.shape[1]
    need(fits, "has centroids of another width than its features")
    for name, rows in (("labels", features), ("centroid_labels", centroids)):
        own = arrays[name]
        need(own.dtype == np.int32 and own.shape == (len(rows),), f"has '{name}' of a wrong shape")
        inside = ((own >= 0) & (own < len(names))).all()
        need(inside, f"has '{name}' that are none of its classes")
    sound = len(weights) == len(centroids) and (weights >= 0).all()
    need(sound, "has no weight for each centroid")
    variances = arrays.get("variances")
    if variances is not None:
        sound = variances.shape == centroids.shape and (variances >= 0).all()
        need(sound, "has no variances for each centroid")
    return Latents(note, features, labels, centroids, centroid_labels, weights, variances)
