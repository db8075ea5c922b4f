"""Presets `reference` against the facts of the official code, and all others as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ocil.data import SOURCES
from ocil.learners import registry
from ocil.run.reading import read_record
from ocil.session import Session

RESULTS = Path(__file__).parents[2] / "results"
JOINED_LATER = {"init": "torch", "inputs": "unit"}  # settings of all methods, with their defaults
OWN_LATER = {
    "bic": {"renew": False},
    "bic-ac": {"renew": False},
    "derpp": {"outputs": 0},
    "geodl": {"renew": False, "adaptive": "seen"},
    "scr": {"review": False},
}
FULL = {"net": "resnet18-global", "width": 64}  # ResNet-18 with 64 channels and 512 features


def resolved(method: str, data: str, **given: Any) -> dict[str, Any]:
    return registry.resolve(method, {"data": data, **given})[0]


FACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("co2l", "cifar10", FULL | {"init": "kaiming", "inputs": "standardized", "augment": "full"}),
    ("co2l", "tiny-imagenet", FULL | {"classes_per_task": 20, "kappa": 0.1, "lr": 0.1}),
    ("scr", "cifar10", {"tau": 0.1, "review": True, "replay": 100, "lr": 0.1, "inputs": "unit"}),
    ("scr", "mnist", {"tau": 0.1, "review": True}),
    ("geodl", "cifar100", FULL | {"augment": "partial", "init": "kaiming", "renew": True}),
    ("geodl", "cifar100", {"distill": 10.0, "adaptive": "task", "form": "difference"}),
    ("geodl", "cifar10", {"inputs": "standardized"}),
    ("derpp", "cifar10", {"outputs": 10, "inputs": "standardized", "init": "torch", "width": 64}),
    ("derpp", "cifar100", {"outputs": 100, "inputs": "standardized"}),
    ("derpp", "tiny-imagenet", FULL | {"outputs": 200, "inputs": "standardized"}),
    ("derpp", "mnist", {"outputs": 10, "inputs": "unit", "init": "xavier"}),
    ("gsa", "cifar100", FULL | {"augment": "moderate"}),
    ("bic", "cifar100", {"renew": True, "inputs": "standardized", "init": "kaiming"}),
    ("bic-ac", "cifar100", {"renew": True, "inputs": "standardized", "init": "kaiming"}),
    ("mose", "cifar10", FULL | {"init": "kaiming", "inputs": "standardized", "augment": "strong"}),
    ("mose", "mnist", FULL | {"init": "kaiming", "inputs": "standardized"}),
    ("ocm", "cifar10", FULL | {"inputs": "standardized", "init": "torch", "augment": "strong"}),
    ("ocm", "mnist", {"inputs": "standardized"}),
    ("onpro", "tiny-imagenet", FULL | {"inputs": "standardized", "augment": "strong"}),
    ("cope", "mnist", {"init": "xavier", "inputs": "unit"}),
    ("er", "cifar10", {"inputs": "unit", "width": 64}),
    ("aser", "cifar10", {"inputs": "unit", "augment": "none"}),
]


@pytest.mark.parametrize(("method", "data", "facts"), FACTS)
def test_the_reference_has_what_the_official_code_has(
    method: str, data: str, facts: dict[str, Any]
) -> None:
    found = resolved(method, data, preset="reference")
    assert {key: found[key] for key in facts} == facts


@pytest.mark.parametrize(
    ("method", "data", "memory", "size", "images"),
    [
        ("co2l", "cifar10", 500, 512, 10_000),
        ("co2l", "cifar10", 5120, 512, 10_000),
        ("co2l", "cifar100", 200, 512, 5_000),
        ("co2l", "cifar100", 5120, 512, 5_000),
        ("co2l", "tiny-imagenet", 2000, 512, 10_000),
        ("geodl", "cifar10", 500, 128, 10_000),
        ("geodl", "cifar100", 2000, 128, 5_000),
    ],
)
def test_the_memory_has_the_share_of_a_batch_that_mixing_gives(
    method: str, data: str, memory: int, size: int, images: int
) -> None:
    """The originals shuffle the memory into the images of a task and cut batches of `size`."""
    found = resolved(method, data, preset="reference", memory=memory)
    assert found["batch"] + found["replay"] == size
    assert found["replay"] == round(size * memory / (images + memory))


@pytest.mark.parametrize("memory", [200, 2000])
def test_bic_mixes_what_it_does_not_hold_out(memory: int) -> None:
    found = resolved("bic", "cifar100", preset="reference", memory=memory)
    assert found["batch"] + found["replay"] == 128
    assert found["replay"] == round(128 * 0.9 * memory / (5_000 + 0.9 * memory))


def test_records_made_before_have_the_settings_they_had() -> None:
    """A setting that a record lacks had no effect when it was made."""
    for path in sorted(RESULTS.glob("*/*/record.json")):
        found = read_record(path)
        later = JOINED_LATER | OWN_LATER.get(found["method"], {})
        assert {key: found["settings"][key] for key in later} == later, path


@pytest.mark.parametrize("method", registry.names())
def test_default_presets_leave_the_new_settings_alone(method: str) -> None:
    for data in SOURCES:
        found = resolved(method, data)
        later = JOINED_LATER | OWN_LATER.get(method, {})
        assert {key: found[key] for key in later} == later


SMALL = {"width": 2, "batch": 4, "replay": 4, "epochs": 1, "memory": 8, "projection": 8}
MORE = {"linear_epochs": 1, "linear_views": 1, "dimension": 4}


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
@pytest.mark.parametrize(
    "method",
    sorted({method for method, *_ in FACTS} | {"er-ace"}),
)
def test_every_reference_runs(method: str, data: str) -> None:
    known = registry.info(method).fields
    small = {key: value for key, value in (SMALL | MORE).items() if key in known}
    source = SOURCES[data]
    asked = {"data": data, "preset": "reference", **small}
    settings = registry.make_settings(method, registry.resolve(method, asked)[0])
    session = Session(method, settings, source.shape)
    learner, draw = session.learner, torch.Generator().manual_seed(4)
    for task in range(2):
        x = torch.randint(256, (12, *source.shape), dtype=torch.uint8, generator=draw)
        labels = [2 * task, 2 * task + 1] * 6
        if learner.needs_tasks:
            learner.begin_task(task)
        for start in (0, 4, 8):
            session.learn(x[start : start + 4], labels[start : start + 4], task=task)
        if learner.needs_tasks:
            learner.end_task(task, x, torch.tensor(session.labels.encode(labels)))
    assert learner.scores(x).isfinite().any()
    for name, value in learner.model.state_dict().items():
        assert value.isfinite().all(), name
