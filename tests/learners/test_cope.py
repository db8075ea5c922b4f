"""CoPE: how prototypes start and move, what they read, and a memory in equal shares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocil.learners import cope as method
from ocil.learners.cope import Cope
from ocil.stream import Batch

Batches = Callable[..., list[Batch]]


@pytest.fixture
def cope(learner: Callable[..., Any]) -> Callable[..., Cope]:
    def make(**changes: Any) -> Cope:
        return learner("cope", **({"ema": 0.0, "dimension": 8} | changes))

    return make


def fed(cope: Cope, stream: list[Batch]) -> Cope:
    for batch in stream:
        cope.learn(batch)
    return cope


def test_prototypes_start_as_positive_unit_vectors(cope, batches: Batches):
    one = cope(inertia=1.0)
    fed(one, batches(4))
    assert one.evolution.prototypes.shape == (4, 8)
    assert (one.evolution.prototypes >= 0).all()
    torch.testing.assert_close(one.evolution.prototypes.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("steps", [1, 3])
def test_prototypes_move_by_the_embeddings_from_before_the_step(cope, batches: Batches, steps):
    """Replayed images count at every step, those of the stream at the last one."""
    one = cope(updates=steps, inertia=0.8, replay=64)
    first, second = batches(2)
    one.learn(first)
    assert one.memory is not None
    held = one.memory.columns["x"][:5].float() / 255
    before, models = one.evolution.prototypes.clone(), []
    optimizer_step = one.optimizer_step
    one.optimizer_step = lambda loss: (
        models.append(copy.deepcopy(one.model)),
        optimizer_step(loss),
    )[1]
    one.learn(second)
    assert len(models) == steps
    for c in (0, 1):
        seen = [z for m in models for z, y in zip(m(held), first.y, strict=True) if y == c]
        own = models[-1](second.x.float() / 255)
        seen += [z for z, y in zip(own, second.y, strict=True) if y == c]
        wanted = 0.8 * before[c] + 0.2 * torch.stack(seen).mean(0).detach()
        torch.testing.assert_close(one.evolution.prototypes[c], wanted)
        assert one.evolution.prototypes[c].norm() < 1  # not brought back to unit length


def test_a_prototype_moves_to_the_mean_of_its_class_be_it_a_single_point(cope, batches: Batches):
    one = fed(cope(), batches(1))
    z = torch.randn(3, one.evolution.prototypes.shape[1])
    before = one.evolution.prototypes.clone()
    one.evolution.move(z, torch.tensor([0, 1, 1]), 0.75)
    torch.testing.assert_close(one.evolution.prototypes[0], 0.75 * before[0] + 0.25 * z[0])
    torch.testing.assert_close(one.evolution.prototypes[1], 0.75 * before[1] + 0.25 * z[1:].mean(0))


def test_a_class_not_in_the_step_keeps_its_prototype(cope, batches: Batches):
    one = fed(cope(replay=0), batches(3))
    before = one.evolution.prototypes.clone()
    one.learn(batches(4)[3])  # classes 2 and 3
    assert torch.equal(one.evolution.prototypes[:2], before)


def test_the_loss_is_the_proxy_loss_of_replay_and_stream(cope, batches: Batches):
    one = cope(replay=64, tau=0.3, repel=0.5)
    first, second = batches(2)
    one.learn(first)
    z = copy.deepcopy(one.model)(torch.cat([first.x, second.x]).float() / 255)
    y = torch.cat([first.y, second.y])
    wanted = method.pseudo_prototypical_proxy(z, y, one.evolution.prototypes, 0.3, 0.5).detach()
    torch.testing.assert_close(one.learn(second)["loss"], wanted)
    assert one.backbone_images == 5 + 10


def test_one_class_alone_moves_only_its_prototype(cope, batches: Batches):
    one = cope()
    before = copy.deepcopy(one.model.state_dict())
    batch = batches(1)[0]
    assert one.learn(Batch(batch.x, torch.zeros(5, dtype=torch.int64))) == {}
    assert all(torch.equal(v, before[k]) for k, v in one.model.state_dict().items())
    assert one.evolution.prototypes[0].norm() < 1


def test_the_most_similar_prototype_decides(cope, batches: Batches):
    one = fed(cope(ema=0.5), batches(5))
    x = batches(6)[5].x
    assert one.average is not None
    for name, model in (("prototype", one.model), ("ema-prototype", one.average.model)):
        z = model(x.float() / 255).detach()
        torch.testing.assert_close(one.scores(x, name), z @ one.evolution.prototypes.T)
    assert one.readout == "ema-prototype"
    assert "head" not in one.readouts()


def test_the_memory_is_shared_equally(cope, batches: Batches):
    one = cope(memory=8)
    stream = [b for batch in batches(6) for b in [batch] * 3]
    fed(one, stream)
    assert one.memory is not None
    assert [len(slots) for slots in one.memory.members] == [2, 2, 2, 2]


def test_a_saved_state_goes_on_to_the_same_bits(cope, batches: Batches):
    stream = batches(8)
    one = fed(cope(memory=8), stream[:5])
    state = {k: v.clone() for k, v in one.state_dict().items()}
    two = cope(memory=8)
    two.load_state_dict(state)
    for purpose, generator in one.generators.items():
        two.generators[purpose].set_state(generator.get_state())
    for learner in (fed(one, stream[5:]), fed(two, stream[5:])):
        state = learner.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in one.state_dict().items())


def test_a_state_without_its_prototypes_is_refused(cope, batches: Batches):
    state = fed(cope(), batches(2)).state_dict()
    with pytest.raises(ValueError, match="one prototype for each of 2 classes"):
        cope().load_state_dict(state | {"cope.prototypes": torch.zeros(1, 8)})
    with pytest.raises(KeyError):
        cope().load_state_dict({k: v for k, v in state.items() if k != "cope.met"})


@pytest.mark.parametrize("name", ["cope.prototypes", "cope.met"])
def test_a_state_with_a_class_too_few_is_refused(learner: Any, batches: Any, name: str) -> None:
    one = learner("cope")
    one.learn(batches(1)[0])
    state = dict(one.state_dict())
    with pytest.raises(ValueError, match="not one prototype for each of 2 classes"):
        one.load_state_dict(state | {name: state[name][:1]})
