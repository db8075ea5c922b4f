"""Pictures of any size and format as one uint8 array, each measured before it is decoded."""

from __future__ import annotations

import io
import logging
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ocil.data.reader import Chunk, Damage, reading
from ocil.data.sources import Source
from ocil.errors import OcilError
from ocil.text import plain

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MAX_PIXELS = 1 << 26  # in one picture: more is a decompression bomb, or no picture to learn from
MAX_BYTES = 4 << 30  # of all decoded pictures together
MAX_FILE_BYTES = 64 << 20
_BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, MemoryError, EOFError, struct.error,
)  # fmt: skip
_CHUNK = 500  # pictures of a named data set decoded at a time
_MAX_NAMED = 20  # pictures passed over that are named one by one

SIDE = 64  # pixels of photographs, which have several sizes or a large one, unless told
LARGE = 256  # pixels of a side above which pictures are photographs

GREY = ("1", "L", "I", "I;16", "LA")  # modes of Pillow

Bad = Literal["fail", "skip"]
Shape = tuple[int, int, int]  # (C, H, W)
log = logging.getLogger("ocil")


def _open(data: bytes, formats: tuple[str, ...]) -> Any:
    """A picture whose header was read and whose pixels were not."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # we check the size ourselves
        return Image.open(io.BytesIO(data), formats=formats)


def decode_exact(data: bytes, shape: Shape, name: str) -> np.ndarray:
    """A picture of H x W pixels and no other size as uint8 (C, H, W); grey becomes RGB."""
    from PIL import Image

    channels, height, width = shape
    try:
        image = _open(data, ("JPEG", "PNG", "WEBP"))
        if image.size != (width, height):
            size = f"{image.size[0]}x{image.size[1]} pixels, expected {width}x{height}"
            raise Damage(f"{name} is an image of {size}")
        return _channels_first(image.convert("RGB" if channels == 3 else "L"), channels)
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise Damage(f"{name} is an image of {len(data)} bytes that cannot be decoded") from error


def decode_chunks(
    source: Source, path: Path, read: Callable[[int], tuple[str, bytes]], labels: np.ndarray
) -> Iterator[Chunk]:
    """The pictures of a named data set, `read` by their number with their name in a message."""
    for start in range(0, len(labels), _CHUNK):
        chosen = labels[start : start + _CHUNK]
        images = np.empty((len(chosen), *source.shape), np.uint8)
        with reading(path, source):
            for row in range(len(chosen)):
                name, data = read(start + row)
                images[row] = decode_exact(data, source.shape, name)
        yield images, chosen


def _channels_first(image: Any, channels: int) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)


def _measured(data: bytes) -> Any:
    """A picture whose size is known and bearable; its pixels are not decoded yet."""
    from PIL import Image

    try:
        image = _open(data, _FORMATS)
        width, height = image.size
    except Image.DecompressionBombError as error:
        raise Damage(f"it claims more than {MAX_PIXELS} pixels") from error
    except _BROKEN as error:
        raise Damage(f"its {len(data)} bytes are no picture that can be decoded") from error
    if width * height > MAX_PIXELS or not width * height:
        raise Damage(f"it claims {width}x{height} pixels, at most {MAX_PIXELS} are decoded")
    return image


def decoded(data: bytes, shape: Shape, name: str = "It") -> np.ndarray:
    """A picture as uint8 (C, H, W): scaled until it covers H x W, the middle cut out."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = _measured(data)
            if image.format == "JPEG":  # where cameras write how they were held
                image = ImageOps.exif_transpose(image)
            if channels == 1 and _in_colour(image):
                raise OcilError(
                    f"{name} is in colour, but the model learns grey pictures of "
                    f"{width}x{height} pixels; turn it into a grey one, or start a new model."
                )
            image = _eight_bits(image).convert("RGB" if channels == 3 else "L")
        if image.size != (width, height):
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        return _channels_first(image, channels)
    except _BROKEN as error:
        raise Damage("its pixels cannot be decoded") from error


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
    from PIL import Image

    values = np.asarray(image).astype(np.int64)
    if image.mode != "I" or values.max(initial=0) > 255:  # mode I says nothing of its range
        values = values // 257
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def decode_all(
    names: Sequence[str],
    read: Callable[[int], bytes],
    resize: int | None = None,
    bad: Bad = "fail",
    shape: Shape | None = None,
) -> tuple[np.ndarray, list[int]]:
    """All pictures uint8 (n, C, H, W), and which of `names` they are.

    `shape` is what they have to become; otherwise squares of `resize` pixels, or the size they all
    have (64 pixels for photographs), and three channels unless all are grey. A bad one is named:
    fatal, or passed over.
    """
    skipped = 0

    def attempt(what: Callable[..., Any], i: int, *more: Any) -> Any:
        nonlocal skipped
        try:
            return what(read(i), *more)
        except Damage as problem:
            name = plain(names[i])
            if bad == "fail":
                raise OcilError(
                    f"{name} cannot be used: {problem}; mend or remove it, or pass over such "
                    "pictures with --bad-images skip."
                ) from problem
            skipped += 1
            if skipped <= _MAX_NAMED:
                log.warning("Passed over %s: %s.", name, problem)

    facts = {i: fact for i in range(len(names)) if (fact := attempt(_facts, i))}
    if not facts:
        raise OcilError(f"None of {len(names)} pictures can be decoded.")
    wanted = shape or _common(list(facts.values()), resize)
    if (size := len(facts) * int(np.prod(wanted))) > MAX_BYTES:
        raise OcilError(
            f"{len(facts)} pictures of {wanted[1]}x{wanted[2]} pixels take {size} bytes, at most "
            f"{MAX_BYTES} are held; choose a smaller --resize."
        )
    images = np.empty((len(facts), *wanted), np.uint8)
    kept: list[int] = []
    for i in facts:
        picture = attempt(decoded, i, wanted, plain(names[i]))
        if picture is not None:
            images[len(kept)] = picture
            kept.append(i)
    if skipped > _MAX_NAMED:
        log.warning("%d pictures in all were passed over.", skipped)
    return images[: len(kept)], kept


def _facts(data: bytes) -> tuple[tuple[int, int], bool]:
    """Width and height as the picture is seen, and whether it is grey."""
    image = _measured(data)
    try:
        turned = image.format == "JPEG" and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except _BROKEN as error:
        raise Damage("its notes on orientation cannot be read") from error
    return image.size[::-1] if turned else image.size, image.mode in GREY


def _common(facts: list[tuple[tuple[int, int], bool]], resize: int | None) -> Shape:
    channels = 1 if all(grey for _, grey in facts) else 3
    if resize is not None:
        return channels, resize, resize
    sizes = Counter(size for size, _ in facts)
    width, height = sizes.most_common(1)[0][0]
    if len(sizes) > 1 or max(width, height) > LARGE:
        common = ", ".join(f"{w}x{h}" for (w, h), _ in sizes.most_common(3))
        log.warning(
            "The pictures are photographs (%s): they are scaled until they cover %dx%d pixels, the "
            "middle is kept. --resize chooses another side.", common, SIDE, SIDE,
        )  # fmt: skip
        return channels, SIDE, SIDE
    return channels, height, width
