"""Another value for any setting of any method changes what is learned or read."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from ocil import checks
from ocil.learners import registry
from ocil.settings import Settings, fields_of

SHARED = ("memory", "replay", "steps", "width", "augment", "retrieval", "optimizer", "lr",
          "momentum", "weight_decay", "ema")  # fmt: skip
# What a setting needs to have a say at all, and other values than the nearest.
DUAL = {"objective": "dual"}
TWICE = {"epochs": 2}
EARLY = {"seed_points": 6}
NEEDS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": "sgd"}, "reoffer": TWICE, "schedule": {"epochs": 4}, "ramp": TWICE,
    "onpro.mixup_top": {"mixup": 1.0}, "onpro.mixup_shape": {"mixup": 1.0, "guided": 1.0},
    "sbs.quick": {"enough": 1}, "sbs.slow": {"enough": 1}, "co2l": {"linear_epochs": 3},
    "aser": {"candidates": 9, "replay": 3},
    "otc.refit_every": {"fit": "refit", "refit_every": 3}, "otc.em_passes": {"fit": "task"},
    "otc.pairing": DUAL, "otc.cost": DUAL, "otc.samples": DUAL, "otc.temperature": DUAL,
    "otc.hard": DUAL, "otc.potential_steps": DUAL, "otc.descents": {"objective": "nll"},
    "otc.preserve_features": {"preserve_form": "printed"},
    "otc.admission": {"choice": "centroids"}, "otc.floor": {"floor": 0.1, "shrinkage": 0.0},
    "otc.seed_points": EARLY, "otc.horizon": EARLY | {"window": 2, "queue": 8},
    "otc.drift": EARLY | {"window": 2, "queue": 8}, "otc.window": EARLY | {"window": 4},
    "otc.reseed_every": EARLY | {"queue": 8, "window": 4, "reseed_every": 8},
    "otc.queue": EARLY | {"queue": 16, "window": 4}, "otc.relax": EARLY, "otc.eps": EARLY,
    "otc.components": EARLY, "geodl.adaptive": {"classes_per_task": 3},
}  # fmt: skip
# Other values than the next best, which would change nothing in so short a stream.
OTHER: dict[str, Any] = {
    "augment": "affine", "memory": 9, "replay": 2, "otc.watched": 2, "otc.samples": 3,
    "otc.reseed_every": 0, "otc.queue": 8, "otc.horizon": 1.0, "otc.drift": 0.0, "otc.pooling": 0.5,
    "otc.seed_points": 9, "held": 0.4, "aser.candidates": 4, "aser.neighbours": 1,
    "co2l.linear_batch": 4, "geodl.subspace": 2, "gsa.current": 2, "gsa.warmup": 1,
    "projection": 4, "replay_per_class": 1, "onpro.guided": 1.0, "onpro.mixup": 1.0,
    "sbs.quick": 0.8, "sbs.slow": 0.8, "sbs.enough": 1,
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


def other(kind: type[Settings], name: str, value: Any) -> Any:
    hint = get_type_hints(kind)[name]
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
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
    before = getattr(checks.small_settings(registry.get(method), **small), name)
    wanted = [OTHER[key] for key in (f"{method}.{name}", name) if key in OTHER]
    new = wanted[0] if wanted else other(kind, name, before)
    assert new != before
    changed = outcome(method, tuple(sorted((small | {name: new}).items())))
    assert changed != outcome(method, tuple(sorted(small.items()))), f"{name} is ignored"
