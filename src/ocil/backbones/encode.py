"""Vectors of texts and pictures by a frozen model of transformers, one item at a time.

One at a time, because the bits of an item must not depend on what else is in the call: a batch pads
texts and takes other paths through products of matrices. The vector of an item is the mean of the
model's last layer over tokens or places, or what the model itself declares to be its answer:

    text       as its sentence-transformers files say (mean or first token, unit length), else mean
    pictures   image features of a two-sided model such as CLIP, else the mean
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from ocil import samples
from ocil.backbones import TOKENS, WEIGHTS, missing_package
from ocil.data.pictures import MAX_FILE_BYTES, decoded
from ocil.data.reader import Damage
from ocil.errors import OcilError, refusing
from ocil.files import read_plain
from ocil.samples import BadInput, Channels
from ocil.text import plain

MAX_JSON = 16 << 20  # bytes
MAX_SIDE = 4096  # pixels
MAX_TOKENS = 512  # of a text, where the model does not say
MAX_TEXT = 1 << 20  # characters


def opened(folder: Path, name: str, device: str) -> Texts | Pictures:
    """The model in a folder; nothing of it is executed, and its weights are safetensors."""
    with refusing(f"The backbone {plain(name)} cannot be used", "check its files", ImportError):
        texts = any((folder / file).is_file() for file in TOKENS)
        pictures = (folder / "preprocessor_config.json").is_file() or not texts
        net = _net(folder, name).to(device).eval().requires_grad_(False)
        return Pictures(net, folder) if pictures else Texts(net, folder)


class Texts:
    """Texts -> vectors (n, d)."""

    shape: tuple[int, int, int] | None = None  # of pictures that it wants

    def __init__(self, net: Any, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.net = net.get_encoder() if net.config.is_encoder_decoder else net
        self.tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
        places = getattr(net.config, "max_position_embeddings", None)
        known = [
            _read(folder / "sentence_bert_config.json").get("max_seq_length"),
            self.tokenizer.model_max_length,
            places - 2 if isinstance(places, int) else None,  # some begin to count at two
        ]
        self.longest = min([n for n in known if isinstance(n, int) and n > 0] or [MAX_TOKENS])
        pooling, steps = _read(folder / "1_Pooling/config.json"), _read(folder / "modules.json")
        self.first = bool(pooling.get("pooling_mode_cls_token"))
        self.unit = any("Normalize" in str(step.get("type")) for step in steps or ())

    def vectors(self, X: Any, channels: Channels) -> np.ndarray:
        texts = _strings(X, "texts")
        if odd := [t for t in texts if not t.strip() or len(t) > MAX_TEXT]:
            raise BadInput(f"A text has {len(odd[0].strip())} characters; give 1 to {MAX_TEXT}.")
        return _stacked(self._vector(text) for text in texts)

    @torch.inference_mode()
    def _vector(self, text: str) -> Tensor:
        tokens = self.tokenizer(
            text, truncation=True, max_length=self.longest, return_tensors="pt"
        ).to(self.net.device)
        if not tokens["input_ids"].numel():
            raise BadInput(f"The backbone's tokenizer finds nothing in the text {plain(text, 40)}.")
        hidden = self.net(**tokens).last_hidden_state[0]  # (tokens, d)
        z = hidden[0] if self.first else hidden.mean(0)
        return F.normalize(z, dim=0) if self.unit else z


class Pictures:
    """Files of pictures, or images (n, H, W[, C]) of any size -> vectors (n, d)."""

    def __init__(self, net: Any, folder: Path) -> None:
        self.net, config = net, _read(folder / "preprocessor_config.json")
        vision = getattr(net.config, "vision_config", net.config)
        own = getattr(vision, "image_size", None) or 224
        crop = config.get("crop_size") if config.get("do_center_crop", True) else None
        self.shape = (3, *_sides(crop or config.get("size") or own))
        if getattr(vision, "num_channels", 3) != 3:
            raise ValueError("it wants pictures of other than three colours")
        mean, std = (config.get(key, [0.5] * 3) for key in ("image_mean", "image_std"))
        if not config.get("do_normalize", True):
            mean, std = [0.0] * 3, [1.0] * 3
        self.mean, self.std = (torch.tensor(v).reshape(3, 1, 1) for v in (mean, std))

    def vectors(self, X: Any, channels: Channels) -> np.ndarray:
        files = isinstance(X, Sequence) and len(X) and isinstance(X[0], str | Path)
        if files or (isinstance(X, np.ndarray) and X.dtype.kind in "UO"):
            return _stacked(self._vector(self._decoded(f)) for f in _strings(X, "files"))
        x = samples.items(X, channels)
        if x.ndim != 4 or x.shape[1] not in (1, 3):
            raise BadInput(
                f"X has shape {x.shape}; this backbone takes files of pictures, or images that are "
                "grey or of three colours."
            )
        return _stacked(self._vector(self._fitting(torch.from_numpy(image))) for image in x)

    def _decoded(self, file: str) -> Tensor:
        try:
            data = read_plain(Path(file), MAX_FILE_BYTES)
            return torch.from_numpy(decoded(data, self.shape, plain(file)).copy())
        except (Damage, OSError) as problem:
            raise BadInput(f"{plain(file)} cannot be used: {problem}.") from problem

    def _fitting(self, image: Tensor) -> Tensor:
        """An image (C, h, w) scaled until it covers (H, W), the middle cut out, in 0..255."""
        image = image if image.dtype == torch.uint8 else image * 255
        height, width = self.shape[1:]
        if image.shape[1:] != (height, width):
            scale = max(height / image.shape[1], width / image.shape[2])
            size = [max(1, math.ceil(n * scale - 1e-6)) for n in image.shape[1:]]
            image = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
            top, left = (size[0] - height) // 2, (size[1] - width) // 2
            image = image[:, top : top + height, left : left + width]
        return image.expand(3, -1, -1)

    @torch.inference_mode()
    def _vector(self, image: Tensor) -> Tensor:
        x = ((image.float() / 255 - self.mean) / self.std)[None].to(self.net.device)
        if hasattr(self.net, "get_image_features"):
            found = self.net.get_image_features(pixel_values=x)
            return found[0] if isinstance(found, Tensor) else found.pooler_output[0]
        hidden = self.net(pixel_values=x).last_hidden_state[0]  # (places, d) or (d, h, w)
        return hidden.mean(0) if hidden.ndim == 2 else hidden.flatten(1).mean(1)


# ------------------------------------------------------------------ reading a model


def _net(folder: Path, name: str) -> Any:
    """The model without a head, float32; refused where its weights are not all in the file."""
    try:
        import transformers
    except ImportError as error:
        raise missing_package() from error
    config = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    _check_size(transformers, config, folder)
    with _quiet(transformers), torch.random.fork_rng(devices=[]):
        net, found = transformers.AutoModel.from_pretrained(
            folder, config=config, trust_remote_code=False, use_safetensors=True,
            local_files_only=True, dtype=torch.float32, output_loading_info=True,
        )  # fmt: skip
    missing = [key for key in found["missing_keys"] if "pooler" not in key]  # which is not used
    if missing or found["mismatched_keys"]:
        odd = sorted(map(str, [*missing, *found["mismatched_keys"]]))[0]
        raise OcilError(
            f"The backbone {plain(name)} lacks weights such as {plain(odd, 80)}: its vectors would "
            "be random. Save it anew with save_pretrained."
        )
    return net


def _check_size(transformers: Any, config: Any, folder: Path) -> None:
    """The model that the configuration asks for is about as large as the file, before it is built.

    It is measured without memory, which takes time with its layers: no more than there are tensors.
    """
    with safe_open(folder / WEIGHTS, "pt") as file:
        shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118
    held = sum(map(math.prod, shapes))
    for part in (config, *(v for v in vars(config).values() if hasattr(v, "to_dict"))):
        for key, value in part.to_dict().items():
            counts = value if isinstance(value, list) else [value]
            counted = "layers" in key or "depth" in key
            if counted and any(isinstance(n, int) and n > len(shapes) for n in counts):
                raise ValueError(f"{key} is {value}, but the file has {len(shapes)} tensors")
    with torch.device("meta"):
        net = transformers.AutoModel.from_config(config, trust_remote_code=False)
    if (asked := sum(v.numel() for v in net.state_dict().values())) > 2 * held + 1000:
        raise ValueError(f"it asks for {asked} weights, but the file has {held}")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without the bar and the remarks of loading."""
    logging = transformers.utils.logging
    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _read(file: Path) -> Any:
    return json.loads(read_plain(file, MAX_JSON)) if file.is_file() else {}


def _sides(size: Any) -> tuple[int, int]:
    """Height and width, of a number or of what transformers writes."""
    if isinstance(size, dict):
        edge = size.get("shortest_edge")
        size = (size.get("height", edge), size.get("width", edge))
    height, width = size if isinstance(size, list | tuple) else (size, size)
    if not all(type(n) is int and 1 <= n <= MAX_SIDE for n in (height, width)):
        raise ValueError(f"it wants pictures of {height}x{width} pixels")
    return height, width


def _strings(X: Any, what: str) -> list[str]:
    values = X.tolist() if hasattr(X, "tolist") else X
    whole = isinstance(values, list | tuple) and all(isinstance(v, str | Path) for v in values)
    if not whole or not values:
        raise BadInput(f"X is {type(X).__name__}; this backbone takes a list of {what}.")
    return [str(value) for value in values]


def _stacked(vectors: Iterator[Tensor]) -> np.ndarray:
    found = torch.stack([z.float().cpu() for z in vectors]).numpy()
    if not np.isfinite(found).all():
        raise BadInput("The backbone makes NaN or infinite vectors of X.")
    return found
