"""How long will it take? From finished records, scaled to the stream and the method at hand.

Seconds of a run = batches of its stream x seconds of a batch. The latter are the first that is
known of

1. the median over records of the method with the same settings but those that cost nothing, then
   with the same settings of `COSTLY`, whatever the length of their streams;
2. that over other records of the method on the same data and net, scaled by images a batch;
3. ER's on the same data and net, or on other data scaled by pixels, times what the method costs
   relative to ER (costs.json, made by `bench/methods.py`), scaled by images a batch;
4. a few timed steps on noise: of ER where the method's relative cost is known, else of the method.

In 2 and 3 records of the same precision come first, but any is better than the next way.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import Any, NamedTuple

from ocil.data import SOURCES
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.run.folder import Plan
from ocil.settings import Settings, checked, fields_of, to_mapping

Values = dict[str, Any]

PLACE = ("data", "net", "width", "precision")  # what an image through the net costs
NEAR = PLACE[:-1]
TIMED_STEPS, TIMED_SECONDS = 12, 20.0
COSTLY = (*PLACE, "batch", "replay", "updates", "augment", "optimizer", "ema", "order")
FREE = {name for name, field in fields_of(Settings).items() if not field.costs}


class Cost(NamedTuple):
    """What a finished run tells: its settings and the seconds of a batch."""

    method: str
    settings: Values
    seconds: float


def project(plans: Sequence[Plan], records: Iterable[Values]) -> list[float | None]:
    """Seconds each plan is expected to take; None for data that are not known here."""
    costs = costs_of(records)
    known: dict[tuple[Any, ...], float | None] = {}
    times = []
    for plan in plans:
        s = to_mapping(plan.settings)
        kind = (plan.method, *(repr(s[key]) for key in sorted(s.keys() - FREE)))
        if kind not in known:
            known[kind] = seconds_per_batch(plan, costs)
        each, count = known[kind], batches(s)
        times.append(None if each is None or count is None else each * count)
    return times


def costs_of(records: Iterable[Values]) -> list[Cost]:
    """What the records with times tell."""
    return [cost for record in records if (cost := _cost(record)) is not None]


def batches(s: Values) -> int | None:
    """Of a stream with the settings s; None for data that are not known here."""
    source = SOURCES.get(s["data"])
    if source is None:
        return None
    own = source.train / source.classes
    if s["validate"]:
        from ocil.stream import HELD_OUT  # loads torch

        own = round(own * (1 - HELD_OUT))
    if s["limit_per_class"]:
        own = min(own, s["limit_per_class"])
    return s["epochs"] * ceil(own * source.classes / s["batch"])


def seconds_per_batch(plan: Plan, costs: list[Cost]) -> float | None:
    """By the first way of the module's docstring that is open; what is timed joins the costs."""
    s = to_mapping(plan.settings)
    known = from_records(plan.method, s, costs)
    if known is not None:
        return known
    ratio = registry.relative_cost(plan.method, s["net"])
    if ratio is None or s["data"] not in SOURCES or plan.method == "er":
        return _timed(plan, costs)
    base = _timed(Plan("er", registry.make_settings("er", _preset("er", s))), costs)
    return base and base * ratio * images(s) / images(_preset(plan.method, s))


def from_records(method: str, s: Values, costs: Sequence[Cost]) -> float | None:
    """Seconds of a batch by the ways that need records only, without torch."""
    mine = [c for c in costs if c.method == method]
    for keys in (s.keys() - FREE, COSTLY):
        if same := [c.seconds for c in mine if _same(c.settings, s, keys)]:
            return statistics.median(same)
    for keys in (PLACE, NEAR):
        if near := [c for c in mine if _same(c.settings, s, keys)]:
            return statistics.median(c.seconds * images(s) / images(c.settings) for c in near)
    ratio = registry.relative_cost(method, s["net"])
    base = _er(s, costs) if s["data"] in SOURCES else None
    if ratio is None or base is None:
        return None
    return base * ratio * images(s) / images(_preset(method, s))


def _er(s: Values, costs: Sequence[Cost]) -> float | None:
    """Seconds of a batch of ER at its preset on the data and net of the settings s, by records."""
    of_er = [c for c in costs if c.method == "er" and c.settings["data"] in SOURCES]
    size = images(_preset("er", s)) * _pixels(s)
    # An MLP's time does not follow the pixels.
    other_data = () if s["net"] == "mlp" else (PLACE[1:], NEAR[1:])
    for keys in (PLACE, NEAR, *other_data):
        if found := [c for c in of_er if _same(c.settings, s, keys)]:
            each = (c.seconds / images(c.settings) / _pixels(c.settings) for c in found)
            return size * statistics.median(each)
    return None


def measure(plan: Plan) -> float | None:
    """Seconds of a batch from a few steps on noise, or None for unknown data."""
    import torch

    from ocil.session import Session

    s, source = plan.settings, SOURCES.get(plan.settings.data)
    if source is None:
        return None
    torch.set_num_threads(1)
    session = Session(plan.method, s, source.shape)
    if session.learner.needs_tasks:
        session.learner.begin_task(0)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (s.batch, *source.shape), dtype=torch.uint8, generator=draw)
    labels = [i % s.classes_per_task for i in range(s.batch)]
    # Time of the processor, which others may be using too; elsewhere there is only the clock.
    clock = time.process_time if s.device == "cpu" else time.perf_counter
    times = []
    while len(times) < TIMED_STEPS and sum(times) < TIMED_SECONDS:
        began = clock()
        session.learn(x, labels)
        times.append(clock() - began)
    # The first steps have little to replay: the later half is what a step costs.
    return statistics.median(times[len(times) // 2 :])


def _timed(plan: Plan, costs: list[Cost]) -> float | None:
    seconds = measure(plan)
    if seconds is not None:
        costs.append(Cost(plan.method, to_mapping(plan.settings), seconds))
    return seconds


def images(s: Values) -> int:
    """Images of a batch's gradient steps."""
    return s["updates"] * (s["batch"] + s["replay"])


def _cost(record: Values) -> Cost | None:
    """None for a record without times, or of settings that are not known here."""
    seconds, steps = record.get("seconds"), record.get("steps")
    if not isinstance(seconds, int | float) or not isinstance(steps, int) or steps < 1:
        return None
    try:
        fields = registry.info(record["method"]).fields
        known = {key: value for key, value in record["settings"].items() if key in fields}
        known = checked(fields, registry.upgraded(record["method"], known), "a record")
        return Cost(record["method"], known, seconds / steps) if images(known) else None
    except (OcilError, ImportError):
        return None


def _preset(method: str, s: Values) -> Values:
    """Settings under which a method's relative cost holds: its preset, one gradient step."""
    return registry.resolve(method, {key: s[key] for key in PLACE} | {"updates": 1})[0]


def _same(a: Values, b: Values, keys: Iterable[str]) -> bool:
    return all(a.get(key) == b.get(key) for key in keys)


def _pixels(s: Values) -> int:
    return prod(SOURCES[s["data"]].shape)
