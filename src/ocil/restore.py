"""Between a classifier and its model file: what is written down, and how it is taken up again."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ocil import nets, samples
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.modelfile import ModelFile
from ocil.nets.foreign import Foreign, offering
from ocil.samples import Form
from ocil.session import UNFIT, Session, State
from ocil.settings import Settings, to_mapping
from ocil.version import __version__

IMAGES = "learner.memory.column."
MOST_UNFINISHED = 20  # data sets whose place `ocil learn` keeps; of more the oldest go
LARGEST_ITEM = 1 << 26  # numbers in one item


def note_of(
    session: Session, form: Form, state: State, facts: Mapping[str, Any], memory: bool
) -> ModelFile:
    """Note and tensors of a classifier: its state, and `facts` that are no part of it."""
    tensors, scalars = state
    if not memory:
        tensors, scalars = _without_images(tensors, scalars)
    net = session.learner.model.net
    frozen = [n for n, w in net.named_parameters() if not w.requires_grad]
    note = {
        "ocil": __version__,
        "method": session.method,
        "settings": to_mapping(session.settings),
        "shape": list(form.shape),
        "dtype": form.dtype,
        "module": type(net.module).__name__ if isinstance(net, Foreign) else None,  # for people
        "frozen": frozen,
        "memory": memory,
        "scalars": scalars,
    }
    return ModelFile(note | dict(facts), tensors)


def _without_images(
    tensors: dict[str, torch.Tensor], scalars: dict[str, Any]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A memory that has seen nothing, and no pending samples."""
    kept = {k: v for k, v in tensors.items() if not k.startswith((IMAGES, "pending."))}
    if "learner.memory.seen" in kept:
        kept["learner.memory.seen"] = torch.tensor(0)
        kept["learner.memory.place"] = torch.zeros(0, dtype=torch.int64)
    return kept, {k: v for k, v in scalars.items() if k != "pending"}


def restored(content: ModelFile, net: nn.Module | None) -> dict[str, Any]:
    """The attributes of the classifier in a file: its parameters, and its state under _names."""
    try:
        return _restored(content, net)
    except UNFIT as error:
        problem = " ".join(str(error).split())[:200].rstrip(".")
        raise OcilError(f"its content does not fit together ({problem}); copy it again.") from error


def _restored(content: ModelFile, net: nn.Module | None) -> dict[str, Any]:
    note, tensors = content
    kind = registry.get(note["method"])
    values = registry.upgraded(kind.method, note["settings"])
    settings = registry.make_settings(kind.method, values, "the model file")
    form = _form(note)
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
    scalars = note["scalars"]
    state = {k: v for k, v in tensors.items() if not k.startswith("pending.")}
    known = samples.labels(scalars["labels"], len(scalars["labels"]), [])
    with offering(module):
        session = Session(kind, settings, form.shape)
    session._load(State(state, {k: v for k, v in scalars.items() if k != "pending"}))
    if (held := state.get(f"{IMAGES}x")) is not None and _dtype(held) != form.dtype:
        raise ValueError(f"the memory holds items of {held.dtype}")
    pending = None
    if "pending" in scalars:
        x = tensors["pending.x"]
        labels = samples.labels(scalars["pending"], len(x), known)
        if Form(tuple(x.shape[1:]), _dtype(x)) != form or not labels:
            raise ValueError("the pending samples are of another form")
        pending = x, labels
    counts = note["counts"]
    if len(counts) != len(known) or not all(type(n) is int and n >= 0 for n in counts):
        raise ValueError("its counts are not those of its classes")
    own = {"method": kind.method, "channels": note["channels"]}
    params = to_mapping(settings) | ({"net": net} if net is not None else {}) | own
    return params | {
        "_session": session,
        "_form": form,
        "_channels": note["channels"],
        "_names": None if note["names"] is None else [str(name) for name in note["names"]],
        "_pending": pending,
        "_counts": Counter(dict(zip(known, counts, strict=True))),
        "_unfinished": _unfinished(note),
    }


def _unfinished(note: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The data that `ocil learn` has not learned to the end, and how far it came in each."""
    found = note.get("unfinished", {})
    for place in found.values():
        numbers = [place[key] for key in ("known", "learned", "samples")]
        if (
            not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
            or not isinstance(place["name"], str)
            or not isinstance(place["given"], dict)
        ):
            raise ValueError("its place in the data is none")
    return found


def _dtype(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _form(note: dict[str, Any]) -> Form:
    shape, dtype = tuple(note["shape"]), note["dtype"]
    if (
        len(shape) not in (1, 3)
        or not all(type(n) is int and 1 <= n <= LARGEST_ITEM for n in shape)
        or math.prod(shape) > LARGEST_ITEM
        or dtype not in ("uint8", "float32")
        or note["channels"] not in ("auto", "first", "last")
    ):
        raise ValueError(f"items of shape {shape} and type {dtype!r}")
    return Form(shape, dtype)


def _check_sizes(
    settings: Settings, form: Form, tensors: dict[str, torch.Tensor], module: nn.Module | None
) -> None:
    """Compare the network that the settings ask for with the weights, before any is allocated."""
    if module is None:
        with torch.device("meta"):
            seed = torch.Generator(device="cpu").manual_seed(0)
            net = nets.build(settings.net, form.shape, width=settings.width, generator=seed)
        wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    else:
        wanted = {f"module.{n}": tuple(v.shape) for n, v in module.state_dict().items()}
    prefix = "learner.model.net."
    found = {
        k.removeprefix(prefix): tuple(v.shape) for k, v in tensors.items() if k.startswith(prefix)
    }
    if found != wanted:
        odd = sorted(set(found.items()) ^ set(wanted.items()))[:2]
        raise ValueError(f"the network has other weights than the file: {odd}")
