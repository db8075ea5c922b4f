"""What page faults cost a training step: `OMP_NUM_THREADS=1 python bench/allocator.py`.

Forward, backward and AdamW of the slim ResNet-18 on 74 images, in processes that take turns: one
with the C library as it comes, one that keeps freed memory as `ocil run` does. Printed are the
medians over all turns; the ratio is that of the two processes of a turn.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

MODES = ("as it comes", "kept")


def measure(mode: str, steps: int) -> dict[str, float]:
    """Processor milliseconds (median), page faults and peak memory of a step in this process."""
    import torch
    import torch.nn.functional as F

    from ocil import nets
    from ocil.nets.heads import GrowingLinear
    from ocil.run.process import keep_freed_memory

    torch.set_num_threads(1)
    if mode == "kept" and not keep_freed_memory():
        raise SystemExit("The C library of this system has no mallopt.")
    draw = torch.Generator().manual_seed(0)
    net = nets.build("resnet18", (3, 32, 32), width=0, generator=draw)
    head = GrowingLinear(160, draw)
    head.grow(10)
    weights = [*net.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=1e-3, fused=True)
    x, y = torch.rand(74, 3, 32, 32, generator=draw), torch.arange(74) % 10
    times, before = [], 0
    for turn in range(steps + 3):
        if turn == 3:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.process_time()
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(head(net(x)), y).backward()
        optimiser.step()
        times.append(1e3 * (time.process_time() - start))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "ms": statistics.median(times[3:]),
        "faults": (usage.ru_minflt - before) / steps,
        "MB": usage.ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mode", choices=MODES, help="measure in this process, print JSON")
    options = parser.parse_args()
    if options.mode:
        print(json.dumps(measure(options.mode, options.steps)))
        return
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for turn in range(options.turns):
        for mode in MODES if turn % 2 else MODES[::-1]:
            words = [sys.executable, __file__, "--mode", mode, "--steps", str(options.steps)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found[mode].append(json.loads(done.stdout))
    print(
        "| freed memory | ms of processor time | page faults a step | peak MB |\n|---|--:|--:|--:|"
    )
    for mode, rows in found.items():
        ms, faults, mb = (statistics.median(r[k] for r in rows) for k in ("ms", "faults", "MB"))
        print(f"| {mode} | {ms:.0f} | {faults:.0f} | {mb:.0f} |")
    pairs = zip(*found.values(), strict=True)
    print(f"\nRatio of times: {statistics.median(b['ms'] / a['ms'] for a, b in pairs):.3f}")


if __name__ == "__main__":
    main()
