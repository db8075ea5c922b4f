"""The layout of Tiny-ImageNet, in a folder or a zip, with any number of classes.

wnids.txt (one class id a line), words.txt (id, tab, names), train/ID/images/*.JPEG,
val/images/*.JPEG and val/val_annotations.txt (file, tab, id, ...). Labels follow the sorted ids;
the test set is `val`, since the labels of the original test set were never published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ocil.data.damage import Damage, reading
from ocil.data.decoder import Chunk, Decoder
from ocil.data.images import decode_image
from ocil.data.places import Found
from ocil.data.source import Source, printable
from ocil.data.tree import FolderTree, Tree, ZipTree

_ANNOTATIONS = "val/val_annotations.txt"
_ENDINGS = (".jpeg", ".jpg", ".png")
_IMAGE_BYTES = 1 << 20
_TEXT_BYTES = 16 << 20  # the words.txt of the original lists all of WordNet
_CHUNK = 512

Item = tuple[str, int]  # file name, label


def tiny_decoder(source: Source, found: Found) -> Decoder:
    """List both sets and return their decoder."""
    (path,) = found.paths.values()
    with reading(source, path):
        tree: Tree = FolderTree(path) if found.form == "folder" else ZipTree(path)
        names = set(tree.names())
        prefix = _prefix(names)
        ids = _class_ids(tree, names, prefix)
        if not 0 < len(ids) <= source.classes:
            raise Damage(f"it lists {len(ids)} classes, expected 1 to {source.classes}")
        train = _train_items(names, prefix, ids)
        test = _test_items(tree, names, prefix, ids)
        for part, items, limit in (("train", train, source.train), ("val", test, source.test)):
            if not 0 < len(items) <= limit:
                raise Damage(f"{part} holds {len(items)} images, expected 1 to {limit}")
        class_names = _class_names(tree, names, prefix, ids)
    return Decoder(
        train=lambda: _decode(source, tree, train),
        test=lambda: _decode(source, tree, test),
        class_names=class_names,
    )


def _decode(source: Source, tree: Tree, items: list[Item]) -> Iterator[Chunk]:
    for start in range(0, len(items), _CHUNK):
        part = items[start : start + _CHUNK]
        images = np.empty((len(part), *source.shape), np.uint8)
        with reading(source, tree.path):
            for row, (name, _) in enumerate(part):
                try:
                    images[row] = decode_image(tree.read(name, _IMAGE_BYTES), source.shape)
                except Damage as error:
                    raise Damage(f"{printable(name)} is {error}") from error
        yield images, np.array([label for _, label in part], np.int64)


def _prefix(names: set[str]) -> str:
    """Return the folder inside the archive that holds the layout, "" or "folder/"."""
    prefixes = [name[: -len(_ANNOTATIONS)] for name in names if name.endswith(_ANNOTATIONS)]
    prefixes = [p for p in prefixes if p == "" or (p.endswith("/") and p.count("/") == 1)]
    if len(prefixes) != 1:
        raise Damage(f"it holds {len(prefixes)} files {_ANNOTATIONS}, expected 1")
    return prefixes[0]


def _text(tree: Tree, name: str) -> list[str]:
    return tree.read(name, _TEXT_BYTES).decode("utf-8", errors="replace").splitlines()


def _class_ids(tree: Tree, names: set[str], prefix: str) -> dict[str, int]:
    """Return id -> label, from wnids.txt, or from the folders of train where it is absent."""
    if prefix + "wnids.txt" in names:
        ids = {line.strip() for line in _text(tree, prefix + "wnids.txt")} - {""}
    else:
        inside = (name.removeprefix(prefix).split("/") for name in names)
        ids = {parts[1] for parts in inside if parts[0] == "train" and len(parts) == 4}
    return {name: label for label, name in enumerate(sorted(ids))}


def _train_items(names: set[str], prefix: str, ids: dict[str, int]) -> list[Item]:
    items = []
    for name in names:
        parts = name.removeprefix(prefix).split("/")
        if len(parts) != 4 or parts[0] != "train" or parts[2] != "images":
            continue
        if parts[1] in ids and _is_image(parts[3]):
            items.append((name, ids[parts[1]]))
    return sorted(items, key=lambda item: (item[1], item[0]))


def _test_items(tree: Tree, names: set[str], prefix: str, ids: dict[str, int]) -> list[Item]:
    """Return the images of `val` in the order of the annotations; other classes are left out."""
    items = []
    for line in _text(tree, prefix + _ANNOTATIONS):
        columns = line.split("\t")
        if len(columns) < 2:
            raise Damage(f"line {printable(line, 40)!r} of {_ANNOTATIONS} has no class id")
        name = f"{prefix}val/images/{columns[0]}"
        if columns[1] in ids:
            if name not in names:
                raise Damage(f"{printable(name)} is listed but not there")
            items.append((name, ids[columns[1]]))
    return items


def _is_image(name: str) -> bool:
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def _class_names(tree: Tree, names: set[str], prefix: str, ids: dict[str, int]) -> tuple[str, ...]:
    """Return the first name of each class in words.txt; two classes never share one."""
    words: dict[str, str] = {}
    if prefix + "words.txt" in names:
        for line in _text(tree, prefix + "words.txt"):
            key, _, text = line.partition("\t")
            if key in ids:
                words[key] = printable(text.split(",")[0].strip(), 60)
    chosen = {key: words.get(key) or printable(key, 60) for key in ids}
    taken = Counter(chosen.values())
    return tuple(
        name if taken[name] == 1 else f"{name} ({printable(key, 60)})"
        for key, name in chosen.items()
    )
