"""Presets that several methods write alike."""

from collections.abc import Mapping
from typing import Any

Presets = dict[str, dict[str, Any]]


def on_colour(
    preset: str, settings: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]] | None = None
) -> Presets:
    """Presets "PRESET/DATA" for the colour images: `settings` on top of those in `own` by data."""
    data = ("cifar10", "cifar100", "tiny-imagenet")
    return {f"{preset}/{name}": dict((own or {}).get(name, {})) | dict(settings) for name in data}


def with_large_anchor(presets: Mapping[str, Mapping[str, Any]]) -> Presets:
    """The same and `large`: the default with an anchor of 800 filters, 84 MB.

    Characters of MNIST's kind have nine regions in place of four: 300 filters, 60 MB. The digits
    are too small for more filters than the default has.

    >>> with_large_anchor({"default": {"lr": 1}})["large"]
    {'lr': 1, 'anchor': 'patches', 'anchor_width': 800}
    """
    large = {
        key.replace("default", "large", 1): dict(value)
        for key, value in presets.items()
        if key.split("/")[0] == "default"
    }
    large["large"] |= {"anchor": "patches", "anchor_width": 800}
    for data, width in {"mnist": 300, "fashion-mnist": 300, "digits": 0}.items():
        large[f"large/{data}"] = large.get(f"large/{data}", {}) | {"anchor_width": width}
    return {key: dict(value) for key, value in presets.items()} | large


def mixed_in(preset: str, size: int, images: Mapping[str, int], share: float = 1.0) -> Presets:
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
