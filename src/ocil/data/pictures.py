"""Pictures of any size and format as one uint8 array, each measured before it is decoded."""

from __future__ import annotations

import io
import logging
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ocil.data.damage import Damage
from ocil.data.source import printable
from ocil.errors import OcilError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MOST_PIXELS = 1 << 26  # in one picture: more is a decompression bomb, or no picture to learn from
MOST_BYTES = 4 << 30  # of all decoded pictures together
FILE_BYTES = 64 << 20
_BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, MemoryError, EOFError, struct.error,
)  # fmt: skip
_NAMED = 20  # pictures passed over that are named one by one

GREY = ("1", "L", "I", "I;16", "LA")  # modes of Pillow

Bad = Literal["fail", "skip"]
Shape = tuple[int, int, int]  # (C, H, W)
log = logging.getLogger("ocil")


class Colour(Exception):
    """A picture in colour where a grey one is wanted."""


def opened(data: bytes) -> Any:
    """A picture whose size is known and bearable; its pixels are not decoded yet."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # we check ourselves
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
        width, height = image.size
    except Image.DecompressionBombError as error:
        raise Damage(f"it claims more than {MOST_PIXELS} pixels") from error
    except _BROKEN as error:
        raise Damage(f"its {len(data)} bytes are no picture that can be decoded") from error
    if width * height > MOST_PIXELS or not width * height:
        raise Damage(f"it claims {width}x{height} pixels, at most {MOST_PIXELS} are decoded")
    return image


def decoded(data: bytes, shape: Shape) -> np.ndarray:
    """A picture as uint8 (C, H, W): scaled until it covers H x W, the middle cut out."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = opened(data)
            if image.format == "JPEG":  # where cameras write how they were held
                image = ImageOps.exif_transpose(image)
            if channels == 1 and _in_colour(image):
                raise Colour
            image = _eight_bits(image).convert("RGB" if channels == 3 else "L")
        if image.size != (width, height):
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    except _BROKEN as error:
        raise Damage("its pixels cannot be decoded") from error
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _in_colour(image: Any) -> bool:
    """Whether any pixel is not grey; pictures that store grey as three equal colours are grey."""
    if image.mode in GREY:
        return False
    pixels = np.asarray(image.convert("RGB"))
    return bool((pixels != pixels[..., :1]).any())


def _eight_bits(image: Any) -> Any:
    """Grey of 16 bits brought to 8, which Pillow's own conversion would cut off at 255."""
    if not image.mode.startswith("I"):
        return image
    from PIL import Image as Pillow

    values = np.asarray(image).astype(np.int64)
    if image.mode != "I" or values.max(initial=0) > 255:  # mode I says nothing of its range
        values = values // 257
    return Pillow.fromarray(values.clip(0, 255).astype(np.uint8))


def decode_all(
    names: Sequence[str],
    read: Callable[[int], bytes],
    resize: int | None = None,
    bad: Bad = "fail",
    shape: Shape | None = None,
) -> tuple[np.ndarray, list[int]]:
    """All pictures uint8 (n, C, H, W), and which of `names` they are.

    `shape` is what they have to become; otherwise squares of `resize` pixels, or the size they all
    have, and three channels unless all are grey. A bad one is named: fatal, or passed over.
    """
    skipped: list[str] = []

    def each(kept: Sequence[int], what: Callable[[int], Any]) -> dict[int, Any]:
        found = {}
        for i in kept:
            try:
                found[i] = what(i)
            except Damage as problem:
                _report(printable(names[i], 200), problem, bad, skipped)
        return found

    facts = each(range(len(names)), lambda i: _facts(read(i)))
    if not facts:
        raise OcilError(f"None of {len(names)} pictures can be decoded.")
    shape = shape or _common(list(facts.values()), resize)
    if (size := len(facts) * int(np.prod(shape))) > MOST_BYTES:
        raise OcilError(
            f"{len(facts)} pictures of {shape[1]}x{shape[2]} pixels take {size} bytes, at most "
            f"{MOST_BYTES} are held; choose a smaller --resize."
        )
    images = np.empty((len(facts), *shape), np.uint8)
    rows = iter(range(len(facts)))
    kept: list[int] = []

    def fill(i: int) -> None:
        try:
            picture = decoded(read(i), shape)
        except Colour:
            raise OcilError(
                f"{printable(names[i], 200)} is in colour, but the model learns grey pictures of "
                f"{shape[2]}x{shape[1]} pixels; turn it into a grey one, or start a new model."
            ) from None
        images[next(rows)] = picture
        kept.append(i)

    each(list(facts), fill)
    if len(skipped) > _NAMED:
        log.warning("%d pictures in all were passed over.", len(skipped))
    return images[: len(kept)], kept


def _facts(data: bytes) -> tuple[tuple[int, int], bool]:
    image = opened(data)
    try:
        turned = image.format == "JPEG" and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except _BROKEN as error:
        raise Damage("its notes on orientation cannot be read") from error
    size = image.size[::-1] if turned else image.size
    return size, image.mode in GREY


def _common(facts: list[tuple[tuple[int, int], bool]], resize: int | None) -> Shape:
    channels = 1 if all(grey for _, grey in facts) else 3
    if resize is not None:
        return channels, resize, resize
    sizes = Counter(size for size, _ in facts)
    if len(sizes) > 1:
        common = ", ".join(f"{w}x{h}" for (w, h), _ in sizes.most_common(3))
        raise OcilError(
            f"The pictures have {len(sizes)} sizes ({common}, ...); bring them to one with "
            "--resize, such as --resize 64."
        )
    width, height = next(iter(sizes))
    return channels, height, width


def _report(name: str, problem: Damage, bad: Bad, skipped: list[str]) -> None:
    if bad == "fail":
        raise OcilError(
            f"{name} cannot be used: {problem}; mend or remove it, or pass over such pictures with "
            "--bad-images skip."
        )
    skipped.append(name)
    if len(skipped) <= _NAMED:
        log.warning("Passed over %s: %s.", name, problem)
