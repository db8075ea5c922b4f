"""SBS: speed-based sampling of the memory (Hacohen and Tuytelaars, ICML 2025, arXiv 2406.09935).

Images learned early are rarely forgotten and those learned last are often odd, so the memory keeps
those of middling learning speed. The original trains several epochs a task, takes the share of the
epochs in which an image was named rightly as its speed, and fills the memory after the task without
the quickest and the slowest. Its authors do not mean it for a single pass; this is an online form,
on top of ER. The training pass of every step also tells, at no cost, who was named rightly:

    n <- n + 1,  h <- h + [arg max f(x) = y]    for replayed images of the current task,
    n = 1,       h = [arg max f(x) = y]         for images of the stream,
    s = (h + 1) / (n + 2)                       their speed.

A reservoir decides whether an image enters and of which class one has to leave. Of that class, if
it has 5 or more images of the current task with n >= n_0, a random one out of the share q of them
with the largest s and the share s_ with the smallest leaves; otherwise the reservoir's own choice.
Once the task is over a speed no longer changes, and such images leave at random.

| symbol | here              | meaning                                                        |
|--------|-------------------|----------------------------------------------------------------|
| q, s_  | settings.quick, settings.slow | shares that leave first, of the quickest, the slowest |
| n, h   | memory columns tries, hits | looks at an image, and right answers                   |
| n_0    | settings.enough   | looks that make a speed reliable                               |

Of a class with more than 64 images in memory a random 64 are compared, so that a step costs the
same at every size. An image is looked at about 64 / memory times a step: with a large memory and
short tasks speeds are never reliable, and this is ER (Tiny-ImageNet in 100 tasks with a memory of
10 000). `hit` probability counts the probability of the right class, which tells more in few looks.
A look is an augmented view, before the step, as offline. Without task ids the stream is one task.

Differs from the reference as said above; no official code was found to compare with. Read its
results as those of this online form.

Cost: that of ER, and twelve bytes an image in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.errors import OcilError
from ocil.learners.learner import Report
from ocil.learners.replay import ReplayLearner
from ocil.memory import policies
from ocil.settings import Settings, setting
from ocil.stream import Batch

MAX_COMPARED = 64  # images of a class whose speeds are ranked
MIN_RATED = 5  # reliable ones among them, or there is no ranking


@dataclass(frozen=True)
class SbsSettings(Settings):
    quick: float = setting(0.2, search=(0.05, 0.5))
    """Share of a class, the most quickly learned, that leaves the memory first (q)."""
    slow: float = setting(0.2, search=(0.05, 0.5))
    """Share of a class, the most slowly learned, that leaves the memory first (s)."""
    enough: int = 4
    """Looks at an image after which its speed counts."""
    hit: Literal["correct", "probability"] = "correct"
    """What a look adds: whether the answer was right, or the probability of the right one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.quick, self.slow) < 0 or self.quick + self.slow > 1:
            raise OcilError(
                f"Settings quick and slow are {self.quick} and {self.slow}; give two shares that "
                "add up to 1 or less."
            )


