"""Another value for any setting of any method changes what is learned or read."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import pytest

from ocil import checks
from ocil.learners import registry
from ocil.learners.otc_settings import OtcSettings
from ocil.settings import Settings, fields_of, to_mapping

SHARED = ("memory", "replay", "updates", "width", "augment", "retrieval", "optimizer", "lr",
          "momentum", "weight_decay", "ema")  # fmt: skip
# What a setting needs to have a say at all, and other values than the nearest.
DUAL = {"objective": "dual", "start.points": 6}
TWICE = {"epochs": 2}
EARLY = {"start.points": 6}
NEEDS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": "sgd"}, "offer_every_epoch": TWICE, "schedule": {"epochs": 4},
    "ramp": TWICE, "otc.redraw": {"updates": 2},
    "sbs.quick": {"enough": 1}, "sbs.slow": {"enough": 1}, "co2l": {"linear_epochs": 3},
    "aser": {"candidates": 9, "replay": 3},
    "otc.em.every": {"objective": "refit-em", "em.every": 3},
    "otc.em.passes": {"objective": "task-em"}, "otc.admission": {"choice": "centroids"},
    **{f"otc.{name}": DUAL for name in fields_of(OtcSettings) if name.startswith("dual.")},
    "otc.dual.floor": DUAL | {"dual.floor": 0.1, "shrinkage": 0.0},
    "otc.start.points": EARLY, "otc.start.seeding": EARLY,
    "otc.start.again": EARLY | {"window.queue": 8, "window.points": 4, "start.again": 8},
    "otc.window.queue": EARLY | {"window.queue": 16, "window.points": 4},
    "otc.window.points": EARLY | {"window.points": 4}, "otc.components": EARLY,
    "geodl.adaptive": {"classes_per_task": 3},
    **{f"patches.{name}": {"net": "patches"} for name in ("size", "pool", "threshold", "mirror")},
    "random.kind": {"net": "random"},
}  # fmt: skip
# Other values than the next best, which would change nothing in so short a stream.
OTHER: dict[str, Any] = {
    "augment": "affine", "memory": 9, "replay": 2, "otc.mixture_replay": 2,
    "otc.dual.samples": 3, "otc.start.again": None, "otc.start.seeding": "random",
    "otc.dual.least_points": 30,
    "otc.window.queue": 8, "otc.start.points": 9, "held": 0.4,
    "aser.candidates": 4, "aser.neighbours": 1,
    "geodl.subspace": 2, "gsa.current": 2, "gsa.warmup": 1,
    "projection": 4, "replay_per_class": 1, "onpro.guided": 1.0, "onpro.mixup": 1.0,
    "sbs.quick": 0.8, "sbs.slow": 0.8, "sbs.enough": 1,
    "patches.size": 4, "patches.pool": 3, "patches.mirror": "yes",
}  # fmt: skip
# By their nature without effect, each with its reason.
WITHOUT: dict[str, str] = {
    "finetune.memory": "it has none, and a memory is refused (test_er.py)",
    "finetune.replay": "there is no memory to draw from",
    "finetune.retrieval": "there is no memory to draw from",
    "finetune.skip_first": "only stores the first batch, and there is no memory",
    "gsa.retrieval": "the method itself says which classes are drawn",
    "mose.retrieval": "the method itself says which classes are drawn",
    "co2l.teacher_mode": "tells batch norm apart, which the MLP has not (test_co2l.py)",
}
# Methods that train nothing: what steers training has no effect on them.
FIXED = ("fecam", "knn", "logistic", "ncm", "ranpac", "slda")
TRAINING = set(SHARED) - {"memory", "width"}
WITHOUT |= {f"{m}.{name}": "nothing is trained" for m in FIXED for name in TRAINING}
WITHOUT |= {f"{m}.memory": "a memory is refused (test_fixed.py)" for m in ("fecam", "ncm")}


def other(kind: type[Settings], name: str, value: Any) -> Any:
    if choices := fields_of(kind)[name].choices:
        return next(choice for choice in choices if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 if value else 0.5
    return (value or 0) + 1


def pairs() -> list[tuple[str, str]]:
    found = []
    for method in registry.names():
        own = set(registry.info(method).fields) - set(fields_of(Settings))
        found += [(method, name) for name in (*SHARED, *sorted(own))]
    return [(m, n) for m, n in found if f"{m}.{n}" not in WITHOUT and n not in WITHOUT]


def learn(session: Any) -> None:
    for task, classes in enumerate(checks.TWO_TASKS):
        checks.begin(session, task)
        for epoch in range(session.settings.epochs):
            for b in range(5):
                labels = [classes[(b + i) % 2] for i in range(6)]
                session.learn(checks.images(labels, 9 * task + b), labels, task=task, epoch=epoch)
        checks.end(session, task, classes, batches=5)


@cache
def outcome(method: str, given: tuple[tuple[str, Any], ...]) -> str:
    """A digest of all that a short stream leaves in a learner, and of what it answers."""
    session = checks.make(registry.get(method), **dict(given))
    learn(session)
    learner, digest = session.learner, hashlib.sha256()
    found = {name: learner.scores(checks.images([3, 0]), name) for name in learner.readouts()}
    for name, value in sorted((learner.state_dict() | found).items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().double().contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(("method", "name"), pairs())
def test_another_value_changes_something(method: str, name: str) -> None:
    kind = registry.get(method).settings_type
    small = {"replay": 6, "batch": 6} if kind().memory is not None else {"batch": 6}
    for key in (name, method, f"{method}.{name}"):
        small |= NEEDS.get(key, {})
    before = to_mapping(checks.small_settings(registry.get(method), **small))[name]
    wanted = [OTHER[key] for key in (f"{method}.{name}", name) if key in OTHER]
    new = wanted[0] if wanted else other(kind, name, before)
    assert new != before
    changed = outcome(method, tuple(sorted((small | {name: new}).items())))
    assert changed != outcome(method, tuple(sorted(small.items()))), f"{name} is ignored"
