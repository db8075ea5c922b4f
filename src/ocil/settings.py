"""Settings are data: one frozen, flat dataclass a method.

The same fields are the keys of a TOML file, the flags of the command line and the `settings` of a
record. Later layers win: defaults < the data set's protocol < preset < TOML < flags.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from ocil.errors import OcilError, suggest
from ocil.plainfile import read_plain

TOML_BYTES = 1 << 20
# Settings that change how a run is carried out, not the question it answers: they stay out of the
# job id, so a study finds a finished run again whatever machine made it.
NOT_IN_JOB = frozenset({"checkpoint_every", "threads", "device", "latents"})


@dataclass(frozen=True)
class Settings:
    """What every method understands; a method's own settings inherit from this."""

    data: str = "digits"
    """Name of the data set (`ocil data list`)."""
    memory: int | None = 500
    """Images the replay memory holds; none for methods without one."""
    seed: int = 0
    """Decides class order, order of images, initial weights and all draws."""
    preset: str = "default"
    """Named group of settings for the data set (`ocil methods`)."""
    order: Literal["split", "joint"] = "split"
    """split: task after task; joint: one shuffled pass over all classes."""
    classes_per_task: int = 2
    """Classes that arrive together."""
    batch: int = 10
    """Images of the stream per batch."""
    replay: int = 64
    """Images drawn from the memory per gradient step."""
    steps: int = 1
    """Gradient steps per stream batch, each with its own draw and augmentation."""
    epochs: int = 1
    """Passes over each task; 1 is the online setting."""
    validate: bool = False
    """Hold out 10 % of the training images of each class and evaluate on them: for tuning."""
    limit_per_class: int | None = None
    """Use only this many training images of each class: for cheap trials."""
    net: str = "mlp"
    """Feature extractor: mlp, resnet18, resnet18-global or identity."""
    width: int = 0
    """Width of the net; 0 is the net's own (400 for mlp, 20 for resnet18)."""
    init: Literal["torch", "kaiming", "xavier"] = "torch"
    """Initial weights of the net: torch's own, Kaiming's by fan-out (convolutions), Xavier's
    (linear layers)."""
    inputs: Literal["unit", "standardized"] = "unit"
    """Images as the net sees them: from 0 to 1, or less the mean and by the deviation of the data
    set's training images, channel by channel."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Numbers of the convolutions; bfloat16 is faster where the processor has it."""
    augment: str = "none"
    """Augmentation of every training image: none, affine, full, partial, moderate or strong."""
    retrieval: Literal["uniform", "balanced", "classes"] = "uniform"
    """How replay images are drawn, without replacement: from all, evenly over classes, or each of a
    random class."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimiser of net and head."""
    lr: float = 5e-4
    """Learning rate."""
    momentum: float = 0.0
    """Momentum of sgd; adamw has its own."""
    weight_decay: float = 1e-4
    """Weight decay."""
    ema: float = 0.995
    """Decay of the average of the weights, warmed up as min(a, (1+t)/(10+t)); 0 keeps none."""
    readout: str = "auto"
    """The read-out that counts; auto is the method's own choice, and all are recorded."""
    eval_every: int = 50
    """Steps between evaluations on the probe images; 0 for none."""
    probe: int = 500
    """Fixed, class-balanced evaluation images for the anytime curve."""
    checkpoint_every: int = 500
    """Steps between checkpoints; 0 keeps only those made on a signal."""
    latents: bool = False
    """Keep 2 000 test features and the centroids beside the record, for pictures."""
    threads: int | Literal["auto"] = 1
    """CPU threads; auto uses all cores."""
    device: str = "cpu"
    """cpu, cuda or mps."""

    def __post_init__(self) -> None:
        for name, low in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value != "auto" and value < low:
                raise OcilError(f"Setting {name} is {value} but must be at least {low}.")
            if isinstance(value, int) and value >= 2**63:
                raise OcilError(f"Setting {name} is {value} but must be below 2^63.")
        if not 0 <= self.ema < 1:
            raise OcilError(f"Setting ema is {self.ema} but must be at least 0 and below 1.")
        if not 0 <= self.momentum < 1:
            raise OcilError(f"Setting momentum is {self.momentum} but must be in [0, 1).")
        if not 0 < self.lr < math.inf:
            raise OcilError(f"Setting lr is {self.lr} but must be a positive number.")
        if not self.weight_decay < math.inf:
            raise OcilError(f"Setting weight_decay is {self.weight_decay} but must be finite.")
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise OcilError(f"Setting {name} is {value} but must be at least 0 and finite.")


_AT_LEAST = {
    "memory": 1, "seed": 0, "classes_per_task": 1, "batch": 1, "replay": 0, "steps": 1,
    "epochs": 1, "limit_per_class": 1, "width": 0, "weight_decay": 0, "eval_every": 0, "probe": 1,
    "checkpoint_every": 0, "threads": 1,
}  # fmt: skip

S = TypeVar("S", bound=Settings)


def above_zero(settings: Settings, *names: str) -> None:
    """Refuse settings of these names that are 0; below 0 none may be."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise OcilError(f"Setting {name} is {getattr(settings, name)} but must be above 0.")


def at_least_one(settings: Settings, *names: str) -> None:
    """Refuse counts below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise OcilError(f"Setting {name} is {getattr(settings, name)} but must be at least 1.")


