"""One file for a classifier: safetensors, with a JSON note in its metadata.

    8 bytes   length of the header, little endian
    header    JSON: the place of every tensor, and "__metadata__": {"ocil.model": NOTE}
    tensors   weights, memory, mixtures, optimiser, generators, pending samples

NOTE is JSON itself: version, method, settings, labels, what the items are, and `sha256` over all
tensors and the rest of the note. Any safetensors reader opens the file; nothing in it is code. A
file contains training images (the replay memory) unless it was saved without them.
"""

from __future__ import annotations

import copy
import io
import json
import math
import os
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from ocil import backbones, nets, samples
from ocil.errors import OcilError, refusing
from ocil.labels import Label
from ocil.learners import registry
from ocil.learners.parts import strip_prefix
from ocil.nets.foreign import Foreign, offering
from ocil.samples import Channels, Form
from ocil.session import Session, State
from ocil.settings import Settings, to_mapping
from ocil.version import __version__

VERSION = 1
KEY = "ocil.model"
CARRIED = "backbone."  # and the name of a file of it
MAX_HEADER = 32 << 20  # bytes
MAX_ITEM = 1 << 26  # numbers in one item


class ModelFile(NamedTuple):
    """Content of a file: plain values, and tensors by name."""

    note: dict[str, Any]
    tensors: dict[str, torch.Tensor]


@dataclass
class Learned:
    """What a classifier has learned, and the samples that wait to be."""

    session: Session
    form: Form
    channels: Channels
    names: list[str] | None = None  # of a data frame's columns
    pending: tuple[torch.Tensor, list[Label]] | None = None
    counts: Counter[Label] = field(default_factory=Counter)
    unfinished: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By data: where `ocil learn` is in them."""
    arrivals: list[float] = field(default_factory=list)
    """Novelty of samples of known classes as they came, before they were learned; the latest."""
    backbone: backbones.Backbone | None = None
    """What made vectors of the items given, if anything did."""

    @property
    def classes(self) -> list[Label]:
        """Labels that answers know of: those learned, and those that wait but count already."""
        learned, session = self.session.labels.classes, self.session
        at_once = session.learner.counts_at_once and (learned or session.settings.net != "module")
        waiting = self.pending[1] if self.pending and at_once else []
        new = [label for label in waiting if label not in self.session.labels]
        return [*learned, *dict.fromkeys(new)]

    def counting(self) -> AbstractContextManager[None]:
        """Inside, the answers count the pending samples, where they can."""
        learner, labels = self.session.learner, self.session.labels.classes
        if not self.pending or not labels or not learner.counts_at_once:
            return nullcontext()
        ids = {label: i for i, label in enumerate(self.classes)}
        return learner.counting(self.pending[0], torch.tensor([ids[c] for c in self.pending[1]]))

    def state(self, samples: bool = True) -> State:
        """All that later behaviour depends on; `samples=False` leaves out those of the stream."""
        tensors, scalars = self.session.state(samples)
        if self.pending and samples:
            tensors["pending.x"], scalars["pending"] = self.pending
        return State(tensors, scalars)


def dump(note: dict[str, Any], tensors: dict[str, torch.Tensor]) -> bytes:
    """The bytes of a file."""
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    note = {**note, "version": VERSION}
    note["sha256"] = State(tensors, note).sha256()
    blob = save_tensors(tensors, metadata={KEY: json.dumps(note, sort_keys=True)})
    if (size := int.from_bytes(blob[:8], "little")) > MAX_HEADER:
        raise OcilError(
            f"The header of the model would have {size} bytes, at most {MAX_HEADER} are read "
            "again; shorten the labels."
        )
    return blob


def parse(blob: bytes) -> ModelFile:
    """The content of a file, from its bytes."""
    return _parse(io.BytesIO(blob), "The model")


def read(path: Path) -> ModelFile:
    """The content of a file."""
    try:
        if not path.is_file():
            raise OcilError(f"There is no model file {path}; `ocil learn` or save() makes one.")
        with path.open("rb") as stream:
            return _parse(stream, str(path))
    except OSError as error:
        raise OcilError(f"Cannot read {path}: {error.strerror}.") from error


def _parse(stream: BinaryIO, where: str) -> ModelFile:
    """Note and tensors; the header is looked at before the rest is taken into memory."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    claimed = int.from_bytes(stream.read(8), "little")
    if size < 8 or claimed > min(size - 8, MAX_HEADER):
        raise OcilError(
            f"{where} is no model of ocil, or it is cut off: its header would have {claimed} bytes "
            f"in a file of {size}."
        )
    sentence = f"{where} is truncated, altered or no model of ocil"
    with refusing(sentence, "copy it again", SafetensorError):
        header = json.loads(stream.read(claimed))
        text = (header.pop("__metadata__", None) or {}).get(KEY)
        if text is None:
            raise OcilError(f"{where} is of another program: it has no note '{KEY}'.")
        wanted = 8 + claimed + max((item["data_offsets"][1] for item in header.values()), default=0)
        if size != wanted:
            raise ValueError(f"it has {size} bytes, expected {wanted}")
        note = json.loads(text)
        if type(version := note["version"]) is not int or version < 1:
            raise ValueError(f"its version is {version!r}")
        if version > VERSION:
            raise OcilError(
                f"{where} was made by a newer ocil (format {version}, this one reads up to "
                f"{VERSION}); upgrade with `pip install --upgrade ocil`."
            )
        stream.seek(0)
        tensors, checksum = load_tensors(stream.read()), note.pop("sha256")
        if State(tensors, note).sha256() != checksum:
            raise ValueError("its checksum is another")
    return ModelFile(note, tensors)


