"""Where a step's time goes: `OMP_NUM_THREADS=1 python bench/parts.py [--net resnet18]`.

Each method learns from noise as in bench/methods.py. Beside it stands a bare loop that does nothing
but push the same images through the same net: as many augmentations of as many images, the same
passes with and without gradients and in the same mode, a cross-entropy, one backward pass and as
many steps of AdamW as the method takes. The two take turns, one batch each; printed are
the median ratio of their processor times in a turn, and which share of the method's own time its
parts take: augmentation, the net forwards (with what a method hangs on it for that pass), all
backward passes, the optimiser, and the rest, which is the method's own arithmetic, its memory and
the average of the weights. MOSE's net has exits that the bare net lacks; the line `mose (exits)`
has them in the bare loop too.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from methods import DATA, Candidate

from ocil import augment, nets
from ocil.data import SOURCES
from ocil.learners.replay import ReplayLearner, as_float
from ocil.nets.heads import GrowingLinear

CLASSES = 4  # what a candidate has met
ENTRIES = ("forward", "forward_stages", "forward_blocks", "forward_maps")  # of a net
PARTS = ("augment", "forward", "backward", "optimiser")
JUDGED = [
    "er",
    "er-ace",
    "cope",
    "gsa",
    "scr",
    "mose",
    "sbs",
    "aser",
    "bic-ac",
    "ocm",
    "onpro",
    "otc",
]


@dataclass
class Watched:
    """What one step did: seconds by part, and the sizes of what it pushed through."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    augmented: list[int] = field(default_factory=list)
    passes: list[tuple[int, bool, bool]] = field(default_factory=list)
    """Images, whether gradients were kept, whether the net was in training mode."""
    updates: int = 0
    inside: bool = False

    def timed(self, part: str, call: Callable[..., Any], note: Callable[..., None]) -> Any:
        """The call, timed and noted; a part inside another belongs to the outer one."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return call(*args, **kwargs)
            self.inside = True
            note(*args)
            began = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[part] += time.process_time() - began
                self.inside = False

        return wrapper

    def note_augmented(self, x: torch.Tensor, *_: Any) -> None:
        self.augmented.append(len(x))

    def note_pass(self, net: torch.nn.Module, x: torch.Tensor) -> None:
        self.passes.append((len(x), torch.is_grad_enabled(), net.training))

    def note_update(self, *_: Any) -> None:
        self.updates += 1

    def note_nothing(self, *_: Any) -> None:
        pass


@contextmanager
def watching(learner: ReplayLearner) -> Iterator[Watched]:
    """Watches the learner's augmentation, nets, backward passes and optimiser."""
    seen, net = Watched(), type(learner.model.net)
    watched: list[tuple[Any, str, str, Callable[..., None]]] = [
        (learner, "augment", "augment", seen.note_augmented),
        (torch.Tensor, "backward", "backward", seen.note_nothing),
        (torch.autograd, "grad", "backward", seen.note_nothing),
        (type(learner.optimizer), "step", "optimiser", seen.note_update),
    ]
    watched += [(net, name, "forward", seen.note_pass) for name in ENTRIES if hasattr(net, name)]
    with ExitStack() as stack:
        for holder, name, part, note in watched:
            wrapped = seen.timed(part, getattr(holder, name), note)
            stack.enter_context(patch.object(holder, name, wrapped))
        yield seen


class AllExits(torch.nn.Module):
    """MOSE's net with the exits of its stages, whose features (n, d) are added up."""

    def __init__(self, model: torch.nn.Module, features: int) -> None:
        super().__init__()
        self.model, self.features = copy.deepcopy(model), features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.model.stages(x)).sum(0)  # pyright: ignore


class BareLoop:
    """A net with a head and an optimiser, and nothing else."""

    def __init__(self, learner: ReplayLearner, shape: tuple[int, ...], exits: bool = False) -> None:
        self.draw, settings = torch.Generator().manual_seed(0), learner.settings
        self.net = nets.build(settings.net, shape, width=settings.width, generator=self.draw)
        if exits:
            self.net = AllExits(learner.model, int(self.net.features))  # pyright: ignore
        self.head = GrowingLinear(int(self.net.features), self.draw)  # pyright: ignore
        self.head.grow(CLASSES)
        self.parameters = [*self.net.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=settings.lr, fused=True)
        self.augment, self.shape = augment.build(settings.augment), shape

    def images(self, count: int) -> torch.Tensor:
        size = (count, *self.shape)
        return torch.randint(256, size, dtype=torch.uint8, generator=self.draw)

    def step(self, seen: Watched) -> float:
        """Processor seconds for what was seen: augmentations, passes, backward, updates."""
        raw = [self.images(count) for count in seen.augmented]
        plain = [as_float(self.images(count)) for count, _, _ in seen.passes]
        labels = [
            torch.randint(CLASSES, (count,), generator=self.draw) for count, _, _ in seen.passes
        ]
        began = time.process_time()
        for x in raw:
            self.augment(as_float(x), self.draw)
        loss = torch.zeros(())
        for (_, gradients, training), x, y in zip(seen.passes, plain, labels, strict=True):
            self.net.train(training)
            with torch.set_grad_enabled(gradients):
                logits = self.head(self.net(x))
                if gradients:
                    loss = loss + F.cross_entropy(logits, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for _ in range(seen.updates):
            self.optimizer.step()
        return time.process_time() - began


def measure(name: str, data: str, rounds: int, exits: bool = False) -> dict[str, float]:
    """Median ratio to the bare loop, images a step and shares of the parts."""
    candidate = Candidate(name, data)
    learner = candidate.session.learner
    assert isinstance(learner, ReplayLearner)
    bare = BareLoop(learner, SOURCES[data].shape, exits)
    ratios, shares = [], []
    images = kept = 0
    for turn in range(rounds + 1):
        with watching(learner) as seen:
            seconds, images = candidate.step()
        kept = sum(count for count, gradients, _ in seen.passes if gradients)
        alone = bare.step(seen)
        if turn:  # the first is for warming up
            ratios.append(seconds / alone)
            shares.append({part: seen.seconds[part] / seconds for part in PARTS})
    middle = {part: statistics.median(share[part] for share in shares) for part in PARTS}
    rest = statistics.median(1 - sum(share.values()) for share in shares)
    ratio = statistics.median(ratios)
    return {"images": images, "gradients": kept, "ratio": ratio} | middle | {"rest": rest}


def main() -> None:
    """Print one line a method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", choices=DATA, default="resnet18")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--methods", nargs="*", default=JUDGED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = ("augment", "forward", "backward", "optimiser", "rest")
    heads = "".join(f"{name:>11}" for name in columns)
    print(f"{'method':15}{'images':>8}{'gradient':>10}{'time/bare':>11}{heads}")
    rows = [(name, False) for name in options.methods]
    rows += [("mose", True)] if "mose" in options.methods else []
    for name, exits in rows:
        row = measure(name, DATA[options.net], options.rounds, exits)
        parts = "".join(f"{100 * row[column]:10.1f}%" for column in columns)
        counts = f"{row['images']:8.0f}{row['gradients']:10.0f}{row['ratio']:11.2f}"
        print(f"{name + ' (exits)' if exits else name:15}{counts}{parts}", flush=True)


if __name__ == "__main__":
    main()
