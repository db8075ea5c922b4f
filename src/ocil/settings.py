"""Settings are data: one frozen dataclass a method, whose fields say what they are.

The same names are the keys of a TOML file, the flags of the command line and the `settings` of a
record. `resolve` is where all layers meet; later ones win:

    defaults < protocol of the data set < preset < TOML < flags
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ocil.errors import OcilError, suggest
from ocil.fields import (
    Checked,
    Field,
    Fields,
    Role,
    checked,
    fields_of,
    from_mapping,
    setting,
    to_mapping,
    without_effect,
)

__all__ = [
    "Checked", "Field", "Fields", "Method", "Role", "Settings", "checked", "fields_of",
    "from_mapping", "job_id", "resolve", "setting", "to_mapping", "upgrade", "with_role",
]  # fmt: skip


@dataclass(frozen=True)
class Settings(Checked):
    """What every method understands; a method's own settings inherit from this."""

    data: str = "digits"
    """Name of the data set (`ocil data list`)."""
    memory: int | None = setting(500, low=1, costs=False)
    """Images the replay memory holds; none for methods without one."""
    seed: int = setting(0, costs=False)
    """Decides class order, order of images, initial weights and all draws."""
    preset: str = setting("default", role="name", costs=False)
    """Named group of settings for the data set (`ocil methods`)."""
    order: Literal["split", "joint"] = "split"
    """split: task after task; joint: one shuffled pass over all classes."""
    classes_per_task: int = setting(2, low=1, costs=False)
    """Classes that arrive together."""
    batch: int = setting(10, low=1)
    """Images of the stream per batch."""
    replay: int = 64
    """Images drawn from the memory per gradient step."""
    updates: int = setting(1, low=1, was=("steps",))
    """Gradient steps per stream batch, each with its own draw and augmentation."""
    effort: Literal["fixed", "low", "auto", "high"] = "fixed"
    """Gradient steps per batch: as many as `updates` says (fixed), none, so that the anchor answers
    alone (low), or by the samples so far, more while they are few (auto, high)."""
    max_updates: int = setting(4, low=1, only={"effort": ["auto", "high"]})
    """At most so many a batch with effort auto, three times as many with high."""
    jury: bool = setting(False, costs=False)
    """Hold a tenth of the memory apart, never trained on: it calibrates the answers and tells how
    good they are."""
    epochs: int = setting(1, low=1, costs=False)
    """Passes over each task; 1 is the online setting."""
    validate: bool = setting(False, costs=False)
    """Hold out 10 % of the training images of each class and evaluate on them: for tuning."""
    limit_per_class: int | None = setting(None, low=1, costs=False)
    """Use only this many training images of each class: for cheap trials."""
    net: str = "mlp"
    """Feature extractor: mlp, resnet18, resnet18-global or identity; fixed: patches, random."""
    width: int = 0
    """Width of the net; 0 is the net's own (400 for mlp, 20 for resnet18, for patches the filters
    that make 2 400 features, fewer for small images)."""
    init: Literal["torch", "kaiming", "xavier"] = "torch"
    """Initial weights of the net: torch's own, Kaiming's by fan-out (convolutions), Xavier's
    (linear layers)."""
    inputs: Literal["unit", "standardized", "scaled"] = "unit"
    """Items as the net sees them: images from 0 to 1 and vectors as they are; images less the mean
    and by the deviation of the data set's training images, channel by channel; or scaled, by those
    of the first 300 samples of the stream."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Numbers of the convolutions; bfloat16 is faster where the processor has it."""
    augment: str = "none"
    """Augmentation of every training image: none, affine, full, partial, moderate or strong."""
    retrieval: Literal["uniform", "balanced", "classes"] = "uniform"
    """How replay images are drawn, without replacement: from all, evenly over classes, or each of a
    random class."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimiser of net and head."""
    lr: float = setting(5e-4, above=0, costs=False, search=(1e-4, 1e-2))
    """Learning rate."""
    momentum: float = setting(0.0, below=1, costs=False)
    """Momentum of sgd; adamw has its own."""
    weight_decay: float = setting(1e-4, costs=False)
    """Weight decay."""
    ema: float = setting(0.995, below=1, search=(0.9, 0.99, 0.995, 0.999))
    """Decay of the average of the weights, warmed up as min(a, (1+t)/(10+t)); 0 keeps none."""
    anchor: Literal["none", "auto", "patches", "random"] = "none"
    """Fixed space beside the learned one, in which every class keeps its exact statistics: patches
    (images) or random (vectors), auto by what the items are; adds the read-outs anchor and
    fused, which then counts."""
    anchor_width: int = setting(0, only={"anchor": ["auto", "patches", "random"]})
    """Filters of patches, or random features; 0: as many as make 2 400 features, or 2 000."""
    readout: str = setting("auto", role="measure", costs=False)
    """The read-out that counts; auto is the method's own choice, and all are recorded."""
    eval_every: int = setting(50, role="measure", costs=False)
    """Steps between evaluations on the probe images; 0 for none."""
    probe: int = setting(500, role="measure", low=1, costs=False)
    """Fixed, class-balanced evaluation images for the anytime curve."""
    checkpoint_every: int = setting(500, role="machine", costs=False)
    """Steps between checkpoints; 0 keeps only those made on a signal."""
    latents: bool = setting(False, role="keep", costs=False)
    """Keep 2 000 test features and the centroids beside the record, for pictures."""
    threads: int | Literal["auto"] = setting(1, role="machine", low=1, costs=False)
    """CPU threads; auto uses all cores."""
    device: str = setting("cpu", role="machine", costs=False)
    """cpu, cuda or mps."""