# -------------------------------------------------------------------- what is in the note


def content_of(learned: Learned, memory: bool, backbone: bool | None = None) -> ModelFile:
    """Note and tensors of a classifier, with or without samples of the stream."""
    session, (tensors, scalars) = learned.session, learned.state(samples=memory)
    net = session.learner.model.net
    note = {
        "ocil": __version__,
        "method": session.method,
        "settings": to_mapping(session.settings),
        "shape": list(learned.form.shape),
        "dtype": learned.form.dtype,
        "module": type(net.module).__name__ if isinstance(net, Foreign) else None,  # for people
        "frozen": [n for n, w in net.named_parameters() if not w.requires_grad],
        "memory": memory,
        "scalars": scalars,
        "channels": learned.channels,
        "names": learned.names,
        "counts": [learned.counts[label] for label in session.labels.classes],
    }
    if learned.arrivals:
        note["arrivals"] = learned.arrivals
    if memory and learned.unfinished:
        note["unfinished"] = learned.unfinished
    if front := learned.backbone:
        note["backbone"] = front.note()
        if backbone or (backbone is None and front.carried):
            tensors |= {CARRIED + name: value for name, value in front.files().items()}
    return ModelFile(note, tensors)


@refusing("its content does not fit together", "copy it again")
def restore(content: ModelFile, net: nn.Module | str | None) -> Learned:
    """What the classifier in a file has learned; `net` where it was made with a module."""
    note, tensors = content
    kind = registry.get(note["method"])
    values = registry.upgraded(kind.method, note["settings"])
    settings = registry.make_settings(kind.method, values, "the model file")
    form, scalars = _form(note), note["scalars"]
    carried = strip_prefix(tensors, CARRIED)
    front = backbones.restored(note.get("backbone"), carried, settings.device, net)
    net = None if isinstance(net, str) else net
    if (settings.net == "module") != (net is not None):
        given = "but one is given; leave it out" if net else "give it with net=module"
        needs = "a module of its own" if settings.net == "module" else "no module of yours"
        raise OcilError(f"it was made with {needs} as net, {given}.")
    module = copy.deepcopy(net)
    if module is not None:
        frozen = set(map(str, note["frozen"]))
        for name, weight in module.named_parameters(prefix="module"):
            weight.requires_grad_(name not in frozen)
    _check_sizes(settings, form, tensors, module)
    known = samples.labels(scalars["labels"], len(scalars["labels"]), [])
    with offering(module):
        session = Session(kind, settings, form.shape)
    state = {k: v for k, v in tensors.items() if not k.startswith(("pending.", CARRIED))}
    session.take_up(State(state, {k: v for k, v in scalars.items() if k != "pending"}))
    held = session.learner.memory.columns.get("x")
    if held is not None and Form.of(held) != form:
        raise ValueError(f"the memory holds items of {held.dtype}")
    pending = None
    if "pending" in scalars:
        x = tensors["pending.x"]
        pending = x, samples.labels(scalars["pending"], len(x), known)
        if Form.of(x) != form or not len(x):
            raise ValueError("the pending samples are of another form")
    counts = note["counts"]
    if len(counts) != len(known) or not all(type(n) is int and n >= 0 for n in counts):
        raise ValueError("its counts are not those of its classes")
    names = None if note["names"] is None else [str(name) for name in note["names"]]
    counted = Counter(dict(zip(known, counts, strict=True)))
    arrivals = [float(value) for value in note.get("arrivals", [])]
    return Learned(
        session, form, note["channels"], names, pending, counted, _unfinished(note), arrivals, front
    )


def _unfinished(note: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The data that `ocil learn` has not learned to the end, and how far it came in each."""
    found = note.get("unfinished", {})
    for place in found.values():
        numbers = [place[key] for key in ("known", "learned", "samples")]
        numbers += [place["consolidate"]] if "consolidate" in place else []
        sound = isinstance(place["name"], str) and isinstance(place["given"], dict)
        if not sound or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
            raise ValueError("its place in the data is none")
    return found


def _form(note: dict[str, Any]) -> Form:
    shape, dtype = tuple(note["shape"]), note["dtype"]
    whole = len(shape) in (1, 3) and all(type(n) is int and 1 <= n <= MAX_ITEM for n in shape)
    known = dtype in ("uint8", "float32") and note["channels"] in ("auto", "first", "last")
    if not whole or not known or math.prod(shape) > MAX_ITEM:
        raise ValueError(f"items of shape {shape} and type {dtype!r}")
    return Form(shape, dtype)


def _check_sizes(
    settings: Settings, form: Form, tensors: dict[str, torch.Tensor], module: nn.Module | None
) -> None:
    """Compare the network that the settings ask for with the weights, before any is allocated."""
    if module is None:
        with torch.device("meta"):
            seed = torch.Generator(device="cpu").manual_seed(0)
            own = getattr(settings, settings.net, None)  # the group of the net's options
            net = nets.build(
                settings.net, form.shape, width=settings.width, generator=seed, options=own
            )
        wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    else:
        wanted = {f"module.{n}": tuple(v.shape) for n, v in module.state_dict().items()}
    found = {k: tuple(v.shape) for k, v in strip_prefix(tensors, "learner.model.net.").items()}
    if found != wanted:
        odd = sorted(set(found.items()) ^ set(wanted.items()))[:2]
        raise ValueError(f"the network has other weights than the file: {odd}")
