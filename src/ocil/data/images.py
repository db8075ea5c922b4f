"""One compressed image to one uint8 array, its size checked before its pixels are decoded."""

from __future__ import annotations

import io
import warnings

import numpy as np

from ocil.data.damage import Damage

_FORMATS = ("JPEG", "PNG", "WEBP")


def decode_image(data: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """Return uint8 (C, H, W) of an RGB (C = 3) or grey (C = 1) image; grey becomes RGB."""
    from PIL import Image

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # we check ourselves
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if image.size != (width, height):
            raise Damage(
                f"an image of {image.size[0]}x{image.size[1]} pixels, expected {width}x{height}"
            )
        pixels = np.asarray(image.convert("RGB" if channels == 3 else "L"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Damage(f"an image of {len(data)} bytes that cannot be decoded") from error
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)
