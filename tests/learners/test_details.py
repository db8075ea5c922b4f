"""Small promises of single methods, each as a number that can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from ocil import Classifier, checks
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.learner import Learner
from ocil.learners.mose import reverse_distillation
from ocil.learners.replay import as_float
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("method", ["derpp", "otc"])
def test_an_image_is_offered_in_the_first_epoch_or_in_each(
    learner: Make, batches: Batches, method: str, again: bool
) -> None:
    made = learner(method, offer_every_epoch=again, epochs=2)
    offered = []
    for epoch in range(2):
        made.learn(replace(batches(1)[0], epoch=epoch, epochs=2))
        offered.append(made.memory.seen)
    assert offered == [5, 10 if again else 5]


def test_co2ls_classifier_starts_from_zero(learner: Make, batches: Batches) -> None:
    co2l: Any = learner("co2l", linear_lr=1e-9, linear_epochs=1)
    batch = batches(1)[0]
    co2l.learn(batch)
    co2l.fit_head(co2l.model, batch.x, batch.y)
    assert co2l.model.head.weight.abs().max() < 1e-6
    assert co2l.model.head.bias.abs().max() < 1e-6


@pytest.mark.parametrize("method", registry.names())
def test_a_state_of_the_first_task_is_taken_up(method: str) -> None:
    kind = registry.get(method)
    first = checks.make(kind)
    checks.begin(first, 0)
    checks.go_on(first, 0, (3, 1), range(2))
    assert checks.copy_of(first, kind).state().sha256() == first.state().sha256()


def test_moses_own_part_is_what_the_replay_leaves_beside_the_stream(
    learner: Make, batches: Batches
) -> None:
    for replay, drawn in ((6, 0), (12, 1), (14, 2)):  # half of it less the 5 of the stream
        mose: Any = learner("mose", replay=replay)
        for batch in batches(4):
            mose.learn(batch)
        (_, y), (_, old) = mose.divide(batches(5)[4])
        assert len(y) == 5 + drawn
        assert set(y.tolist()) == {2, 3}
        fresh = replay * 2 // 4
        assert old[: min(fresh, 5)].tolist() == batches(5)[4].y[: min(fresh, 5)].tolist()
        assert set(old[min(fresh, 5) :].tolist()) <= {0, 1}


def test_the_deepest_expert_of_mose_is_the_student(learner: Make, batches: Batches) -> None:
    shape = (3, 16, 16)
    mose: Any = learner("mose", shape, net="resnet18", width=2)
    seen: list[torch.Tensor] = []
    mose.model.adapt.register_forward_hook(lambda _, given, out: seen.append(given[0].detach()))
    batch = batches(1, shape)[0]
    mose.add_classes(batch.y)
    mose.progress.current = [0, 1]
    part = (as_float(batch.x), batch.y)
    mose.loss(part, (part[0][:0], part[1][:0]), {})
    stages = mose.model.stages(part[0])
    assert len(stages) == 4
    torch.testing.assert_close(seen[0], stages[-1].detach())


def test_otc_counts_the_bytes_of_average_mixtures_and_covariance() -> None:
    session = checks.make(registry.get("otc"))
    checks.feed(session, checks.TWO_TASKS[:1], batches=2)
    learner: Any = session.learner
    held = {k: v for k, v in learner.state_dict().items() if k.startswith(("mixtures", "average"))}
    held["covariance"] = learner.pooled.covariance
    del held["average.updates"]
    extra = learner.nbytes - learner.memory.nbytes
    assert extra == sum(t.numel() * t.element_size() for t in held.values())


def test_the_read_out_of_otc_depends_on_whether_a_net_is_trained() -> None:
    otc = registry.get("otc")
    assert checks.make(otc).learner.readout == "similarity"
    assert checks.make(otc, readout="euclidean").learner.readout == "euclidean"
    fixed = {"net": "identity", "ema": 0.0}
    assert checks.make(otc, **fixed).learner.readout == "mahalanobis-1"
    assert checks.make(otc, readout="euclidean", **fixed).learner.readout == "euclidean"


def test_otc_reports_both_parts_of_its_loss(learner: Make, batches: Batches) -> None:
    assert set(learner("otc").learn(batches(1)[0])) == {"loss", "preservation"}
    assert set(learner("otc", preserve=0.0).learn(batches(1)[0])) == {"loss"}


def test_derpps_state_of_a_single_class_is_taken_up() -> None:
    derpp = registry.get("derpp")
    first = checks.make(derpp)
    checks.go_on(first, 0, (3,), range(2))
    assert checks.copy_of(first, derpp).state().sha256() == first.state().sha256()


def test_mose_takes_batches_without_a_task_for_a_task_of_their_own(
    learner: Make, batches: Batches
) -> None:
    mose: Any = learner("mose")
    first = batches(4)
    mose.learn(replace(first[0], task=1))
    mose.learn(replace(first[3], task=None))
    assert mose.progress.current == [2, 3]
    mose.learn(replace(first[0], task=None))
    assert mose.progress.current == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "method", ["bic", "bic-ac", "co2l", "geodl", "gsa", "mose", "ocm", "onpro", "sbs"]
)
def test_a_stream_of_ones_own_is_refused_by_methods_that_need_tasks(method: str) -> None:
    x, y = torch.zeros(4, 1, 8, 8, dtype=torch.uint8).numpy(), [0, 1, 0, 1]
    model = Classifier(method, width=4, batch=4, net="mlp")
    with pytest.raises(OcilError, match="has to be told where a task ends"):
        model.partial_fit(x, y)


def test_every_shallower_expert_of_mose_teaches(learner: Make, batches: Batches) -> None:
    shape = (3, 16, 16)
    mose: Any = learner("mose", shape, net="resnet18", width=2)
    batch = batches(1, shape)[0]
    mose.add_classes(batch.y)
    mose.progress.current = [0, 1]
    part, report = (as_float(batch.x), batch.y), {}
    mose.loss(part, (part[0][:0], part[1][:0]), report)
    *teachers, last = mose.model.stages(part[0])
    gaps = [reverse_distillation(mose.model.adapt(last), h) for h in teachers]
    assert len(gaps) == 3
    torch.testing.assert_close(report["reverse"], gaps[0] + gaps[1] + gaps[2])


@pytest.mark.parametrize("method", registry.names())
def test_a_read_out_by_means_or_neighbours_says_that_it_needs_the_memory(method: str) -> None:
    readouts = checks.make(registry.get(method)).learner.readouts()
    for name, readout in readouts.items():
        uses = name.endswith(("mean", "neighbours")) or method == "logistic"
        assert readout.needs_memory == uses, name
