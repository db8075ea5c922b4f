"""Where files are: the roots that are searched, and the forms a data set may have there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ocil.data.sources import Source
from ocil.errors import OcilError
from ocil.text import listed


@dataclass(frozen=True)
class Found:
    """The files of one data set as they lie there; `missing` names what is not there."""

    form: str  # "bundled", "idx", "batches", "tar", "parquet", "zip" or "folder"
    folder: Path
    paths: Mapping[str, Path]  # by their published names
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.form == "bundled":
            return "bundled"
        return (
            f"{self.folder} (lacks {', '.join(self.missing)})" if self.missing else f"{self.folder}"
        )


def cache_root() -> Path:
    """The user's cache folder of ocil (not created)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given and Path(given).is_absolute():
        return Path(given) / "ocil"
    try:
        return Path.home() / ".cache" / "ocil"
    except RuntimeError as error:
        raise OcilError("No home folder is known; set XDG_CACHE_HOME to a folder.") from error


def roots(data_dir: Path | None) -> tuple[Path, ...]:
    """The folders to search: `data_dir` alone, or $OCIL_DATA and then the user's cache."""
    if data_dir is not None:
        return (Path(data_dir).expanduser(),)
    given = os.environ.get("OCIL_DATA", "")
    return (Path(given).expanduser(), cache_root()) if given else (cache_root(),)


def find(source: Source, data_dir: Path | None) -> Found | None:
    """The first complete copy of a data set, else the first incomplete one, else None."""
    if source.layout == "bundled":
        return Found("bundled", Path(), {})
    incomplete = None
    for root in roots(data_dir):
        folder = root / source.name
        try:
            for found in _forms(source, folder):
                if not found.missing:
                    return found
                incomplete = incomplete or found
        except OSError as error:
            raise OcilError(
                f"Cannot look into {folder} ({error.strerror}); make it a folder you may read."
            ) from error
    return incomplete


def require(source: Source, data_dir: Path | None) -> Found:
    """A complete copy of a data set, or an error that says how to get one."""
    found = find(source, data_dir)
    if found is None:
        folder = roots(data_dir)[0] / source.name
        raise OcilError(f"{source.name} is not in {folder}; {source.remedy(folder)}.")
    if found.missing:
        raise OcilError(
            f"{found.folder} lacks {listed(found.missing)}; {source.remedy(found.folder)}."
        )
    return found


def _forms(source: Source, folder: Path) -> Iterator[Found]:
    """All forms in which a data set lies in a folder: what was first published comes first."""
    if source.layout == "idx":
        names = [file.name for file in source.files]
        yield from _present("idx", folder, {name: _idx_paths(folder, name) for name in names})
    elif source.layout == "cifar":
        for inner in (folder, folder / "cifar-10-batches-py", folder / "cifar-100-python"):
            yield from _present("batches", inner, {n: [inner / n] for n in source.member_md5})
        tar = source.files[0].name
        yield from _present("tar", folder, {tar: [folder / tar, folder / tar.removesuffix(".gz")]})
        tables = ("train.parquet", "test.parquet")
        yield from _present("parquet", folder, {name: [folder / name] for name in tables})
    else:
        for inner in (folder, folder / "tiny-imagenet-200", folder / source.name):
            if (inner / "val" / "val_annotations.txt").is_file():
                yield Found("folder", folder, {inner.name: inner})
        for name in (f"{source.name}.zip", "tiny-imagenet-200.zip"):
            yield from _present("zip", folder, {name: [folder / name]})


def _idx_paths(folder: Path, name: str) -> list[Path]:
    """Other tools unpack the files, put a dot into the name, or all files into raw/."""
    name = name.removesuffix(".gz")
    names = [n + end for n in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
    return [inner / n for inner in (folder, folder / "raw") for n in names]


def _present(form: str, folder: Path, wanted: Mapping[str, Sequence[Path]]) -> Iterator[Found]:
    """The first path that is a file for each name; nothing if there is none at all."""
    first = {n: next((p for p in paths if p.is_file()), None) for n, paths in wanted.items()}
    paths = {name: path for name, path in first.items() if path}
    if paths:
        yield Found(form, folder, paths, tuple(name for name in wanted if name not in paths))
