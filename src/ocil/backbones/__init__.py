"""Backbones by name: `net="hf:NAME_OR_FOLDER"`, a frozen model that turns items into vectors.

A backbone stands in front of a classifier. Every text or picture becomes a vector once, when it
comes in; network, memory and statistics only ever see vectors. `ocil.backbones.encode` computes
them with transformers (`pip install ocil[backbones]`).
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ocil.errors import OcilError, brief
from ocil.samples import Channels
from ocil.text import plain

if TYPE_CHECKING:
    from ocil.backbones.encode import Pictures, Texts

PREFIX = "hf:"
WEIGHTS = "model.safetensors"
TOKENS = ("tokenizer.json", "vocab.txt", "vocab.json")  # one of them makes it a model of texts
# What is read, fetched, hashed and carried; nothing else of a model's folder is looked at by us.
FILES = (
    "config.json", WEIGHTS, *TOKENS, "merges.txt", "tokenizer_config.json",
    "special_tokens_map.json", "preprocessor_config.json", "sentence_bert_config.json",
    "modules.json", "1_Pooling/config.json",
)  # fmt: skip


class Backbone:
    """A model on disk, or the one that a model file carries; it is opened when it is needed."""

    def __init__(
        self,
        name: str,
        sha256: str,
        nbytes: int,
        *,
        folder: Path | None = None,
        carried: Mapping[str, bytes] | None = None,
        device: str = "cpu",
    ) -> None:
        self.name, self.sha256, self.nbytes, self.device = name, sha256, nbytes, device
        self.folder, self.carried = folder, carried

    @cached_property
    def encoder(self) -> Texts | Pictures:
        """The model itself; one whose files are not those that were learned with is refused."""
        from ocil.backbones.encode import opened

        if self.carried is None:
            return opened(self._place(), self.name, self.device)
        with tempfile.TemporaryDirectory() as place:
            for file, content in self.carried.items():
                target = Path(place, file)
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
            return opened(Path(place), self.name, self.device)

    def _place(self) -> Path:
        """Its folder; the one that a model file names is looked for on disk only."""
        if self.folder is None:
            self.folder = _the_same(find(self.name, fetch=False), self.sha256).folder
        assert self.folder is not None
        return self.folder

    def vectors(self, X: Any, channels: Channels) -> np.ndarray:
        """Texts, picture files or images -> float32 (n, d); each has the bits it has alone."""
        return self.encoder.vectors(X, channels)

    def files(self) -> dict[str, Tensor]:
        """The bytes of its files as tensors, for a model file that carries it."""
        found = self.carried
        if found is None:
            found = {file: path.read_bytes() for file, path in _present(self._place()).items()}
        return {k: torch.frombuffer(bytearray(v), dtype=torch.uint8) for k, v in found.items()}

    def note(self) -> dict[str, Any]:
        """What a model file says of it."""
        return {"name": self.name, "sha256": self.sha256, "bytes": self.nbytes}


def named(net: object) -> bool:
    """Whether the value of `net` names a backbone."""
    return isinstance(net, str) and net.startswith(PREFIX)


def find(name: str, device: str = "cpu", fetch: bool = True) -> Backbone:
    """The backbone hf:NAME_OR_FOLDER: a folder, a model in the cache of the Hub, or fetched."""
    given = name.removeprefix(PREFIX)
    folder = Path(given).expanduser()
    if not given or not folder.is_dir():
        folder = _of_hub(given, fetch)
    for file in ("config.json", WEIGHTS):
        if not (folder / file).is_file():
            raise OcilError(
                f"The backbone {plain(name)} has no file {file}; only models in one {WEIGHTS} are "
                "read, no pickles. Save it anew with save_pretrained."
            )
    present = _present(folder)
    size = sum(path.stat().st_size for path in present.values())
    return Backbone(name, digest(present), size, folder=folder.resolve(), device=device)


def restored(
    said: Mapping[str, Any] | None, carried: Mapping[str, Tensor], device: str, net: object
) -> Backbone | None:
    """That of a model file, which says or carries it; `net` is where it is now, if that is text."""
    if isinstance(net, str) and not (said and named(net)):
        raise OcilError(f"it names no backbone, but net is {net!r}; leave it out.")
    if not said:
        return None
    name, sha256, size = said["name"], said["sha256"], said["bytes"]
    if not named(name) or not isinstance(sha256, str) or type(size) is not int:
        raise ValueError("its backbone has no name, hash or size")
    if not set(carried) <= set(FILES):
        raise ValueError("it carries files that no backbone has")
    if isinstance(net, str):
        return _the_same(find(net, device), sha256)
    files = {file: content.numpy().tobytes() for file, content in carried.items()}
    if files and digest(files) != sha256:
        raise ValueError("it carries another backbone than it names")
    return Backbone(name, sha256, size, carried=files or None, device=device)


def digest(files: Mapping[str, Path] | Mapping[str, bytes]) -> str:
    """sha256 over the names and the content of files."""
    whole = hashlib.sha256()
    for file, content in sorted(files.items()):
        with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
            whole.update(f"{file} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _the_same(found: Backbone, sha256: str) -> Backbone:
    if found.sha256 == sha256:
        return found
    raise OcilError(
        f"The backbone {plain(found.name)} has other content than the one this model learned with "
        f"(sha256 {found.sha256[:12]}, not {plain(sha256, 12)}); give that one with "
        f"load(path, net='{PREFIX}FOLDER')."
    )


def _present(folder: Path) -> dict[str, Path]:
    return {file: folder / file for file in FILES if (folder / file).is_file()}


def _of_hub(name: str, fetch: bool) -> Path:
    """The folder of a model of the Hugging Face Hub."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise missing_package() from error
    problem: Exception | None = None
    for local in (True, False) if fetch else (True,):
        try:
            return Path(snapshot_download(name, allow_patterns=list(FILES), local_files_only=local))
        except Exception as error:  # of the network, of the Hub, of the disk
            problem = error
    how = "and could not be fetched" if fetch else "where a model file may only look"
    said = brief(problem, 70) if problem else ""
    raise OcilError(
        f"The backbone {PREFIX}{plain(name)} is not on disk, {how} ({said}); give the folder of a "
        f"model, net='{PREFIX}FOLDER'."
    )


def missing_package() -> OcilError:
    return OcilError("Backbones by name need transformers; install it: pip install ocil[backbones]")