def with_role(*roles: Role) -> frozenset[str]:
    """Names of the shared settings that have one of these roles; a method's own are results."""
    return frozenset(name for name, field in fields_of(Settings).items() if field.role in roles)


# What changes how a run is carried out or kept, not the question it answers.
NOT_IN_JOB = with_role("machine", "keep")


# ------------------------------------------------------------------ layers and identity


class Method(NamedTuple):
    """What is known of a method without its code: the catalog has one of each."""

    method: str
    title: str
    paper: str
    year: int | None
    needs_tasks: bool
    memory_policy: str
    readout: str
    fields: Fields
    presets: Mapping[str, Mapping[str, Any]]


def resolve(
    method: Method, protocol: Mapping[str, Any], *given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """All settings from defaults, protocol, preset and what was given, and the preset's name.

    Presets are called "NAME", "NAME/DATA" and "NAME/DATA/MEMORY", each refining the one before;
    the most special that exists names the preset in the record. A default that the method has
    changed itself wins over the protocol.
    """
    asked: dict[str, Any] = {}
    for layer in given:
        asked |= checked(method.fields, layer, "the settings")
    values = {name: field.default for name, field in method.fields.items()}
    shared = fields_of(Settings)
    values |= {
        k: v for k, v in protocol.items() if k not in shared or values[k] == shared[k].default
    }
    name, data = asked.get("preset", values["preset"]), asked.get("data", values["data"])
    known = sorted({key.split("/")[0] for key in method.presets} | {"default"})
    if name not in known:
        raise OcilError(
            f"Unknown preset '{name}'.{suggest(name, known)} Known: {', '.join(known)}."
        )
    used = name
    for level in range(3):
        memory = asked.get("memory", values["memory"])
        key = "/".join([name, data, str(memory)][: level + 1])
        if key in method.presets:
            values, used = values | dict(method.presets[key]), key
    values = checked(method.fields, values | asked, "the settings")
    for key, why in without_effect(method.fields, values).items():
        if values[key] != method.fields[key].default and key in asked:
            raise OcilError(why)
        values[key] = method.fields[key].default
    return values, used


def job_id(method: Method, settings: Mapping[str, Any]) -> str:
    """sha256 of the method and of every setting that differs from its frozen default.

    So a new setting changes no id, and neither does a new default.
    """
    frozen = {key: field.frozen for key, field in method.fields.items()}
    idle = {"preset", *NOT_IN_JOB, *without_effect(method.fields, settings)}
    question = {
        key: value
        for key, value in settings.items()
        if key not in idle and (key, value) not in frozen.items()
    }
    text = json.dumps({"method": method.method, **question}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def upgrade(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an older record, run folder or model file in today's names, none missing.

    What is not there was made before the setting existed and has its frozen default; what has no
    effect has today's.
    """
    names = {old: name for name, field in method.fields.items() for old in field.was}
    given = {names.get(key, key): value for key, value in settings.items()}
    values = {key: field.frozen for key, field in method.fields.items()} | given
    idle = without_effect(method.fields, values)
    return values | {key: method.fields[key].default for key in idle}
