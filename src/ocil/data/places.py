"""Where files are: the roots that are searched, and the forms a data set may have there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ocil.data.source import Source
from ocil.errors import OcilError

# role -> names under which the file is known, besides a further ".gz"
_IDX_ROLES = {
    "train_images": ("train-images-idx3-ubyte", "train-images.idx3-ubyte"),
    "train_labels": ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    "test_images": ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"),
    "test_labels": ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"),
}


@dataclass(frozen=True)
class Found:
    """The files of one data set as they lie there; `missing` names what is not there."""

    form: str  # "bundled", "idx", "batches", "tar", "parquet", "zip" or "folder"
    folder: Path
    paths: Mapping[str, Path]
    missing: tuple[str, ...] = ()


def cache_root() -> Path:
    """Return the user's cache folder of ocil (not created)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given and Path(given).is_absolute():
        return Path(given) / "ocil"
    try:
        return Path.home() / ".cache" / "ocil"
    except RuntimeError as error:
        raise OcilError("No home folder is known; set XDG_CACHE_HOME to a folder.") from error


def roots(data_dir: Path | None) -> tuple[Path, ...]:
    """Return the folders to search: `data_dir` alone, or $OCIL_DATA and then the user's cache."""
    if data_dir is not None:
        return (Path(data_dir).expanduser(),)
    given = os.environ.get("OCIL_DATA", "")
    return (Path(given).expanduser(), cache_root()) if given else (cache_root(),)


def find(source: Source, data_dir: Path | None) -> Found | None:
    """Return the first complete copy of a data set, else the first incomplete one, else None."""
    if source.layout == "bundled":
        return Found("bundled", Path(), {})
    incomplete = None
    for root in roots(data_dir):
        folder = root / source.name
        try:
            found = _FORMS[source.layout](source, folder)
        except OSError as error:
            raise OcilError(
                f"Cannot look into {folder} ({error.strerror}); make it a folder you may read."
            ) from error
        if found and not found.missing:
            return found
        incomplete = incomplete or found
    return incomplete


def require(source: Source, data_dir: Path | None) -> Found:
    """Return a complete copy of a data set, or say how to get one."""
    found = find(source, data_dir)
    if found is None:
        folder = roots(data_dir)[0] / source.name
        raise OcilError(f"{source.name} is not in {folder}; {source.remedy(folder)}.")
    if found.missing:
        raise OcilError(
            f"{found.folder} lacks {' and '.join(found.missing)}; {source.remedy(found.folder)}."
        )
    return found


def _first(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    names = tuple(names)
    candidates = (folder / name for folder in folders for name in names)
    return next((path for path in candidates if path.is_file()), None)


def _idx(source: Source, folder: Path) -> Found | None:
    paths, missing = {}, []
    for role, names in _IDX_ROLES.items():
        both = tuple(name + end for name in names for end in ("", ".gz"))
        path = _first((folder, folder / "raw"), both)
        if path:
            paths[role] = path
        else:
            missing.append(names[0] + ".gz")
    return Found("idx", folder, paths, tuple(missing)) if paths else None


def _cifar(source: Source, folder: Path) -> Found | None:
    """Prefer the original batches, unpacked or not, to parquet; complete to incomplete."""
    forms = []
    for inner in (folder, folder / "cifar-10-batches-py", folder / "cifar-100-python"):
        paths = {name: inner / name for name in source.member_md5 if (inner / name).is_file()}
        missing = tuple(name for name in source.member_md5 if name not in paths)
        forms += [Found("batches", inner, paths, missing)] if paths else []
    archive = source.files[0].name
    tar = _first((folder,), (archive, archive.removesuffix(".gz")))
    forms += [Found("tar", folder, {"archive": tar})] if tar else []
    tables = {part: folder / f"{part}.parquet" for part in ("train", "test")}
    present = {part: path for part, path in tables.items() if path.is_file()}
    missing = tuple(path.name for part, path in tables.items() if part not in present)
    forms += [Found("parquet", folder, present, missing)] if present else []
    return next((form for form in forms if not form.missing), forms[0] if forms else None)


def _tiny(source: Source, folder: Path) -> Found | None:
    inner = (folder, folder / "tiny-imagenet-200", folder / source.name)
    for path in inner:
        if (path / "val" / "val_annotations.txt").is_file():
            return Found("folder", folder, {"folder": path})
    zipped = _first((folder,), (f"{source.name}.zip", "tiny-imagenet-200.zip"))
    return Found("zip", folder, {"archive": zipped}) if zipped else None


_FORMS = {"idx": _idx, "cifar": _cifar, "tiny": _tiny}
