"""Milliseconds an image through the fixed encoder: `OMP_NUM_THREADS=1 python bench/encoder.py`.

Beside it, in the same run and turn by turn, the plain chain over whole response maps of 16 images:
unfold, normalise, product with the filters, two thresholds, means over the regions. Both without
the mirror image, which doubles them. Printed are medians of processor time, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import nets
from ocil.nets.patches import CONTRAST, Patches

IMAGES = 16


def plain_chain(net: Patches, x: Tensor) -> Tensor:
    """The same features by whole maps: x (n, c, h, w) -> (n, features)."""
    columns = F.unfold(x, net.side)  # (n, numbers, places)
    columns = columns - columns.mean(1, keepdim=True)
    columns = columns / (columns.square().mean(1, keepdim=True) + CONTRAST).sqrt()
    maps = torch.matmul(net.filters, columns) + net.offset
    maps = maps.unflatten(2, [n - net.side + 1 for n in x.shape[2:]])  # (n, F, rows, columns)
    up, down = (maps - net.threshold).relu(), (-maps - net.threshold).relu()
    found = [
        part[..., rows, columns].mean((2, 3))
        for rows, columns in net.regions
        for part in (up, down)
    ]
    return (torch.cat(found, 1) - net.shift) * net.scale


def milliseconds(encode: Callable[[Tensor], Tensor], x: Tensor) -> float:
    began = time.process_time()
    encode(x)
    return 1000 * (time.process_time() - began) / IMAGES


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", type=int, nargs="*", default=[100, 400, 800])
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    shape = (3, options.pixels, options.pixels)
    x = F.avg_pool2d(torch.rand(IMAGES, *shape, generator=draw), 3, 1, 1)
    print(f"{'filters':>8}{'ours, ms':>10}{'plain, ms':>11}{'times':>7}")
    for width in options.widths:
        net = nets.build("patches", shape, width=width, generator=draw)
        assert isinstance(net, Patches)
        net.fit(x)
        net.mirror = False
        torch.testing.assert_close(net(x), plain_chain(net, x), rtol=1e-3, atol=1e-3)
        turns = [
            (milliseconds(net, x), milliseconds(partial(plain_chain, net), x))
            for _ in range(options.rounds)
        ]
        ours, plain = (statistics.median(column) for column in zip(*turns, strict=True))
        times = statistics.median(b / a for a, b in turns)
        print(f"{width:8}{ours:10.2f}{plain:11.2f}{times:7.1f}")


if __name__ == "__main__":
    main()