class Sbs(ReplayLearner[SbsSettings]):
    method = "sbs"
    title = "Speed-based sampling"
    paper = (
        "Hacohen and Tuytelaars, Predicting the Susceptibility of Examples to Catastrophic "
        "Forgetting"
    )
    year = 2025
    needs_tasks = True
    needs_memory = True
    memory_policy = "reservoir, middling learning speed"
    settings_type = SbsSettings
    presets = {  # noqa: RUF012
        "default": {},
        "default/digits": {"lr": 8e-3, "ema": 0.9},
        "default/mnist": {"lr": 2e-3, "quick": 0.1},
        "default/cifar10": {},
        "default/cifar100": {},
        "default/tiny-imagenet": {},
    }

    def step(self, batch: Batch) -> Report:
        s, draw, memory = self.settings, self.generators["memory"], self.memory
        task = -1 if batch.task is None else batch.task
        x, y = batch.x.to(self.device), batch.y.to(self.device)
        report, arrival = {}, None
        for _ in range(self.updates):
            slots = memory.choose(s.replay, draw, s.retrieval) if len(memory) and s.replay else []
            old = memory.read(slots) if slots else {"x": x[:0], "y": y[:0]}
            answer = torch.cat([old["y"], y])
            logits = self.logits(self.augmented(torch.cat([old["x"], x])))
            hits = self.judge(logits.detach(), answer)
            self.look(slots, hits[: len(slots)], task)
            arrival = hits[len(slots) :] if arrival is None else arrival
            report["loss"] = self.optimizer_step(F.cross_entropy(logits, answer))
        assert arrival is not None
        self.remember_looks(batch, arrival, task)
        return report

    def judge(self, logits: Tensor, y: Tensor) -> Tensor:
        """What each image adds to its hits: (n, C), (n,) -> (n,) in [0, 1]."""
        if self.settings.hit == "probability":
            return logits.softmax(1).gather(1, y[:, None])[:, 0]
        return (logits.argmax(1) == y).float()

    def look(self, slots: list[int], hits: Tensor, task: int) -> None:
        """Count a look at replayed images, if they came with the current task."""
        if not slots:
            return
        columns = self.memory.columns
        index = torch.tensor(slots, device=self.device)
        current = columns["task"][index] == task
        columns["tries"][index] += current
        columns["hits"][index] += hits * current

    def remember_looks(self, batch: Batch, hits: Tensor, task: int) -> None:
        memory, n = self.memory, len(batch.y)
        slots = memory.reservoir_slots(n, self.generators["memory"])
        memory.seen += n
        ones = torch.ones(n, dtype=torch.int32)
        columns = {"task": ones * task, "tries": ones, "hits": hits.to(batch.x.device)}
        memory.write(self.leaving(slots, task), batch.x, batch.y, **columns)

    def leaving(self, slots: list[int], task: int) -> list[int]:
        """Exchange slots that a reservoir would overwrite for extreme ones of the same class."""
        memory, draw = self.memory, self.generators["method"]
        classes = {memory.labels[slot] for slot in slots if 0 <= slot < len(memory)}
        if not classes:
            return slots
        extremes = self.extremes(sorted(classes), task)
        picks = torch.rand(len(slots), generator=draw).tolist()
        chosen: list[int] = []
        for slot, u in zip(slots, picks, strict=True):
            # Two items for one slot, rare as that is, stay so: the later replaces the earlier.
            if 0 <= slot < len(memory) and slot not in chosen:
                options = [e for e in extremes[memory.labels[slot]] if e not in chosen]
                slot = options[int(u * len(options))] if options else slot
            chosen.append(slot)
        return chosen

    def extremes(self, classes: list[int], task: int) -> dict[int, list[int]]:
        """For each class the slots of the current task learned most quickly or most slowly."""
        memory, draw = self.memory, self.generators["method"]
        pools = [policies.of_classes(memory.members, [c], MAX_COMPARED, draw) for c in classes]
        index = torch.tensor([slot for pool in pools for slot in pool], device=self.device)
        tries, hits = memory.columns["tries"][index], memory.columns["hits"][index]
        reliable = (memory.columns["task"][index] == task) & (tries >= self.settings.enough)
        value = learning_speed(hits, tries).masked_fill(~reliable, -1)
        ties = torch.rand(len(value), generator=draw).tolist()
        rated = iter(zip(value.tolist(), ties, strict=True))  # the lists live on the host
        found = {}
        for label, pool in zip(classes, pools, strict=True):
            known = [(slot, v, u) for slot, (v, u) in zip(pool, rated, strict=False) if v >= 0]
            found[label] = []
            if len(known) >= MIN_RATED:
                names, speeds, order = zip(*known, strict=True)
                ends = tails(speeds, order, self.settings.quick, self.settings.slow)
                found[label] = [names[i] for i in ends]
        return found

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        if len(self.memory) and any(
            self.memory.columns[name].dim() != 1 for name in ("task", "tries", "hits")
        ):
            raise ValueError("the memory holds looks that are no numbers")


def learning_speed(hits: Tensor, tries: Tensor) -> Tensor:
    """Share of the looks at an image that named it rightly, with one hit and one miss added.

    s = (h + 1) / (n + 2): few looks give a speed near 1/2. hits (m,), tries (m,) -> (m,)
    """
    return (hits + 1) / (tries + 2)


def tails(speeds: Sequence[float], ties: Sequence[float], quick: float, slow: float) -> list[int]:
    """Positions of the share `slow` with the lowest and `quick` with the highest speeds.

    Shares of n are rounded down, and of equal speeds the one with the larger tie is faster.

    >>> tails([0.5, 0.9, 0.2, 0.6, 0.4], ties=[0.0] * 5, quick=0.2, slow=0.4)
    [2, 4, 1]
    """
    n = len(speeds)
    order = sorted(range(n), key=lambda i: (speeds[i], ties[i]))
    lowest = int(n * slow + 1e-9)  # 100 * 0.29 falls short of 29
    highest = min(int(n * quick + 1e-9), n - lowest)
    return order[:lowest] + order[n - highest :]