def known_keys(kind: type[Settings]) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def from_mapping(kind: type[S], values: Mapping[str, Any], where: str = "the settings") -> S:
    """Build settings from plain data; an unknown key or a wrong type is an error that says so."""
    return kind(**checked(kind, values, where))


def checked(kind: type[Settings], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values if all keys are known and all types are right; ranges are checked by `kind`."""
    hints = typing.get_type_hints(kind)
    sound = {}
    for key, value in values.items():
        if key not in hints:
            raise OcilError(f"Unknown setting '{key}' in {where}.{suggest(key, hints)}")
        sound[key] = _coerce(key, value, hints[key], where)
    return sound


def _coerce(key: str, value: Any, hint: Any, where: str) -> Any:
    """Accept exactly what the type hint says (and an int where a float is asked for)."""
    if type(value) is int and abs(value) >= 2**64:
        raise OcilError(
            f"Setting {key} in {where} has {value.bit_length()} bits but must be below 2^63."
        )
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    options = typing.get_args(hint) if union else (hint,)
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
        elif option is type(None):
            if value is None:
                return None
        elif option is float and type(value) in (int, float):
            return float(value)
        elif type(value) is option:
            return value
    wanted = _readable(options)
    raise OcilError(f"Setting {key} in {where} is {_shown(value)} but must be {wanted}.")


def _shown(value: Any) -> str:
    """A value for a sentence; what is long, or cannot be written, is cut short."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits within
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."


def _readable(options: tuple[Any, ...]) -> str:
    names = []
    for option in options:
        if typing.get_origin(option) is Literal:
            names += [repr(v) for v in typing.get_args(option)]
        else:
            names.append("none" if option is type(None) else option.__name__)
    return " or ".join(names)


def to_mapping(settings: Settings) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def layered(
    kind: type[S],
    protocol: Mapping[str, Any],
    presets: Mapping[str, Mapping[str, Any]],
    *explicit: Mapping[str, Any],
) -> tuple[S, str]:
    """Merge defaults, protocol, preset and explicit layers; return the settings and preset name.

    `presets` maps "NAME", "NAME/DATA" and "NAME/DATA/MEMORY" to settings, each refining the one
    before; the most special that exists names the preset in the record.
    """
    given: dict[str, Any] = {}
    for layer in explicit:
        given |= checked(kind, layer, "the settings")
    name = given.get("preset", kind.preset)
    known = sorted({key.split("/")[0] for key in presets} | {"default"})
    if name not in known:
        raise OcilError(
            f"Unknown preset '{name}'.{suggest(name, known)} Known: {', '.join(known)}."
        )
    data = given.get("data", kind.data)
    defaults = {k: v for k, v in protocol.items() if k not in _own_defaults(kind)}
    merged: dict[str, Any] = defaults | dict(presets.get(name, {}))
    special = presets.get(f"{name}/{data}", {})
    merged |= special
    memory = given.get("memory", merged.get("memory", kind.memory))
    merged |= presets.get(f"{name}/{data}/{memory}", {})
    used = [key for key in (name, f"{name}/{data}", f"{name}/{data}/{memory}") if key in presets]
    settings = from_mapping(kind, merged | given | {"data": data})
    return settings, used[-1] if used else name


def on_colour(
    preset: str, settings: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Presets "PRESET/DATA" for the colour images: `settings` on top of those in `own` by data."""
    data = ("cifar10", "cifar100", "tiny-imagenet")
    return {f"{preset}/{name}": dict((own or {}).get(name, {})) | dict(settings) for name in data}


def mixed_in(
    preset: str, size: int, images: Mapping[str, int], share: float = 1.0
) -> dict[str, dict[str, Any]]:
    """Presets "PRESET/DATA/MEMORY" for methods that shuffle the memory into a task's images.

    Of a batch of `size`, cut from `images` of the task and M of the memory, M / (images + M) come
    from the memory; `share` of the memory is meant for training.

    >>> mixed_in("reference", 512, {"cifar10": 10_000})["reference/cifar10/500"]
    {'batch': 488, 'replay': 24}
    """
    found = {}
    for data, count in images.items():
        for memory in (200, 500, 1000, 2000, 5000, 5120, 10_000):
            replay = round(size * share * memory / (count + share * memory))
            found[f"{preset}/{data}/{memory}"] = {"batch": size - replay, "replay": replay}
    return found


def _own_defaults(kind: type[Settings]) -> set[str]:
    """Fields whose default a method has changed itself; the data set's protocol yields to them."""
    base = {f.name: f.default for f in dataclasses.fields(Settings)}
    return {
        f.name for f in dataclasses.fields(kind) if f.name in base and f.default != base[f.name]
    }


def job_id(method: str, settings: Mapping[str, Any], defaults: Settings) -> str:
    """sha256 of what determines the result: method and settings, in canonical JSON.

    Keys that a record made by an older version lacks take today's default, so that adding a
    setting does not orphan finished runs.
    """
    return question_id(method, to_mapping(defaults) | dict(settings))


def question_id(method: str, settings: Mapping[str, Any]) -> str:
    """sha256 of method and settings as they are, without those that change no result."""
    question = {k: v for k, v in settings.items() if k not in NOT_IN_JOB and k != "preset"}
    text = json.dumps({"method": method, **question}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data, or one sentence on what is wrong with it."""
    try:
        return tomllib.loads(read_plain(path, TOML_BYTES).decode("utf-8"))
    except OSError as error:
        raise OcilError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        problem = " ".join(str(error).split())[:200].rstrip(".")
        raise OcilError(f"{path} is not valid TOML: {problem}.") from error
