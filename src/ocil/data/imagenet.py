"""The layout of Tiny-ImageNet, in a folder or a zip, with any number of classes.

wnids.txt (one class id a line), words.txt (id, tab, names), train/ID/images/*.JPEG,
val/images/*.JPEG and val/val_annotations.txt (file, tab, id, ...). Labels follow the sorted ids;
the test set is `val`, since the labels of the original test set were never published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ocil.data.archive import FolderTree, ZipTree
from ocil.data.find import Found
from ocil.data.pictures import decode_chunks
from ocil.data.reader import Chunk, Damage, reading
from ocil.data.sources import Source
from ocil.text import plain

_ANNOTATIONS = "val/val_annotations.txt"
_ENDINGS = (".jpeg", ".jpg", ".png")
_MAX_IMAGE_BYTES = 1 << 20
_MAX_TEXT_BYTES = 16 << 20  # the words.txt of the original lists all of WordNet

Item = tuple[str, int]  # file name, label


def read_tiny(source: Source, found: Found, part: str) -> Iterator[Chunk]:
    """List the files of a part, then decode them."""
    with _opened(source, found) as (path, layout):
        if not 0 < len(layout.ids) <= source.classes:
            raise Damage(f"it lists {len(layout.ids)} classes, expected 1 to {source.classes}")
        items = layout.train_items() if part == "train" else layout.test_items()
        name, limit = "train" if part == "train" else "val", source.images(part)
        if not 0 < len(items) <= limit:
            raise Damage(f"{name} holds {len(items)} images, expected 1 to {limit}")

    def read(i: int) -> tuple[str, bytes]:
        return plain(items[i][0], 80), layout.tree.read(items[i][0], _MAX_IMAGE_BYTES)

    yield from decode_chunks(source, path, read, np.array([i[1] for i in items], np.int64))


def class_names(source: Source, found: Found) -> tuple[str, ...]:
    with _opened(source, found) as (_, layout):
        return layout.class_names()


@contextmanager
def _opened(source: Source, found: Found) -> Iterator[tuple[Path, _Layout]]:
    (path,) = found.paths.values()
    with reading(path, source):
        yield path, _Layout(FolderTree(path) if found.form == "folder" else ZipTree(path))


class _Layout:
    """The files of a tree; `prefix` ("" or "folder/") comes before the names of all of them."""

    def __init__(self, tree: FolderTree | ZipTree) -> None:
        self.tree, self.names = tree, set(tree.names())
        before = [name[: -len(_ANNOTATIONS)] for name in self.names if name.endswith(_ANNOTATIONS)]
        before = [p for p in before if p == "" or (p.endswith("/") and p.count("/") == 1)]
        if len(before) != 1:
            raise Damage(f"it holds {len(before)} files {_ANNOTATIONS}, expected 1")
        self.prefix = before[0]
        ids = {parts[1] for _, parts in self._in_train()}
        if self.prefix + "wnids.txt" in self.names:
            ids = {line.strip() for line in self._lines("wnids.txt")} - {""}
        self.ids = {name: label for label, name in enumerate(sorted(ids))}

    def _lines(self, name: str) -> list[str]:
        data = self.tree.read(self.prefix + name, _MAX_TEXT_BYTES)
        return data.decode("utf-8", errors="replace").splitlines()

    def _in_train(self) -> Iterator[tuple[str, list[str]]]:
        """Names of the form train/ID/FOLDER/FILE, with their parts."""
        for name in self.names:
            parts = name.removeprefix(self.prefix).split("/")
            if len(parts) == 4 and parts[0] == "train":
                yield name, parts

    def train_items(self) -> list[Item]:
        items = [
            (name, self.ids[parts[1]])
            for name, parts in self._in_train()
            if parts[1] in self.ids and parts[2] == "images"
            if parts[3].lower().endswith(_ENDINGS) and not parts[3].startswith(".")
        ]
        return sorted(items, key=lambda item: (item[1], item[0]))

    def test_items(self) -> list[Item]:
        """The images of `val` in the order of the annotations; other classes are left out."""
        items = []
        for line in self._lines(_ANNOTATIONS):
            columns = line.split("\t")
            if len(columns) < 2:
                raise Damage(f"line {plain(line, 40)!r} of {_ANNOTATIONS} has no class id")
            name = f"{self.prefix}val/images/{columns[0]}"
            if columns[1] in self.ids:
                if name not in self.names:
                    raise Damage(f"{plain(name, 80)} is listed but not there")
                items.append((name, self.ids[columns[1]]))
        return items

    def class_names(self) -> tuple[str, ...]:
        """The first name of each class in words.txt; two classes never share one."""
        words: dict[str, str] = {}
        if self.prefix + "words.txt" in self.names:
            for line in self._lines("words.txt"):
                key, _, text = line.partition("\t")
                if key in self.ids:
                    words[key] = plain(text.split(",")[0].strip(), 60)
        chosen = {key: words.get(key) or plain(key, 60) for key in self.ids}
        taken = Counter(chosen.values())
        return tuple(
            name if taken[name] == 1 else f"{name} ({plain(key, 60)})"
            for key, name in chosen.items()
        )
